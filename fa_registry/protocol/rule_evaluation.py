"""Evaluation of one rule for a run.

The module evaluates conditions and guards, the first epoch at which a rule fires, and margins over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Literal

from fa_registry.metrics import HEADLINES, Headline, metric_named
from fa_registry.protocol.edition_schema import LIMIT, REFERENCE_METRICS, FarSeed
from fa_registry.protocol.evidence_rules import not_counted
from fa_registry.protocol.operators import OPERATORS, LimitCheck, take, trajectory
from fa_registry.protocol.paired_runs import ControlReference, Margins, RunWithControl, SeedGroup, shortened
from fa_registry.protocol.rules import Condition, Rule
from fa_registry.records import (
    FROZEN_LONG,
    LONGER,
    NORMALISED,
    NOT_DUE,
    REPLACED,
    STREAM,
    ControlMargin,
    Finding,
    FurtherLimit,
    GuardReading,
    Inapplicable,
    Measurements,
    Reading,
    RunRecord,
    Scalar,
    Side,
    UndecidedCause,
)
from fa_registry.statistics import LEAST_SEEDS, far_values, level_text, look_confidence, scatter_text


@dataclass(frozen=True)
class RuleOutcome:
    """Outcome of a rule that compares metrics with limits.

    Args:
        outcome, state: outcome and state of the rule, such as "pass" and "OK", or "warn" and "EXPLODED"; see Finding.
        fires: whether the rule fires, or None if this is unknown for the reason `reason`.
        guard: reading of the guard if the guard fired, otherwise None.
        shown: index in `Rule.conditions` of the condition that a finding shows.
    """

    outcome: str
    state: str
    fires: bool | None
    reason: str = ""
    guard: GuardReading | None = None
    shown: int = 0


def decide(
    rule: Rule, readings: Sequence[Reading], reference: Reading | None = None, at_epoch: bool = False
) -> RuleOutcome:
    """Decide whether a rule that compares metrics with limits fires.

    The rule fires if the leading condition or an alternative fires, the guard does not fire, and every further condition fires. If
    the guard fires, the outcome is a warning. Further conditions are checked in order until one does not fire. If a guard has two
    conditions and only one of them has a value, this condition decides.

    The rule is not applicable in three cases:

    - Neither the leading condition nor an alternative fires, and at least one of these conditions has no value.
    - The guard has no value.
    - A further condition that is checked has no value.

    The readings have the order of `rule.conditions` and the units of the conditions. The leading condition is compared with
    `reference`. During training (`at_epoch`), a guard may not be due: the rule then does not fire if it would not without a
    guard, and is not applicable if it would.
    """
    readings = list(readings)
    alternatives = [
        OPERATORS[rule.fires].compare(readings[0], rule.threshold, reference),
        *map(compare, rule.either, readings[1:]),
    ]
    shown_index = next((index for index, item in enumerate(alternatives) if item.fires), 0)
    first = alternatives[shown_index]
    unknown = [index for index, item in enumerate(alternatives) if item.fires is None]
    if unknown and not first.fires:
        leading = alternatives[0]
        if leading.fires is None:
            return RuleOutcome("not_applicable", "", None, leading.reason)
        return _unknown(readings[0], rule.conditions[unknown[0]], alternatives[unknown[0]])
    readings = [readings[shown_index], *readings[len(alternatives) :]]  # order: leading, also, guards
    guards = [
        (item, guard_reading, compare(item, guard_reading))
        for item, guard_reading in zip(rule.guards, readings[1 + len(rule.also) :], strict=False)
    ]
    valued_guards = [item for item in guards if item[2].fires is not None]
    is_guard_due = not (at_epoch and guards and all(reading.kind == NOT_DUE for _, reading, _ in guards))
    if (
        guards and not valued_guards and is_guard_due
    ):  # without its guard the reading may be noise, so the rule neither passes nor fails
        return _unknown(readings[0], guards[0][0], guards[0][2])
    if valued_guards and all(comparison.fires for *_, comparison in valued_guards):
        condition, reading, _ = valued_guards[0]
        return RuleOutcome(
            "warn", rule.guard.fired, False, guard=GuardReading(condition.quantity, condition.fires, reading)
        )
    if not first.fires:
        return RuleOutcome("pass", rule.clear, False)
    for condition, reading in zip(rule.also, readings[1:], strict=False):
        further = compare(condition, reading)
        if further.fires is None:
            return _unknown(readings[0], condition, further)
        if not further.fires:
            return RuleOutcome("pass", condition.clear, False)
    if not is_guard_due:
        return _unknown(readings[0], guards[0][0], guards[0][2])
    return RuleOutcome(rule.outcome, fired_word(rule, shown_index), True, shown=shown_index)


def fired_word(rule: Rule, shown_index: int) -> str:
    """Return the state of the rule if the condition with index `shown_index` fires."""
    return (shown_index and rule.conditions[shown_index].fired) or rule.fired


def evaluate_rule(rule: Rule, measurements: Measurements) -> list[Reading]:
    """Return one reading per condition of the rule."""
    return [take(condition.quantity, condition.take, measurements)[0] for condition in rule.conditions]


def compare(condition: Condition, reading: Reading) -> LimitCheck:
    """Compare a reading with a condition that needs no reference."""
    return OPERATORS[condition.fires].compare(reading, condition.threshold, None)


def _unknown(observed: Reading, condition: Condition, comparison: LimitCheck) -> RuleOutcome:
    observed_text = observed.reason if observed.value is None else f"{observed.value:.4g}"
    reason = f"{observed_text}, but {metric_named(condition.quantity).symbol} is N/A: {comparison.reason}"
    return RuleOutcome("not_applicable", "", None, reason)


NOT_FOLLOWED = Reading(None, "the metric was not recorded at every epoch")


def first_fire(rule: Rule, record: RunRecord) -> int | None:
    """Return the first epoch at which the rule fires, or None.

    Epoch 0 is the initialisation. The result is also None if the rule needs a reference, other seeds, or a metric that is not
    recorded at every epoch. For an adopted run, the result is None because only the end of its training was measured. It is also
    None if the rule does not apply to the run.
    """
    if not _by_epoch(rule) or record.spec.weights or inapplicable(rule, record.measurements.conventions.get(STREAM)):
        return None
    leading, *further = (
        record.trajectory.get(trajectory(condition.quantity, condition.take)) for condition in rule.conditions
    )
    if leading is None:
        return None
    trajectories = (leading, *(repeat(NOT_FOLLOWED) if values is None else values for values in further))
    for epoch, readings in enumerate(zip(*trajectories, strict=False)):
        if decide(rule, readings, at_epoch=True).fires:
            return epoch
    return None


def inapplicable(rule: Rule, stream: Scalar | None) -> Inapplicable | Literal[""]:
    """Return why a rule does not apply to a network with this kind of stream, or an empty string."""
    return "no residual stream" if rule.needs_stream and stream == REPLACED else ""


def fires_now(rule: Rule, measurements: Measurements) -> bool | None:
    """Return whether the rule fires on the measurements of one epoch; None if this cannot be decided."""
    return decide(rule, evaluate_rule(rule, measurements), at_epoch=True).fires if _by_epoch(rule) else None


def _by_epoch(rule: Rule) -> bool:
    return rule.judge == LIMIT and not rule.reference


def finding(
    rule: Rule,
    case: RunWithControl,
    outcome: str,
    observed: Reading,
    text: str,
    limits: str = "",
    **other_fields: object,
) -> Finding:
    """Return the Finding of a rule about a run.

    `text` describes the observed value in the finding's sentence. `limits` is the text of the requirement; by default, the limits
    of the rule's conditions.
    """
    limits = limits or required(rule)
    reference = case.reference(rule.reference) if rule.reference else None
    fields: dict[str, object] = {
        "rule": rule.code,
        "title": rule.title,
        "outcome": outcome,
        "quantity": rule.quantity,
        "observed": observed,
        "required": f"{limits} ({rule.unit})",
        "limit": limits,
        "sentence": f"{rule.code} {rule.title}: required {limits}, observed {text}",
        "run_id": case.record.run_id,
        "gating": rule.gating,
        "threshold": rule.threshold,
        "reference_run_id": reference.run_id if reference else "",
        "stated": reference.stated if reference else False,
        "first_fire": first_fire(rule, case.record),
        "further": other_limits(rule, 0),
    }
    return Finding(**{**fields, **other_fields})


def other_limits(rule: Rule, shown_index: int) -> tuple[FurtherLimit, ...]:
    """Return the limits of all conditions except the condition with index `shown_index`."""
    other_conditions = [condition for index, condition in enumerate(rule.conditions) if index != shown_index]
    return tuple(FurtherLimit(condition.quantity, condition.threshold) for condition in other_conditions)


def required(rule: Rule) -> str:
    """Return the requirement of a rule as text."""
    # A run must keep the limits of the leading condition and all alternatives, or one further limit; the guard's limit always.
    leading_limits = " and ".join([limit(rule.conditions[0]), *map(named_limit, rule.either)])
    alternatives = " or ".join([leading_limits, *map(named_limit, rule.also)])
    guard_limits = " or ".join(map(named_limit, rule.guards))
    return f"{alternatives}, and {guard_limits}" if guard_limits else alternatives


def named_limit(condition: Condition) -> str:
    """Return the limit of a condition as text, with the symbol of its metric."""
    return f"{metric_named(condition.quantity).symbol} {limit(condition)}"


def limit(condition: Condition) -> str:
    return OPERATORS[condition.fires].describe.format(threshold=condition.threshold)


def skipped_control(rule: Rule, case: RunWithControl, observed: Reading, **other_fields: object) -> Finding:
    """Return a "skipped" finding for a control, because a control is not compared with itself."""
    reason = f"this run is the {case.record.spec.control} control"
    return finding(rule, case, "skipped", observed, reason, **other_fields)


UNDECIDED, STATED, OTHER_SET, AT_CHANCE = "UNDECIDED", "STATED", "OTHER SET", "AT CHANCE"


OTHER_HEADLINE = "the rule judges the {rule}, but the main metric of this run's task is the {run}"


def _headline(rule: Rule) -> Headline:
    """Return the headline whose margin the rule's operator computes."""
    return HEADLINES[REFERENCE_METRICS[rule.fires]]


