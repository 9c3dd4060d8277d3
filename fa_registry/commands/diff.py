"""The diff verb: what changed between two audits."""

from __future__ import annotations

from pathlib import Path

from fa_registry.commands.report_file import load_report
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.records import AuditReport
from fa_registry.reporting.audit_diff import AuditDiff, audit_diff

DIFFERENT = 1  # as the exit code of diff(1)


def run_diff(a: str, b: str) -> AuditDiff:
    """Compare two audits, each an audit.json or the folder of its pages. Raises InvalidFields that names both if both are bad."""
    problems: list[str] = []
    reports = [_report(name, field, problems) for name, field in ((a, "AUDIT_A"), (b, "AUDIT_B"))]
    if problems:
        raise InvalidFields("diff", problems)
    return audit_diff(*reports)


def exit_code(found: AuditDiff) -> int:
    return 0 if found.same else DIFFERENT


def _report(name: str, field: str, problems: list[str]) -> AuditReport | None:
    """The report of a file or a folder; none where `problems` says why."""
    path = Path(name) / "audit.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        problems.append(f"{field}: expected an audit.json or the folder of one, found no file {path}")
        return None
    try:
        return load_report(path)
    except InvalidFields as error:
        problems += [f"{field} {path.name}: {problem}" for problem in error.problems]
    except UsageError as error:
        problems.append(f"{field}: {error}")
    return None
