"""Predictions of a run: the logits of the head, or the scores of a method that predicts by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fa_registry.errors import PluginError, RegistryError
from fa_registry.methods._relaxation import quiet
from fa_registry.methods.base import HasOwnPrediction, Method
from fa_registry.network_mode import eval_mode
from fa_registry.records import Reading
from fa_registry.tasks import reported_metrics
from fa_registry.training.devices import products
from fa_registry.training.method_calls import DetachedModule

if TYPE_CHECKING:
    from fa_registry.training.run_setup import RunSetup


def scores_of(
    method: Method, feedback: nn.Module, network: nn.Module, images: Tensor, shape: Sequence[int]
) -> Tensor | None:
    """Return the scores of a method that predicts by itself, or None for any other method.

    The scores are computed in eval mode and without process noise, also in a training step.

    Args:
        images: (N, …).
        shape: shape of the logits, (N, C), or (N, T, C) for a task with one target per position.

    Raises:
        PluginError: the method raises an exception, or its scores are no floating-point tensor of this shape.
    """
    if not isinstance(method, HasOwnPrediction):
        return None
    name = method.card.name
    try:
        with torch.no_grad(), eval_mode(network), eval_mode(feedback), quiet(network):
            scores = method.scores(feedback, DetachedModule(network, name), images)
    except Exception as error:
        # CapturedStep handles the error of a failed capture
        is_capturing = images.is_cuda and torch.cuda.is_current_stream_capturing()
        if is_capturing or isinstance(error, RegistryError | torch.OutOfMemoryError):
            raise
        raise PluginError(f"method {name!r}: scores raised {type(error).__name__}: {error}") from error
    found = f"{scores.dtype} {tuple(scores.shape)}" if isinstance(scores, Tensor) else f"a {type(scores).__name__}"
    if not isinstance(scores, Tensor) or not scores.is_floating_point() or scores.shape != tuple(shape):
        raise PluginError(f"method {name!r}: expected floating-point scores of shape {tuple(shape)}, found {found}")
    return scores.detach()


@products("fp32")
def validation_metric(setup: RunSetup) -> Reading:
    """Return the main metric on the validation samples.

    Measurements and the selection of an epoch both use it: with products of another precision, a sample on the edge of two classes
    could give them different epochs.
    """
    samples = setup.splits.validation_images, setup.splits.validation_labels
    return reported_metrics(setup.task, "evaluate", setup.predictor, *samples)[setup.task.headline.name]


class OwnPrediction(nn.Module):
    """A method that predicts by itself, in the place of the network whose outputs are evaluated.

    Args:
        classes: C, the number of outputs.
        by_position: whether the task has one target per position.
    """

    def __init__(self, method: Method, feedback: nn.Module, network: nn.Module, classes: int, by_position: bool):
        super().__init__()
        self.feedback, self.network = feedback, network
        self._method, self._classes, self._axes = method, classes, 2 if by_position else 1

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores (N, C), or (N, T, C) for a task with one target per position."""
        shape = (*images.shape[: self._axes], self._classes)
        return scores_of(self._method, self.feedback, self.network, images, shape)
