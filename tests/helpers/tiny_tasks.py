"""Tiny tasks, observers and hand-made observations that many tests share."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from fa_registry import methods
from fa_registry.architectures.base import Network
from fa_registry.diagnostics.base import Observation
from fa_registry.records import RunSpec
from fa_registry.training.loop import EpochRow, TrainingOutcome, train
from fa_registry.training.run_setup import RunSetup, build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer

SEED = 3
CPU = torch.device("cpu")
RAW = {
    "method": "dfa",
    "architecture": "resmlp",
    "dataset": "digits",
    "seed": SEED,
    "epochs": 2,
    "architecture_options": {"d_hidden": 16, "num_blocks": 2, "w2_std": 0.5},
}


def tiny_spec(**changes: Any) -> RunSpec:
    """RAW with `changes`, parsed as the command line would."""
    return parse_spec({**RAW, **changes})


def supported(method: str) -> dict[str, Any]:
    """`changes` for tiny_spec that put a method on an architecture its card supports."""
    if methods.CATALOG.get(method).card.supports("resmlp"):
        return {"method": method}
    return {"method": method, "architecture": "mlp", "architecture_options": {"d_hidden": 16, "num_blocks": 2}}


def tiny_task(**changes: Any) -> RunSetup:
    return build_setup(tiny_spec(**changes), CPU)


class Recorder:
    """An observer that keeps every row."""

    def __init__(self):
        self.rows: list[EpochRow] = []

    def on_epoch(self, row: EpochRow, trainer: Trainer) -> None:
        self.rows.append(row)


def trained(**changes: Any) -> tuple[Trainer, Recorder, TrainingOutcome]:
    trainer, recorder = Trainer(tiny_task(**changes)), Recorder()
    return trainer, recorder, train(trainer, recorder)


def double(task: RunSetup) -> RunSetup:
    """The same task in float64, for comparisons that must not drown in rounding."""
    splits = dataclasses.replace(
        task.splits, train_images=task.splits.train_images.double(), test_images=task.splits.test_images.double()
    )
    return dataclasses.replace(task, splits=splits, network=task.network.double(), feedback=task.feedback.double())


def weights_equal(left: nn.Module, right: nn.Module) -> bool:
    first, second = left.state_dict(), right.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class Scale(nn.Module):
    """f(h) = k h, so that a residual block multiplies the state by 1 + k."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor, dtype=torch.float64))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return self.factor * state


def scaling_network(factors: list[float], head: torch.Tensor, residual: bool = True) -> Network:
    """h_0 = 1·x, blocks f = k h, z = W h: every norm and gradient has a closed form. head: W (classes, features) float64."""
    readout = nn.Linear(head.shape[1], head.shape[0], bias=False, dtype=torch.float64)
    with torch.no_grad():
        readout.weight.copy_(head)
    return Network(Scale(1.0), [Scale(factor) for factor in factors], None, readout, residual)


def observation(**changes: Any) -> Observation:
    """Two sites, three samples, two features; every field can be replaced by nested lists or tensors."""
    fields: dict[str, Any] = {
        "hidden": [[[3, 4], [0, 1], [6, 8]], [[6, 8], [0, 3], [3, 4]]],
        "gradients": [[[1, 0], [0, 2], [3, 4]], [[0, 1], [2, 0], [0, 6]]],
        "error": [[0.6, 0.8], [1, 0], [0, 2]],
        "gradients_double": None,
        "credits": None,
        **changes,
    }
    for name in ("hidden", "gradients", "gradients_double", "credits"):
        if fields[name] is not None:
            fields[name] = [torch.as_tensor(rows, dtype=torch.float64) for rows in fields[name]]
    fields["error"] = torch.as_tensor(fields["error"], dtype=torch.float64)
    return Observation(**fields)
