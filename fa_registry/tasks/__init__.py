"""Tasks, one file each: the loss, the error, the headline metric and the rows of a network's targets."""

from torch import Tensor

from fa_registry.errors import UsageError
from fa_registry.plugin_registry import Catalog
from fa_registry.tasks.base import NO_TOKENS, Task, TaskCard

__all__ = ["CATALOG", "NO_TOKENS", "Task", "TaskCard", "task_of"]

CATALOG = Catalog("tasks", "task", Task, card=TaskCard)


def task_of(targets: Tensor, name: str = "") -> Task:
    """Return the task with this name. If the name is empty, return the built-in task of the targets' type.

    Args:
        targets: class numbers (N,) or values (N, C).
        name: DatasetCard.task; a user's own loop has none.

    Raises:
        UnknownName: no task has this name.
        UsageError: the name is empty and no built-in task takes targets of this type.
    """
    if name:
        return CATALOG.get(name)
    for builtin in CATALOG.builtin_names():
        task = CATALOG.get(builtin)
        if task.takes(targets):
            return task
    raise UsageError(f"expected integer class numbers or floating-point target values, found {targets.dtype} targets")