def judge_limit(rule: Rule, case: RunWithControl, group: SeedGroup) -> Finding:
    """Compare a metric of one run with the limit of a rule.

    If the rule has a reference, the metric is compared with the same metric of the frozen control.
    """
    observed, site = take(rule.quantity, rule.take, case.record.measurements)
    if case.control and rule.reference:
        return skipped_control(rule, case, observed, site=site)
    stream = case.record.measurements.conventions.get(STREAM)
    if reason := inapplicable(rule, stream):
        absent = Reading(None, f"{reason}: the blocks replace the state, so no stream can grow")
        return finding(rule, case, "not_applicable", absent, absent.reason, inapplicable=reason)
    reference = case.reference(rule.reference) if rule.reference else None
    readings = evaluate_rule(rule, case.record.measurements)
    decision = decide(rule, readings, reference.reading if reference else None)
    outcome, state, text = decision.outcome, decision.state, decision.reason
    if decision.fires is not None:
        text = _observed(rule, readings, reference, decision.state)
        doubts = [case.other_set] if reference and case.other_set else []
        if reference and (reference.stated or doubts):
            outcome, state = _at_most_warned(outcome, state, reference.stated)
            text = "; ".join([f"{text}: {state}", *doubts])
    elif reference and observed.value is not None:
        outcome = rule.without_reference
    if outcome == "pass" and rule.needs_stream and stream == NORMALISED:
        outcome, state, text = "not_applicable", "", f"{text}, but {HIDDEN_STREAM}"
    facts = {"site": site, "state": state, "crossed": rule.fires if decision.fires else "", "guard": decision.guard}
    if decision.shown:
        condition = rule.conditions[decision.shown]
        observed, facts["site"] = take(condition.quantity, condition.take, case.record.measurements)
        facts |= {
            "quantity": condition.quantity,
            "threshold": condition.threshold,
            "crossed": condition.fires,
            "further": other_limits(rule, decision.shown),
        }
    return finding(rule, case, outcome, observed, text, **facts)


