"""Contract of a task: the loss of a sample, the error at the outputs, and the main metric."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fa_registry.errors import PluginError, UsageError
from fa_registry.records import Reading, Scalar

# A reason that runs record: replays compare it, so its text must not change.
NO_CLASSES = "the targets are values, not classes: there is no accuracy"
NO_TOKENS = "one target per position of a sequence (token prediction) is not supported"


@dataclass(frozen=True)
class TaskCard:
    """The description of a task.

    Attributes:
        line: one sentence for lists.
        targets: dtype and shape of the targets of N samples, for messages.
        loss: formula of the loss ℓ_i of one sample.
        source: reference of the loss.
        headline: name of the main metric, which reporting forms show first; empty if the task has none.
        version: of a built-in task; raised whenever one of its numbers changes.
    """

    name: str
    line: str
    targets: str
    loss: str
    source: str
    headline: str = ""
    version: int = 1

    def __post_init__(self):
        missing = [name for name in ("name", "line", "targets", "loss", "source") if not getattr(self, name)]
        if missing:
            raise PluginError(f"the card of task {self.name!r} lacks: {', '.join(missing)}")


class Task(abc.ABC):
    """A task. N samples, C outputs; every loss and error belongs to the sum over samples, without 1/N."""

    card: TaskCard

    @abc.abstractmethod
    def takes(self, targets: Tensor) -> bool:
        """Return whether targets of this type belong to the task; the data are not checked."""

    @abc.abstractmethod
    def problems(self, train: Tensor, test: Tensor, outputs: int, eval_samples: int) -> list[str]:
        """Return what is wrong with the targets of a data set, one sentence per problem.

        Args:
            train: targets of the training samples.
            test: targets of the test samples.
            outputs: C, the number of outputs of the network.
            eval_samples: number of test samples, from the first, that every measurement uses.
        """

    @abc.abstractmethod
    def target_rows(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the targets in shape and type of the outputs, (N, C). Raises UsageError as `check_shapes`."""

    @abc.abstractmethod
    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return ℓ_i, (N,), of outputs z (N, C). Raises UsageError as `check_shapes`."""

    @abc.abstractmethod
    def output_error(self, outputs: Tensor, targets: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return e = ∂ℓ_i/∂z_i, (N, C).

        Args:
            outputs: z (N, C).
            targets: as `card.targets`.
            rows: the result of target_rows, if the caller has computed it.
        """

    @abc.abstractmethod
    def batch_score(self, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        """Return the main metric of a batch as a sum over its samples, a scalar tensor on the device.

        Args:
            outputs: z (N, C).
            targets: as `card.targets`.
            losses: ℓ_i (N,).
        """

    @abc.abstractmethod
    def train_score(self, mean: float) -> Reading:
        """Convert the mean of `batch_score` over the training samples of an epoch to the reported main metric."""

    @abc.abstractmethod
    def evaluate(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Reading:
        """Return the main metric of the network in eval mode over all samples."""

    def conventions(self, outputs: int) -> Mapping[str, Scalar]:
        """Return what a record must name to make its main metric readable, such as the number of classes."""
        return {}

    def target_shape(self, outputs: Tensor) -> torch.Size:
        """Return the shape of the targets of these outputs, (N, C)."""
        return outputs.shape[:1]

    def check_shapes(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise UsageError unless outputs are (N, C) and there is one target per sample.

        With outputs (N, T, V), T = V and targets (N, T), torch's cross entropy takes the positions for classes without an error.
        """
        if outputs.dim() != 2 or targets.shape != self.target_shape(outputs):
            raise UsageError(
                f"expected outputs (N, C) with {self.card.targets}, found outputs {tuple(outputs.shape)} "
                f"with {targets.dtype} targets {tuple(targets.shape)}; {NO_TOKENS}"
            )
