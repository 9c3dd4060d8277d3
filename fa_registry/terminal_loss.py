"""The terminal loss ℓ_i of a sample, its output error e, and its target row.

For class numbers (N,) the loss is the cross entropy of the softmax. For target values (N, C) the loss is ½‖z − y‖². All
code that needs a loss uses this module, so the labels of a data set determine the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fa_registry.errors import UsageError

NO_CLASSES = "the targets are values, not classes: there is no accuracy"
NO_TOKENS = "token prediction, with one target per position of a sequence, is not supported"


def is_regression(labels: Tensor) -> bool:
    """Return whether labels are target values (N, C) and not class numbers (N,)."""
    return labels.is_floating_point()


def check_shapes(outputs: Tensor, labels: Tensor) -> None:
    """Check that there is one target per sample.

    Without this check, torch's cross entropy accepts outputs (N, T, V) with labels (N, T) if T = V, and confuses positions
    with classes.

    Args:
        outputs: z, (N, C).
        labels: class numbers (N,) or target values (N, C).

    Raises:
        UsageError: the shapes do not match.
    """
    if outputs.dim() != 2 or labels.shape != (outputs.shape if is_regression(labels) else outputs.shape[:1]):
        raise UsageError(
            f"expected outputs (N, C) with class numbers (N,) or target values (N, C), found outputs {tuple(outputs.shape)} "
            f"with {labels.dtype} targets {tuple(labels.shape)}; {NO_TOKENS}"
        )


def sample_losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the loss ℓ_i of each sample, (N,).

    Args:
        outputs: z, (N, C).
        labels: class numbers (N,) or target values (N, C).

    Raises:
        UsageError: the shapes do not match, see `check_shapes`.
    """
    check_shapes(outputs, labels)
    if is_regression(labels):
        return (outputs - labels).square().sum(dim=1) / 2
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def target_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the target rows, (N, C): onehot(y) for class numbers, y for values.

    Args:
        outputs: z, (N, C); its dtype is the dtype of the result.
        labels: class numbers (N,) or target values (N, C).

    Raises:
        UsageError: the shapes do not match, see `check_shapes`.
    """
    check_shapes(outputs, labels)
    if is_regression(labels):
        return labels.to(outputs.dtype)
    return torch.zeros_like(outputs).scatter_(1, labels.unsqueeze(1), 1.0)


def output_error(outputs: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Return the output error e = ∂ℓ_i/∂z_i, (N, C).

    The error is softmax(z) − onehot(y) for class numbers, and z − y for target values.

    Args:
        outputs: z, (N, C).
        labels: class numbers (N,) or target values (N, C).
        targets: result of `target_rows`, if the caller has already computed it.
    """
    predicted = outputs if is_regression(labels) else outputs.softmax(dim=1)
    return predicted - (target_rows(outputs, labels) if targets is None else targets)
