"""Tasks, one per file.

A task defines the loss, the error at the outputs, the main metric, and the conversion of targets to rows of the outputs' shape.
"""

from collections.abc import Mapping

from torch import Tensor

from fa_registry.errors import PluginError, UsageError
from fa_registry.metrics import ACCURACY, DECLARED, HEADLINES
from fa_registry.plugin_registry import Catalog
from fa_registry.records import Reading
from fa_registry.tasks.base import NO_CLASSES, NO_TOKENS, Task, TaskCard

__all__ = [
    "CATALOG",
    "NO_CLASSES",
    "NO_TOKENS",
    "Task",
    "TaskCard",
    "is_regression",
    "output_error",
    "reported_metrics",
    "sample_losses",
    "target_rows",
    "task_of",
]

# Built-in metrics that a task computes.
OF_TASKS = (*HEADLINES, "accuracy_train", "perplexity", "bits_per_token")
CATALOG = Catalog("tasks", "task", Task, card=TaskCard)


def task_of(targets: Tensor, name: str = "") -> Task:
    """Return the task with this name, or the built-in task for the targets' dtype.

    Args:
        targets: class numbers (N,) or values (N, C).
        name: name of the task, as in DatasetCard.task. If it is empty, as in a training loop of the user, the dtype decides.

    Raises:
        UnknownName: no task has this name.
        UsageError: the name is empty and no built-in task takes targets of this dtype.
    """
    if name:
        return CATALOG.get(name)
    for builtin in CATALOG.builtin_names():
        task = CATALOG.get(builtin)
        if task.takes(targets):
            return task
    raise UsageError(f"expected integer class numbers or floating-point target values, found {targets.dtype} targets")


def reported_metrics(task: Task, metrics: Mapping[str, Reading]) -> dict[str, Reading]:
    """Return metrics that a task computed.

    Raises:
        PluginError: if a third-party task returned a metric that a built-in diagnostic measures, or an accuracy outside 0 to 1.
    """
    reserved = sorted(name for name in metrics if name in DECLARED and name not in OF_TASKS)
    accuracy = metrics.get(ACCURACY.name)
    if reserved:
        raise PluginError(
            f"task {task.card.name!r} returned built-in metrics that only diagnostics measure: {', '.join(reserved)}"
        )
    if accuracy is not None and accuracy.value is not None and not 0 <= accuracy.value <= 1:
        raise PluginError(f"task {task.card.name!r}: expected an accuracy from 0 to 1, found {accuracy.value!r}")
    return dict(metrics)


# For code that has labels but no data set, such as a third-party method.


def is_regression(labels: Tensor) -> bool:
    """Return whether labels are target values (N, C) rather than class numbers (N,)."""
    return labels.is_floating_point()


def sample_losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return ℓ_i, (N,), of outputs z (N, C), for the built-in task of the labels' type."""
    return task_of(labels).sample_losses(outputs, labels)


def target_rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the labels as rows (N, C) in the outputs' type, for the built-in task of the labels' type."""
    return task_of(labels).target_rows(outputs, labels)


def output_error(outputs: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Return e = ∂ℓ_i/∂z_i, (N, C), for the built-in task of the labels' type.

    Args:
        outputs: z (N, C).
        labels: class numbers (N,) or values (N, C).
        targets: the result of target_rows, if the caller has computed it.
    """
    return task_of(labels).output_error(outputs, labels, targets)
