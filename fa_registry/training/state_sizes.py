"""Sizes of kept training states, and the rule that keeps three states by default.

The rule depends only on the specification and the retention options, so every training of a specification keeps the same epochs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from fa_registry import methods
from fa_registry.architectures.base import Network
from fa_registry.methods.base import NetworkShape
from fa_registry.records import RunSpec
from fa_registry.training.controls import trainable_parameters
from fa_registry.training.kept_states import AUTO, BY_DEFAULT, kept_epochs
from fa_registry.training.run_setup import RunSetup, blank_input, build_network, network_shape
from fa_registry.training.spec_plugins import find_plugins

MOST_SHARE = 0.05  # of the run's other files and rows: the size of the states that are kept by default
GENERATORS = 4  # random generators in a full state, see Trainer.generators
# One epoch in series.parquet and in MLflow's tables: 4.1 kB for a run of the digits study, in a sqlite store.
EPOCH_BYTES = 4_096


@dataclass(frozen=True)
class TensorSizes:
    """Sizes in bytes of the tensors of a run.

    Attributes:
        network: parameters and buffers of the network.
        feedback: parameters and buffers of the feedback.
        trained: trained parameters of both, for each of which AdamW keeps two moments.
    """

    network: int
    feedback: int
    trained: int

    @classmethod
    def of(cls, spec: RunSpec, network: nn.Module, feedback: nn.Module) -> TensorSizes:
        """Return the sizes of the tensors of a network and its feedback."""
        trained = [*trainable_parameters(network, spec.control), *feedback.parameters()]
        sizes = [sum(tensor.nbytes for tensor in part.state_dict().values()) for part in (network, feedback)]
        return cls(*sizes, sum(part.nbytes for part in trained if part.requires_grad))

    @classmethod
    def of_specs(cls, specs: Iterable[RunSpec]) -> list[tuple[RunSpec, TensorSizes]]:
        """Return the sizes for one specification of each setting, method and control, without loading data."""
        networks: dict[tuple[str, str], tuple[Network, NetworkShape]] = {}  # one for all methods of a setting
        sizes = []
        for spec in {(spec.setting.identity, spec.method, spec.control): spec for spec in specs}.values():
            kind, card = (spec.setting.identity, spec.control), find_plugins(spec).card
            if kind not in networks:
                network = build_network(spec, card)
                networks[kind] = network, network_shape(network, blank_input(spec, card), card.classes)
            network, shape = networks[kind]
            is_builtin = methods.CATALOG.location(spec.method).is_builtin
            with torch.device("meta" if is_builtin else "cpu"):  # no draw is needed for the sizes
                feedback = find_plugins(spec).method.feedback(shape, spec.method_options, torch.Generator())
            sizes.append((spec, cls.of(spec, network, feedback)))
        return sizes


def chosen_epochs(setup: RunSetup, states: str | int, checkpoint_every: int) -> tuple[int, ...]:
    """Return the epochs after which a run keeps its state; see `kept_epochs`.

    Args:
        states: `auto` keeps BY_DEFAULT states if they are at most MOST_SHARE of the run's other bytes, and otherwise none.
        checkpoint_every: the run stores its weights after every such number of epochs; 0 means only at the end.
    """
    if states != AUTO:
        return kept_epochs(states, setup.spec.epochs)
    sizes = TensorSizes.of(setup.spec, setup.network, setup.feedback)
    is_kept = default_share(setup.spec, sizes, checkpoint_every) <= MOST_SHARE
    return kept_epochs(BY_DEFAULT, setup.spec.epochs) if is_kept else ()


def default_share(spec: RunSpec, sizes: TensorSizes, checkpoint_every: int) -> float:
    """Return the size of three states relative to all else that a run writes."""
    count = len(kept_epochs(BY_DEFAULT, spec.epochs))
    return count * kept_bytes(spec, sizes) / run_bytes(spec, sizes, checkpoint_every)


def kept_bytes(spec: RunSpec, sizes: TensorSizes) -> int:
    """Return the bytes of one kept state.

    It contains the full state, and network and feedback after the next epoch.
    """
    of_a_weight = 2 if spec.recipe.optimizer == "adamw" else bool(spec.recipe.momentum)
    moments = of_a_weight * sizes.trained
    return 2 * (sizes.network + sizes.feedback) + moments + GENERATORS * torch.Generator().get_state().nbytes


def run_bytes(spec: RunSpec, sizes: TensorSizes, checkpoint_every: int) -> int:
    """Return the bytes of a run without kept states.

    These are the final weights, the feedback, both again after the first steps, the checkpoints and the rows of the epochs.
    """
    checkpoints = 1 + spec.epochs // checkpoint_every if checkpoint_every else 0  # with the initial weights
    tensors = 2 * (sizes.network + sizes.feedback) + checkpoints * sizes.network
    return tensors + EPOCH_BYTES * (spec.epochs + 1)


@dataclass(frozen=True)
class StatePlan:
    """The training states that the runs of a study keep.

    Attributes:
        states: largest number of states of a run.
        bytes: largest size of a state in bytes.
        share: smallest size of three states, relative to all else that a run writes.
        is_default: whether the caller gave no number, so only runs keep states for which MOST_SHARE allows it.
    """

    states: int
    bytes: int
    share: float
    is_default: bool

    @property
    def text(self) -> str:
        """The plan as one line."""
        limit = f"at most {MOST_SHARE:.0%} of its disk space"
        if not self.states and self.is_default:
            return (
                f"a run keeps no training states: {BY_DEFAULT} states need {self.share:.0%} of its disk space or more, and not "
                f"{limit}; --keep-states {BY_DEFAULT} keeps them"
            )
        condition = f", if they need {limit}" if self.is_default else ""
        return f"keeps {self.states} training states of at most {self.bytes / 2**20:,.1f} MiB each per run{condition}"


def planned_states(specs: Iterable[RunSpec], states: str | int, checkpoint_every: int) -> StatePlan:
    """Return the states that runs of these specifications keep; the arguments are as for `chosen_epochs`."""
    sizes = TensorSizes.of_specs(specs)
    share = min(default_share(spec, size, checkpoint_every) for spec, size in sizes)
    is_default = states == AUTO
    count = (BY_DEFAULT if share <= MOST_SHARE else 0) if is_default else states
    kept = max(len(kept_epochs(count, spec.epochs)) for spec, _ in sizes)
    return StatePlan(kept, max(kept_bytes(spec, size) for spec, size in sizes), share, is_default)
