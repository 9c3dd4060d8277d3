"""Reports for machines: one file per format, and the schemas that describe them.

A new format is a module here with a `FILE`, listed in `report_files`: audits write it, and their first page links it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fa_registry.records import AuditReport


@dataclass(frozen=True)
class ReportFile:
    """A file that every audit writes.

    Args:
        description: The text of its link.
        recorded: Whether it contains the report as recorded; otherwise without runs that differ from their recorded files.
    """

    name: str
    description: str
    write: Callable[[AuditReport, Path], None]
    recorded: bool = False


def report_files() -> tuple[ReportFile, ...]:
    """Return the files in writing order; audit.json is last, so that it exists only with the others."""
    from fa_registry.reporting.files import audit_json, csv, junit

    return (csv.FILE, junit.FILE, audit_json.FILE)
