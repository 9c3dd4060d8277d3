"""The loss that a user names for a third-party model: one of five names, or a function.

The loss ℓ_i of a sample is what torch's function of that name returns with reduction="none", summed over the outputs of the sample,
without a factor ½ and without a mean over the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.errors import UsageError, unknown_name_text
from fa_registry.records import Reading, Scalar
from fa_registry.tasks import task_of
from fa_registry.tasks.base import Task
from fa_registry.tasks.token_prediction import IGNORED

LossFunction = Callable[[Tensor, Tensor], Tensor]
Loss = str | LossFunction
CROSS_ENTROPY = "cross_entropy"  # the default
FUNCTION = "function"  # recorded instead of a name, if the loss is a function of the user
# largest deviation of a sum of probabilities from 1: float32, and coarser dtypes
SUM_TOLERANCE, COARSE_SUM_TOLERANCE = 1e-3, 2e-2


def are_probabilities(outputs: Tensor) -> bool:
    """Return whether every row of the outputs, along the last dimension, is a probability distribution."""
    if outputs.dim() < 2 or outputs.shape[-1] < 2:
        return False
    is_coarse = torch.finfo(outputs.dtype).eps > torch.finfo(torch.float32).eps
    tolerance = COARSE_SUM_TOLERANCE if is_coarse else SUM_TOLERANCE
    deviation = (outputs.double().sum(dim=-1) - 1).abs()
    return bool((outputs >= 0).all() and (deviation <= tolerance).all())


def class_numbers(targets: Tensor) -> Tensor | None:
    """Return the class number of every sample, (N,), or None if the targets are not classes.

    Class numbers are returned unchanged. Rows (N, C) are classes if they have only two different values, the larger one
    exactly once in every row.
    """
    if targets.dim() == 1 and targets.dtype == torch.int64:
        return targets
    if targets.dim() != 2 or targets.shape[1] < 2 or not len(targets):
        return None
    is_largest = targets == targets.max()
    is_one_hot = (is_largest.sum(dim=1) == 1).all() and (is_largest | (targets == targets.min())).all()
    return is_largest.int().argmax(dim=1) if is_one_hot else None


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def _nll(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return −log p of the target for outputs p or log p.

    Outputs with a negative value are log p: of at least two classes, one has a negative log p, and no p is negative.
    """
    is_log = bool((outputs < 0).any())
    if targets.is_floating_point():  # a class with the target 0 does not count, even if its p is 0
        counted = torch.where(targets > 0, outputs, 0.0 if is_log else 1.0)
        return -(targets * (counted if is_log else counted.log())).sum(dim=1)
    logs = outputs if is_log else outputs.log()
    losses = nn.functional.nll_loss(logs.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=IGNORED)
    return losses.view(len(targets), -1).sum(dim=1)


