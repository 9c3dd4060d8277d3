"""python -m benchmarks.reference_check [--json] [--record]: what checking the reference gradient of a model costs.

The network of the digits study, as if it were another package's: CPU seconds of a check and of an epoch with its measurement, in
rounds on one thread. A check is made every tenth epoch. --record keeps the answer in docs/measured/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

import torch

from benchmarks.recording import FOLDER, add_options, tell
from benchmarks.timing import interleaved
from benchmarks.whole_replays import DIGITS
from fa_registry.diagnostics import run_forward_backward
from fa_registry.training.devices import pinned_threads
from fa_registry.training.measuring import measure
from fa_registry.training.reference import EVERY, SAMPLES, checked
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer

MEASURED = FOLDER / "reference_check.json"
ROUNDS = 15
MOST = 0.02  # of a run, issue 31


def share() -> dict[str, float]:
    """Return the CPU seconds of an epoch and of a check, and the share of a run that the checks take."""
    trainer = Trainer(build_setup(parse_spec(DIGITS), torch.device("cpu")))
    task = trainer.setup

    def epoch() -> None:
        trainer.run_epoch()
        measure(task)

    def check() -> None:
        checked(task.network, *task.eval_batch, seen, samples=SAMPLES)

    with pinned_threads(1):
        trainer.run_epoch()
        seen = run_forward_backward(task.network, *task.eval_batch)
        checks = interleaved({"check": check}, ROUNDS)["check"]
        epochs = interleaved({"epoch": epoch}, ROUNDS)["epoch"]
    seconds = {"epoch": median(epochs), "check": median(checks)}
    return {**seconds, "share": seconds["check"] / (EVERY * seconds["epoch"])}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reference_check", description=__doc__.split("\n\n")[0])
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    found = share()
    lines = [f"{name} {found[name]:.4f} CPU s" for name in ("epoch", "check")]
    tell(found, [*lines, f"share of a run {found['share']:.4f}, at most {MOST}"], options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
