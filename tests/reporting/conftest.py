"""The audits of sample_reports.py as fixtures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fa_registry.protocol.grouping import Group
from fa_registry.records import AuditReport, RunRecord
from fa_registry.reporting.report_index import Sources
from tests.reporting import sample_reports
from tests.reporting.page import written
from tests.reporting.runs import HOSTILE, THREE_SEEDS, make_record


@pytest.fixture
def record() -> Callable[..., RunRecord]:
    return make_record


@pytest.fixture
def judged() -> Callable[..., AuditReport]:
    return sample_reports.make_report


@pytest.fixture
def hostile() -> str:
    return HOSTILE


@pytest.fixture(scope="session")
def report() -> AuditReport:
    """As older runs are: without the metrics that came later, judged by the published edition alone."""
    return sample_reports.small_report()


@pytest.fixture(scope="session")
def rich() -> AuditReport:
    """Every metric and state, several editions, waivers, crashes."""
    return sample_reports.full_report()


@pytest.fixture(scope="session")
def rich_of_three() -> AuditReport:
    """The same over three seeds, the fewest that decide depth utility."""
    return sample_reports.full_report(THREE_SEEDS)


@pytest.fixture
def group_of() -> Callable[[Sources, str], Group]:
    """The group of a method."""
    return lambda sources, method: next(group for group in sources.groups if group.method == method)


@pytest.fixture(scope="session")
def pages(report: AuditReport, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The written pages of `report` by name; tests only read them."""
    return written(report, tmp_path_factory.mktemp("pages"), drawn=True)


@pytest.fixture(scope="session")
def rich_pages(rich: AuditReport, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return written(rich, tmp_path_factory.mktemp("rich"), drawn=True)


@pytest.fixture(params=["pages", "rich_pages"])
def any_pages(request: pytest.FixtureRequest) -> dict[str, str]:
    """Of an audit of older runs, and of one with everything there is."""
    return request.getfixturevalue(request.param)
