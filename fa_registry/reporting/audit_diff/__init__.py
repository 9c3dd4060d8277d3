"""What changed between two audits: by rule and by run, and what was asked of them."""

from __future__ import annotations

from fa_registry import jsonio
from fa_registry.protocol.shipped import edition_words
from fa_registry.records import AuditReport
from fa_registry.reporting.audit_diff.matching import match
from fa_registry.reporting.audit_diff.records import AuditDiff, Side
from fa_registry.reporting.audit_diff.reports import report_changes
from fa_registry.reporting.audit_diff.rules import rule_changes
from fa_registry.reporting.audit_diff.runs import RunComparer, run_name

__all__ = ["AuditDiff", "audit_diff"]


def audit_diff(a: AuditReport, b: AuditReport) -> AuditDiff:
    """Everything in which two audits differ, but the ids of runs that were trained again and the order of the runs."""
    matching = match(a.runs, b.runs)
    compare = RunComparer.of(a, b, matching)
    changed = [change for pair in matching.pairs if (change := compare(pair))]
    report = report_changes(a, b)
    alone = (matching.only_a, matching.only_b)
    return AuditDiff(
        a=_side(a),
        b=_side(b),
        same=not (report or changed or any(alone)),
        matched=len(matching.pairs),
        trained_again=sum(pair.how == "specification" for pair in matching.pairs),
        report=report,
        rules=rule_changes(matching.pairs),
        runs=tuple(changed),
        only_a=tuple(map(run_name, alone[0])),
        only_b=tuple(map(run_name, alone[1])),
    )


def _side(report: AuditReport) -> Side:
    return Side(
        report.title, report.selection, edition_words(report.edition), len(report.runs), jsonio.digest_of(report)
    )
