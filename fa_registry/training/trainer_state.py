"""Conversion of a Trainer's state to named tensors and back."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fa_registry.errors import IntegrityError, join_names, shortened
from fa_registry.training.trainer import Trainer

# Values of the optimiser for a weight: none before its first step or of SGD, of SGD with momentum, of AdamW.
MOMENTS: list[set[str]] = [set(), {"momentum_buffer"}, {"step", "exp_avg", "exp_avg_sq"}]
GENERATOR = "generator."  # prefix of the generators' names

Tensors = dict[str, torch.Tensor]


def full_state(trainer: Trainer) -> Tensors:
    """Return the tensors from which a training continues after an epoch.

    The tensors are those of network, feedback state, optimiser and generators.
    """
    return trainer.training_state() | _generators(trainer)


def check_fits(trainer: Trainer, tensors: Tensors, copies: Iterable[str] = ()) -> None:
    """Raise IntegrityError if saved tensors do not fit this new trainer.

    The tensors may come from another machine.

    Args:
        trainer: the trainer before its first step.
        tensors: the result of `full_state`. It may also contain copies of earlier states, with names such as `early.NAME`.
        copies: the copies that are required, such as `early`.
    """
    state = trainer.state()
    expected = state | _generators(trainer)
    for copy in copies:
        expected |= {f"{copy}.{name}": tensor for name, tensor in state.items()}
    for index, parameter in enumerate(trainer.parameters):
        moments = under(tensors, f"optimizer.{index}.")
        expected |= {f"optimizer.{index}.{name}": moments[name] if name == "step" else parameter for name in moments}
        if set(moments) not in MOMENTS:
            raise IntegrityError(
                f"the state to resume from has the unexpected optimiser values {join_names(moments)} for weight {index}"
            )
    if misfits := {name for name in expected.keys() | tensors.keys() if _kind(expected, name) != _kind(tensors, name)}:
        raise IntegrityError(f"the state to resume from does not fit this run: {shortened(sorted(misfits))}")


def restore(trainer: Trainer, tensors: Tensors, epoch: int) -> None:
    """Load a checked state after `epoch` epochs into the trainer."""
    trainer.setup.network.load_state_dict(under(tensors, "network."))
    trainer.setup.feedback.load_state_dict(under(tensors, "feedback."))
    for index, parameter in enumerate(trainer.parameters):
        state = under(tensors, f"optimizer.{index}.")
        trainer.optimizer.restore(parameter, {name: _placed(value, parameter) for name, value in state.items()})
    for name, random_generator in trainer.generators.items():
        random_generator.set_state(tensors[f"{GENERATOR}{name}"])
    trainer.epoch = epoch


def under(tensors: Tensors, prefix: str) -> Tensors:
    """Return the tensors whose names begin with `prefix`, with the prefix removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _generators(trainer: Trainer) -> Tensors:
    return {f"{GENERATOR}{name}": random_generator.get_state() for name, random_generator in trainer.generators.items()}


def _kind(tensors: Tensors, name: str) -> tuple[torch.Size, torch.dtype] | None:
    return (tensors[name].shape, tensors[name].dtype) if name in tensors else None


def _placed(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a copy of an optimiser value, with the device and memory layout of the parameter."""
    if value.shape != parameter.shape:
        return value.to(parameter.device)
    return torch.empty_like(parameter, requires_grad=False).copy_(value)
