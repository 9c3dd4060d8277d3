"""Comparison operators that an edition may use.

The rules of an edition are data and cannot add operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fa_registry.records import Reading


@dataclass(frozen=True)
class LimitCheck:
    """Result of a comparison with a limit. If it has no result, `fires` is None, and `reason` says why."""

    fires: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Operator:
    """Comparison of a metric with a limit.

    `compare` is a function of the observed reading, the threshold and the reference. `describe` is a text template for the
    requirement, such as `at least {threshold:g} pp above the frozen control`.
    """

    compare: Callable[[Reading, float, Reading | None], LimitCheck]
    describe: str
    needs_reference: bool = False


def above(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed > threshold.

    Both values are in the unit of the metric. Without an observed value, the result is None. The operator fires if the value is
    not finite.
    """
    if observed.not_finite:  # inf and nan count as above every limit
        return LimitCheck(True)
    if observed.value is None:
        return LimitCheck(None, observed.reason)
    return LimitCheck(observed.value > threshold)


def below(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed < threshold.

    Both values are in the unit of the metric. Without an observed value, the result is None. A value that is not finite
    is treated as missing, because a run that explodes has not collapsed (tests/protocol/test_engine.py).
    """
    if observed.value is None:
        return LimitCheck(None, observed.reason)
    return LimitCheck(observed.value < threshold)


def below_reference_plus(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed − reference < threshold.

    Observed value and reference are fractions 0..1; the threshold is in percentage points. If one of the values is missing, the
    result is None. Source: D3 of arXiv 2606.21126.
    """
    if observed.value is None or reference is None or reference.value is None:
        missing = observed if observed.value is None else reference
        return LimitCheck(None, missing.reason if missing else "no frozen control of the same setting and seed")
    return LimitCheck(margin_pp(observed.value, reference.value) < threshold)


def above_reference_minus(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if reference − observed < threshold, for metrics such as a loss, where a lower value is better.

    All three values are in the unit of the metric. If observed value or reference are missing, the result is None.
    """
    if observed.value is None or reference is None or reference.value is None:
        missing = observed if observed.value is None else reference
        return LimitCheck(None, missing.reason if missing else "no frozen control of the same setting and seed")
    from fa_registry.metrics import TOKEN_LOSS  # imports numpy, which --help does not need

    return LimitCheck(TOKEN_LOSS.difference(observed.value, reference.value) < threshold)


def margin_pp(accuracy: float, reference: float) -> float:
    """Return accuracy − reference in percentage points; both arguments are fractions."""
    from fa_registry.metrics import ACCURACY  # imports numpy, which --help does not need

    return ACCURACY.difference(accuracy, reference)


OPERATORS: dict[str, Operator] = {
    "above": Operator(above, "at most {threshold:g}"),
    "below": Operator(below, "at least {threshold:g}"),
    "below_reference_plus": Operator(
        below_reference_plus, "at least {threshold:g} pp above the frozen control", needs_reference=True
    ),
    "above_reference_minus": Operator(
        above_reference_minus, "at least {threshold:g} nats below the frozen control", needs_reference=True
    ),
}
