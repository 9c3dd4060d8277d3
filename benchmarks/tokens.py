"""python -m benchmarks.tokens [--record REPORTS]: the tokens study, the audit of feedback alignment on a language model.

--record reads the folder that `fa-registry run tokens` wrote on this machine (about six minutes on two quiet cores), measures the
cost of a step of dfa relative to bp, and writes docs/measured/tokens.json. Without it, only the table of
projects/tokens/README.md is written again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.fashion import _fires, _first_fires
from benchmarks.recording import FOLDER, ROOT, stamp
from benchmarks.tables import audit_of, gamma, inserted, labels, line, main_metric, margin, over_seeds, readings, scales
from fa_registry.protocol.grouping import Group, groups
from fa_registry.records import RunSpec
from fa_registry.studies.study import load_study
from fa_registry.training.run_setup import build_setup
from fa_registry.training.trainer import Trainer

MEASURED = FOLDER / "tokens.json"
PAGE = ROOT / "projects" / "tokens" / "README.md"
BEGIN = "<!-- measured: python -m benchmarks.tokens --record -->"
COLUMNS = (
    "method",
    "loss per token, nats [95 % interval over seeds and test windows]",
    "excess over the source",
    "margin over frozen, nats",
    "growth of a block",
    "growth since initialisation",
    "‖h_L‖",
    "‖g_L‖ (mean CE)",
    "Γ",
    "verdict by 2026-12:token",
)
STEPS, ROUNDS = 10, 7  # of each method in turn, in CPU seconds


def record(reports: Path) -> dict[str, Any]:
    """Read the audit of the study; return plain data with machine and date."""
    report = audit_of(reports)
    found = groups(report)
    return {
        **stamp(),
        "verified": sum(run.record.integrity.state == "verified" for run in report.runs),
        "runs": len(report.runs),
        "rows": [_row(group) for group in found],
        "first_fires": {group.method: _first_fires(group) for group in found if not group.control},
        "step_ratio": _step_ratio(),
    }


def _row(group: Group) -> list[str]:
    """Return one method in the order of the columns."""
    return [
        group.method.partition(" (")[0],
        main_metric(group, "token_loss"),
        over_seeds(readings(group, "excess_nats"), ".3f"),
        margin(group, "margin_nats", "+.3f"),
        *scales(group),
        gamma(group),
        labels(group),
    ]


def step_ratios(specs: Mapping[str, RunSpec], reference: str) -> dict[str, float]:
    """Return the CPU seconds of a step of each specification divided by those of the reference, the median of paired rounds.

    One thread, as in a study on several cores.
    """
    torch.set_num_threads(1)
    trainers = {name: Trainer(build_setup(spec, torch.device("cpu"))) for name, spec in specs.items()}
    batches = {name: torch.arange(spec.recipe.batch_size) for name, spec in specs.items()}
    ratios: dict[str, list[float]] = {name: [] for name in specs}
    for _ in range(ROUNDS):
        seconds = {}
        for name, trainer in trainers.items():
            start = time.process_time()
            for _ in range(STEPS):
                trainer._advance(batches[name])
            seconds[name] = time.process_time() - start
        for name, each in seconds.items():
            ratios[name].append(each / seconds[reference])
    return {name: median(found) for name, found in ratios.items()}


def _step_ratio() -> float:
    """Return the cost of a step of dfa in steps of bp."""
    specs = {spec.method: spec for spec in load_study("tokens").specs if spec.control == "none" and not spec.penalty}
    return step_ratios({name: specs[name] for name in ("bp", "dfa")}, "bp")["dfa"]


def render(measured: Mapping[str, Any]) -> str:
    """Return the table of the study's page."""
    runs = f"{measured['runs']} runs of 4 epochs (800 steps), metrics of {measured['verified']} verified by the audit"
    where = (
        f"Measured {measured['date']} on {measured['machine']}, by `fa-registry run tokens` and "
        f"`python -m benchmarks.tokens --record reports`: {runs}; "
        f"scales are geometric means over seeds. A step of dfa costs {measured['step_ratio']:.2f} steps of bp (CPU seconds)."
    )
    fires = "; ".join(
        f"{method}: {_fires(rules)}" for method, rules in measured["first_fires"].items() if _fires(rules)
    )
    table = [line(COLUMNS), "|" + "---|" * len(COLUMNS), *map(line, measured["rows"])]
    return "\n".join([where, "", *table, "", f"First epoch at which a rule fires, one number per seed: {fires}."])


def main(arguments: Sequence[str]) -> None:
    """Record, and write the table again."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--record", type=Path, metavar="REPORTS", help="folder with audit.json; keep its numbers")
    if reports := parser.parse_args(arguments).record:
        MEASURED.write_text(json.dumps(record(reports), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), BEGIN, render(measured)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
