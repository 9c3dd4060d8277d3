"""Contract of a task: the loss of a sample, the error at the outputs, and the main metric."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fa_registry.errors import PluginError, UsageError
from fa_registry.metrics import DEFAULT, HEADLINES, Headline
from fa_registry.records import Reading, Scalar
from fa_registry.token_axes import gradient_vectors, state_vectors

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# A reason that runs record. Replays compare this reason, so its text must not change.
NO_CLASSES = "the targets are values, not classes: there is no accuracy"
NO_TOKENS = "for one target per position of a sequence, use the task token_prediction"


POSITIONS = ("none", "sequence")


@dataclass(frozen=True)
class TaskCard:
    """The description of a task.

    Attributes:
        line: one sentence for lists.
        targets: dtype and shape of the targets of N samples, for messages.
        loss: formula of the loss ℓ_i of one sample.
        source: publication that defines the loss.
        headline: name of the main metric, which reporting forms show first; empty if the task has none.
        own_headline: the main metric if it is not a built-in metric, see `fa_registry.metrics.own_headline`. `headline` is then its
            name.
        positions: `none` if a sample has one target, `sequence` if it has one target per position of a sequence. Metrics
            compare samples in the first case, and positions in the second case.
        version: version of a built-in task; the version increases when any number that the task computes changes.
    """

    name: str
    line: str
    targets: str
    loss: str
    source: str
    headline: str = ""
    positions: str = "none"
    version: int = 1
    own_headline: Headline | None = None

    @property
    def main_metric(self) -> Headline | None:
        """The declaration of the main metric, or None if the task has none."""
        return self.own_headline or HEADLINES.get(self.headline)

    @property
    def by_position(self) -> bool:
        """Whether a sample has one target per position. Metrics and credit norms are then per position."""
        return self.positions == "sequence"

    def __post_init__(self):
        missing = [name for name in ("name", "line", "targets", "loss", "source") if not getattr(self, name)]
        if missing:
            raise PluginError(f"the card of task {self.name!r} lacks: {', '.join(missing)}")
        if self.positions not in POSITIONS:
            expected = " or ".join(POSITIONS)
            raise PluginError(
                f"the card of task {self.name!r}: positions: expected {expected}, found {self.positions!r}"
            )
        if self.own_headline:
            if self.headline not in ("", self.own_headline.name):
                raise PluginError(
                    f"the card of task {self.name!r}: headline: with own_headline, expected no value, found {self.headline!r}"
                )
            object.__setattr__(self, "headline", self.own_headline.name)
        elif self.headline not in ("", *HEADLINES):
            expected = " or ".join([*HEADLINES, "own_headline"])
            raise PluginError(f"the card of task {self.name!r}: headline: expected {expected}, found {self.headline!r}")


class Task(abc.ABC):
    """Task of a training, which defines the loss, the error at the outputs and the main metric.

    The loss of a sample with several positions is the sum over its counted positions. N is the number of samples and C the number
    of outputs. Losses and errors refer to the sum over the samples, without the factor 1/N.
    """

    card: TaskCard

    @property
    def by_position(self) -> bool:
        """Whether a sample has one target per position, according to the card."""
        return self.card.by_position

    @property
    def headline(self) -> Headline:
        """The main metric according to the card, or the default headline if the task has none."""
        return self.card.main_metric or DEFAULT

    @abc.abstractmethod
    def takes(self, targets: Tensor) -> bool:
        """Return whether the task accepts targets of this dtype.

        Shape and values are not checked.
        """

    @abc.abstractmethod
    def problems(self, train: Tensor, test: Tensor, outputs: int, eval_samples: int) -> list[str]:
        """Return the problems of a data set's targets, one sentence per problem.

        Args:
            train: targets of the training samples.
            test: targets of the test samples.
            outputs: C, the number of outputs of the network.
            eval_samples: number of test samples that every measurement uses. These are the first samples of the test set.
        """

    @abc.abstractmethod
    def target_rows(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the targets as a tensor (N, C) with the dtype of the outputs.

        Raises:
            UsageError: see `check_shapes`.
        """

    @abc.abstractmethod
    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss ℓ_i of each sample, (N,), for outputs z (N, C).

        Raises:
            UsageError: see `check_shapes`.
        """

    @abc.abstractmethod
    def output_error(self, outputs: Tensor, targets: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return e = ∂ℓ_i/∂z_i, (N, C).

        Args:
            outputs: z (N, C).
            targets: targets with the dtype and shape that `card.targets` describes.
            rows: the result of target_rows, if the caller has computed it.
        """

    @abc.abstractmethod
    def batch_score(self, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        """Return the main metric of a batch as a sum over its samples.

        The result is a scalar tensor that stays on the device of the outputs.

        Args:
            outputs: z (N, C).
            targets: targets with the dtype and shape that `card.targets` describes.
            losses: ℓ_i (N,).
        """

    @abc.abstractmethod
    def train_metrics(self, mean: float) -> Mapping[str, Reading]:
        """Return the metrics of an epoch's training batches, in addition to the loss.

        Args:
            mean: sum of `batch_score` over the batches of the epoch, divided by the number of counted targets.
        """

    @abc.abstractmethod
    def evaluate(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Mapping[str, Reading]:
        """Return the metrics of the network in eval mode over all samples.

        The main metric is first.
        """

    def scores(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the score of each sample, (N,), for the network in eval mode; None if the task has no scores.

        The mean of the scores is the main metric. A rule over seeds then knows the error of the test set. By default None.
        """
        return None

    def counted(self, targets: Tensor) -> int:
        """Return the number of targets that count; by default N.

        A reported mean loss is a sum of losses divided by this number.
        """
        return len(targets)

    def state_rows(self, state: Tensor, targets: Tensor) -> Tensor:
        """Return the rows (rows, D) of a state that metrics compare.

        The default is one row per sample, see `state_vectors`.
        """
        return state_vectors(state)

    def gradient_rows(self, gradient: Tensor, targets: Tensor) -> Tensor:
        """Return the rows (rows, D) of a credit or of a state's gradient.

        The default is one row per sample, see `gradient_vectors`.
        """
        return gradient_vectors(gradient)

    def error_rows(self, error: Tensor, targets: Tensor) -> Tensor:
        """Return the rows (rows, C) of the output error. The default is the error itself."""
        return error

    def conventions(self, outputs: int) -> Mapping[str, Scalar]:
        """Return the parameters that a reader of the main metric must know.

        Every record contains these parameters. Example: the number of classes.
        """
        return {}

    def chance(self, train: Tensor, test: Tensor) -> float | None:
        """Return the main metric of the best model without inputs, or None if the task has none.

        Args:
            train: targets of the training samples.
            test: targets of the test samples.
        """
        return None

    def baselines(self, inputs: Tensor, targets: Tensor) -> Mapping[str, Scalar]:
        """Return the main metric of simple models as facts for the reader, name → value; by default none.

        Args:
            inputs: inputs of the training samples.
            targets: targets of the training samples.
        """
        return {}

    def target_shape(self, outputs: Tensor) -> torch.Size:
        """Return the shape that targets must have for outputs (N, C). The default is (N,)."""
        return outputs.shape[:1]

    def check_shapes(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise UsageError if outputs or targets have a wrong shape.

        Outputs must be (N, C), and targets must have the shape `target_shape(outputs)`. Without this check, torch's cross entropy
        would accept outputs (N, T, V) with T = V and targets (N, T), and treat the positions as classes.
        """
        if outputs.dim() != 2 or targets.shape != self.target_shape(outputs):
            raise UsageError(
                f"expected outputs (N, C) with {self.card.targets}, found outputs {tuple(outputs.shape)} "
                f"with {targets.dtype} targets {tuple(targets.shape)}; {NO_TOKENS}"
            )
