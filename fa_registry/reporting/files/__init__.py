"""Reports for machines: one file a format, and the schemas that describe them.

A new format is a module here with a `FILE`, and its name in `report_files`: audits write it, and their first page links it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fa_registry.records import AuditReport


@dataclass(frozen=True)
class ReportFile:
    """A file that every audit writes. words: what its link says. recorded: it holds the report as it was recorded, else without
    the figures of runs that are not what was sealed with them.
    """

    name: str
    description: str
    write: Callable[[AuditReport, Path], None]
    recorded: bool = False


def report_files() -> tuple[ReportFile, ...]:
    """In the order in which they are written and linked. The report itself is last: who finds it finds all."""
    from fa_registry.reporting.files import audit_json, csv, junit

    return (csv.FILE, junit.FILE, audit_json.FILE)
