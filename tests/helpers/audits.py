"""An audit of which a test needs the report alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from fa_registry.analyses import Answers
from fa_registry.audits import audit_command as audit_workflow
from fa_registry.records import AuditReport
from fa_registry.reporting.files import audit_json


@contextmanager
def report_alone(
    report: AuditReport, answers: Answers, out: Path, templates: Path | None
) -> Iterator[tuple[Path, list[str]]]:
    """In place of `rendered`: of an audit's files only audit.json."""
    out.mkdir(parents=True, exist_ok=True)
    audit_json.FILE.write(report, out / audit_json.FILE.name)
    yield out, [audit_json.FILE.name]


@contextmanager
def unpublished() -> Iterator[None]:
    """Inside, an audit measures and judges as always, but writes only its report and logs nothing: half of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_workflow, "rendered", report_alone)
        patch.setattr(audit_workflow, "log_audit", lambda *arguments: ("", ""))
        yield


def publishing(published: bool) -> AbstractContextManager[None]:
    """Inside, an audit is `unpublished` unless `published` is true."""
    return nullcontext() if published else unpublished()
