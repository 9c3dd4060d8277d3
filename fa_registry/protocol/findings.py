"""A rule's judgement put into a Finding: required, observed, the words. No decision is taken here."""

from __future__ import annotations

from fa_registry.protocol.cases import Case
from fa_registry.protocol.first_fire import first_fire
from fa_registry.protocol.operators import OPERATORS
from fa_registry.protocol.rules import Condition, Rule
from fa_registry.records import Finding, FurtherLimit, Reading


def finding(
    rule: Rule, case: Case, outcome: str, observed: Reading, words: str, limits: str = "", **more: object
) -> Finding:
    """words: what was observed, as the sentence puts it. limits: what is required, where that is not the rule's conditions.

    more: fields of Finding that are this judgement's own.
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
        "sentence": f"{rule.code} {rule.title}: required {limits}, observed {words}",
        "run_id": case.record.run_id,
        "gating": rule.gating,
        "threshold": rule.threshold,
        "reference_run_id": reference.run_id if reference else "",
        "stated": reference.stated if reference else False,
        "first_fire": first_fire(rule, case.record),
        "further": tuple(FurtherLimit(condition.quantity, condition.threshold) for condition in rule.conditions[1:]),
    }
    return Finding(**{**fields, **more})


def required(rule: Rule) -> str:
    """What a run has to show: any one of the conditions kept is enough, the guard always."""
    leading, *rest = (limit(condition) for condition in rule.conditions)
    guard = [rest.pop()] if rule.guard else []
    words = " or ".join([leading, *(f"{also.quantity} {kept}" for also, kept in zip(rule.also, rest, strict=True))])
    return ", and ".join([words, *(f"{rule.guard.quantity} {guard_limit}" for guard_limit in guard)])


def limit(condition: Condition) -> str:
    return OPERATORS[condition.fires].words.format(threshold=condition.threshold)


def skipped_control(rule: Rule, case: Case, observed: Reading, **more: object) -> Finding:
    """A control is not judged against itself."""
    reason = f"this run is the {case.record.spec.control} control"
    return finding(rule, case, "skipped", observed, reason, **more)
