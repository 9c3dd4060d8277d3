"""Results of property checks, and the two metrics that the checks use: relative error and cosine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry.deprecated_names import aliases

OUTCOMES = ("pass", "fail", "not_applicable")


@dataclass(frozen=True)
class CheckOutcome:
    """Result of one property on one case.

    Args:
        outcome: pass, fail or not_applicable.
        detail: the measured value, or the problem.
    """

    outcome: str
    detail: str


@dataclass(frozen=True)
class PropertyResult:
    """Result of one property over all cases; if it fails, `detail` names the case and its seed."""

    property: str
    outcome: str
    detail: str


def passed(detail: str) -> CheckOutcome:
    return CheckOutcome("pass", detail)


def failed(detail: str) -> CheckOutcome:
    return CheckOutcome("fail", detail)


def inapplicable(detail: str) -> CheckOutcome:
    return CheckOutcome("not_applicable", detail)


def within(
    names: Sequence[str], observed: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float
) -> CheckOutcome:
    """Return whether each observed tensor equals its expected tensor within a relative tolerance.

    `tolerance` is relative to the largest entry of the expected tensor.
    """
    errors = {name: relative_error(*pair) for name, *pair in zip(names, observed, expected, strict=True)}
    worst = max(errors, key=lambda name: errors[name])
    figure = f"relative error {errors[worst]:.1e} at {worst}, allowed {tolerance:.0e}"
    return passed(f"largest {figure}") if errors[worst] <= tolerance else failed(figure)


def relative_error(observed: Tensor, expected: Tensor) -> float:
    """Return max|observed − expected| / max|expected|.

    It is infinite if shapes differ or a value is nan, and the absolute error if `expected` is zero.
    """
    if observed.shape != expected.shape:
        return float("inf")
    difference, scale = (observed - expected).abs().max().item(), expected.abs().max().item()
    error = difference / scale if scale else difference
    return error if error == error else float("inf")


def cosine(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return the cosine of two lists of tensors, each concatenated into one vector; nan if one is zero."""
    first, second = (torch.cat([tensor.flatten() for tensor in tensors]).double() for tensors in (left, right))
    return (first @ second / (first.norm() * second.norm())).item()


__getattr__ = aliases(__name__)
