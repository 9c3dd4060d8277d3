"""What an edition's file may hold. Every wrong field is named at once: an edition is often a stranger's first file here."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fa_registry.errors import InvalidFields, UnknownName, unknown_name_text
from fa_registry.protocol import takes
from fa_registry.protocol.operators import OPERATORS
from fa_registry.protocol.shipped import digests, impersonation

LIMIT, SEEDS, CREDIT = JUDGES = ("limit", "seeds_margin", "credit_distribution")
LABELS = ("pass", "warn", "fail", "incomplete", "diverged", "control")
EDITION = {
    "name": str,
    "title": str,
    "source": str,
    "based_on": str,
    "fail_if": list,
    "strict": bool,
    "labels": dict,
    "rule": list,
    "variant": dict,
}
CONDITION = {
    "quantity": str,
    "take": str,
    "fires": str,
    "threshold": float,
    "unit": str,
    "fired": str,
    "clear": str,
}
RULE = {
    **CONDITION,
    "code": str,
    "title": str,
    "source": str,
    "rationale": str,
    "judge": str,
    "reference": str,
    "without_reference": str,
    "outcome": str,
    "gating": bool,
    "also": list,
    "guard": dict,
}
NEEDED = ("quantity", "take", "fires", "threshold", "unit")
CHOICES = {
    "take": ("quantifier", takes.NAMES),
    "fires": ("operator", tuple(OPERATORS)),
    "judge": ("judge", JUDGES),
    "outcome": ("outcome", ("fail", "warn")),
    "without_reference": ("outcome", ("not_applicable", "skipped")),
}
UNREAD = {SEEDS: ("also", "guard"), CREDIT: ("also", "reference")}  # what a judge would pass over in silence
KINDS = {str: "text", float: "a finite number", bool: "true or false", list: "a list", dict: "a table"}
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # labels and overrides put +, comma, bracket and dot between codes
ACCURACY = "accuracy"


def checked_edition(raw: Mapping[str, Any], subject: str, variant: str | None, digest: str = "") -> dict[str, Any]:
    """The edition's table with the variant's fields laid over it and `variant` taken out. Raises InvalidFields.

    digest: SHA-256 of the file; the name of a shipped edition is that file's alone.
    """
    table, problems = dict(raw), []
    variants = table.pop("variant", {})
    if not isinstance(variants, dict):
        variants, problems = {}, [f"variant: expected a table of variants, found {variants!r}"]
    if variant is not None:
        if variant not in variants:
            raise UnknownName(f"variant of edition {raw.get('name', subject)}", variant, variants)
        table, more = _laid_over(table, variants[variant], f"variant.{variant}")
        problems += more
    problems += _edition_problems(table)
    problems += _standing_problems(table, digest)
    if problems:
        raise InvalidFields(f"edition {subject}", problems)
    return table


def checked_overrides(
    overrides: Mapping[str, Any], places: Mapping[str, Iterable[str]], edition: str
) -> dict[tuple[str, str], float]:
    """(rule, quantity of a further condition, or nothing for its threshold) → value.

    places: rule → its quantities, the leading one first. Raises InvalidFields for all that fit nowhere.
    """
    problems: list[str] = []
    thresholds: dict[tuple[str, str], float] = {}
    for key, value in overrides.items():
        code, _, name = str(key).partition(".")
        leading, *further = places.get(code, ("",))
        place = (code, "" if name in ("", "threshold", leading) else name)
        if code not in places:
            problems.append(f"{key}: {unknown_name_text('rule', code, places)}")
        elif place[1] and name not in further:
            problems.append(f"{key}: {unknown_name_text(f'limit of {code}', name, ['threshold', *further])}")
        elif not _is_number(value):
            problems.append(f"{key}: expected a finite number, found {value!r}")
        elif place in thresholds:
            problems.append(f"{key}: the limit is given twice")
        else:
            thresholds[place] = float(value)
    if problems:
        raise InvalidFields(f"overrides of edition {edition}", problems)
    return thresholds


def _laid_over(table: dict[str, Any], changes: Any, where: str) -> tuple[dict[str, Any], list[str]]:
    """A variant names what differs: fields of the edition, and by their code fields of its rules."""
    if not isinstance(changes, dict):
        return table, [f"{where}: expected a table, found {changes!r}"]
    rules = [dict(rule) if isinstance(rule, dict) else {} for rule in table.get("rule", [])]
    known = [str(rule.get("code")) for rule in rules]
    problems = []
    for index, change in enumerate(changes.get("rule", [])):
        code = change.get("code") if isinstance(change, dict) else None
        if code in known:
            rules[known.index(code)] |= change
        else:
            problems.append(f"{where}.rule[{index}].code: {unknown_name_text('rule', code, known)}")
    return {**table, **changes, "rule": rules}, problems


def _edition_problems(table: dict[str, Any]) -> Iterator[str]:
    yield from _wrong_fields(table, EDITION, ("name", "title", "source", "fail_if", "rule"), "")
    rules = table.get("rule") if isinstance(table.get("rule"), list) else []
    for index, rule in enumerate(rules):
        where = f"rule[{index}]."
        yield from _rule_problems(rule, where) if isinstance(rule, dict) else [f"{where[:-1]}: expected a table"]
    rules = [rule for rule in rules if isinstance(rule, dict)]
    codes = [str(rule.get("code")) for rule in rules]
    yield from (f"rule: code {code!r} is given twice" for code in dict.fromkeys(codes) if codes.count(code) > 1)
    gating = [str(rule.get("code")) for rule in rules if rule.get("gating", True)]
    groups = table.get("fail_if") if isinstance(table.get("fail_if"), list) else []
    for group in groups:
        if not isinstance(group, list) or not group:
            yield f"fail_if: expected lists of rules, found {group!r}"
            continue
        yield from (
            f"fail_if: {unknown_name_text('gating rule', code, gating)}" for code in group if code not in gating
        )
    labels = table.get("labels") if isinstance(table.get("labels"), dict) else {}
    yield from _wrong_fields(labels, dict.fromkeys(LABELS, str), (), "labels.")
    for name, word in labels.items():
        if "(" in str(word) or ":" in str(word)[:-1]:
            yield f"labels.{name}: may hold no bracket, and a colon only at its end (its flags follow), found {word!r}"


def _standing_problems(table: dict[str, Any], digest: str) -> Iterator[str]:
    """What a file says of its own relation to the shipped editions, and may not."""
    name = table["name"] if isinstance(table.get("name"), str) else ""
    unseen = [f"U+{ord(letter):04X}" for letter in name if unicodedata.category(letter)[0] == "C"]
    if wrong := impersonation(name, digest):
        yield wrong
    elif unseen:  # one of them turns the direction of reading: such a name may read as any other
        yield f"name: expected characters that can be seen, found {', '.join(unseen)} in {ascii(name)}"
    base = table.get("based_on")
    if isinstance(base, str) and base not in digests():
        yield f"based_on: {unknown_name_text('shipped edition', base, digests())}"


def _rule_problems(table: dict[str, Any], where: str) -> Iterator[str]:
    yield from _wrong_fields(table, RULE, ("code", "title", *NEEDED, "source", "rationale"), where)
    yield from _wrong_choices(table, where)
    if isinstance(table.get("code"), str) and not CODE.fullmatch(table["code"]):
        yield f"{where}code: expected a letter, then letters, digits, - or _, found {table['code']!r}"
    operator = OPERATORS.get(str(table.get("fires")))
    if operator and operator.needs_reference != bool(table.get("reference")):
        yield f"{where}reference: " + ("missing" if operator.needs_reference else f"{table['fires']} has none")
    if table.get("judge") == SEEDS and (table.get("quantity"), table.get("reference")) != (ACCURACY, ACCURACY):
        yield f"{where}quantity: {SEEDS} judges accuracy against the reference's accuracy"
    for name in UNREAD.get(str(table.get("judge")), ()):
        if table.get(name):
            yield f"{where}{name}: the judge {table['judge']} does not look at it"
    also = table.get("also") if isinstance(table.get("also"), list) else []
    for index, condition in enumerate(also):
        yield from _condition_problems(condition, ("clear",), f"{where}also[{index}].")
    if isinstance(table.get("guard"), dict):
        yield from _condition_problems(table["guard"], ("fired",), f"{where}guard.")


def _condition_problems(table: Any, words: tuple[str, ...], where: str) -> Iterator[str]:
    if not isinstance(table, dict):
        yield f"{where[:-1]}: expected a table, found {table!r}"
        return
    yield from _wrong_fields(table, CONDITION, (*NEEDED, *words), where)
    yield from _wrong_choices(table, where)
    operator = OPERATORS.get(str(table.get("fires")))
    if operator and operator.needs_reference:
        yield f"{where}fires: only a rule's leading condition is compared with a reference"


def _wrong_choices(table: Mapping[str, Any], where: str) -> Iterator[str]:
    for name, (what, known) in CHOICES.items():
        if table.get(name) not in (None, "", *known):
            yield f"{where}{name}: {unknown_name_text(what, table[name], known)}"


def _wrong_fields(
    table: Mapping[str, Any], known: Mapping[str, type], required: tuple[str, ...], where: str
) -> Iterator[str]:
    yield from (f"{where}{name}: {unknown_name_text('field', name, known)}" for name in table if name not in known)
    yield from (f"{where}{name}: missing" for name in required if table.get(name) in (None, "", []))
    for name, kind in known.items():
        value = table.get(name)
        if value is not None and not (_is_number(value) if kind is float else isinstance(value, kind)):
            yield f"{where}{name}: expected {KINDS[kind]}, found {value!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
