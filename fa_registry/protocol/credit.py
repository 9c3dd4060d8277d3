"""Rule on the distribution of credit over sites.

The rule compares Γ with its null distribution at every site. The rule's guard is a further condition. The guard checks how much
the mean of Γ changes if the first or the last site is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fa_registry.metrics import metric_named
from fa_registry.protocol.operators import take
from fa_registry.protocol.paired_runs import RunWithControl, SeedGroup
from fa_registry.protocol.rule_evaluation import compare, finding, limit, named_limit, other_limits, skipped_control
from fa_registry.protocol.rules import Condition, Rule
from fa_registry.records import Finding, GuardReading, Measurements, Reading

RANK, GAMMA = "gamma_null_p", "gamma"  # metric of the built-in rule on credit, and metric of the rule's guard
NOT_COUNTED = Reading(None, "not counted")


def exact_sites(card: Mapping[str, Any], sites: int) -> range:
    """Return the sites of 0..`sites`−1 at which the credit equals the gradient by construction.

    Γ = 1 at these sites gives no information. A method without a card has no such sites.
    """
    return {"all": range(sites), "last": range(sites)[-1:]}.get(str(card.get("exact_sites")), range(0))


def is_exact(card: Mapping[str, Any]) -> bool:
    """Return whether the credit equals the gradient by construction at every site."""
    return card.get("exact_sites") == "all"


def judge_credit(rule: Rule, case: RunWithControl, group: SeedGroup) -> Finding:
    """Judge the distribution of credit over sites.

    The leading condition uses p-values of the null distribution of Γ, and the guard uses Γ. A site counts if it has a p-value
    and a value of Γ. A site at which the credit is exact by construction has no null distribution, and a run without its
    feedback state has no Γ. The sentence of the finding states how many sites count, because a mean over few sites and a mean
    over all sites are different metrics.
    """
    if case.control:
        return skipped_control(rule, case, Reading(None, "the credit of a control is not judged"), limits=_limits(rule))
    names = tuple(dict.fromkeys(condition.quantity for condition in (rule.conditions[0], *rule.guards)))
    rows = [case.record.measurements.sites.get(name, ()) for name in names]
    counted_sites, masked = _counted(names, case.record.measurements)
    if not counted_sites:
        reason = "; ".join(_absence(name, row) for name, row in zip(names, rows, strict=True))
        absent = Reading(None, reason)
        return finding(rule, case, "not_applicable", absent, f"no site counts ({reason})", _limits(rule))
    observed, site = take(rule.quantity, rule.take, masked)
    leading_fires = compare(rule.conditions[0], observed).fires
    readings = ((item, take(item.quantity, item.take, case.record.measurements)[0]) for item in rule.either)
    alternative = next((pair for pair in readings if compare(*pair).fires), None)
    guard = _guard(rule.guard, masked) if rule.guard else None
    guard_text = f"; {rule.guard.fired}: {carried_text(guard)}" if guard else ""
    total = max(len(row) for row in rows)
    text = f"{observed.value:.3g}, the largest value of {len(counted_sites)} counted sites out of {total}"
    outcome = rule.outcome if leading_fires or alternative or guard else "pass"
    state = rule.fired if leading_fires else rule.clear
    facts = {"site": site, "state": state, "crossed": rule.fires if leading_fires else "", "guard": guard}
    if alternative and not leading_fires:
        condition, observed = alternative
        state = condition.fired or rule.fired
        text = f"{metric_named(condition.quantity).label} {observed.value:.3g} (p {text})"
        facts |= {"site": None, "state": state, "crossed": condition.fires, "quantity": condition.quantity}
        facts |= {"threshold": condition.threshold, "further": other_limits(rule, 1 + rule.either.index(condition))}
    return finding(rule, case, outcome, observed, f"{text}: {state}{guard_text}", _limits(rule), **facts)


def _limits(rule: Rule) -> str:
    limits = " and ".join([f"{limit(rule.conditions[0])} at every site", *map(named_limit, rule.either)])
    return limits + (f", and no {rule.guard.fired}" if rule.guard else "")


def carried_text(guard: GuardReading) -> str:
    """Return a sentence about the guard's reading, e.g. `without site 0, … changes by 80% of its value`."""
    change = f"{guard.observed.value:.0%} of its value" if guard.observed.value is not None else "an infinite multiple"
    mean_text = f"the mean {guard.quantity} over all counted sites, {guard.mean:+.4f},"
    return f"without site {guard.site}, {mean_text} changes by {change}"


def _guard(guard: Condition, masked: Measurements) -> GuardReading | None:
    """Return the guard's reading if the guard fires, otherwise None."""
    share, site = take(guard.quantity, guard.take, masked)
    if not compare(guard, share).fires:
        return None
    values = [reading.value for reading in masked.sites[guard.quantity] if reading.value is not None]
    return GuardReading(guard.quantity, guard.fires, share, site, mean=sum(values) / len(values))


def _counted(names: Sequence[str], measurements: Measurements) -> tuple[list[int], Measurements]:
    """Return the sites that have every named metric, and measurements masked to these sites.

    The masked measurements contain only the named metrics and have no value at the other sites.
    """
    rows = [measurements.sites.get(name, ()) for name in names]
    counted_sites = [
        site
        for site, readings in enumerate(zip(*rows, strict=False))
        if all(reading.value is not None for reading in readings)
    ]
    masked_rows = (
        tuple(reading if site in counted_sites else NOT_COUNTED for site, reading in enumerate(row)) for row in rows
    )
    return counted_sites, dataclasses.replace(measurements, sites=dict(zip(names, masked_rows, strict=True)))


def _absence(name: str, row: Sequence[Reading]) -> str:
    reasons = dict.fromkeys(reading.reason for reading in row if reading.reason)
    if not row:
        return f"{name} was not measured"
    return f"{name}: {', '.join(reasons)}" if reasons else f"{name} has a value at every site"
