"""What an edition changes of the shipped one that it is based on: rule by rule, field by field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fa_registry.records import RuleDifference, Scalar

if TYPE_CHECKING:
    from fa_registry.protocol.rules import Condition, Edition, Rule

WHOLE = "rule"  # the field of a difference that is a whole rule, there or not
LIMIT = ("quantity", "take", "fires")  # who agrees in these judges the same, perhaps at another threshold


def nearest(rules: Sequence[Rule], editions: Iterable[Edition]) -> str:
    """The edition that shares most rules with these; the newer where two share as much, empty where none shares any.

    Rules are shared where they judge the same; among equals those count more whose every field is the same.
    """

    def shared(edition: Edition) -> tuple[int, int, int]:
        theirs = {rule.code: rule for rule in edition.rules}
        pairs = [(rule, theirs[rule.code]) for rule in rules if rule.code in theirs]
        fields = [_equal_fields(mine, its) for mine, its in pairs]
        same_limits = sum(all(getattr(mine, name) == getattr(its, name) for name in LIMIT) for mine, its in pairs)
        return sum(mine == its for mine, its in pairs), same_limits, sum(fields)

    newest_first = sorted(editions, key=lambda edition: edition.name.partition(":")[0], reverse=True)
    best = max(newest_first, key=shared, default=None)  # max keeps the first of equals
    return best.name if best and shared(best)[:2] != (0, 0) else ""


def _equal_fields(rule: Rule, other: Rule) -> int:
    return sum(getattr(rule, field.name) == getattr(other, field.name) for field in dataclasses.fields(rule))


def differences(edition: Edition, base: Edition | None) -> Iterator[RuleDifference]:
    """Every difference to the shipped edition `base`, the edition's own fields first; every rule is one where there is none."""
    own, shipped = (_fields_of_edition(side) if side else {} for side in (edition, base))
    yield from _differing("", shipped, own)
    mine = {rule.code: rule for rule in edition.rules}
    its = {rule.code: rule for rule in base.rules} if base else {}
    for code in dict.fromkeys((*its, *mine)):
        if code in mine and code in its:
            yield from _differing(code, _fields_of_rule(its[code]), _fields_of_rule(mine[code]))
        else:
            yield RuleDifference(code, WHOLE, _rule_words(its.get(code)), _rule_words(mine.get(code)))


def _differing(rule: str, shipped: Mapping[str, Scalar], own: Mapping[str, Scalar]) -> Iterator[RuleDifference]:
    for name in dict.fromkeys((*shipped, *own)):
        if shipped.get(name) != own.get(name):
            yield RuleDifference(rule, name, shipped.get(name), own.get(name))


def _fields_of_edition(edition: Edition) -> dict[str, Scalar]:
    """What decides a verdict beside the rules."""
    groups = (" and ".join(group) for group in edition.fail_if)
    words = {f"labels.{outcome}": word for outcome, word in edition.labels.items()}
    return {"fail_if": " or ".join(f"({group})" for group in groups), "strict": edition.strict, **words}


def _fields_of_rule(rule: Rule) -> dict[str, Scalar]:
    """Field → value; a further condition's as `also gain threshold`, the guard's as `guard fidelity threshold`."""
    fields = _plain(rule)
    del fields["code"]
    for place, conditions in (("also", rule.also), ("guard", (rule.guard,) if rule.guard else ())):
        for condition in conditions:
            named = _plain(condition)
            fields |= {f"{place} {condition.quantity} {name}": value for name, value in named.items()}
    return fields


def _plain(record: Rule | Condition) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: value for name, value in values.items() if isinstance(value, Scalar)}


def _rule_words(rule: Rule | None) -> str | None:
    return f"{rule.title}: {rule.quantity}, {rule.take}, fires {rule.fires} {rule.threshold!r}" if rule else None
