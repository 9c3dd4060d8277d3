"""Judging one run: every rule of an edition against the run's measurements. Knows numbers, no tensor."""

from __future__ import annotations

import traceback

from fa_registry.protocol.operators import OPERATORS, margin_pp
from fa_registry.protocol.rules import Edition, Rule
from fa_registry.protocol.verdict import verdict
from fa_registry.records import Finding, Measurements, Reading, RunAudit, RunRecord


def judge(record: RunRecord, frozen: RunRecord | None, edition: Edition) -> RunAudit:
    """Findings and verdict of one run. frozen: the frozen control of the same setting and seed, if there is one."""
    findings = tuple(_judge_safely(rule, record, frozen) for rule in edition.rules)
    return RunAudit(record, findings, verdict(record, findings, edition), frozen.run_id if frozen else "")


def _judge_safely(rule: Rule, record: RunRecord, frozen: RunRecord | None) -> Finding:
    """A rule that crashes is an ERROR finding with its traceback; the rest of the audit goes on."""
    try:
        return _judge_rule(rule, record, frozen)
    except Exception:
        reason = f"the rule crashed: {traceback.format_exc(limit=3)}"
        absent = Reading(None, reason)
        return Finding(
            rule.code, rule.title, "error", rule.quantity, absent, rule.unit, f"{rule.code} {reason}", record.run_id
        )


def _judge_rule(rule: Rule, record: RunRecord, frozen: RunRecord | None) -> Finding:
    observed, site = take(rule, record.measurements)
    if record.spec.control != "none" and rule.reference:
        reason = f"this run is the {record.spec.control} control"
        return _finding(rule, record, "skipped", observed, site, reason)
    reference = frozen.measurements.scalars.get(rule.reference) if frozen and rule.reference else None
    comparison = OPERATORS[rule.fires].compare(observed, rule.threshold, reference)
    if comparison.fires is None:
        return _finding(rule, record, "not_applicable", observed, site, comparison.reason, frozen)
    outcome = "fail" if comparison.fires else "pass"
    return _finding(rule, record, outcome, observed, site, _observed_words(rule, observed, reference), frozen)


def take(rule: Rule, measurements: Measurements) -> tuple[Reading, int | None]:
    """The reading a rule looks at, and its site: the scalar, the last site's, or the largest over the sites."""
    if rule.take == "scalar":
        absent = Reading(None, f"{rule.quantity} was not measured")
        return measurements.scalars.get(rule.quantity, absent), None
    row = measurements.sites.get(rule.quantity, ())
    if not row:
        return Reading(None, f"{rule.quantity} was not measured"), None
    if rule.take == "last_site":
        return row[-1], len(row) - 1
    broken = [site for site, reading in enumerate(row) if reading.not_finite]
    known = [site for site, reading in enumerate(row) if reading.value is not None]
    if broken or not known:
        site = broken[0] if broken else len(row) - 1
        return row[site], site
    site = max(known, key=lambda index: row[index].value)
    return row[site], site


def first_fire(rule: Rule, record: RunRecord) -> int | None:
    """The first epoch whose headline crosses the rule's limit; None if it never does or is not followed by epoch."""
    if not rule.trajectory or OPERATORS[rule.fires].needs_reference:
        return None
    for epoch, reading in enumerate(record.trajectory.get(rule.trajectory, ())):
        if OPERATORS[rule.fires].compare(reading, rule.threshold, None).fires:
            return epoch
    return None


def _finding(
    rule: Rule,
    record: RunRecord,
    outcome: str,
    observed: Reading,
    site: int | None,
    words: str,
    frozen: RunRecord | None = None,
) -> Finding:
    required = OPERATORS[rule.fires].words.format(threshold=rule.threshold)
    return Finding(
        rule=rule.code,
        title=rule.title,
        outcome=outcome,
        quantity=rule.quantity,
        observed=observed,
        required=f"{required} ({rule.unit})",
        sentence=f"{rule.code} {rule.title}: required {required}, observed {words}",
        run_id=record.run_id,
        threshold=rule.threshold,
        site=site,
        reference_run_id=frozen.run_id if frozen and rule.reference else "",
        first_fire=first_fire(rule, record),
    )


def _observed_words(rule: Rule, observed: Reading, reference: Reading | None) -> str:
    if observed.value is None:
        return observed.reason
    if reference is None or reference.value is None:
        return f"{observed.value:.4g}"
    margin = margin_pp(observed.value, reference.value)
    return f"{observed.value:.4f} against {reference.value:.4f} of the frozen control ({margin:+.2f} pp)"
