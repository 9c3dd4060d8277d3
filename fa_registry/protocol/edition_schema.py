"""Schema and checks of an edition's TOML file.

All wrong fields of a file are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, UnknownName, unknown_name_text
from fa_registry.field_types import Checked, Fields, Filled, Limits, Text
from fa_registry.protocol.builtin_editions import digests, name_conflict
from fa_registry.protocol.operators import NAMES, OPERATORS

Take = Literal[NAMES]
Fires = Literal[tuple(OPERATORS)]
Judge = Literal["limit", "seeds_margin", "credit_distribution"]
LIMIT, SEEDS, CREDIT = JUDGES = get_args(Judge)
Label = Literal["pass", "warn", "fail", "incomplete", "diverged", "control"]
# Judge → fields that the judge does not read. A file must not set these fields.
UNREAD = {
    LIMIT: ("chance", "far_seed", "frozen_long"),
    SEEDS: ("either", "also", "guard", "guard_also", "needs_stream"),
    CREDIT: ("also", "guard_also", "reference", "chance", "far_seed", "frozen_long", "needs_stream"),
}
# without + , ( ) and . because labels and overrides use these
Code = Annotated[str, Limits("a letter, then letters, digits, - or _", pattern="^[A-Za-z][A-Za-z0-9_-]*$")]
# a control character can reverse the text direction: the name would look like another name
Visible = Annotated[Text, Limits("only visible characters", pattern=r"^\P{C}*$")]
VerdictLabel = Annotated[
    str, Limits("a label without brackets, and with a colon only at its end (before the flags)", pattern="^[^(:]*:?$")
]
# Operator that compares with a reference → the main metric for which it is meant, see fa_registry.metrics.headlines.
REFERENCE_METRICS = {"below_reference_plus": "accuracy", "above_reference_minus": "token_loss"}


@dataclass(frozen=True)
class Condition:
    """Comparison of a metric with a limit."""

    quantity: Text
    """name of a metric; `fa-registry info DIAGNOSTIC` lists the names"""
    take: Take
    """how the metric is reduced to one number"""
    fires: Fires
    """operator that compares the number with the limit"""
    threshold: float
    """the limit, in the metric's unit"""
    unit: Text
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

    level: Annotated[float, Limits(gt=0, lt=1)]
    """probability of an outlier among the margins of normally distributed seeds, 0 to 1"""
    least: float
    """smallest distance of an outlier from the nearest other seed, in percentage points"""