HIDDEN_STREAM = (
    "a norm ends a block and hides how far the stream has grown; name this norm in the attribute `stream` of the block"
)


def _at_most_warned(outcome: str, state: str, stated: bool) -> tuple[str, str]:
    """Turn a pass into a warning; leave other outcomes unchanged.

    The warning means that the reference is only stated by the author, or that the accuracy is not that of the test set.
    """
    return ("warn", STATED if stated else OTHER_SET) if outcome == "pass" else (outcome, state)


def _observed(rule: Rule, readings: Sequence[Reading], reference: ControlReference | None, state: str) -> str:
    observed, *further = readings
    if observed.value is None:
        return observed.reason
    if reference:
        headline = _headline(rule)
        margin = headline.signed(headline.difference(observed.value, reference.reading.value))
        return f"{observed.value:.4f} against {reference.reading.value:.4f} {reference.text} ({margin} {headline.unit})"
    names = [metric_named(condition.quantity).symbol for condition in rule.conditions[1:]]
    value_texts = [
        f"{name} {reading.value:.6g}" for name, reading in zip(names, further, strict=True) if reading.value is not None
    ]
    return f"{observed.value:.4g}" + (f" ({', '.join(value_texts)}): {state}" if names else "")


def judge_over_seeds(rule: Rule, case: RunWithControl, group: SeedGroup) -> Finding:
    """Judge the margin over the frozen control by the interval of the margin."""
    limits = (
        f"{limit(rule.conditions[0])} for the complete {level_text(look_confidence(group.look))} interval over seeds"
    )
    # a finding over seeds shows the margin, not the main metric
    headline = _headline(rule)
    margin = headline.margin
    if case.control:
        return skipped_control(rule, case, Reading(None, "a control has no margin"), quantity=margin, limits=limits)
    margins, outcome, reason = group.margins, "not_applicable", None
    if headline != margins.headline:
        reason = OTHER_HEADLINE.format(rule=headline.symbol, run=margins.headline.symbol)
    elif counted_run := group.superseded_by(case):
        outcome, reason = "skipped", not_counted(counted_run)
    elif margins.mean is None or case.record.spec.seed not in margins.seeds:  # other seeds' margins do not count
        reason = "; ".join(margins.notes)
    if reason is not None:
        return finding(rule, case, outcome, Reading(None, reason), reason, quantity=margin, limits=limits, seeds=0)
    obstacles = dict(_obstacles(rule, margins))
    outcome, state, causes = _decision(rule, margins, tuple(obstacles))
    if overruled := _overruled(rule, group, state):
        cause, obstacles[overruled[0]] = overruled
        outcome, state, causes = "warn", UNDECIDED, (cause,)
    if margins.other_set:
        outcome, state = _at_most_warned(outcome, state, stated=False)
    chance_text = _chance_text(margins) if state == AT_CHANCE or "accuracy at chance" in causes else ""
    shallow_text = f"over shallow: {_margin_text(margins.over_shallow)}" if margins.over_shallow else ""
    texts = (
        f"{_margin_text(margins, group.look)}: {state}",
        chance_text,
        *obstacles.values(),
        shallow_text,
        *margins.notes,
    )
    return finding(
        rule,
        case,
        outcome,
        Reading(margins.mean),
        "; ".join(filter(None, texts)),
        quantity=margin,
        limits=limits,
        state=state,
        crossed=rule.fires if state == rule.fired else "",
        undecided=causes,
        side=("above" if margins.mean >= rule.threshold else "below") if state == UNDECIDED else "",
        look=group.look,
        **_estimate_fields(margins),
    )


