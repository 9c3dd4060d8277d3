"""What a run takes besides its steps and measuring: its task, warm-up, rehearsal and captures, tracking, files and seal.

A small run is trained into a store as `study` does it, and the same epochs beside it, bare, by a trainer that is warm: their
difference is what is asked for. A study pays its imports, its store and its data once; these are not in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from benchmarks.clock import seconds
from fa_registry.records import RunSpec
from fa_registry.training.loop import EpochRow, run_to_completion, train_epochs
from fa_registry.training.measuring import measure
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.training import TrainingJob, training_steps

ROUNDS = 3
SMALL = {  # its own epochs must not drown what is asked for
    "method": "dfa",
    "architecture": "resmlp",
    "architecture_options": {"d_hidden": 32},
    "dataset": "digits",
}


class Silent:
    """An observer that keeps nothing."""

    def on_epoch(self, row: object, trainer: Trainer) -> None:
        return None


def run_cost(device: torch.device, epochs: int, rounds: int = ROUNDS) -> float:
    """Seconds, median over the rounds, of a run of so many epochs: dfa on resmlp. Only four and more capture both batch sizes."""
    bare = _bare(Trainer(build_setup(_spec(0, epochs, device), device)))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(rounds + 1):
            job = TrainingJob(_spec(seed, epochs, device), f"sqlite:///{folder}/mlflow.db")
            found.append(seconds(partial(_tracked, job), device) - seconds(bare, device))
    return median(found[1:])  # the first makes the store and warms up


def _spec(seed: int, epochs: int, device: torch.device) -> RunSpec:
    return parse_spec({**SMALL, "seed": seed, "epochs": epochs, "device": device.type})


def _tracked(job: TrainingJob) -> object:
    return run_to_completion(training_steps(job, lambda: False, lambda told: None))


def _bare(trainer: Trainer) -> Callable[[], object]:
    """All epochs again, by the same trainer."""

    def run() -> object:
        trainer.epoch = 0
        return run_to_completion(train_epochs(trainer, Silent(), resumed=EpochRow(0, measure(trainer.setup))))

    return run
