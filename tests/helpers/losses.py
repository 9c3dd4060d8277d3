"""Loss, error and target rows of the built-in task that labels of a type belong to."""

from __future__ import annotations

from torch import Tensor

from fa_registry.tasks import task_of


def sample_losses(outputs: Tensor, labels: Tensor) -> Tensor:
    return task_of(labels).sample_losses(outputs, labels)


def output_error(outputs: Tensor, labels: Tensor) -> Tensor:
    return task_of(labels).output_error(outputs, labels)


def target_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    return task_of(labels).target_rows(outputs, labels)
