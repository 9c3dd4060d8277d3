"""What changed, rule by rule: its limits, and how many of the runs that both audits have it judges how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.audit_diff.matching import Pair
from fa_registry.reporting.audit_diff.records import RuleChange

Sides = tuple[Finding | None, Finding | None]


def rule_changes(pairs: Sequence[Pair]) -> tuple[RuleChange, ...]:
    """One a rule whose limits changed, or that judges any run otherwise; in the order of the audits."""
    by_rule: dict[str, list[Sides]] = {}
    for pair in pairs:
        for rule, sides in paired_findings(pair.a, pair.b).items():
            by_rule.setdefault(rule, []).append(sides)
    found = (_rule(rule, several) for rule, several in by_rule.items())
    return tuple(rule for rule in found if rule.moved or rule.required_a != rule.required_b)


def paired_findings(a: RunAudit, b: RunAudit) -> dict[str, Sides]:
    """rule → what the two leading editions' rules of that name say of a run."""
    before = {finding.rule: finding for finding in a.findings}
    after = {finding.rule: finding for finding in b.findings}
    return {rule: (before.get(rule), after.get(rule)) for rule in dict.fromkeys((*before, *after))}


def _rule(rule: str, several: Sequence[Sides]) -> RuleChange:
    columns = tuple([one for one in column if one] for column in zip(*several, strict=True))
    required = [tuple(dict.fromkeys(one.required for one in column)) for column in columns]
    outcomes = [dict(sorted(Counter(one.outcome for one in column).items())) for column in columns]
    moved = (sides[1] or sides[0] for sides in several if _outcome(sides[0]) != _outcome(sides[1]))
    title = next(one.title for column in reversed(columns) for one in column)
    return RuleChange(rule, title, *required, *outcomes, tuple(one.run_id for one in moved))


def _outcome(finding: Finding | None) -> str:
    return finding.outcome if finding else ""
