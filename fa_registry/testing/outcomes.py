"""What a property check answers, and the two figures all of them are made of: relative error and cosine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry.deprecated_names import aliases

OUTCOMES = ("pass", "fail", "not_applicable")


@dataclass(frozen=True)
class CheckOutcome:
    """One property on one case. outcome: pass, fail or not_applicable. detail: the figure, or what is wrong."""

    outcome: str
    detail: str


@dataclass(frozen=True)
class PropertyResult:
    """One property over all cases; detail names the case and its seed where one fails."""

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
    """Whether each tensor observed is its expected one, to `tolerance` relative to the expected one's largest entry."""
    errors = {name: relative_error(*pair) for name, *pair in zip(names, observed, expected, strict=True)}
    worst = max(errors, key=lambda name: errors[name])
    figure = f"relative error {errors[worst]:.1e} at {worst}, allowed {tolerance:.0e}"
    return passed(f"largest {figure}") if errors[worst] <= tolerance else failed(figure)


def relative_error(observed: Tensor, expected: Tensor) -> float:
    """max|observed − expected| / max|expected|; infinite when shapes differ or anything is nan, absolute when expected is zero."""
    if observed.shape != expected.shape:
        return float("inf")
    difference, scale = (observed - expected).abs().max().item(), expected.abs().max().item()
    error = difference / scale if scale else difference
    return error if error == error else float("inf")


def cosine(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Cosine of two lists of tensors read as one long vector each; nan where one is zero."""
    first, second = (torch.cat([tensor.flatten() for tensor in tensors]).double() for tensors in (left, right))
    return (first @ second / (first.norm() * second.norm())).item()


__getattr__ = aliases(__name__)
