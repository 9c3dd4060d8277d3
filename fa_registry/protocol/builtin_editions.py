"""Which editions are the shipped ones, and what people read of one that is not. A name proves nothing, a digest does.

Asked of this installation's own files whenever an edition is loaded or a report is shown: a report, a tag or a file may
call its edition whatever it likes.

An edition that is based on a shipped one is told apart from it rule by rule, field by field.
"""

from __future__ import annotations

import dataclasses
import functools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fa_registry import bundled_files
from fa_registry.jsonio import read_toml
from fa_registry.records import EditionReference, RuleDifference, Scalar

if TYPE_CHECKING:
    from fa_registry.protocol.edition_schema import Condition, Rule
    from fa_registry.protocol.rules import Edition

SHIPPED, OWN, FOREIGN = STANDINGS = ("shipped", "own", "foreign")
DIGEST = 8  # characters of an edition's digest in tags, aliases and on pages: enough to tell a handful of files apart
# Signs that look like the colon before a variant's name, beyond those that NFKD makes one.
COLONS = str.maketrans(dict.fromkeys("\u2236\ua789\u02d0\u0589\u05c3\u16ec", ":"))
# Letters that pass for a digit of a date, after case folding: Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee. The
# digits of other scripts are read as what they count.
LOOK_LIKE = {
    "0": "o\u03bf\u043e\u0585\u10ff",
    "1": "li\u0131\u03b9\u0456\u04cf\u01c0|",
    "2": "z\u01a8",
    "4": "\u0447\uabae",
    "5": "s\u0455\u01bd",
    "6": "b\u0431",
}
DIGITS = str.maketrans({letter: digit for digit, letters in LOOK_LIKE.items() for letter in letters})


@functools.cache
def digests() -> Mapping[str, str]:
    """The name of every shipped edition, each followed by its variants → SHA-256 of its file."""
    digest_of: dict[str, str] = {}
    for path in sorted(bundled_files.editions().glob("*.toml")):
        raw, digest = read_toml(path, f"edition {path.stem}")
        variants = raw.get("variant", {})
        digest_of |= dict.fromkeys((path.stem, *(f"{path.stem}:{variant}" for variant in variants)), digest)
    return MappingProxyType(digest_of)


def claimed(name: str) -> str:
    """The shipped edition that a reader would take `name` for, or for a variant of; empty where it is nobody's.

    Case, blanks, invisible characters, kinds of hyphens and letters that look like digits make no difference to a reader.
    """
    plain = unicodedata.normalize("NFKD", name).translate(COLONS).partition(":")[0]
    stems = {_skeleton(known): known for known in digests() if ":" not in known}
    return stems.get(_skeleton(plain), "")


def _skeleton(text: str) -> str:
    """The letters and digits alone, look-alikes as the digit that they look like."""
    looks = unicodedata.normalize("NFKD", text).casefold().translate(DIGITS)
    kept = (letter for letter in looks if unicodedata.category(letter)[0] in "LN")
    return "".join(str(unicodedata.digit(letter, letter)) for letter in kept)


def name_conflict(name: str, digest: str) -> str:
    """What is wrong with an edition's name where it is a shipped one's and the file is not; empty where nothing is."""
    taken = claimed(name)
    if not taken or digests()[taken] == digest:
        return ""
    shown = repr(name) if name.isascii() else f"{name!r} ({ascii(name)})"
    return (
        f"name: {shown} reads as the shipped edition {taken}, but the file's SHA-256 is {digest[:DIGEST]}…, not "
        f'{digests()[taken][:DIGEST]}…; give it a name of its own (and `based_on = "{taken}"`, if it is)'
    )


def provenance_of(edition: EditionReference) -> str:
    """shipped: this installation's own file; foreign: it has the name of one and is not; own: somebody's own."""
    if digests().get(edition.name) == edition.digest:
        return SHIPPED
    return FOREIGN if claimed(edition.name) else OWN


