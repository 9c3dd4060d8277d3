"""Machine-readable reports: one module per file format, and the JSON schemas.

To add a format, write a module with a `FILE` and add it to `report_files`. Every audit then writes the file, and the first page
of the audit links to it.
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
        name: File name.
        description: Text of the link to the file.
        write: Function that writes the file.
    """

    name: str
    description: str
    write: Callable[[AuditReport, Path], None]


def report_files() -> tuple[ReportFile, ...]:
    """Return the files in the order in which an audit writes them.

    audit.json is last, so if audit.json exists, all other files exist too.
    """
    from fa_registry.reporting.files import audit_json, csv, junit

    return (csv.FILE, junit.FILE, audit_json.FILE)
