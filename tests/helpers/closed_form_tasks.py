"""Hand-made tasks in float64 whose every figure has a closed form, for vectors, tokens and maps.

Sample i shows one large feature t_i and is labelled y_i ≠ t_i, so that softmax is saturated to the last bit and the loss is
*linear*: ℓ = z_t − z_y. Its gradient at the pooled top is d_i = e_t − e_y exactly, for every reasonable change of the state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network
from fa_registry.datasets.base import Splits
from fa_registry.methods.base import CreditInputs, Method, NoFeedback
from fa_registry.methods.dfa import PLUGIN as DFA
from fa_registry.training.run_setup import RunSetup
from tests.helpers.tiny_tasks import scaling_network, tiny_task

KINDS = ("vectors", "tokens", "maps")
FACTORS = (0.5, 1.0)  # h_1 = 1.5 h_0, h_2 = 2 h_1
BELOW, ABOVE = (1.0, 1.5, 3.0), (3.0, 2.0, 1.0)  # h_l = BELOW h_0; ∂h_L/∂h_l = ABOVE
SIZE, TOKENS, SIDES = 100.0, 4, (2, 3)
CLASSES = 3


def types(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The large feature t and the label y of each sample: (0, 1), (2, 1), (0, 1), …"""
    return np.where(np.arange(count) % 2, 2, 0), np.ones(count, dtype=np.int64)


def pull(count: int) -> np.ndarray:
    """d_i = e_t − e_y, (count, CLASSES)."""
    shown, labels = types(count)
    return np.eye(CLASSES)[shown] - np.eye(CLASSES)[labels]


def lifted(rows: np.ndarray, kind: str) -> np.ndarray:
    """States whose pooled vectors are `rows` (N, CLASSES): the other tokens, and a map's deviations from its mean, are not zero."""
    if kind == "vectors":
        return rows
    if kind == "tokens":
        others = np.broadcast_to(np.arange(1.0, TOKENS)[:, None] * 7, (len(rows), TOKENS - 1, CLASSES))
        return np.concatenate([rows[:, None], others], axis=1)  # (N, TOKENS, CLASSES)
    ripple = np.array([[5.0, -5.0, 0.0], [-2.0, 1.0, 1.0]])  # sums to zero over the positions
    return rows[:, :, None, None] + ripple  # (N, CLASSES, *SIDES)


def spread(rows: np.ndarray, kind: str) -> np.ndarray:
    """Gradients of whole states whose pooled vectors have the gradients `rows` (N, CLASSES)."""
    if kind == "vectors":
        return rows
    if kind == "tokens":
        return np.concatenate([rows[:, None], np.zeros((len(rows), TOKENS - 1, CLASSES))], axis=1)
    return np.broadcast_to(rows[:, :, None, None] / np.prod(SIDES), (*rows.shape, *SIDES)).copy()


def pooling(kind: str) -> Callable[[Tensor], Tensor]:
    return {
        "vectors": lambda state: state,
        "tokens": lambda state: state[:, 0],
        "maps": lambda state: state.mean(dim=(2, 3)),
    }[kind]


def states(kind: str, count: int) -> list[np.ndarray]:
    """h_0, h_1, h_2 of the sharp task, whole."""
    shown, _ = types(count)
    return [factor * lifted(SIZE * np.eye(CLASSES)[shown], kind) for factor in BELOW]


def gradients(kind: str, count: int) -> list[np.ndarray]:
    """g_0, g_1, g_2 of the sharp task, whole."""
    return [factor * spread(pull(count), kind) for factor in ABOVE]


class Handed(Method):
    """A method that gives the credits it was made with, cut to the batch."""

    card = dataclasses.replace(DFA.card, name="handed")

    def __init__(self, credits: Sequence[Tensor]):
        self._credits = credits

    def feedback(self, shape, options, generator):
        return NoFeedback()

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return [credit[: len(inputs.error)] for credit in self._credits]


def tilted(kind: str, count: int) -> list[Tensor]:
    """Credits e_t in place of e_t − e_y: cosine 1/√2 with the gradient, at every site and in every shape."""
    shown, _ = types(count)
    return [torch.tensor(factor * spread(np.eye(CLASSES)[shown], kind)) for factor in ABOVE]


def hand_task(network: Network, images: Tensor, labels: Tensor, credits: Sequence[Tensor] | None = None) -> RunSetup:
    """A task around any float64 network; its test split is the eval batch and more. credits None: those of bp."""
    base = tiny_task(method="bp")
    splits = Splits(images, labels, images, labels, augment=lambda batch, draw: batch, digest="")
    method = base.method if credits is None else Handed(credits)
    return dataclasses.replace(
        base, network=network, splits=splits, method=method, feedback=NoFeedback(), initial_norms=None
    )


def sharp_task(
    kind: str, count: int, credits: Callable[[str, int], Sequence[Tensor]] | None = tilted, factors=FACTORS
) -> RunSetup:
    """The sharp task: scaling blocks, head = identity, `count` samples in the order of `types`."""
    network = scaling_network(list(factors), torch.eye(CLASSES, dtype=torch.float64))
    network.pool = pooling(kind)
    shown, labels = types(count)
    images = torch.tensor(lifted(SIZE * np.eye(CLASSES)[shown], kind))
    return hand_task(network, images, torch.tensor(labels), credits and credits(kind, count))


def initial_of(task: RunSetup) -> Mapping[str, Tensor]:
    """The task's weights as they are now."""
    return {name: weight.detach().clone() for name, weight in task.network.named_parameters()}