def _overruled(rule: Rule, group: SeedGroup, state: str) -> tuple[UndecidedCause, str] | None:
    """Return why a decision by the interval alone does not hold.

    The result is a pair (cause, text), or None if the decision holds.
    """
    margins, headline = group.margins, _headline(rule)
    if state not in (rule.fired, rule.clear):
        return None
    if group.family and not group.family.decides(group, rule.threshold):
        count = len(group.family.members(headline.name))
        text = f"the interval decides this method alone, but not as one of {count} methods of the setting (Holm's procedure)"
        return "several methods", text
    # elsewhere no digest can agree: the recorded results of the other seeds count only if they decide as the replays do
    if margins.replayed is not None and (margins.replayed < rule.threshold) != (state == rule.fired):
        margin = f"{headline.signed(margins.replayed)} {headline.unit}"
        text = f"the seeds that this audit trained again have a margin of {margin}, on the other side of the limit"
        return "replay on the other side", text
    return None


def _estimate_fields(margins: Margins) -> dict[str, object]:
    """Return the fields of a finding that describe the estimate over seeds."""
    over_long = margins.over_frozen_long
    return {
        "interval": margins.interval,
        "seeds": len(margins.seeds),
        "stated": margins.stated,
        "test": margins.test,
        "df": margins.df,
        "error_shares": margins.error_shares,
        "confidence": margins.confidence if margins.interval else None,
        "basis": _basis(margins),
        "over_frozen_long": over_long and ControlMargin(over_long.mean, over_long.interval, over_long.seeds),
    }


