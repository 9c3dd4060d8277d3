"""The closed set of comparisons an edition may use. Rules are data, and data cannot bring code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fa_registry.records import Reading


@dataclass(frozen=True)
class LimitCheck:
    """fires: whether the limit is crossed, None where that cannot be said. reason: why not."""

    fires: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Operator:
    """compare(observed, threshold, reference); words: how a report puts what is *required*."""

    compare: Callable[[Reading, float, Reading | None], LimitCheck]
    describe: str
    needs_reference: bool = False


def above(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fires when observed > threshold, both in the quantity's unit; on the limit it does not.

    A scale that is no longer finite is above every limit. Cannot be said where the figure has no value, with its reason.
    `reference` is not looked at.
    """
    if observed.not_finite:
        return LimitCheck(True)
    if observed.value is None:
        return LimitCheck(None, observed.reason)
    return LimitCheck(observed.value > threshold)


def below(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fires when observed < threshold, both in the quantity's unit; on the limit it does not.

    Cannot be said where the figure has no value, one that is not finite included: no run collapsed because it exploded
    (tests/protocol/test_engine.py). `reference` is not looked at.
    """
    if observed.value is None:
        return LimitCheck(None, observed.reason)
    return LimitCheck(observed.value < threshold)


def below_reference_plus(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fires when observed − reference < threshold; both are fractions 0..1, the threshold is in percentage points.

    So at the required margin exactly it does not. Cannot be said where either has no value. Source: D3 of arXiv 2606.21126.
    """
    if observed.value is None or reference is None or reference.value is None:
        missing = observed if observed.value is None else reference
        return LimitCheck(None, missing.reason if missing else "no frozen control of the same setting and seed")
    return LimitCheck(margin_pp(observed.value, reference.value) < threshold)


def margin_pp(accuracy: float, reference: float) -> float:
    """accuracy − reference in percentage points, of two fractions.

    Rounded to 1e-9 pp: .82 − .80 is 1.9999999999999996 in binary, and a run exactly on the limit would fail
    (tests/protocol/test_judges.py: exactly two points above frozen clears).
    """
    return round((accuracy - reference) * 100, 9)


OPERATORS: dict[str, Operator] = {
    "above": Operator(above, "at most {threshold:g}"),
    "below": Operator(below, "at least {threshold:g}"),
    "below_reference_plus": Operator(
        below_reference_plus, "at least {threshold:g} pp above the reference", needs_reference=True
    ),
}