@dataclass(frozen=True)
class Rule(Checked):
    """Rule of an edition, with source and rationale.

    The rule's `quantity`, `take`, `fires` and `threshold` form its leading condition.
    """

    code: Code
    """name of the rule in verdicts and waivers: a letter, then letters, digits, - or _"""
    title: Text
    """title in tables, a few words"""
    quantity: Text
    """metric of the leading condition; findings show this metric"""
    take: Take
    """how the metric is reduced to one number"""
    fires: Fires
    """operator that compares the number with the limit"""
    threshold: float
    """the limit; `--threshold CODE=NUMBER` changes it, and the report states the change"""
    unit: Text
    """unit of the limit, as text"""
    source: Text
    """source of the rule"""
    rationale: Text
    """reason for the rule"""
    judge: Judge = LIMIT
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
    needs_stream: bool = False
    """whether the rule needs a residual stream. It does not apply to a network whose blocks replace the state. It cannot pass if a
    norm that no block names hides the scale of the stream. Only for the judge `limit`"""
    chance: bool = False
    """whether the main metric must also exceed chance, the best value without inputs; only for the judge `seeds_margin`"""
    frozen_long: bool = False
    """whether the margin over the control `frozen_long`, if there is one, must agree about the limit; only for the judge
    `seeds_margin`"""
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

    def field_problems(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each field that contradicts another field, with the problem."""
        needs_reference = OPERATORS[self.fires].needs_reference
        if needs_reference and not self.reference:
            yield "reference", "missing"
        elif self.reference and not needs_reference:
            yield (
                "reference",
                f"expected no field `reference`, because fires = {self.fires!r} compares only with the threshold",
            )
        headline = REFERENCE_METRICS.get(self.fires, "accuracy")
        if self.judge == SEEDS and (self.quantity, self.reference) != (headline, headline):
            yield "quantity", f"the judge {SEEDS} requires the metric {headline} in `quantity` and in `reference`"
        for name in UNREAD[self.judge]:
            if getattr(self, name):
                yield name, f"the judge {self.judge} does not use this field; remove it"
        if self.either and needs_reference:
            yield "either", "a rule with a reference cannot have alternatives; remove `either` or `reference`"
        if self.guard_also and not self.guard:
            yield "guard", "missing; the field `guard_also` is only allowed together with `guard`"
        for place, condition, required in self._further():
            if required and not getattr(condition, required):
                yield f"{place}.{required}", "missing"
            if OPERATORS[condition.fires].needs_reference:
                yield f"{place}.fires", "expected an operator without a reference; only a leading condition can use one"

    def _further(self) -> Iterator[tuple[str, Condition, str]]:
        """Yield the place of each condition after the first, the condition, and the field that it must have."""
        yield from ((f"either[{index}]", condition, "") for index, condition in enumerate(self.either))
        yield from ((f"also[{index}]", condition, "clear") for index, condition in enumerate(self.also))
        named = (("guard", self.guard, "fired"), ("guard_also", self.guard_also, ""))
        yield from ((name, condition, required) for name, condition, required in named if condition)


RuleChange = Annotated[dict[str, Any], Fields({"code": str}, needed=["code"])]
VariantFields = Annotated[dict[str, Any], Fields({"rule": list[RuleChange]})]


@dataclass(frozen=True)
class EditionFile(Checked):
    """Content of an edition's file after the changes of a variant are applied."""

    name: Visible
    """name of the edition on pages; names of built-in editions are reserved"""
    title: Text
    """the requirements of the edition in one line"""
    source: Text
    """source of the edition"""
    fail_if: Filled[Filled[str]]
    """lists of codes of gating rules; a run fails if all rules of one list fire"""
    rule: Filled[Rule]
    """the rules, in the order in which pages show them"""
    based_on: str = ""
    """the built-in edition with which pages compare this edition; by default, the edition with the most rules in common"""
    strict: bool = False
    """whether a run fails if any gating rule fires, regardless of `fail_if`"""
    labels: Mapping[Label, VerdictLabel] = field(default_factory=dict)
    """other labels for the outcomes of the verdict"""

    variant: Mapping[str, VariantFields] = field(default_factory=dict)
    """variants of the edition, see [variant.NAME](#variantname)"""

    def field_problems(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each field that contradicts another field, with the problem."""
        codes = [rule.code for rule in self.rule]
        repeated = [code for code in dict.fromkeys(codes) if codes.count(code) > 1]
        yield from (("rule", f"code {code!r} occurs twice; every rule needs a different code") for code in repeated)
        gating = [rule.code for rule in self.rule if rule.gating]
        unknown = [code for group in self.fail_if for code in group if code not in gating]
        yield from (("fail_if", unknown_name_text("gating rule", code, gating)) for code in unknown)
        if self.based_on and self.based_on not in digests():
            yield "based_on", unknown_name_text("shipped edition", self.based_on, digests())


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
    edition, problems = jsonio.try_decode(EditionFile, raw)
    if edition and variant is not None:
        if variant not in edition.variant:
            raise UnknownName(f"variant of edition {edition.name}", variant, edition.variant)
        problems = _unknown_rules(edition, variant)
        edition, variant_problems = jsonio.try_decode(EditionFile, _with_changes(raw, edition.variant[variant]))
        problems += variant_problems
    name = raw.get("name")
    if isinstance(name, str) and (conflict := name_conflict(name, digest)):
        problems.append(conflict)
    if problems:
        raise InvalidFields(f"edition {subject}", problems)
    return edition


def _unknown_rules(edition: EditionFile, variant: str) -> list[str]:
    """Return a problem for each change of a variant that changes none of the rules."""
    codes = [rule.code for rule in edition.rule]
    return [
        f"variant.{variant}.rule[{index}].code: {unknown_name_text('rule', change['code'], codes)}"
        for index, change in enumerate(edition.variant[variant].get("rule", ()))
        if change["code"] not in codes
    ]


def _with_changes(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a valid edition with the changes of a variant."""
    changes_of_rule = {change["code"]: change for change in changes.get("rule", ())}
    rules = [rule | changes_of_rule.get(rule["code"], {}) for rule in table["rule"]]
    return {**table, **changes, "rule": rules, "variant": {}}


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
