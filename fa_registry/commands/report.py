"""The report verb: an audit's pages again, from a file, or from what the store keeps of a study's newest audit."""

from __future__ import annotations

import json
from pathlib import Path

from fa_registry import jsonio
from fa_registry.commands.report_file import load_report
from fa_registry.errors import IntegrityError, UsageError
from fa_registry.records import AuditReport
from fa_registry.reporting.render import render_report
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker

REPORT = "audit.json"
USUAL = f"reports/{REPORT}"


def run_report(
    file: str = "", study: str = "", out: str = "reports", templates: str = "", store: str = ""
) -> list[Path]:
    """Render the pages of `file`, or of the newest audit of `study`, into `out`; the paths written.

    Without either it is the file that `audit` writes by default. templates: see render_report.
    Raises UsageError where both are given, where there is no such file, and where the study was never audited.
    """
    if file and study:
        raise UsageError("report one of REPORT or --study; found both")
    report = _newest(store, study) if study else load_report(_existing(file or USUAL))
    return render_report(report, Path(out), Path(templates) if templates else None)


def _newest(store: str, study: str) -> AuditReport:
    from fa_registry.commands.stores import open_tracker  # MLflow, which a file needs not: seconds

    return newest_report(open_tracker(store, create=False), study)


def newest_report(tracker: Tracker, study: str) -> AuditReport:
    """What the newest complete audit of a study recorded."""
    audits = tracker.search({schema.TAG_KIND: "audit", schema.TAG_STUDY: study, schema.TAG_STATUS: "complete"})
    if not audits:
        raise UsageError(
            f"study {study}: no audit of it in {tracker.uri}; `fa-registry audit --study {study}` makes one"
        )
    return recorded_report(tracker, audits[0].run_id, f"`fa-registry audit --study {study}`")


def recorded_report(tracker: Tracker, audit_run_id: str, again: str) -> AuditReport:
    """The report of an audit's own run; IntegrityError where it is missing, or not the one that was recorded.

    again: the command that audits again, to be told where the report is gone.
    """
    audit = tracker.get(audit_run_id)
    path = tracker.artifact(audit_run_id, REPORT)
    if path is None:
        raise IntegrityError(f"audit {audit_run_id}: {REPORT} is missing; audit again: {again}")
    report = load_report(path)
    # of the text and not of the report: a field that a later release adds has no part in what was recorded
    found = jsonio.digest_of(json.loads(path.read_text(encoding="utf-8")))
    if audit.tags.get(schema.TAG_AUDIT) != found:
        raise IntegrityError(
            f"audit {audit_run_id}: expected a report with digest {audit.tags.get(schema.TAG_AUDIT, 'none')}, found {found}"
        )
    return report


def _existing(file: str) -> Path:
    if not Path(file).is_file():
        raise UsageError(f"{file}: no such file; `fa-registry audit` writes one, and --study takes it from the store")
    return Path(file)