def describe_edition(edition: EditionReference) -> str:
    """What people read of an edition: `2026-11`, `mine (based on 2026-11)`, or that it only calls itself so.

    An own edition of another name has it before: `lenient, mine (own rules)`.
    """
    if provenance_of(edition) == SHIPPED:
        return edition.name
    if provenance_of(edition) == FOREIGN:
        return f"{edition.name} (not this installation's: digest {edition.digest[:DIGEST]})"
    whose = "mine" if edition.name == "mine" else f"{edition.name}, mine"
    if edition.based_on:
        return f"{whose} (based on {edition.based_on})"
    # None: an older release wrote the reference, which did not look what the edition is based on
    return f"{whose} ({'not a shipped edition' if edition.shipped is None else 'own rules'})"


def verdict_mark(edition: EditionReference) -> str:
    """What a verdict must carry wherever it stands alone, as `mine 1a2b3c4d`; empty by a shipped edition as it is."""
    whose = {SHIPPED: "", OWN: f"mine {edition.digest[:DIGEST]}", FOREIGN: f"not shipped {edition.digest[:DIGEST]}"}
    mark = whose[provenance_of(edition)]
    if not edition.overrides:
        return mark
    return f"{mark} modified" if mark else "modified edition"


WHOLE = "rule"  # the field of a difference that is a whole rule, there or not
LIMIT = ("quantity", "take", "fires")  # who agrees in these judges the same, perhaps at another threshold


def nearest(rules: Sequence[Rule], editions: Iterable[Edition]) -> str:
    """The edition that shares most rules with these; the newer where two share as much, empty where none shares any.

    Rules are shared where they judge the same; among equals those count more whose every field is the same, then the edition
    with fewer rules besides: a copy of an edition is no copy of one that adds to it. Last, the one whose limits are nearest: a
    copy with D1 at 51 is one of the edition that says 50, not of its successor that says 20.
    """

    def shared(edition: Edition) -> tuple[int, int, int, int, float]:
        theirs = {rule.code: rule for rule in edition.rules}
        pairs = [(rule, theirs[rule.code]) for rule in rules if rule.code in theirs]
        fields = [_equal_fields(mine, its) for mine, its in pairs]
        same_limits = sum(all(getattr(mine, name) == getattr(its, name) for name in LIMIT) for mine, its in pairs)
        return sum(mine == its for mine, its in pairs), same_limits, sum(fields), -len(theirs), -sum(map(_apart, pairs))

    newest_first = sorted(editions, key=lambda edition: edition.name.partition(":")[0], reverse=True)
    best = max(newest_first, key=shared, default=None)  # max keeps the first of equals
    return best.name if best and shared(best)[:2] != (0, 0) else ""


def _apart(pair: tuple[Rule, Rule]) -> float:
    """How far two limits are apart in their own size, 0 to 1."""
    mine, its = (rule.threshold for rule in pair)
    return abs(mine - its) / (abs(mine) + abs(its)) if mine != its else 0.0


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
            yield RuleDifference(code, WHOLE, _rule_text(its.get(code)), _rule_text(mine.get(code)))


def _differing(rule: str, shipped: Mapping[str, Scalar], own: Mapping[str, Scalar]) -> Iterator[RuleDifference]:
    for name in dict.fromkeys((*shipped, *own)):
        if shipped.get(name) != own.get(name):
            yield RuleDifference(rule, name, shipped.get(name), own.get(name))


def _fields_of_edition(edition: Edition) -> dict[str, Scalar]:
    """What decides a verdict beside the rules."""
    groups = (" and ".join(group) for group in edition.fail_if)
    text = {f"labels.{outcome}": word for outcome, word in edition.labels.items()}
    return {"fail_if": " or ".join(f"({group})" for group in groups), "strict": edition.strict, **text}


def _fields_of_rule(rule: Rule) -> dict[str, Scalar]:
    """Field → value; a further condition's as `also gain threshold`, the guard's as `guard fidelity threshold`."""
    fields = _plain(rule)
    del fields["code"]
    for place, conditions in (
        ("either", rule.either),
        ("also", rule.also),
        ("guard", rule.guards[:1]),
        ("guard_also", rule.guards[1:]),
    ):
        for condition in conditions:
            named = _plain(condition)
            fields |= {f"{place} {condition.quantity} {name}": value for name, value in named.items()}
    return fields


def _plain(record: Rule | Condition) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: value for name, value in values.items() if isinstance(value, Scalar)}


def _rule_text(rule: Rule | None) -> str | None:
    return f"{rule.title}: {rule.quantity}, {rule.take}, fires {rule.fires} {rule.threshold!r}" if rule else None
