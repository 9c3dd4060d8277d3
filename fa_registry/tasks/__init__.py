"""Tasks, one per file.

A task defines the loss, the error at the outputs, the main metric, and the conversion of targets to rows of the outputs' shape.
"""
# ruff: noqa: F401 - the imported names are the names of this package

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fa_registry.errors import PluginError, RegistryError, UsageError, join_names
from fa_registry.metrics import DECLARED, HEADLINES
from fa_registry.plugin_registry import Catalog
from fa_registry.records import Reading
from fa_registry.tasks.base import NO_CLASSES, NO_TOKENS, Task, TaskCard

if TYPE_CHECKING:
    from torch import Tensor

# Built-in metrics that a task computes, with their smallest and largest possible value.
RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(HEADLINES, (0, math.inf)),
    "accuracy": (0, 1),
    "accuracy_train": (0, 1),
    "perplexity": (1, math.inf),
    "bits_per_token": (0, math.inf),
}
CATALOG = Catalog("tasks", "task", Task, card=TaskCard)


def task_of(targets: Tensor, name: str = "") -> Task:
    """Return the task with this name, as in DatasetCard.task, or the built-in task for the targets' dtype.

    Without a name, as in a user's training loop, the dtype of the class numbers (N,) or values (N, C) decides.

    Raises:
        UnknownName: no task has this name.
        PluginError: the card of the task has another name. Such a task could be mistaken for a built-in task.
        UsageError: the name is empty and no built-in task takes targets of this dtype.
    """
    if name:
        task = CATALOG.get(name)
        if task.card.name != name:
            raise PluginError(f"task {name!r}: expected this name on its card, found {task.card.name!r}")
        return task
    for builtin in CATALOG.builtin_names():
        task = CATALOG.get(builtin)
        if task.takes(targets):
            return task
    raise UsageError(f"expected integer class numbers or floating-point target values, found {targets.dtype} targets")


def reported_metrics(task: Task, function: str, *arguments: Any) -> dict[str, Reading]:
    """Call a function of a task and return the metrics that it computes.

    Args:
        function: `evaluate` or `train_metrics`.

    Raises:
        PluginError: if a third-party task raises an exception or returns a value that is not a metric, or if `evaluate` does
            not return the main metric of the card.
    """
    import torch  # late, because the cards of tasks are read without torch

    subject = f"task {task.card.name!r}: {function}"
    try:
        metrics = getattr(task, function)(*arguments)
    except Exception as error:
        if isinstance(error, RegistryError | torch.OutOfMemoryError) or CATALOG.location(task.card.name).is_builtin:
            raise
        raise PluginError(f"{subject} raised {type(error).__name__}: {error}") from error
    if not isinstance(metrics, Mapping):
        found = "None" if metrics is None else f"a {type(metrics).__name__}"
        raise PluginError(f"{subject}: expected a mapping from metric names to Readings, found {found}")
    for name, reading in metrics.items():
        if problem := _problem(name, reading):
            raise PluginError(f"{subject}: {problem}")
    if function == "evaluate" and task.card.headline and task.card.headline not in metrics:
        raise PluginError(
            f"{subject}: expected the main metric {task.card.headline!r} of the card, found {join_names(metrics) or 'none'}"
        )
    return dict(metrics)


def _problem(name: object, reading: object) -> str:
    """Return the reason why a task must not report this metric, or an empty string."""
    if not isinstance(name, str) or not name:
        return f"expected the name of a metric as text, found {name!r}"
    if name in DECLARED and name not in RANGES:
        return f"{name}: expected a metric that tasks may report, found a built-in metric that only diagnostics measure"
    if not isinstance(reading, Reading):
        return f"{name}: expected a Reading, found a {type(reading).__name__}; use Reading.of"
    if reading.value is None:
        return ""
    if isinstance(reading.value, bool) or not isinstance(reading.value, float | int):
        return f"{name}: expected a Python number, found a {type(reading.value).__name__}; use Reading.of"
    low, high = RANGES.get(name, (-math.inf, math.inf))
    if not low <= reading.value <= high:
        expected = f"a value from {low:g} to {high:g}" if high < math.inf else f"at least {low:g}"
        return f"{name}: expected {expected}, found {reading.value!r}"
    return ""


# For code that has labels but no data set, such as a third-party method.


def sample_losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the losses ℓ_i (N,) of the outputs (N, C). The type of the labels determines the task."""
    return task_of(labels).sample_losses(outputs, labels)


def target_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the labels as rows (N, C) of the outputs' dtype. The type of the labels determines the task."""
    return task_of(labels).target_rows(outputs, labels)


def output_error(outputs: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Return e = ∂ℓ_i/∂z_i, (N, C). The type of the labels determines the built-in task.

    Args:
        outputs: z (N, C).
        labels: class numbers (N,) or values (N, C).
        targets: the result of target_rows, if the caller has computed it.
    """
    return task_of(labels).output_error(outputs, labels, targets)
