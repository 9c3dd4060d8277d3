"""python -m fa_registry.reporting.published_schemas [--out docs]: what machines need to know of an audit's files.

Writes audit.schema.json, diff.schema.json and audit-json.md from the records and their docstrings. To be run again whenever
a record changes; a test compares.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.records import SCHEMA, AuditReport
from fa_registry.reporting.audit_diff.records import AuditDiff
from fa_registry.reporting.field_meanings import KNOWLEDGE
from fa_registry.reporting.json_schema import schema_of
from fa_registry.reporting.machine_docs import document


def published() -> dict[str, str]:
    """File name → what stands in it."""
    return {
        "audit.schema.json": jsonio.pretty(audit_schema()),
        "diff.schema.json": jsonio.pretty(_titled(AuditDiff, "fa-registry diff --json")),
        "audit-json.md": document(),
    }


def audit_schema() -> dict[str, Any]:
    """The JSON Schema of audit.json."""
    return _titled(AuditReport, "audit.json of fa_registry")


def _titled(root: type, title: str) -> dict[str, Any]:
    schema = schema_of(root, KNOWLEDGE)
    return {"$schema": schema.pop("$schema"), "title": f"{title}, schema {SCHEMA}", **schema}


def main(arguments: list[str]) -> None:
    """Write the files and print their paths."""
    parser = argparse.ArgumentParser(
        prog="python -m fa_registry.reporting.published_schemas", description="Write the schemas and their description."
    )
    parser.add_argument("--out", default="docs", type=Path, help="folder [docs]")
    out = parser.parse_args(arguments).out
    out.mkdir(parents=True, exist_ok=True)
    for name, text in published().items():
        (out / name).write_text(text, encoding="utf-8", newline="\n")
        print(out / name)


if __name__ == "__main__":
    main(sys.argv[1:])
