"""Every page with a recorded table holds just what was recorded, whatever the page."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks import architectures, differences, methods, precision, toy_lq
from benchmarks.tables import inserted

PAGES = [architectures, differences, methods, precision, toy_lq]
DIGIT = re.compile(r"(?<=\d\.\d)\d")


@pytest.fixture(params=PAGES, ids=lambda module: module.__name__.rpartition(".")[2])
def recorder(request):
    return request.param


def page(recorder, measured) -> str:
    """The page as the recorder would write it from these measurements."""
    return inserted(recorder.PAGE.read_text(encoding="utf-8"), recorder.BEGIN, recorder.render(measured))


def test_the_page_holds_the_recorded_figures(recorder):
    recorded = json.loads(recorder.MEASURED.read_text(encoding="utf-8"))
    assert page(recorder, recorded) == recorder.PAGE.read_text(encoding="utf-8")


def test_a_changed_figure_is_noticed(recorder):
    """Every decimal of the record turned into another."""
    text = recorder.MEASURED.read_text(encoding="utf-8")
    changed = json.loads(DIGIT.sub(lambda found: str((int(found[0]) + 5) % 10), text))
    assert page(recorder, changed) != recorder.PAGE.read_text(encoding="utf-8")
