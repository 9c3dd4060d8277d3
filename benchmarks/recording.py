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

import torch

from fa_registry import provenance

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "measured"


def processor() -> str:
    """The processor's name, family and model, and the instruction set that torch uses on it.

    The name alone can be the same for several generations ("AMD EPYC").
    """
    fields: dict[str, str] = {}
    if (information := Path("/proc/cpuinfo")).is_file():
        pairs = (line.partition(":") for line in information.read_text(errors="replace").splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
    numbers = [f"{word} {fields[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in fields]
    name = " ".join([provenance.hardware()["cpu"], *([f"({', '.join(numbers)})"] if numbers else [])])
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def stamp(card: str = "") -> dict[str, Any]:
    """When and on what. card: a GPU's name, where one did the work."""
    parts = (card, processor(), f"{os.cpu_count()} cores", platform.system())
    machine = ", ".join(part for part in parts if part)
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine, "versions": provenance.versions()}


def add_options(parser: argparse.ArgumentParser, path: Path) -> None:
    """--json, --record and --note, which every recorded benchmark has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--record", action="store_true", help=f"keep the answers in docs/measured/{path.name}")
    parser.add_argument("--note", default="", help="a sentence that is kept too, such as what else ran on the machine")


def tell(
    found: Mapping[str, Any], lines: Sequence[str], options: argparse.Namespace, path: Path, card: str = ""
) -> None:
    """Print what was found as asked, and keep it if asked. card: see stamp."""
    plain = {**({"note": options.note} if options.note else {}), **found}
    plain = keep(plain, path, card) if options.record else {**stamp(card), **plain}
    print(json.dumps(plain, indent=2, allow_nan=False) if options.json else "\n".join(lines))


def keep(found: Mapping[str, Any], path: Path, card: str = "") -> dict[str, Any]:
    """Write what was found to a file, with machine, versions and date; return all of it. card: see stamp."""
    plain = {**stamp(card), **found}
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return plain


def recorded(path: Path) -> dict[str, Any] | None:
    """What was kept; None where nothing was."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def recorded_elsewhere(folder: Path = FOLDER) -> list[str]:
    """A warning for each machine that recorded figures and is not known to have this processor."""
    files: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.json")):
        machine = (recorded(path) or {}).get("machine", "an unnamed machine")
        if processor() not in machine:
            files.setdefault(machine, []).append(path.name)
    return [
        f"warning: recorded on {machine}; this machine has {processor()}: seconds do not compare, and ratios may differ "
        f"({', '.join(names)})"
        for machine, names in files.items()
    ]


def where(kept: Mapping[str, Any], command: str) -> str:
    """The line under a heading: the note, if any; machine, versions, date, command."""
    known = [f"{name} {kept['versions'][name]}" for name in ("torch", "mlflow", "numpy") if name in kept["versions"]]
    note = f"{kept['note']}\n" if kept.get("note") else ""
    return f"{note}{', '.join([kept['machine'], *known, kept['date']])}, `python -m {command} --record`"
