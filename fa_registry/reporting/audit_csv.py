"""audit.csv: one line a run, RFC 4180, UTF-8. A number that does not exist is an empty cell, its reason in `reasons`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

from fa_registry.records import AuditReport, Exclusion, Reading
from fa_registry.reporting.audit_csv_columns import Cell, Column, Row, columns, rows

REASONS = "reasons"
EXCLUDED = "excluded"
# What a spreadsheet would calculate (OWASP, CSV injection), whatever blanks stand before it; a leading ' too, so that the
# ' put before such a text can be taken off again.
CALCULATED = re.compile(r"[\s\x00-\x20\u200b\ufeff]*[=+@＝＋－＠-]|[\t\r\n']")


def write_csv(report: AuditReport, path: Path) -> None:
    """Write every judged run, then what was selected and could not be judged (status `excluded`)."""
    chosen = columns(report)
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\r\n")
        writer.writerow([guarded(column.name) for column in chosen] + [REASONS])
        for row in rows(report):
            writer.writerow(_line(row, chosen))
        writer.writerows(_excluded(one, report, chosen) for one in report.excluded)


def guarded(text: str) -> str:
    """The text with a ' before it where a spreadsheet would calculate it, or where it begins with one anyway."""
    return f"'{text}" if CALCULATED.match(text) else text


def unguarded(cell: str) -> str:
    """The text that a text cell of audit.csv stands for."""
    return cell.removeprefix("'")


def _line(row: Row, chosen: Sequence[Column]) -> list[str]:
    cells = {column.name: column.read(row) for column in chosen}
    reasons = {name: cell.reason for name, cell in cells.items() if isinstance(cell, Reading) and cell.value is None}
    return [_written(cell) for cell in cells.values()] + [_reasons(reasons)]


def _written(cell: Cell) -> str:
    if isinstance(cell, str):
        return guarded(cell)
    if isinstance(cell, Reading):
        return "" if cell.value is None else repr(cell.value)  # repr reads back as the very same number
    return str(cell)


def _excluded(one: Exclusion, report: AuditReport, chosen: Sequence[Column]) -> list[str]:
    """A run that was not judged is no number anywhere, and still no run that a table may drop in silence."""
    known = {"run_id": one.run_id, "name": one.name, "selection": report.selection, "status": EXCLUDED}
    known |= {"integrity": "mismatch"} if one.kind == "integrity" else {}
    return [guarded(known.get(column.name, "")) for column in chosen] + [_reasons({EXCLUDED: one.reason})]


def _reasons(reasons: dict[str, str]) -> str:
    """JSON, column → why it is empty; nothing where nothing is missing."""
    return json.dumps(reasons, ensure_ascii=False) if reasons else ""
