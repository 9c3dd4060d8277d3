"""All comparisons that an edition may use. Rules are data and cannot add code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fa_registry.records import Reading


@dataclass(frozen=True)
class LimitCheck:
    """Result of a comparison with a limit: whether it fires, or None with the reason."""

    fires: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Operator:
    """A comparison with a limit; `describe` is the text of the *required* side of the limit.

    `compare` takes the observed reading, the threshold and the reference.
    """

    compare: Callable[[Reading, float, Reading | None], LimitCheck]
    describe: str
    needs_reference: bool = False


def above(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed > threshold, both in the metric's unit; undecided (None) without a value."""
    if observed.not_finite:  # above every limit
        return LimitCheck(True)
    if observed.value is None:
        return LimitCheck(None, observed.reason)
    return LimitCheck(observed.value > threshold)


def below(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed < threshold, both in the metric's unit; undecided (None) without a value.

    A value that is not finite counts as no value: no run collapsed because it exploded (tests/protocol/test_engine.py).
    """
    if observed.value is None:
        return LimitCheck(None, observed.reason)
    return LimitCheck(observed.value < threshold)


def below_reference_plus(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed − reference < threshold; undecided (None) if one of the values is missing.

    Observed and reference are fractions 0..1, the threshold is in percentage points. Source: D3 of arXiv 2606.21126.
    """
    if observed.value is None or reference is None or reference.value is None:
        missing = observed if observed.value is None else reference
        return LimitCheck(None, missing.reason if missing else "no frozen control of the same setting and seed")
    return LimitCheck(margin_pp(observed.value, reference.value) < threshold)


def margin_pp(accuracy: float, reference: float) -> float:
    """Return accuracy − reference in percentage points; both are fractions.

    Rounded to 1e-9 pp: .82 − .80 is 1.9999999999999996 in binary, and a run exactly on the limit would fail
    (tests/protocol/test_rule_evaluation.py: exactly two points above frozen clears).
    """
    return round((accuracy - reference) * 100, 9)


OPERATORS: dict[str, Operator] = {
    "above": Operator(above, "at most {threshold:g}"),
    "below": Operator(below, "at least {threshold:g}"),
    "below_reference_plus": Operator(
        below_reference_plus, "at least {threshold:g} pp above the reference", needs_reference=True
    ),
}
