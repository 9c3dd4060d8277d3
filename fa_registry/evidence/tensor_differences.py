"""Differences between recorded and recomputed tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from fa_registry.errors import join_names


def misfit(recorded: Mapping[str, Tensor], recomputed: Mapping[str, Tensor]) -> str:
    """Return a text if the names, shapes or types of two sets of tensors differ, or an empty string."""
    if set(recorded) != set(recomputed):
        return f"expected the tensors {join_names(sorted(recomputed))}, found {join_names(sorted(recorded)) or 'none'}"
    for name, tensor in recomputed.items():
        if recorded[name].shape != tensor.shape or recorded[name].dtype != tensor.dtype:
            shapes = f"{tuple(tensor.shape)} of {tensor.dtype}, found {tuple(recorded[name].shape)} of {recorded[name].dtype}"
            return f"{name}: expected {shapes}"
    return ""


def relative_difference(recorded: Tensor, recomputed: Tensor) -> float:
    """Return max|recorded − recomputed| / max|recomputed| as a number.

    The result is 0 if both tensors are equal bit by bit, including inf and nan.
    """
    if equal_entries(recorded, recomputed):
        return 0.0
    error = (recorded.double() - recomputed.double()).abs().max().item() / (
        recomputed.double().abs().max().item() or 1.0
    )
    return error if error == error else float("inf")


def equal_entries(first: Tensor, second: Tensor) -> bool:
    """Return whether all entries of two tensors are equal; nan equals nan."""
    return bool(((first == second) | ((first != first) & (second != second))).all())


def deviation(
    names: Sequence[str], recorded: Mapping[str, Tensor], replayed: Mapping[str, Tensor], start: Mapping[str, Tensor]
) -> tuple[float, bool]:
    """Return the relative distance between two states, and whether the replay changed a tensor.

    If the replay changed a tensor, the distance is ‖recorded − replayed‖ / ‖replayed − start‖. Otherwise the distance is the
    largest `relative_difference` of any tensor.

    Args:
        names: the tensors to compare.
        replayed: the state at the end of the replay.
        start: the state before the replay.
    """
    if any(not equal_entries(replayed[name], start[name]) for name in names):
        return share_of_the_way(names, recorded, replayed, start), True
    return max((relative_difference(recorded[name], replayed[name].cpu()) for name in names), default=0.0), False


def share_of_the_way(
    names: Sequence[str], recorded: Mapping[str, Tensor], replayed: Mapping[str, Tensor], start: Mapping[str, Tensor]
) -> float:
    """Return ‖recorded − replayed‖ / ‖replayed − start‖ over all tensors `names`."""
    if not names:
        return 0.0
    squared_difference = sum(
        (recorded[name].double() - replayed[name].cpu().double()).square().sum().item() for name in names
    )
    squared_distance = sum((replayed[name] - start[name]).double().square().sum().item() for name in names)
    error = (squared_difference / squared_distance) ** 0.5 if squared_distance else float("inf")
    return error if error == error else float("inf")