def _binary_cross_entropy(outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
    """Return torch's binary cross entropy; torch raises an error for nan, which a diverged model returns."""
    is_nan = outputs.isnan()
    losses = nn.functional.binary_cross_entropy(outputs.masked_fill(is_nan, 0.5), targets, reduction=reduction)
    return torch.where(is_nan, outputs, losses)


def _summed(function: Callable[..., Tensor]) -> LossFunction:
    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        return function(outputs, targets, reduction="none").reshape(len(outputs), -1).sum(dim=1)

    return losses


LOSSES: Mapping[str, LossFunction] = {
    CROSS_ENTROPY: _cross_entropy,
    "nll": _nll,
    "bce": _summed(_binary_cross_entropy),
    "bce_with_logits": _summed(nn.functional.binary_cross_entropy_with_logits),
    "mse": _summed(nn.functional.mse_loss),
}
OF_CLASSES = (CROSS_ENTROPY, "nll")  # losses whose targets are classes, or distributions over the classes


def loss_name(loss: Loss) -> str:
    """Return the name that a run records: one of LOSSES, or FUNCTION."""
    return loss or CROSS_ENTROPY if isinstance(loss, str) else FUNCTION


def loss_problem(loss: Any) -> str:
    """Return why `loss` is neither a known name nor a function, or an empty string."""
    if isinstance(loss, str):
        return unknown_name_text("loss", loss, LOSSES) if loss and loss not in LOSSES else ""
    if callable(loss):
        return ""
    return f"expected one of {', '.join(LOSSES)}, or a function (outputs, targets), found a {type(loss).__name__}"


class UserLoss(Task):
    """The task of a third-party model with a loss that its author named.

    Args:
        loss: one of LOSSES, or a function (outputs, targets) → losses (N,). The function receives floating-point targets in the
            dtype of the outputs.
        base: the built-in task that converts states to rows.
    """

    def __init__(self, loss: Loss, base: Task):
        self._name, self._base = loss_name(loss), base
        self._function = LOSSES[loss] if isinstance(loss, str) else loss
        self.card = replace(base.card, loss=f"the loss {self._name} of the user's model", headline=base.headline.name)

    def takes(self, targets: Tensor) -> bool:
        return True

    def problems(self, train: Tensor, test: Tensor, outputs: int, eval_samples: int) -> list[str]:
        return []

    def target_rows(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the targets in the shape and dtype of the outputs; class numbers become one-hot rows."""
        if self._base.by_position or _are_classes(outputs, targets):
            return self._base.target_rows(outputs, targets)
        is_same_size = targets.numel() == outputs.numel()
        return (targets.reshape(outputs.shape) if is_same_size else targets).to(outputs.dtype)

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss ℓ_i of each sample, (N,).

        Raises:
            UsageError: the user's function does not return one loss per sample.
        """
        losses = self._function(outputs, self._as_expected(outputs, targets))
        if not isinstance(losses, Tensor) or losses.shape != outputs.shape[:1]:
            found_text = tuple(losses.shape) if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
            raise UsageError(
                f"loss: expected one loss per sample, a tensor of shape ({len(outputs)},), found {found_text}; use "
                "reduction='none', and sum over the outputs of each sample"
            )
        return losses

    def output_error(self, outputs: Tensor, targets: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return e = ∂ℓ_i/∂z_i at the outputs z of the model, in the shape of the outputs."""
        with torch.enable_grad():
            leaf = outputs.detach().clone().requires_grad_()
            losses = self.sample_losses(leaf, targets)
            if not losses.requires_grad:
                raise UsageError("loss: expected losses that torch can differentiate, found losses without a graph")
            (error,) = torch.autograd.grad(losses.sum(), leaf)
        return error

    def batch_score(self, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        return losses.new_zeros(())

    def train_metrics(self, mean: float) -> Mapping[str, Reading]:
        return {}

    def evaluate(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Mapping[str, Reading]:
        """Return no metric: the user's loop reports the main metric."""
        return {}

    def counted(self, targets: Tensor) -> int:
        return self._base.counted(targets)

    def state_rows(self, state: Tensor, targets: Tensor) -> Tensor:
        return self._base.state_rows(state, targets)

    def gradient_rows(self, gradient: Tensor, targets: Tensor) -> Tensor:
        return self._base.gradient_rows(gradient, targets)

    def error_rows(self, error: Tensor, targets: Tensor) -> Tensor:
        """Return the rows of the output error; a sample with several dimensions of outputs has one flat row."""
        return self._base.error_rows(error, targets) if self.by_position else error.reshape(len(error), -1)

    def conventions(self, outputs: int) -> Mapping[str, Scalar]:
        return self._base.conventions(outputs)

    def _as_expected(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the targets in the form that the loss function reads."""
        if self._name == FUNCTION:
            return targets.to(outputs.dtype) if targets.is_floating_point() else targets
        if self._name in OF_CLASSES:
            is_hard = self.by_position or targets.dim() == 1 or bool(((targets == 0) | (targets == 1)).all())
            classes = targets if self.by_position else class_numbers(targets)
            return classes if is_hard and classes is not None else targets.to(outputs.dtype)
        return self.target_rows(outputs, targets)

    def misfits(self, outputs: Tensor, targets: Tensor) -> tuple[str, str]:
        """Return why the outputs, and why the targets, do not fit the loss; empty strings if they fit."""
        if self._name == FUNCTION:
            return self._failure(outputs, targets), ""
        return self._output_misfit(outputs), self._target_misfit(outputs, targets)

    def _failure(self, outputs: Tensor, targets: Tensor) -> str:
        """Return why the user's function fails on these outputs in float64, or an empty string."""
        try:
            self.output_error(outputs.double(), targets)
        except UsageError as error:
            return str(error).removeprefix("loss: ")
        except Exception as error:  # a user's function may raise anything
            hint = "; measurements also use float64, so convert constants with .to(outputs)"
            return f"the function fails: {type(error).__name__}: {error}{hint}"
        return ""

    def _output_misfit(self, outputs: Tensor) -> str:
        if self._name in OF_CLASSES and (outputs.dim() < 2 or outputs.shape[-1] < 2):
            return f"{self._name!r} needs outputs (N, at least 2 classes), found {tuple(outputs.shape)}"
        low, high = outputs.min().item(), outputs.max().item()
        if math.isnan(low) or high == math.inf:  # the outputs of a diverged model are measured too
            return ""
        if self._name == "bce" and not (low >= 0 and high <= 1):
            return f"'bce' needs outputs from 0 to 1, found {low:.3g} to {high:.3g}; for logits use 'bce_with_logits'"
        if self._name == "nll" and not are_probabilities(outputs) and not are_probabilities(outputs.exp()):
            return "'nll' needs probabilities or log-probabilities, found rows that are neither; for logits use 'cross_entropy'"
        return ""

    def _target_misfit(self, outputs: Tensor, targets: Tensor) -> str:
        shape = tuple(outputs.shape)
        found_text = f"found {targets.dtype} of shape {tuple(targets.shape)}"
        if _are_classes(outputs, targets) or (self.by_position and targets.shape == shape[:-1]):
            lowest, highest = (targets[targets != IGNORED] if self.by_position else targets).aminmax()
            expected = f"labels 0..{shape[-1] - 1}, one for each output of the model"
            return "" if lowest >= 0 and highest < shape[-1] else f"expected {expected}, found {lowest} to {highest}"
        is_column = self._name not in OF_CLASSES and targets.shape == shape[:1] and outputs.numel() == len(outputs)
        if targets.shape != shape and not is_column:
            return f"expected int64 class numbers (N,), or one value per output, {shape}, {found_text}"
        return self._value_misfit(targets)

    def _value_misfit(self, targets: Tensor) -> str:
        low, high = targets.min().item(), targets.max().item()
        if self._name in OF_CLASSES and not are_probabilities(targets.double()):
            return f"expected rows from 0 to 1 that add up to 1 for loss {self._name!r}, found values from {low:.3g} to {high:.3g}"
        if self._name.startswith("bce") and not (low >= 0 and high <= 1):
            return f"expected values from 0 to 1 for loss {self._name!r}, found {low:.3g} to {high:.3g}"
        is_finite = bool(targets.double().isfinite().all())
        return "" if is_finite else "expected finite values, found inf or nan"


def _are_classes(outputs: Tensor, targets: Tensor) -> bool:
    """Return whether the targets are class numbers; for a model with one output, integers are its values."""
    return targets.dtype == torch.int64 and targets.dim() == 1 and outputs.dim() == 2 and outputs.shape[1] > 1


def user_task(targets: Tensor, loss: Loss = "") -> Task:
    """Return the task of a third-party model for these targets.

    Without a loss, and for the cross entropy of class numbers or tokens, this is the built-in task of the targets' dtype.

    Args:
        targets: class numbers (N,), tokens (N, T), or values in the shape of the outputs.
        loss: one of LOSSES, a function (outputs, targets) → losses (N,), or an empty string.
    """
    classes = class_numbers(targets)
    is_tokens = targets.dtype == torch.int64 and targets.dim() == 2 and classes is None
    may_be_tokens = is_tokens and (loss in OF_CLASSES or not isinstance(loss, str))
    if not loss or (loss == CROSS_ENTROPY and (is_tokens or classes is targets)):
        return task_of(targets)
    return UserLoss(loss, task_of(targets if may_be_tokens else targets.double() if classes is None else classes))
