"""Recognition of built-in editions by digest, and descriptions of other editions.

The name of an edition in a report, a tag or a file does not prove which rules the edition contains. Therefore, when an edition
is loaded or a report is shown, this module compares the edition's digest with the digests of the installed files. If an edition
is based on a built-in edition, this module compares the two editions rule by rule and field by field.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fa_registry import bundled_files
from fa_registry.jsonio import read_toml
from fa_registry.records import EditionReference, RuleDifference, Scalar

if TYPE_CHECKING:
    from fa_registry.protocol.edition_schema import Condition, Rule
    from fa_registry.protocol.rules import Edition

SHIPPED, OWN, FOREIGN = "shipped", "own", "foreign"
DIGEST = 8  # characters of an edition's digest that tags, aliases and pages show


@functools.cache
def digests() -> Mapping[str, str]:
    """Return a mapping from the name of each built-in edition to the SHA-256 of its file.

    Each edition is followed by its variants. A variant in the file of the edition has the digest of the edition.
    """
    digest_of: dict[str, str] = {}
    for path in sorted(bundled_files.editions().glob("*.toml")):
        file = read_toml(path, f"edition {path.stem}")
        # the file 2026-12_token.toml contains the variant 2026-12:token, which has its own digest
        name, variants = path.stem.replace("_", ":"), file.table.get("variant", {})
        digest_of |= dict.fromkeys((name, *(f"{name}:{variant}" for variant in variants)), file.digest)
    return MappingProxyType(digest_of)


def file_of(name: str) -> Path:
    """Return the path of a built-in edition or variant; no file exists there for any other name."""
    folder, own_file = bundled_files.editions(), f"{name.replace(':', '_')}.toml"
    return folder / (own_file if ":" in name and (folder / own_file).is_file() else f"{name.partition(':')[0]}.toml")


def claimed(name: str) -> str:
    """Return the built-in edition that a name, with or without a variant, belongs to; empty if none."""
    stem = name.partition(":")[0]
    return stem if stem in digests() else ""


def name_conflict(name: str, digest: str) -> str:
    """Return an error text if a user-supplied file uses the name of a built-in edition.

    Otherwise, return an empty string. `digest` is the SHA-256 of the file.
    """
    builtin = claimed(name)
    if not builtin or digest in (digests()[builtin], digests().get(name)):
        return ""
    return (
        f"name: {name!r} is a name of the built-in edition {builtin}, but the file's SHA-256 is {digest[:DIGEST]}…, not "
        f'{digests()[builtin][:DIGEST]}…; choose another name (and set `based_on = "{builtin}"` if your edition is based on it)'
    )


def provenance_of(edition: EditionReference) -> str:
    """Return the provenance of an edition: SHIPPED, OWN or FOREIGN.

    SHIPPED is a file of this installation, OWN a user-supplied edition, and FOREIGN another file with the name of a built-in
    edition.
    """
    if digests().get(edition.name) == edition.digest:
        return SHIPPED
    return FOREIGN if claimed(edition.name) else OWN


def describe_edition(edition: EditionReference) -> str:
    """Return the text that names an edition on pages, such as `mine (based on 2026-12)`.

    The word `mine` marks a user-supplied edition. If the edition has a name other than `mine`, the text starts with this name:
    `lenient, mine (own rules)`.
    """
    if provenance_of(edition) == SHIPPED:
        return edition.name
    if provenance_of(edition) == FOREIGN:  # only the name is that of a built-in edition
        return f"{edition.name} (not the built-in edition; its digest is {edition.digest[:DIGEST]})"
    label = "mine" if edition.name == "mine" else f"{edition.name}, mine"
    if edition.based_on:
        return f"{label} (based on {edition.based_on})"
    return f"{label} (own rules)"


def verdict_mark(edition: EditionReference) -> str:
    """Return the mark for verdicts that are shown without the name of their edition.

    The mark shows that the edition is not an unmodified built-in edition, for example `mine 1a2b3c4d` or `modified edition`. For an
    unmodified built-in edition, return an empty string.
    """
    marks = {SHIPPED: "", OWN: f"mine {edition.digest[:DIGEST]}", FOREIGN: f"not shipped {edition.digest[:DIGEST]}"}
    mark = marks[provenance_of(edition)]
    if not edition.overrides:
        return mark
    return f"{mark} modified" if mark else "modified edition"


WHOLE = "rule"  # the field of a difference if a whole rule was added or removed
# rules that are equal in these fields judge the same metric in the same way; only their limits can differ
LIMIT = ("quantity", "take", "fires")


def nearest(rules: Sequence[Rule], editions: Iterable[Edition]) -> str:
    """Return the name of the edition that has the most rules in common with `rules`.

    If no edition has a rule in common, return an empty string. If editions are equal in one criterion, the next criterion decides:

    1. Most equal rules.
    2. Most rules that differ only in the threshold or in texts.
    3. Most equal fields.
    4. Fewest rules. An edition with additional rules is therefore not preferred to the edition that was copied.
    5. Smallest distance between the limits. For a copy with the limit 51 for D1, the result is the edition with the limit 50,
       although a newer edition has the limit 20.
    6. Newest edition.
    """

    def shared(edition: Edition) -> tuple[int, int, int, int, float]:
        """Return one number per criterion of `nearest`. A larger number means a more similar edition."""
        builtin_rules = {rule.code: rule for rule in edition.rules}
        pairs = [(rule, builtin_rules[rule.code]) for rule in rules if rule.code in builtin_rules]
        equal_fields = sum(
            getattr(rule, field.name) == getattr(builtin_rule, field.name)
            for rule, builtin_rule in pairs
            for field in dataclasses.fields(rule)
        )
        same_limits = sum(
            all(getattr(user_rule, name) == getattr(builtin_rule, name) for name in LIMIT)
            for user_rule, builtin_rule in pairs
        )
        return (
            sum(user_rule == builtin_rule for user_rule, builtin_rule in pairs),
            same_limits,
            equal_fields,
            -len(builtin_rules),
            -sum(map(_apart, pairs)),
        )

    newest_first = sorted(editions, key=lambda edition: edition.name.partition(":")[0], reverse=True)
    best = max(newest_first, key=shared, default=None)  # of equally similar editions, max returns the first
    return best.name if best and shared(best)[:2] != (0, 0) else ""


def _apart(pair: tuple[Rule, Rule]) -> float:
    """Return the distance between two limits relative to their size, 0 to 1."""
    limit, builtin_limit = (rule.threshold for rule in pair)
    return abs(limit - builtin_limit) / (abs(limit) + abs(builtin_limit)) if limit != builtin_limit else 0.0


def differences(edition: Edition, base: Edition | None) -> Iterator[RuleDifference]:
    """Yield every difference between an edition and the built-in edition `base`.

    If `base` is None, every rule of the edition is a difference.
    """
    user_fields, builtin_fields = (_fields_of_edition(side) if side else {} for side in (edition, base))
    yield from _differing("", builtin_fields, user_fields)
    user_rules = {rule.code: rule for rule in edition.rules}
    builtin_rules = {rule.code: rule for rule in base.rules} if base else {}
    for code in dict.fromkeys((*builtin_rules, *user_rules)):
        if code in user_rules and code in builtin_rules:
            yield from _differing(code, _fields_of_rule(builtin_rules[code]), _fields_of_rule(user_rules[code]))
        else:
            yield RuleDifference(code, WHOLE, _rule_text(builtin_rules.get(code)), _rule_text(user_rules.get(code)))


def _differing(
    code: str, builtin_fields: Mapping[str, Scalar], user_fields: Mapping[str, Scalar]
) -> Iterator[RuleDifference]:
    for name in dict.fromkeys((*builtin_fields, *user_fields)):
        if builtin_fields.get(name) != user_fields.get(name):
            yield RuleDifference(code, name, builtin_fields.get(name), user_fields.get(name))


def _fields_of_edition(edition: Edition) -> dict[str, Scalar]:
    """Return the fields that determine a verdict in addition to the rules."""
    groups = (" and ".join(group) for group in edition.fail_if)
    label_fields = {f"labels.{outcome}": label for outcome, label in edition.labels.items()}
    return {"fail_if": " or ".join(f"({group})" for group in groups), "strict": edition.strict, **label_fields}


def _fields_of_rule(rule: Rule) -> dict[str, Scalar]:
    """Return field → value of a rule and its conditions. An example of a field is `also gain threshold`."""
    fields = _plain(rule)
    del fields["code"]
    for part, conditions in (
        ("either", rule.either),
        ("also", rule.also),
        ("guard", rule.guards[:1]),
        ("guard_also", rule.guards[1:]),
    ):
        for condition in conditions:
            condition_fields = _plain(condition)
            fields |= {f"{part} {condition.quantity} {name}": value for name, value in condition_fields.items()}
    return fields


def _plain(record: Rule | Condition) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: value for name, value in values.items() if isinstance(value, Scalar)}


def _rule_text(rule: Rule | None) -> str | None:
    return f"{rule.title}: {rule.quantity}, {rule.take}, fires {rule.fires} {rule.threshold!r}" if rule else None
