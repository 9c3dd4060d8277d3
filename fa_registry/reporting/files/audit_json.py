"""Writer of audit.json, which contains the report without loss of information.

The file is written run by run to limit the memory for reports with ten thousand runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from fa_registry.records import AuditReport, Reproduction, SecondOpinion
from fa_registry.reporting.view_models import ReportFile
from fa_registry.text_safety import json_text
from fa_registry.tracking.schema import AUDIT_REPORT

# These records are written with one line per field and list entry, so that a line diff of two audits shows the changed run.
LAID_OUT = (AuditReport, SecondOpinion, Reproduction)


def write_report(report: AuditReport, path: Path) -> None:
    """Write a report to a JSON file that jsonio.decode can read without loss.

    Raises:
        ValueError: A number is NaN or infinite.
    """
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(map(json_text, pieces(report)))
        stream.write("\n")


def pieces(value: Any) -> Iterator[str]:
    """Yield the JSON text of a report in pieces; a piece contains at most about one run."""
    if isinstance(value, LAID_OUT):
        for index, field in enumerate(fields(value)):
            yield f"{',' if index else '{'}\n{json.dumps(field.name)}: "
            yield from pieces(getattr(value, field.name))
        yield "\n}"
    elif isinstance(value, tuple) and value:
        for index, entry in enumerate(value):
            yield ",\n" if index else "[\n"
            yield from pieces(entry)
        yield "\n]"
    else:
        yield json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Convert a record or mapping to a dictionary, whose values json.dumps converts."""
    if hasattr(value, "__json__"):
        return value.__json__()
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


FILE = ReportFile(AUDIT_REPORT, "all data of these pages, without loss of information", write_report)
