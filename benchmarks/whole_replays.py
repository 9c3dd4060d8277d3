"""python -m benchmarks.whole_replays [EPOCHS] [SEEDS] [--json] [--record]: what the chained digests and whole replays cost.

Runs of the digits study (resmlp D = 256, L = 4) are trained first: bp, fa, dfa, a penalised dfa and their frozen control, as many
seeds as asked for. Then the store is audited three times. All ratios are of CPU seconds. --record keeps the answers in
docs/measured/whole_replays.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from benchmarks.recording import FOLDER, add_options, tell
from benchmarks.timing import interleaved, on_cores
from benchmarks.verb_cost import Cost, cost_of
from fa_registry.training.devices import pinned_threads
from fa_registry.training.measuring import measure
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer

MEASURED = FOLDER / "whole_replays.json"
STEPS, AUTO, ALL = "8 steps of every run", "auto", "all"
REPLAYS = {STEPS: "8", AUTO: "auto", ALL: "all"}
MOST = {"recording": 0.01, "replaying, of training": 1.0}  # decision 0058: why an audit's own ratios have no limit
ROUNDS = 15
DIGITS = {"method": "dfa", "architecture": "resmlp", "dataset": "digits", "seed": 42, "epochs": 100}


@dataclass(frozen=True)
class Found:
    """Which runs were audited and what that took.

    share: of an epoch's CPU seconds, those of its digest. training: what training all runs took.
    """

    epochs: int
    seeds: int
    share: float
    training: Cost
    audits: Mapping[str, Cost]


def recording_share() -> float:
    """Return the digest's share of an epoch: of its training, its measuring and its digest."""
    trainer = Trainer(build_setup(parse_spec(DIGITS), torch.device("cpu")))

    def digest() -> None:
        trainer.chain.stage(trainer.training_state())
        trainer.chain.extend()

    def epoch() -> None:
        trainer.run_epoch()
        measure(trainer.setup)

    with pinned_threads(1):
        seconds = interleaved({"digest": digest, "epoch": epoch}, ROUNDS)
    return median(seconds["digest"]) / median(seconds["epoch"])


def run(epochs: int, seeds: int) -> Found:
    """Train the runs, and audit them with every replay."""
    chosen = (
        "--study",
        "digits",
        "--epochs",
        str(epochs),
        "--seeds",
        ",".join(map(str, range(seeds))),
        "--device",
        "cpu",
    )
    with tempfile.TemporaryDirectory(prefix="fa_registry-replays-") as name, on_cores(2):
        folder = Path(name)
        training = cost_of(("study", *chosen[1:], "--jobs", "2"), folder)
        audit = ("audit", *chosen, "--jobs", "1", "--exit-zero")
        audits = {words: cost_of((*audit, "--replay", replay), folder) for words, replay in REPLAYS.items()}
    return Found(epochs, seeds, recording_share(), training, audits)


def lines(found: Found) -> list[str]:
    """The table people read."""
    before = found.audits[STEPS].cpu
    ratios = {name: found.audits[name].cpu / before for name in (AUTO, ALL)}
    table = [f"{5 * found.seeds} digits runs of {found.epochs} epochs: CPU seconds of an audit, one process"]
    table += [f"  {name:<24}{cost.cpu:8.1f} s" for name, cost in found.audits.items()]
    table += [f"  {name}: {ratio:.2f} of the audit of first steps" for name, ratio in ratios.items()]
    values = (found.share, (found.audits[ALL].cpu - before) / found.training.cpu)
    return table + [
        f"  {name}: {value:.4f}, at most {most}" for (name, most), value in zip(MOST.items(), values, strict=True)
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_replays", description=__doc__.split("\n\n")[0])
    parser.add_argument("epochs", nargs="?", type=int, default=100, metavar="EPOCHS", help="[100]")
    parser.add_argument("seeds", nargs="?", type=int, default=3, metavar="SEEDS", help="[3]")
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    found = run(options.epochs, options.seeds)
    tell(dataclasses.asdict(found), lines(found), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
