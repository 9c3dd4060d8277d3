"""Schema and checks of an edition's TOML file.

All wrong fields of a file are reported together.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, UnknownName, unknown_name_text
from fa_registry.protocol import reductions
from fa_registry.protocol.builtin_editions import digests, name_conflict
from fa_registry.protocol.operators import OPERATORS

Take = Literal[reductions.NAMES]
Fires = Literal[tuple(OPERATORS)]
Judge = Literal["limit", "seeds_margin", "credit_distribution"]
LIMIT, SEEDS, CREDIT = JUDGES = get_args(Judge)
Label = Literal["pass", "warn", "fail", "incomplete", "diverged", "control"]
NEEDED = ("quantity", "take", "fires", "unit")  # required fields, which must not be empty
# Judge → fields that the judge does not read. A file must not set these fields.
UNREAD = {
    LIMIT: ("chance", "far_seed"),
    SEEDS: ("either", "also", "guard", "guard_also"),
    CREDIT: ("also", "guard_also", "reference", "chance", "far_seed"),
}
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # without + , ( ) and . because labels and overrides use these
# Operator that compares with a reference → the main metric for which it is meant, see fa_registry.metrics.headlines.
REFERENCE_METRICS = {"below_reference_plus": "accuracy", "above_reference_minus": "token_loss"}


@dataclass(frozen=True)
class Condition:
    """Comparison of a metric with a limit."""

    quantity: str
    """name of a metric; `fa-registry info DIAGNOSTIC` lists the names"""
    take: Take
    """how the metric is reduced to one number"""
    fires: Fires
    """operator that compares the number with the limit"""
    threshold: float
    """the limit, in the metric's unit"""
    unit: str
    """unit of the limit, as text"""
    fired: str = ""
    """state if the condition fires; required for a guard. An alternative without this field has the state of its rule"""
    clear: str = ""
    """state if the condition does not fire; required for a condition of `also`"""


@dataclass(frozen=True)
class FarSeed:
    """Criterion for an outlier among the seeds.

    If the margin of one seed is an outlier, the interval over the seeds cannot decide the rule, so the rule is undecided.
    """

    level: float
    """level of Grubbs' two-sided test for one outlier among the margins, 0 to 1"""
    least: float
    """smallest distance of an outlier from the nearest other seed, in percentage points"""


@dataclass(frozen=True)
class Rule:
    """Rule of an edition, with source and rationale.

    The rule's `quantity`, `take`, `fires` and `threshold` form its leading condition.
    """

    code: str
    """name of the rule in verdicts and waivers: a letter, then letters, digits, - or _"""
    title: str
    """title in tables, a few words"""
    quantity: str
    """metric of the leading condition; findings show this metric"""
    take: Take
    """how the metric is reduced to one number"""
    fires: Fires
    """operator that compares the number with the limit"""
    threshold: float
    """the limit; `--threshold CODE=NUMBER` changes it, and the report states the change"""
    unit: str
    """unit of the limit, as text"""
    source: str
    """source of the rule"""
    rationale: str
    """reason for the rule"""
    judge: Judge = "limit"
    """how the rule judges: against a limit, over seeds, or by the distribution of credit"""
    reference: str = ""
    """the frozen control's metric, with which the run is compared. The operator `below_reference_plus` requires this field"""
    without_reference: Literal["not_applicable", "skipped"] = "not_applicable"
    """the outcome if there is no frozen control"""
    outcome: Literal["fail", "warn"] = "fail"
    """the outcome if the rule fires"""
    gating: bool = True
    """whether the verdict uses the rule"""
    fired: str = "FIRES"
    """state if the rule fires"""
    clear: str = "OK"
    """state if the rule does not fire"""
    either: tuple[Condition, ...] = ()
    """alternatives to the leading condition; a finding shows the first alternative that fires"""
    also: tuple[Condition, ...] = ()
    """further conditions that must fire too; if one does not fire, the rule passes with the state of that condition"""
    guard: Condition | None = None
    """a condition that is judged first; if it fires, the finding is a warning with the guard's state"""
    guard_also: Condition | None = None
    """second condition of the guard; the guard fires only if both conditions fire. A condition without a value is ignored"""
    chance: bool = False
    """whether the main metric must also exceed chance, the best value without inputs; only for the judge `seeds_margin`"""
    far_seed: FarSeed | None = None
    """criterion for an outlier among the seeds, which makes the rule undecided; only for the judge `seeds_margin`"""

    @property
    def guards(self) -> tuple[Condition, ...]:
        """The guard and its second condition; empty if the rule has no guard."""
        return tuple(condition for condition in (self.guard, self.guard_also) if condition)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Leading condition, alternatives, further conditions and guards, in this order."""
        leading = Condition(self.quantity, self.take, self.fires, self.threshold, self.unit, self.fired, self.clear)
        return (leading, *self.either, *self.also, *self.guards)


@dataclass(frozen=True)
class EditionFile:
    """Content of an edition's file after the changes of a variant are applied."""

    name: str
    """name of the edition on pages; names of built-in editions are reserved"""
    title: str
    """the requirements of the edition in one line"""
    source: str
    """source of the edition"""
    fail_if: tuple[tuple[str, ...], ...]
    """lists of codes of gating rules; a run fails if all rules of one list fire"""
    rule: tuple[Rule, ...]
    """the rules, in the order in which pages show them"""
    based_on: str = ""
    """the built-in edition with which pages compare this edition; by default, the edition with the most rules in common"""
    strict: bool = False
    """whether a run fails if any gating rule fires, regardless of `fail_if`"""
    labels: Mapping[Label, str] = field(default_factory=dict)
    """other labels for the outcomes of the verdict"""


