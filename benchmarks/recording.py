"""What was measured, kept in docs/measured/ with machine, versions and date; the pages are made from there."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_registry import provenance

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "measured"


def stamp(card: str = "") -> dict[str, Any]:
    """When and on what. card: a GPU's name, where one did the work."""
    parts = (card, provenance.hardware()["cpu"], f"{os.cpu_count()} cores", platform.system())
    machine = ", ".join(part for part in parts if part)
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine, "versions": provenance.versions()}


def add_options(parser: argparse.ArgumentParser, path: Path) -> None:
    """--json and --record, which every recorded benchmark has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--record", action="store_true", help=f"keep the answers in docs/measured/{path.name}")


def tell(
    found: Mapping[str, Any], lines: Sequence[str], options: argparse.Namespace, path: Path, card: str = ""
) -> None:
    """Print what was found as asked, and keep it if asked. card: see stamp."""
    plain = {**stamp(card), **found}
    if options.record:
        path.write_text(json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(json.dumps(plain, indent=2, allow_nan=False) if options.json else "\n".join(lines))


def recorded(path: Path) -> dict[str, Any] | None:
    """What was kept; None where nothing was."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def where(kept: Mapping[str, Any], command: str) -> str:
    """The line under a heading: machine, versions, date, command."""
    versions = kept.get("versions", {})  # older records have none
    known = [f"{name} {versions[name]}" for name in ("torch", "mlflow", "numpy") if name in versions]
    return f"{', '.join([kept['machine'], *known, kept['date']])}, `python -m {command} --record`"
