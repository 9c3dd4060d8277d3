"""Rules and editions (versioned sets of rules), read from TOML files.

The format is TOML, because YAML 1.1 would read `1e-8` as a string.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fa_registry.errors import UnknownName
from fa_registry.jsonio import read_toml
from fa_registry.protocol.builtin_editions import differences, digests, file_of, nearest
from fa_registry.protocol.edition_schema import Condition, Rule, checked_edition, checked_overrides
from fa_registry.records import EditionReference, Scalar

STRICT = "2026-05:strict"  # the published code: any rule that fires is a FAIL


@dataclass(frozen=True)
class Edition:
    """Versioned set of rules.

    Args:
        name: name, with the variant if there is one: `2026-05:strict`.
        title: the edition's requirements in one line.
        fail_if: lists of rule codes; a run fails if all rules of one list fire.
        rules: the rules, in the order in which pages list them.
        digest: SHA-256 of the edition's file.
        strict: whether a run fails as soon as one gating rule fires. A gating rule is a rule that counts for the verdict.
        labels: mapping from the outcome of a verdict to its label. Other outcomes have the default label in verdict.TEXT.
        overrides: thresholds that differ from the file (`D1.threshold` → value).
        based_on: name of the built-in edition on which a user-supplied edition is based. By default, this is the built-in
            edition that has the most rules in common with the file. The name is empty if no built-in edition has a rule in
            common. For a built-in edition, the name is always empty.
    """

    name: str
    title: str
    source: str
    fail_if: tuple[tuple[str, ...], ...]
    rules: tuple[Rule, ...]
    digest: str
    strict: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    based_on: str = ""

    @property
    def shipped(self) -> bool:
        """Whether the edition was read from a built-in file, even if thresholds are changed (`overrides`)."""
        return digests().get(self.name) == self.digest

    @property
    def reference(self) -> EditionReference:
        """Record of the edition for reports, with its differences from the built-in edition `based_on`."""
        base = self.name if self.shipped else self.based_on
        is_different = self.overrides or not self.shipped
        changes = tuple(differences(self, load_edition(base) if base else None)) if is_different else ()
        facts = (dict(self.overrides), self.shipped, self.based_on, changes)
        return EditionReference(self.name, self.title, self.source, self.digest, *facts)


def load_edition(name: str, overrides: Mapping[str, float] | None = None) -> Edition:
    """Load a built-in edition by name, or a user-supplied edition by path.

    Args:
        name: name of a built-in edition or path of a .toml file, optionally followed by `:variant`.
        overrides: thresholds that replace those of the file; the returned edition lists these thresholds. The key `D1` or
            `D1.threshold` sets the threshold of the rule D1. The key `D2.gain` sets the threshold of D2's condition on the metric
            gain.

    Raises:
        UnknownName: there is no such edition or variant.
        InvalidFields: lists every wrong field.
    """
    path, variant = _located(name)
    file = read_toml(path, f"edition {name}")
    return overridden(parse_edition(file.table, file.digest, str(name), variant), overrides or {})


def shipped() -> tuple[str, ...]:
    """Return the names of all built-in editions, each followed by its variants."""
    return tuple(digests())


@functools.cache
def shipped_editions() -> tuple[Edition, ...]:
    return tuple(load_edition(name) for name in shipped())


def parse_edition(raw: Mapping[str, Any], digest: str, subject: str, variant: str | None = None) -> Edition:
    """Convert the TOML table of an edition to an Edition, optionally as a variant.

    Args:
        raw: the TOML table of the whole file.
        digest: SHA-256 of the file, which determines whether the edition is built in.
        subject: name of the file in error messages.
        variant: name of the variant, or None for the edition itself.

    Raises:
        InvalidFields: lists every wrong field.
        UnknownName: the file has no variant with this name.
    """
    file = checked_edition(raw, subject, variant, digest)
    is_shipped = digest in digests().values()
    return Edition(
        name=file.name if variant is None else f"{file.name}:{variant}",
        title=file.title,
        source=file.source,
        fail_if=file.fail_if,
        rules=file.rule,
        digest=digest,
        strict=file.strict,
        labels=file.labels,
        based_on="" if is_shipped else file.based_on or nearest(file.rule, shipped_editions()),
    )


def overridden(edition: Edition, overrides: Mapping[str, float]) -> Edition:
    """Return a copy of the edition with other thresholds.

    The field `overrides` of the copy lists these thresholds.

    Args:
        overrides: rule or condition → threshold, see `load_edition`. Each threshold is in the unit of its condition: percentage
            points for a margin, a fraction for an accuracy.

    Raises:
        InvalidFields: lists every override that matches no rule.
    """
    metrics_of_rule = {rule.code: [condition.quantity for condition in rule.conditions] for rule in edition.rules}
    changes = checked_overrides(overrides, metrics_of_rule, edition.name)
    rules = tuple(_changed(rule, changes) for rule in edition.rules)
    recorded = {f"{code}.{name or 'threshold'}": value for (code, name), value in changes.items()}
    return dataclasses.replace(edition, rules=rules, overrides={**edition.overrides, **recorded})


def _located(name: str) -> tuple[Path, str | None]:
    """Return the tuple (path of the edition's file, name of the variant or None)."""
    stem, colon, variant = str(name).rpartition(":")
    if not colon or variant.endswith(".toml"):  # the colon belongs to a drive letter
        stem, variant = str(name), None
    if stem.endswith(".toml"):
        return Path(stem), variant
    if name in digests() and file_of(name) != file_of(stem):
        return file_of(name), None  # a variant with its own file
    if stem not in digests():
        raise UnknownName("edition", name, digests())
    if variant is not None and name not in digests():
        variants = [edition.partition(":")[2] for edition in digests() if edition.startswith(f"{stem}:")]
        raise UnknownName(f"variant of edition {stem}", variant, variants)
    return file_of(stem), variant


def _changed(rule: Rule, changes: Mapping[tuple[str, str], float]) -> Rule:
    """Return a copy of the rule with the thresholds in `changes`, a mapping (rule, metric) → threshold.

    The metric is an empty string for the rule's main threshold.
    """

    def changed(condition: Condition) -> Condition:
        threshold = changes.get((rule.code, condition.quantity), condition.threshold)
        return dataclasses.replace(condition, threshold=threshold)

    return dataclasses.replace(
        rule,
        threshold=changes.get((rule.code, ""), rule.threshold),
        either=tuple(changed(condition) for condition in rule.either),
        also=tuple(changed(condition) for condition in rule.also),
        guard=changed(rule.guard) if rule.guard else None,
        guard_also=changed(rule.guard_also) if rule.guard_also else None,
    )