def checked_edition(raw: Mapping[str, Any], subject: str, variant: str | None, digest: str = "") -> EditionFile:
    """Check the TOML table of an edition and return its content.

    Args:
        raw: the TOML table.
        subject: name of the file in error messages.
        variant: name of the variant whose changes are applied, or None.
        digest: SHA-256 of the file. Only the file of a built-in edition may use the name of that edition.

    Raises:
        InvalidFields: lists every problem of the file.
        UnknownName: the file has no variant with this name.
    """
    table, problems = dict(raw), []
    variants = table.pop("variant", {})
    if not isinstance(variants, dict):
        variants, problems = {}, [f"variant: expected a table of variants, found {jsonio.describe_value(variants)}"]
    if variant is not None:
        if variant not in variants:
            raise UnknownName(f"variant of edition {raw.get('name', subject)}", variant, variants)
        table, variant_problems = _laid_over(table, variants[variant], f"variant.{variant}")
        problems += variant_problems
    edition, decoding_problems = jsonio.try_decode(EditionFile, table)
    problems += decoding_problems
    problems += _edition_problems(table, digest)
    if problems:
        raise InvalidFields(f"edition {subject}", problems)
    return edition


def checked_overrides(
    overrides: Mapping[str, Any], metrics_of_rule: Mapping[str, Iterable[str]], edition: str
) -> dict[tuple[str, str], float]:
    """Check changed thresholds and return them by rule and metric.

    Args:
        overrides: mapping from the name of a limit to its new value. `D1` and `D1.threshold` name the limit of rule D1's leading
            condition. `D2.gain` names the limit of rule D2's condition on the metric gain.
        metrics_of_rule: mapping from a rule to the metrics of its conditions, starting with the leading condition.
        edition: name of the edition in error messages.

    Returns:
        A mapping (rule, metric) → new value. The metric is an empty string for the limit of the leading condition.

    Raises:
        InvalidFields: lists every override that matches no limit or is not a finite number.
    """
    problems: list[str] = []
    thresholds: dict[tuple[str, str], float] = {}
    for key, value in overrides.items():
        code, _, name = str(key).partition(".")
        leading, *further = metrics_of_rule.get(code, ("",))
        limit_key = (code, "" if name in ("", "threshold", leading) else name)
        if code not in metrics_of_rule:
            problems.append(f"{key}: {unknown_name_text('rule', code, metrics_of_rule)}")
        elif limit_key[1] and name not in further:
            problems.append(f"{key}: {unknown_name_text(f'limit of {code}', name, ['threshold', *further])}")
        elif not jsonio.is_finite(value):
            problems.append(f"{key}: expected a finite number, found {jsonio.describe_value(value)}")
        elif limit_key in thresholds:
            problems.append(f"{key}: expected one override per limit, found two for this limit")
        else:
            thresholds[limit_key] = float(value)
    if problems:
        raise InvalidFields(f"overrides of edition {edition}", problems)
    return thresholds


def _laid_over(table: dict[str, Any], changes: Any, location: str) -> tuple[dict[str, Any], list[str]]:
    """Apply the changes of a variant; return the table and the variant's problems."""
    if not isinstance(changes, dict):
        return table, [f"{location}: expected a table, found {jsonio.describe_value(changes)}"]
    rules = [dict(rule) for rule in _tables(table.get("rule"))]
    codes = [str(rule.get("code")) for rule in rules]
    problems = []
    rule_changes = changes.get("rule", [])
    if not isinstance(rule_changes, list):
        return table, [f"{location}.rule: expected a list, found {jsonio.describe_value(rule_changes)}"]
    for index, change in enumerate(rule_changes):  # a variant names the rules that it changes by their code
        code = change.get("code") if isinstance(change, dict) else None
        if code in codes:
            rules[codes.index(code)] |= change
        else:
            problems.append(f"{location}.rule[{index}].code: {unknown_name_text('rule', code, codes)}")
    return {**table, **changes, "rule": rules}, problems


