"""Judging against limits: one condition, or several that must all hold, under a guard that speaks first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fa_registry.protocol.operators import OPERATORS, Comparison
from fa_registry.protocol.rules import Condition, Rule
from fa_registry.protocol.takes import take
from fa_registry.records import GuardReading, Measurements, Reading


@dataclass(frozen=True)
class Decision:
    """outcome, state and guard as a Finding has them; fires: whether the rule does, None where that cannot be said.

    reason: why it cannot.
    """

    outcome: str
    state: str
    fires: bool | None
    reason: str = ""
    guard: GuardReading | None = None


def decide(rule: Rule, readings: Sequence[Reading], reference: Reading | None = None) -> Decision:
    """Whether a rule of limits fires on these readings: the leading condition, then the guard, then those that must hold too.

    readings: one a condition of `rule.conditions`, in their order and units. reference: what the leading condition is compared
    with. Where the leading condition or the guard cannot be said the rule is not applicable, with the reason; a further
    condition is looked at only where all before it fire.
    """
    first = OPERATORS[rule.fires].compare(readings[0], rule.threshold, reference)
    if first.fires is None:
        return Decision("not_applicable", "", None, first.reason)
    guard = compare(rule.guard, readings[-1]) if rule.guard else Comparison(False)
    if guard.fires is None:  # what may be noise is neither cleared nor condemned
        return _unknown(readings[0], rule.guard, guard)
    if guard.fires:
        seen = GuardReading(rule.guard.quantity, rule.guard.fires, readings[-1])
        return Decision("warn", rule.guard.fired, False, guard=seen)
    if not first.fires:
        return Decision("pass", rule.clear, False)
    for condition, reading in zip(rule.also, readings[1:], strict=False):
        further = compare(condition, reading)
        if further.fires is None:
            return _unknown(readings[0], condition, further)
        if not further.fires:
            return Decision("pass", condition.clear, False)
    return Decision(rule.outcome, rule.fired, True)


def look(rule: Rule, measurements: Measurements) -> list[Reading]:
    """The readings of all the rule's conditions at one moment."""
    return [take(condition.quantity, condition.take, measurements)[0] for condition in rule.conditions]


def compare(condition: Condition, reading: Reading) -> Comparison:
    """One condition that needs no reference."""
    return OPERATORS[condition.fires].compare(reading, condition.threshold, None)


def _unknown(observed: Reading, condition: Condition, comparison: Comparison) -> Decision:
    shown = observed.reason if observed.value is None else f"{observed.value:.4g}"
    reason = f"{shown}, but {condition.quantity} is N/A: {comparison.reason}"
    return Decision("not_applicable", "", None, reason)
