"""A checkpoint that no store knows, and what tests of adopting it look at."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from fa_registry import jsonio
from fa_registry.records import Measurements
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.devices import pinned_threads
from tests.helpers.tiny_tasks import SEED, trained

SIZES = "architecture.d_hidden=16,architecture.num_blocks=2,architecture.w2_std=0.5"
SPEC = ("--method", "dfa", "--seed", str(SEED), "--epochs", "1", "--set", SIZES, "--device", "cpu")


@dataclass(frozen=True)
class Elsewhere:
    """A training run that no store knows: its files, and the figures it had."""

    folder: Path
    final: Measurements

    @property
    def weights(self) -> str:
        return str(self.folder / "final.safetensors")

    @property
    def feedback(self) -> str:
        return str(self.folder / "B.safetensors")

    @property
    def state(self) -> dict[str, torch.Tensor]:
        return load_tensors(Path(self.weights))

    def saved(self, name: str, held: object) -> str:
        """`held` as a .pt file."""
        torch.save(held, self.folder / name)
        return str(self.folder / name)


def trained_elsewhere(folder: Path) -> Elsewhere:
    with pinned_threads(1):
        trainer, _, outcome = trained(epochs=1)
    found = Elsewhere(folder, outcome.final)
    save_tensors(Path(found.weights), trainer.setup.network.state_dict())
    save_tensors(Path(found.feedback), trainer.setup.feedback.state_dict())
    return found


def artifact(run_id, name):
    return MlflowTracker().artifact(run_id, name)


def measured(run_id) -> Measurements:
    return jsonio.decode(Measurements, json.loads(artifact(run_id, schema.MEASUREMENTS).read_text()))


def stored():
    return MlflowTracker().search({schema.TAG_KIND: "run"})