def _tables(value: Any) -> list[dict[str, Any]]:
    """Return the tables in a list. Another check reports the entries that are not tables."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _edition_problems(table: dict[str, Any], digest: str) -> Iterator[str]:
    """Yield the problems of an edition. Another check reports the fields with a wrong type."""
    yield from _empty(table, ("name", "title", "source", "fail_if", "rule"), "")
    rules = table.get("rule") if isinstance(table.get("rule"), list) else []
    for index, rule in enumerate(rules):
        yield from _rule_problems(rule, f"rule[{index}].") if isinstance(rule, dict) else ()
    rules = _tables(rules)
    codes = [str(rule.get("code")) for rule in rules]
    yield from (
        f"rule: code {jsonio.describe_value(code)} occurs twice; every rule needs a different code"
        for code in dict.fromkeys(codes)
        if codes.count(code) > 1
    )
    gating = [str(rule.get("code")) for rule in rules if rule.get("gating", True)]
    for group in table.get("fail_if") if isinstance(table.get("fail_if"), list) else []:
        if group == []:
            yield "fail_if: expected lists with at least one rule, found []"
        unknown = [code for code in group if code not in gating] if isinstance(group, list) else []
        yield from (f"fail_if: {unknown_name_text('gating rule', code, gating)}" for code in unknown)
    labels = table.get("labels") if isinstance(table.get("labels"), dict) else {}
    for name, label in labels.items():
        if "(" in str(label) or ":" in str(label)[:-1]:
            yield (
                f"labels.{name}: expected a label without brackets, and with a colon only at its end (before the flags), "
                f"found {jsonio.describe_value(label)}"
            )
    name = table["name"] if isinstance(table.get("name"), str) else ""
    invisible = [f"U+{ord(letter):04X}" for letter in name if unicodedata.category(letter)[0] == "C"]
    if conflict := name_conflict(name, digest):
        yield conflict
    elif invisible:  # a control character can reverse the text direction: the name would look like another name
        yield f"name: expected only visible characters, found {', '.join(invisible)} in {ascii(name)}"
    base = table.get("based_on")
    if isinstance(base, str) and base not in digests():
        yield f"based_on: {unknown_name_text('shipped edition', base, digests())}"


def _empty(table: Mapping[str, Any], names: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield a problem for every field that is present but empty."""
    yield from (f"{prefix}{name}: missing" for name in names if table.get(name) in ("", []))


def _rule_problems(table: dict[str, Any], prefix: str) -> Iterator[str]:
    yield from _empty(table, ("code", "title", *NEEDED, "source", "rationale"), prefix)
    if isinstance(table.get("code"), str) and not CODE.fullmatch(table["code"]):
        yield f"{prefix}code: expected a letter, then letters, digits, - or _, found {jsonio.describe_value(table['code'])}"
    operator = OPERATORS.get(str(table.get("fires")))
    if operator and operator.needs_reference != bool(table.get("reference")):
        yield f"{prefix}reference: " + (
            "missing"
            if operator.needs_reference
            else f"expected no field `reference`, because fires = {table['fires']!r} compares only with the "
            f"threshold; remove the field"
        )
    headline = REFERENCE_METRICS.get(str(table.get("fires")), "accuracy")
    if table.get("judge") == SEEDS and (table.get("quantity"), table.get("reference")) != (headline, headline):
        yield f"{prefix}quantity: the judge {SEEDS} requires the metric {headline} in `quantity` and in `reference`"
    judge = str(table.get("judge", LIMIT))
    for name in UNREAD.get(judge, ()):
        if table.get(name):
            yield f"{prefix}{name}: the judge {judge} does not use this field; remove it"
    far_seed = table.get("far_seed")
    if isinstance(far_seed, dict) and jsonio.is_finite(far_seed.get("level")) and not 0 < far_seed["level"] < 1:
        yield f"{prefix}far_seed.level: expected a level between 0 and 1, found {jsonio.describe_value(far_seed['level'])}"
    for name, required_field in (("either", ""), ("also", "clear")):
        conditions = table.get(name) if isinstance(table.get(name), list) else []
        for index, condition in enumerate(conditions):
            yield from _condition_problems(condition, required_field, f"{prefix}{name}[{index}].")
    if table.get("either") and operator and operator.needs_reference:
        yield f"{prefix}either: a rule with a reference cannot have alternatives; remove `either` or `reference`"
    yield from _condition_problems(table.get("guard"), "fired", f"{prefix}guard.")
    yield from _condition_problems(table.get("guard_also"), "", f"{prefix}guard_also.")
    if table.get("guard_also") and not table.get("guard"):
        yield f"{prefix}guard: missing; the field `guard_also` is only allowed together with `guard`"


def _condition_problems(table: Any, required_field: str, prefix: str) -> Iterator[str]:
    """Yield the problems of a condition.

    `required_field` is the field that the condition must have: "clear", "fired", or an empty string if no field is required.
    """
    if not isinstance(table, dict):
        return
    yield from _empty({required_field: "", **table}, (*NEEDED, *([required_field] if required_field else [])), prefix)
    operator = OPERATORS.get(str(table.get("fires")))
    if operator and operator.needs_reference:
        yield f"{prefix}fires: expected an operator without a reference; only a rule's leading condition can use a reference"
