"""Stopping and going on: everything a Trainer needs to continue bit-equal, in one safetensors file.

A killed run ends with the same weights as an undisturbed one because the optimiser's moments and all generators travel along.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open

from fa_registry import jsonio
from fa_registry.records import Measurements
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.loop import EpochRow
from fa_registry.training.trainer import Early, Trainer

SECONDS_BETWEEN = 20.0  # a write takes milliseconds; losing more than this to a kill is a nuisance


class ResumeFile:
    """The resume file of one spec: `<folder>/<identity>.safetensors`."""

    def __init__(self, folder: Path, identity: str):
        self.path = folder / f"{identity}.safetensors"
        self._written = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._written > SECONDS_BETWEEN

    def write(self, trainer: Trainer, rows: Sequence[EpochRow]) -> None:
        """Save the trainer and the rows measured so far."""
        tensors = trainer.state()
        for index, parameter in enumerate(trainer.parameters):
            for name, tensor in trainer.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{index}.{name}"] = tensor
        tensors |= {f"generator.{name}": draw.get_state() for name, draw in trainer.generators.items()}
        history = jsonio.canonical([{"epoch": row.epoch, "measurements": row.measurements} for row in rows])
        metadata = {"epoch": str(trainer.epoch), "rows": history}
        if trainer.early:
            tensors |= {f"early.{name}": tensor for name, tensor in trainer.early.tensors.items()}
            metadata["early_step"] = str(trainer.early.step)
        save_tensors(self.path, tensors, metadata)
        self._written = time.monotonic()

    def read_into(self, trainer: Trainer) -> list[EpochRow]:
        """Put the saved state into a fresh trainer; returns the rows so far, empty when there is nothing to resume."""
        if not self.path.is_file():
            return []
        tensors = load_tensors(self.path)
        with safe_open(self.path, framework="pt") as stream:
            metadata = stream.metadata()
        trainer.task.network.load_state_dict(_under(tensors, "network."))
        trainer.task.feedback.load_state_dict(_under(tensors, "feedback."))
        for index, parameter in enumerate(trainer.parameters):
            state = _under(tensors, f"optimizer.{index}.")
            trainer.optimizer.state[parameter] = {name: _placed(value, parameter) for name, value in state.items()}
        for name, draw in trainer.generators.items():
            draw.set_state(tensors[f"generator.{name}"])
        trainer.epoch = int(metadata["epoch"])
        if "early_step" in metadata:  # not in the file of an older release
            trainer.early = Early(int(metadata["early_step"]), _under(tensors, "early."))
        rows = json.loads(metadata["rows"])
        return [EpochRow(row["epoch"], jsonio.decode(Measurements, row["measurements"])) for row in rows]

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _placed(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """On the parameter's device, `step` too, where a fused AdamW has it. A moment lies in memory as its parameter does (a
    kernel of a GPU channels last): the fused step takes no other, and the file keeps no order."""
    if value.shape != parameter.shape:
        return value.to(parameter.device)
    return torch.empty_like(parameter, requires_grad=False).copy_(value)


def _under(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
