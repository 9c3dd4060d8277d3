"""Judging a run by a rule: against limits, and by its margin over seeds."""

from __future__ import annotations

from collections.abc import Sequence

from fa_registry.protocol.cases import Case, Margins, Reference, SeedGroup, shortened
from fa_registry.protocol.findings import finding, limit, skipped_control
from fa_registry.protocol.limits import decide, look
from fa_registry.protocol.operators import margin_pp
from fa_registry.protocol.rules import Rule
from fa_registry.protocol.takes import take
from fa_registry.protocol.verdict import PROVISIONAL
from fa_registry.records import Finding, Reading
from fa_registry.statistics import level_words, look_confidence

UNDECIDED, STATED, OTHER_SET = "UNDECIDED", "STATED", "OTHER SET"
MARGIN = "margin_pp"  # a finding over seeds shows the margin in percentage points, not the accuracy it comes from


def judge_limit(rule: Rule, case: Case, group: SeedGroup) -> Finding:
    """One run's figure against its limit, and against the frozen control where the rule asks for one."""
    observed, site = take(rule.quantity, rule.take, case.record.measurements)
    if case.control and rule.reference:
        return skipped_control(rule, case, observed, site=site)
    reference = case.reference(rule.reference) if rule.reference else None
    readings = look(rule, case.record.measurements)
    decision = decide(rule, readings, reference.reading if reference else None)
    outcome, state, words = decision.outcome, decision.state, decision.reason
    if decision.fires is not None:
        words = _observed(rule, readings, reference, decision.state)
        doubts = [case.other_set] if reference and case.other_set else []
        if reference and (reference.stated or doubts):
            outcome, state = _at_most_warned(outcome, state, reference.stated)
            words = "; ".join([f"{words}: {state}", *doubts])
    elif reference and observed.value is not None:
        outcome = rule.without_reference
    crossed = rule.fires if decision.fires else ""
    return finding(rule, case, outcome, observed, words, site=site, state=state, crossed=crossed, guard=decision.guard)


def _at_most_warned(outcome: str, state: str, stated: bool) -> tuple[str, str]:
    """With a figure that nobody measured here, or that is not of the test set, nothing passes; what fails even so, fails."""
    return ("warn", STATED if stated else OTHER_SET) if outcome == "pass" else (outcome, state)


def _observed(rule: Rule, readings: Sequence[Reading], reference: Reference | None, state: str) -> str:
    observed, *further = readings
    if observed.value is None:
        return observed.reason
    if reference:
        margin = margin_pp(observed.value, reference.reading.value)
        return f"{observed.value:.4f} against {reference.reading.value:.4f} {reference.words} ({margin:+.2f} pp)"
    names = [condition.quantity for condition in rule.conditions[1:]]
    known = [
        f"{name} {reading.value:.6g}" for name, reading in zip(names, further, strict=True) if reading.value is not None
    ]
    return f"{observed.value:.4g}" + (f" ({', '.join(known)}): {state}" if names else "")


def judge_over_seeds(rule: Rule, case: Case, group: SeedGroup) -> Finding:
    """The margin over the frozen control with its interval over seeds: it clears, undercuts, or decides nothing."""
    limits = f"{limit(rule.conditions[0])} by the whole {level_words(look_confidence(group.look))} interval over seeds"
    if case.control:
        return skipped_control(rule, case, Reading(None, "a control has no margin"), quantity=MARGIN, limits=limits)
    margins = group.margins
    if margins.mean is None or case.record.spec.seed not in margins.seeds:  # no run passes on other seeds' margins
        reason = "; ".join(margins.notes)
        return finding(
            rule, case, "not_applicable", Reading(None, reason), reason, quantity=MARGIN, limits=limits, seeds=0
        )
    outcome, state, words = _seeds_outcome(rule, margins, group.look)
    if margins.stated or margins.other_set:
        outcome, state = _at_most_warned(outcome, state, margins.stated)
    return finding(
        rule,
        case,
        outcome,
        Reading(margins.mean),
        "; ".join([f"{margins.mean:+.2f} pp{words}: {state}", *margins.notes]),
        quantity=MARGIN,
        limits=limits,
        state=state,
        crossed=rule.fires if margins.interval and margins.interval[1] < rule.threshold else "",
        interval=margins.interval,
        seeds=len(margins.seeds),
        stated=margins.stated,
        confidence=margins.confidence if margins.interval else None,
        look=group.look,
    )


def _seeds_outcome(rule: Rule, margins: Margins, look: int) -> tuple[str, str, str]:
    """outcome, state, and what the sentence says of the estimate."""
    seeds = ", ".join(shortened(margins.seeds))
    if margins.interval is None:
        side = "below" if margins.mean < rule.threshold else "not below"
        return "warn", PROVISIONAL, f" at the one seed {seeds}, {side} {rule.threshold:g} pp but without an interval"
    low, high = margins.interval
    why = f", since this is look {look} at a set of its seeds that changed after an audit:" if look > 1 else ""
    words = f" ({level_words(margins.confidence)} interval{why} {low:+.2f} to {high:+.2f} pp over seeds {seeds})"
    if high < rule.threshold:
        return rule.outcome, rule.fired, words
    return ("pass", rule.clear, words) if low >= rule.threshold else ("warn", UNDECIDED, words)