def _basis(margins: Margins) -> str:
    """Return a sentence about the assumption of the margin's interval.

    The text is empty without an interval over paired seeds.
    """
    if not margins.interval or margins.stated:
        return ""
    return scatter_text(list(margins.by_seed.values()), is_crossed=margins.error_shares is not None)


def _obstacles(rule: Rule, margins: Margins) -> Iterator[tuple[UndecidedCause, str]]:
    """Yield (cause, sentence) for each lack of evidence without which the interval decides nothing.

    Less evidence must neither pass nor fail a method that more evidence would not pass or fail.
    """
    if len(margins.seeds) < LEAST_SEEDS:
        yield "too few seeds", f"at least {LEAST_SEEDS} seeds decide the rule"
    over_long = margins.over_frozen_long if rule.frozen_long else None
    if left_out_text := "; ".join(_left_out(margins, over_long)):
        yield "seeds left out", left_out_text
    if margins.stated or (over_long and over_long.stated):
        yield "control unproven", "a control that is not proven decides nothing"
    if rule.chance and not margins.is_test_set_known:
        yield "test set unknown", "chance, or the error of the test set, is not recorded"
    elif rule.chance and margins.control and margins.contains_chance(margins.control):
        yield (
            "control at chance",
            f"the {margins.headline.symbol} of the frozen control, {_between(margins, margins.control)}, does not "
            f"{margins.headline.beats} chance, {margins.chance:.4f}, so a margin over this control shows nothing",
        )
    if rule.chance and margins.over_shallow and not _confirms(margins.over_shallow, margins, rule.threshold):
        yield (
            "control below shallow",
            "the frozen control is worse than the control without blocks (shallow), so its random blocks harm the network, and "
            "the margin over shallow does not confirm the result",
        )
    if over_long and not over_long.stated and _is_side_changed(margins, over_long, rule.threshold):
        yield (
            "depends on the length of training",
            f"over the control {FROZEN_LONG}, which trains {LONGER} times the epochs, the margin is {_margin_text(over_long)}, so "
            "the side of the limit depends on the length of training",
        )
    if rule.far_seed and margins.interval and (outlier_text := _far_seed(rule.far_seed, margins)):
        yield "outlier", outlier_text


def _left_out(margins: Margins, over_long: Margins | None) -> Iterator[str]:
    """Yield a sentence about the seeds that are left out, and about those without the control frozen_long."""
    if margins.left_out:
        yield f"without seed {', '.join(shortened(margins.left_out))}, the other seeds are a selection"
    if over_long and (missing := [seed for seed in margins.seeds if seed not in over_long.seeds]):
        yield f"seed {', '.join(shortened(missing))} has no control {FROZEN_LONG}, although other seeds have it"


