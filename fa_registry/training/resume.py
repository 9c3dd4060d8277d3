"""Stopping and going on: everything a Trainer needs to continue bit-equal, in one sealed file.

A killed run ends with the same weights as an undisturbed one because the optimiser's moments and all generators travel along.
The file is three parts: the SHA-256 of all that follows, a line of JSON, and the tensors as safetensors. A flipped bit in a
moment would change every figure of the run and be seen by nobody, so a file that is not as it was written is not gone on from.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from fa_registry import jsonio, owners
from fa_registry.errors import IntegrityError, InvalidFields, join_names, shortened
from fa_registry.records import Measurements
from fa_registry.training.checkpoint import READING_FAILS
from fa_registry.training.loop import EpochRow
from fa_registry.training.trainer import Early, Trainer
from fa_registry.untrusted import UnreadableFile, check_regular

LOG = logging.getLogger(__name__)
SECONDS_BETWEEN = 20.0  # a write takes milliseconds; losing more than this to a kill is a nuisance
SUFFIX = ".resume"
MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # of AdamW; SGD without momentum has none
SET_ASIDE = (
    "%s; it was set aside as %s and the run begins again from its first epoch. What the store holds is not touched"
)

Tensors = dict[str, torch.Tensor]


class ResumeFile:
    """The resume file of one spec: `<folder>/<identity>.resume`."""

    def __init__(self, folder: Path, identity: str):
        self.path = folder / f"{identity}{SUFFIX}"
        self._written = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._written > SECONDS_BETWEEN

    def write(self, trainer: Trainer, rows: Sequence[EpochRow]) -> None:
        """Save the trainer and the rows measured so far: all of it or, whenever this process is killed, nothing."""
        head = {
            "of": self.path.stem,
            "epoch": trainer.epoch,
            "early_step": trainer.early.step if trainer.early else None,
            "rows": [{"epoch": row.epoch, "measurements": row.measurements} for row in rows],
        }
        written = {name: tensor.detach().cpu().contiguous() for name, tensor in _tensors(trainer).items()}
        body = jsonio.canonical(head).encode() + b"\n" + save(written)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}{owners.mark()}")
        try:
            with temporary.open("wb") as stream:
                stream.write(hashlib.sha256(body).hexdigest().encode() + b"\n")
                stream.write(body)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)
        self._written = time.monotonic()

    def read_into(self, trainer: Trainer) -> list[EpochRow]:
        """Put the saved state into a fresh trainer; returns the rows so far, empty when there is nothing to resume.

        A damaged file, or another run's, is set aside, which is said, and there is nothing to resume.
        """
        if not os.path.lexists(self.path):
            return []
        try:
            head, rows, tensors = self._unsealed()
            _check_fits(trainer, head, tensors)
        except IntegrityError as error:
            aside = self.path.with_name(self.path.name + owners.DAMAGED)
            os.replace(self.path, aside)
            LOG.warning(SET_ASIDE, error, aside)
            return []
        _restore(trainer, tensors)
        trainer.epoch = head["epoch"]
        if head["early_step"] is not None:
            trainer.early = Early(head["early_step"], _under(tensors, "early."))
        return rows

    def reached(self) -> int:
        """The epoch that it is of; -1 where there is none, or it is damaged."""
        try:
            return self._unsealed()[0]["epoch"] if os.path.lexists(self.path) else -1
        except IntegrityError:
            return -1

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _unsealed(self) -> tuple[Mapping[str, Any], list[EpochRow], Tensors]:
        """Its line, the rows in it, its tensors; IntegrityError unless it is, to the last bit, what was written for this run."""
        try:
            digest, _, body = check_regular(self.path).read_bytes().partition(b"\n")
        except UnreadableFile as error:
            raise IntegrityError(f"the state to go on from, {error}") from error
        if digest != hashlib.sha256(body).hexdigest().encode():
            raise IntegrityError(f"the state to go on from, {self.path}, is not as it was written")
        line, _, saved = body.partition(b"\n")
        try:
            head = jsonio.loads(line.decode())
            of, last = head["of"], head["epoch"]
            rows = [EpochRow(row["epoch"], jsonio.decode(Measurements, row["measurements"])) for row in head["rows"]]
            if [row.epoch for row in rows] not in ([], list(range(last + 1))):
                raise ValueError(f"it is of epoch {last} and has the rows of others")
            tensors = load(saved)
        except (*READING_FAILS, TypeError, InvalidFields) as error:  # somebody wrote it who can make a digest
            raise IntegrityError(
                f"the state to go on from, {self.path}, is none that training wrote: {error}"
            ) from error
        if of != self.path.stem:
            raise IntegrityError(f"the state to go on from, {self.path}, is that of another run, {of}")
        return head, rows, tensors


def _tensors(trainer: Trainer) -> Tensors:
    tensors = dict(trainer.state())
    for index, parameter in enumerate(trainer.parameters):
        for name, tensor in trainer.optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{index}.{name}"] = tensor
    tensors |= {f"generator.{name}": draw.get_state() for name, draw in trainer.generators.items()}
    early = trainer.early.tensors if trainer.early else {}
    return tensors | {f"early.{name}": tensor for name, tensor in early.items()}


def _check_fits(trainer: Trainer, head: Mapping[str, Any], tensors: Tensors) -> None:
    """IntegrityError unless the tensors are those that `write` takes of this fresh trainer: another machine may have sent them."""
    state = trainer.state()
    expected = state | {f"generator.{name}": draw.get_state() for name, draw in trainer.generators.items()}
    if head["early_step"] is not None:
        expected |= {f"early.{name}": tensor for name, tensor in state.items()}
    for index, parameter in enumerate(trainer.parameters):
        moments = _under(tensors, f"optimizer.{index}.")
        expected |= {f"optimizer.{index}.{name}": moments[name] if name == "step" else parameter for name in moments}
        if set(moments) not in (set(), MOMENTS):
            raise IntegrityError(f"the state to go on from holds the moments {join_names(moments)} of weight {index}")
    if wrong := {name for name in expected.keys() | tensors.keys() if _kind(expected, name) != _kind(tensors, name)}:
        raise IntegrityError(f"the state to go on from does not fit this run: {shortened(sorted(wrong))}")


def _kind(tensors: Tensors, name: str) -> tuple[torch.Size, torch.dtype] | None:
    return (tensors[name].shape, tensors[name].dtype) if name in tensors else None


def _restore(trainer: Trainer, tensors: Tensors) -> None:
    trainer.task.network.load_state_dict(_under(tensors, "network."))
    trainer.task.feedback.load_state_dict(_under(tensors, "feedback."))
    for index, parameter in enumerate(trainer.parameters):
        state = _under(tensors, f"optimizer.{index}.")
        trainer.optimizer.state[parameter] = {name: _placed(value, parameter) for name, value in state.items()}
    for name, draw in trainer.generators.items():
        draw.set_state(tensors[f"generator.{name}"])


def _placed(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """On the parameter's device, `step` too, where a fused AdamW has it. A moment lies in memory as its parameter does (a
    kernel of a GPU channels last): the fused step takes no other, and the file keeps no order."""
    if value.shape != parameter.shape:
        return value.to(parameter.device)
    return torch.empty_like(parameter, requires_grad=False).copy_(value)


def _under(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
