"""Machine-readable reports: one module per file format, and the JSON schemas.

To add a format, write a module with a `FILE` and add it to `report_files`. Every audit then writes the file, and the first page
of the audit links to it.
"""

from __future__ import annotations

from fa_registry.reporting.files import audit_json, csv, junit
from fa_registry.reporting.view_models import ReportFile


def report_files() -> tuple[ReportFile, ...]:
    """Return the files in the order in which an audit writes them.

    audit.json is last, so if audit.json exists, all other files exist too.
    """
    return (csv.FILE, junit.FILE, audit_json.FILE)