def _confirms(over_shallow: Margins, margins: Margins, threshold: float) -> bool:
    """Return whether the margin over proven controls without blocks decides as `margins` do."""
    is_complete = over_shallow.seeds == margins.seeds and not over_shallow.stated
    return is_complete and not _is_side_changed(margins, over_shallow, threshold)


def _is_side_changed(margins: Margins, other: Margins, threshold: float) -> bool:
    """Return whether another control contradicts the margin over frozen, or does not confirm a pass."""
    side, other_side = (_decided_side(one, threshold) for one in (margins, other))
    return other_side != side if side == "above" else (side, other_side) == ("below", "above")


def _decided_side(margins: Margins, threshold: float) -> Side | Literal[""]:
    """Return the side of the limit with the whole interval, or "" if the interval contains it."""
    low, high = margins.interval or (-math.inf, math.inf)
    return "below" if high < threshold else "above" if low >= threshold else ""


# Obstacles to a comparison with the control, which do not matter if the method itself is at chance.
OF_COMPARISON = {
    *("control unproven", "control at chance", "control below shallow"),
    *("depends on the length of training", "outlier"),
}


def _decision(
    rule: Rule, margins: Margins, obstacles: tuple[UndecidedCause, ...]
) -> tuple[str, str, tuple[UndecidedCause, ...]]:
    """Return outcome, state, and the causes of the state UNDECIDED."""
    is_judged = rule.chance and margins.value and OF_COMPARISON.issuperset(obstacles)
    if is_judged and margins.is_at_chance(margins.value):
        return rule.outcome, AT_CHANCE, ()
    side = _decided_side(margins, rule.threshold)
    if not obstacles and side == "below":
        return rule.outcome, rule.fired, ()
    causes = list(obstacles)
    if margins.interval and not side:
        causes.append("margin at the limit")
    if is_judged and margins.contains_chance(margins.value):
        causes.append("accuracy at chance")
    return ("warn", UNDECIDED, tuple(causes)) if causes else ("pass", rule.clear, ())


def _chance_text(margins: Margins) -> str:
    item = margins.headline
    return f"the {item.symbol}, {_between(margins, margins.value)}, does not {item.beats} chance, {margins.chance:.4f}"


def _between(margins: Margins, ends: tuple[float, float]) -> str:
    return f"{level_text(margins.confidence)} interval {ends[0]:.4f} to {ends[1]:.4f}"


def _far_seed(criterion: FarSeed, margins: Margins) -> str:
    """Return a sentence about the seeds that are outliers; empty if there is no outlier."""
    found = far_values(list(margins.by_seed.values()), criterion.level, criterion.least)
    if not found:
        return ""
    seeds, unit = list(margins.by_seed), margins.headline.unit
    named = [f"{seeds[index]} ({margins.headline.signed(margins.by_seed[seeds[index]])} {unit})" for index in found]
    return (
        f"far from the median of the seeds: seed {', '.join(shortened(named))} (median absolute deviation, level "
        f"{criterion.level:g}, at least {criterion.least:g} {unit}), so the interval over seeds cannot decide the rule"
    )


def _margin_text(margins: Margins, interim_analysis: int = 1) -> str:
    """Return the margin with its interval, its test and its seeds as text."""
    seeds = ", ".join(shortened(margins.seeds))
    margin = f"{margins.headline.signed(margins.mean)} {margins.headline.unit}"
    if margins.interval is None:
        return f"{margin} for the only seed {seeds}"
    reason = (
        f", because this is interim analysis {interim_analysis} (the seed set changed after an audit);"
        if interim_analysis > 1
        else ""
    )
    ends = " to ".join(map(margins.headline.signed, margins.interval))
    level = f"{level_text(margins.confidence)} interval{reason}"
    return f"{margin} ({level} {ends} {margins.headline.unit} over seeds {seeds}, {margins.test})"
