"""Rules and editions: what a run is judged by, as data. Read from TOML (YAML 1.1 would read `1e-8` as a string)."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fa_registry import bundled_files
from fa_registry.errors import UnknownName
from fa_registry.jsonio import read_toml
from fa_registry.protocol.builtin_editions import differences, digests, nearest
from fa_registry.protocol.edition_schema import Condition, Rule, checked_edition, checked_overrides
from fa_registry.records import EditionReference, Scalar

STRICT = "2026-05:strict"  # the published code: any rule that fires is a FAIL


@dataclass(frozen=True)
class Edition:
    """A versioned set of rules. name: with its variant, `2026-05:strict`.

    fail_if: a run fails when every rule of any one list fires; strict: when any rule does.
    labels: the words of the verdict's outcomes where they are not the house's (verdict.WORDS).
    overrides: thresholds that are not the file's (`D1.threshold` → value). based_on: the shipped edition that a user's own
    file says it is based on, else the one it shares most rules with; empty where it shares none, and of a shipped one.
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
        """Whether it is this installation's own file; other thresholds are recorded as overrides."""
        return digests().get(self.name) == self.digest

    @property
    def reference(self) -> EditionReference:
        """The edition as reports name it, with its differences to the shipped one that it is, or is based on."""
        base = self.name if self.shipped else self.based_on
        changes = tuple(differences(self, load_edition(base) if base else None)) if self._differs else ()
        facts = (dict(self.overrides), self.shipped, self.based_on, changes)
        return EditionReference(self.name, self.title, self.source, self.digest, *facts)

    @property
    def _differs(self) -> bool:
        return bool(self.overrides) or not self.shipped


def load_edition(name: str, overrides: Mapping[str, float] | None = None) -> Edition:
    """An edition by the name of a shipped file or the path of a user's .toml, either with `:variant` behind it.

    overrides: `D1` or `D1.threshold` → the rule's threshold, `D2.gain` → that of its further condition on gain; they are
    recorded in the edition. Raises UnknownName or InvalidFields, the latter with every wrong field.
    """
    path, variant = _located(name)
    raw, digest = read_toml(path, f"edition {name}")
    return overridden(parse_edition(raw, digest, str(name), variant), overrides or {})


def shipped() -> tuple[str, ...]:
    """The names of all shipped editions, each followed by its variants."""
    return tuple(digests())


@functools.cache
def shipped_editions() -> tuple[Edition, ...]:
    """All shipped editions, in the order of `shipped`."""
    return tuple(load_edition(name) for name in shipped())


def parse_edition(raw: Mapping[str, Any], digest: str, subject: str, variant: str | None = None) -> Edition:
    """The edition that a TOML table says, or its variant, if one is named; InvalidFields names all fields that are wrong.

    digest: SHA-256 of the file, which says whether it is a shipped one. subject: whom the error speaks of.
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
    """The edition with other thresholds, which it records; InvalidFields names every override that fits no rule.

    overrides: as for load_edition, each in the unit of its condition: percentage points of a margin, where an accuracy is a
    fraction.
    """
    places = {rule.code: [condition.quantity for condition in rule.conditions] for rule in edition.rules}
    changes = checked_overrides(overrides, places, edition.name)
    rules = tuple(_changed(rule, changes) for rule in edition.rules)
    recorded = {f"{code}.{name or 'threshold'}": value for (code, name), value in changes.items()}
    return dataclasses.replace(edition, rules=rules, overrides={**edition.overrides, **recorded})


def _located(name: str) -> tuple[Path, str | None]:
    """The edition's file, and the variant that is asked for; None where none is."""
    stem, colon, variant = str(name).rpartition(":")
    if not colon or variant.endswith(".toml"):  # a drive's colon stands before a path
        stem, variant = str(name), None
    if stem.endswith(".toml"):
        return Path(stem), variant
    path = bundled_files.editions() / f"{stem}.toml"
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        raise UnknownName("edition", stem, [known.stem for known in bundled_files.editions().glob("*.toml")])
    return path, variant


def _changed(rule: Rule, changes: Mapping[tuple[str, str], float]) -> Rule:
    """changes: (rule, quantity of a further condition, or nothing for the leading one) → threshold."""

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
