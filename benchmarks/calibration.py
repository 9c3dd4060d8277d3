"""python -m benchmarks.calibration [--record REPORTS]: the measured ranges behind the default edition, in docs/calibration.md.

--record reads the folder that `fa-registry run calibration --editions 2026-12,2026-05` wrote on this machine (a quarter of an
hour on two quiet cores), and keeps what the page needs in docs/measured/; without it the tables between the page's markers are
only written again from there. The rows on Fashion-MNIST are those of benchmarks.fashion.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import audit_of, inserted
from fa_registry import provenance
from fa_registry.protocol.grouping import Group, groups
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport, RunAudit

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs" / "measured" / "calibration.json"
PAGE = ROOT / "docs" / "calibration.md"
BEGIN = "<!-- measured: python -m benchmarks.calibration --record -->"
OURS, PUBLISHED = "2026-12", "2026-05"
FASHION = ROOT / "docs" / "measured" / "fashion.json"
QUANTITIES = {  # what is judged: words, and where a run holds it
    "growth": "largest growth",
    "growth_init": "largest growth since initialisation",
    "g_norm_mean_ce": "‖g_L‖",
    "gain": "gain at L",
    "fidelity": "1 − fidelity at L",
}
SCALES = ("growth", "growth_init")  # judged by their largest site
CLASSES = {  # known before any rule looks: the method and the setting decide, not a threshold
    "healthy": "bp, every setting: its credit is the gradient",
    "exploding": "fa and dfa without penalty on a residual stream with terminal LN",
}


def record(reports: Path) -> dict[str, Any]:
    """Read the audit of the calibration study; return plain data with machine class and date."""
    report = audit_of(reports)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{provenance.hardware()['cpu']}, {os.cpu_count()} cores",
        "rows": [row(group, report) for group in groups(report) if not group.control],
    }


def row(group: Group, report: AuditReport) -> dict[str, Any]:
    """One method in one setting: least and largest of every quantity over seeds, states and verdicts by both editions."""
    spec = group.runs[0].record.spec
    others = {
        opinion.edition.name: {one.run_id: one.verdict.label for one in opinion.judgements}
        for opinion in report.opinions
    }
    others[report.edition.name] = {one.record.run_id: one.verdict.label for one in report.runs}
    return {
        "method": group.method,
        "setting": group.setting,
        "class": class_of(spec.method, spec.penalty, spec.architecture_options),
        "accuracy": _ends(run.record.measurements.scalars["accuracy"].value for run in group.runs),
        **{name: _ends(_value(run, name) for run in group.runs) for name in QUANTITIES},
        "state": _unique(finding.state for run in group.runs for finding in run.findings if finding.rule == "D2"),
        "verdicts": {
            name: _unique(others[name][run.record.run_id] for run in group.runs) for name in (OURS, PUBLISHED)
        },
    }


def class_of(method: str, penalty: float, options: Mapping[str, Any]) -> str:
    """healthy, exploding, or empty where neither is known beforehand."""
    if method == "bp":
        return "healthy"
    return "exploding" if not penalty and options["residual"] and options["terminal_ln"] else ""


def render(measured: Mapping[str, Any]) -> str:
    """The page's block: ranges of the two classes beside the thresholds, then every method in every setting."""
    rows = [*measured["rows"], *json.loads(FASHION.read_text(encoding="utf-8"))["ranges"]]
    lines = [
        f"Measured {measured['date']} on {measured['machine']}, by `fa-registry run calibration` and "
        "`python -m benchmarks.calibration --record reports`: "
        f"{sum(1 for _ in rows)} method × setting groups of three seeds.",
        "",
        f"| metric | healthy ({CLASSES['healthy']}) | exploding ({CLASSES['exploding']}) | threshold in {OURS} |",
        "|---|---|---|---|",
    ]
    limits = thresholds()
    for name, words in QUANTITIES.items():
        ranges = [_range(_over(rows, name, kind)) for kind in CLASSES]
        lines.append(f"| {words} | {ranges[0]} | {ranges[1]} | {limits.get(name, '')} |")
    head = ["method", "setting", "accuracy", *QUANTITIES.values(), f"D2 by {OURS}", OURS, PUBLISHED]
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for one in rows:
        cells = [one["method"], one["setting"], _range(one["accuracy"]), *(_range(one[name]) for name in QUANTITIES)]
        lines.append("| " + " | ".join([*cells, one["state"], *one["verdicts"].values()]) + " |")
    return "\n".join(lines)


def thresholds() -> dict[str, str]:
    """What the edition's file says now: a page that quotes it cannot disagree with it."""
    found = {}
    for rule in load_edition(OURS).rules:
        for condition in rule.conditions:
            limit = 1 - condition.threshold if condition.quantity == "fidelity" else condition.threshold
            found.setdefault(condition.quantity, f"{rule.code}: {limit:.3g}")
    return found


def _value(run: RunAudit, name: str) -> float | None:
    measured = run.record.measurements
    if name in SCALES:
        return measured.scalars[f"{name}_max"].value
    last = measured.sites[name][-1].value
    return last if last is None or name != "fidelity" else 1 - last  # 1 − fidelity: the digits that differ


def _ends(values: Iterable[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known else []


def _over(rows: Sequence[Mapping[str, Any]], name: str, kind: str) -> list[float]:
    return _ends(value for one in rows if one["class"] == kind for value in one[name])


def _range(ends: Sequence[float]) -> str:
    return "n/a" if not ends else " to ".join(dict.fromkeys(f"{value:.3g}" for value in ends))


def _unique(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        MEASURED.write_text(
            json.dumps(record(Path(sys.argv[2])), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    PAGE.write_text(
        inserted(PAGE.read_text(encoding="utf-8"), BEGIN, render(json.loads(MEASURED.read_text()))), encoding="utf-8"
    )
