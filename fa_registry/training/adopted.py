"""Putting weights and feedback that were trained elsewhere into a task, or saying everything that does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from fa_registry.errors import InvalidFields
from fa_registry.training.foreign import NESTS, fitted, named_tensors, unnested
from fa_registry.training.recompute import NOT_GIVEN
from fa_registry.training.task import Task

FEEDBACK_NESTS = (*NESTS, "feedback", "feedback_state", "B")
OURS = re.compile(r"B_\d+")  # methods.base.FixedMatrices: one matrix a block, so that an order is enough to name them
NUMBERED = re.compile(r"(\D*)(\d+)(\D*)")


def put_into(task: Task, weights: Any, feedback: Any | None) -> str:
    """Load what foreign files hold into the task's network and feedback state; all misfits of both are named together.

    weights, feedback: as `read_foreign` returns them; feedback None where none was given. Returns why the credits cannot be
    computed, empty where they can: for `measure`.
    """
    network = task.network.state_dict()
    state = task.feedback.state_dict()
    loaded, problems = _taken("weights", network, lambda: named_tensors(weights))
    given: dict[str, Tensor] = {}
    if feedback is not None and not state:
        problems.append(f"feedback: expected none, the method {task.spec.method!r} has no feedback state")
    elif feedback is not None:
        given, misfits = _taken("feedback", state, lambda: feedback_tensors(feedback, list(state)))
        problems += misfits
        problems += [
            f"feedback: {name}: expected finite numbers, found inf or nan"
            for name, tensor in given.items()
            if not tensor.isfinite().all()
        ]
    if problems:
        raise InvalidFields("adopt", problems)
    task.network.load_state_dict(loaded)
    if given:
        task.feedback.load_state_dict(given)
    return NOT_GIVEN if state and feedback is None else ""


def _taken(
    field: str, expected: Mapping[str, Tensor], read: Callable[[], Mapping[str, Any]]
) -> tuple[dict[str, Tensor], list[str]]:
    try:
        tensors, problems = fitted(expected, read())
    except ValueError as error:
        tensors, problems = {}, [str(error)]
    return tensors, [f"{field}: {problem}" for problem in problems]


def feedback_tensors(held: Any, names: list[str]) -> dict[str, Any]:
    """The feedback tensors of a file by our `names`.

    held: tensors by our names; or, where ours are B_01, B_02, …, a list B_1..B_L or any other names with one running number
    (`B.0`, `feedback.1`), which are taken in the order of their numbers.
    """
    inside = unnested(held, FEEDBACK_NESTS)
    numbered = all(OURS.fullmatch(name) for name in names)
    if isinstance(inside, (list, tuple)):
        if not numbered:
            raise ValueError(f"expected tensors by name ({', '.join(names)}), found a list")
        return _in_order(list(inside), names)
    tensors = named_tensors(inside, ())
    if not numbered or set(tensors) & set(names):
        return tensors
    ordered = _by_number(tensors)
    return tensors if ordered is None else _in_order(ordered, names)


def _in_order(matrices: list[Any], names: list[str]) -> dict[str, Any]:
    if len(matrices) != len(names):
        raise ValueError(f"expected {len(names)} matrices, {names[0]} to {names[-1]}, found {len(matrices)}")
    return dict(zip(names, matrices, strict=True))


def _by_number(tensors: Mapping[str, Any]) -> list[Any] | None:
    """The values in the order of the one number in their names; None where the names are not of that kind."""
    parts = {name: NUMBERED.fullmatch(name) for name in tensors}
    if not parts or not all(parts.values()) or len({part.group(1, 3) for part in parts.values()}) > 1:
        return None
    order = sorted(tensors, key=lambda name: int(parts[name][2]))
    numbers = [int(parts[name][2]) for name in order]
    if numbers[0] not in (0, 1) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise ValueError(f"expected names numbered from 0 or 1 without a gap, found {', '.join(order)}")
    return [tensors[name] for name in order]
