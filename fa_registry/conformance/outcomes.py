"""Results of property checks, and the relative error and cosine of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

OUTCOMES = ("pass", "fail", "not_applicable", "not_tested")
SIGN = "sign"  # name of the result that reports whether a property determines the sign of the credit


@dataclass(frozen=True)
class CheckOutcome:
    """Result of one property on one network.

    `outcome` is "pass", "fail" or "not_applicable". `detail` is the measured value, or the problem.
    """

    outcome: str
    detail: str


@dataclass(frozen=True)
class PropertyResult:
    """Outcome of one property on all networks; a failure's detail contains the network and its seed.

    The property SIGN has the outcome "not_tested" if no property of the card determines the sign of the credit.
    """

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
    """Check that every tensor is close to its expected tensor.

    `names` are for the message. `tolerance` is the largest error allowed, relative to the largest entry of the expected tensor.
    """
    errors = {name: relative_error(*pair) for name, *pair in zip(names, observed, expected, strict=True)}
    worst = max(errors, key=lambda name: errors[name])
    figure = f"relative error {errors[worst]:.1e} at {worst}, allowed {tolerance:.0e}"
    return passed(f"largest {figure}") if errors[worst] <= tolerance else failed(figure)


def relative_error(observed: Tensor, expected: Tensor) -> float:
    """Return max|observed − expected| / max|expected|.

    The result is infinite if the shapes differ or a value is nan. If `expected` is zero, the result is the absolute error.
    """
    if observed.shape != expected.shape:
        return float("inf")
    difference, scale = (observed - expected).abs().max().item(), expected.abs().max().item()
    error = difference / scale if scale else difference
    return error if error == error else float("inf")


def cosine(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return the cosine of two lists of tensors, each concatenated into one vector.

    The result is nan if one vector is zero.
    """
    first, second = (torch.cat([tensor.flatten() for tensor in tensors]).double() for tensors in (left, right))
    return (first @ second / (first.norm() * second.norm())).item()
