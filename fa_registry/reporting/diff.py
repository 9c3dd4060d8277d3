"""The differences between two audits A and B: changes of the selection, the rules and the runs."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fa_registry import jsonio
from fa_registry.metrics import at_last_site, table, value_in
from fa_registry.protocol.builtin_editions import describe_edition
from fa_registry.records import (
    NOT_FINITE,
    AuditReport,
    EditionReference,
    FigureVerdict,
    Finding,
    Measurements,
    Reading,
    Reproduction,
    RunAudit,
    Verdict,
    Waiver,
)
from fa_registry.schema_number import SCHEMA

How = Literal["run id", "specification"]
BY_ID, BY_SPECIFICATION = get_args(How)
NOT_MEASURED = Reading(None, "this audit does not contain this metric")
COMPARED_APART = ("run_id", "measurements")  # fields of a record that `_run` leaves out
EDITION = ("name", "title", "source", "digest")  # compared fields of an edition's reference
REFERENCE = ("reference", "title", "digest", "remarks")  # compared fields of a reproduction
IDS = ("run_id", "reference_run_id")  # fields of a finding that contain run ids
TEXTS = ("title", "required", "sentence", "limit", "basis")  # that another release may word differently
NO_NUMBER = {False: Reading(None, "missing"), True: Reading(None, NOT_FINITE, NOT_FINITE)}
LONGEST = 200  # maximum number of characters of a value that is printed in full
Pair = tuple[RunAudit, RunAudit]  # the same run in A and in B
Blocks = Mapping[str, Mapping[str, Any]]  # name of a block → its values by key
Findings = tuple[Finding | None, Finding | None]  # the findings of one rule on one run, in A and in B


@dataclass(frozen=True)
class DiffSide:
    """One of the two compared audits."""

    title: str
    """title of the audit"""
    selection: str
    """which runs were selected, as text"""
    edition: str
    """the leading edition, as text for the reader"""
    runs: int
    """how many runs were judged"""
    digest: str
    """SHA-256 of the report's canonical JSON; two audits with the same digest are identical"""


@dataclass(frozen=True)
class Change:
    """A change of a value that is neither a metric nor a finding."""

    what: str
    """what changed"""
    before: str
    """the value in A; its SHA-256 if the value is long; empty if A has no value"""
    after: str
    """the value in B; its SHA-256 if the value is long; empty if B has no value"""


@dataclass(frozen=True)
class FigureChange:
    """A metric that differs between A and B."""

    name: str
    """name of the metric, or `name[site]` for a metric by site"""
    before: Reading
    """value in A"""
    after: Reading
    """value in B"""


@dataclass(frozen=True)
class FindingChange:
    """A finding of the leading edition on one run that differs between A and B."""

    rule: str
    """code of the rule"""
    title: str
    """title of the rule"""
    decided: bool
    """true if the outcome or state changed, or if only one audit has the finding; false if only a value or limit changed"""
    before: Finding | None
    """the finding in A; null if A has none"""
    after: Finding | None
    """the finding in B; null if B has none"""


@dataclass(frozen=True)
class RuleChange:
    """A rule of the leading edition whose limits or outcomes differ between A and B."""

    rule: str
    """code of the rule"""
    title: str
    """title of the rule"""
    required_a: tuple[str, ...]
    """limits of the rule in A, as text"""
    required_b: tuple[str, ...]
    """limits of the rule in B, as text"""
    outcomes_a: Mapping[str, int]
    """outcome in A → number of runs with this outcome, among the runs in both audits"""
    outcomes_b: Mapping[str, int]
    """outcome in B → number of runs with this outcome, among the runs in both audits"""
    moved: tuple[str, ...]
    """the runs whose outcome changed, with their run ids in B"""


@dataclass(frozen=True)
class RunName:
    """A run that is in only one of the two audits."""

    run_id: str
    """id of the run in the tracking store"""
    name: str
    """name of the run"""
    method: str
    """method of the run"""
    setting: str
    """setting of the run"""
    seed: int
    """seed of the run"""
    verdict: str
    """verdict of the leading edition, as text for the reader"""


@dataclass(frozen=True)
class RunChange:
    """A run that is in both audits and differs between A and B."""

    run_id_a: str
    """id of the run in A"""
    run_id_b: str
    """id of the run in B"""
    matched: How
    """how the runs were matched: by run id, or by specification if the run was retrained"""
    method: str
    """method of the run"""
    setting: str
    """setting of the run"""
    seed: int
    """seed of the run"""
    verdict_a: Verdict
    """verdict of the leading edition of A"""
    verdict_b: Verdict
    """verdict of the leading edition of B"""
    findings: tuple[FindingChange, ...]
    """findings of the leading editions that differ between A and B"""
    figures: tuple[FigureChange, ...]
    """metrics that differ between A and B"""
    changes: tuple[Change, ...]
    """values that differ between A and B, except metrics and findings"""


@dataclass(frozen=True)
class AuditDiff:
    """All changes from audit A to audit B."""

    a: DiffSide
    """audit A, the earlier audit"""
    b: DiffSide
    """audit B, the later audit"""
    same: bool
    """whether there is no change"""
    matched: int
    """how many runs are in both audits"""
    trained_again: int
    """number of runs that are in both audits, but with different run ids"""
    report: tuple[Change, ...]
    """changes of the selection, and changes of values that apply to all runs"""
    rules: tuple[RuleChange, ...]
    """changes of each rule"""
    runs: tuple[RunChange, ...]
    """the runs that changed, with their changes"""
    only_a: tuple[RunName, ...]
    """runs that are only in A"""
    only_b: tuple[RunName, ...]
    """runs that are only in B"""
    schema: Literal[SCHEMA] = SCHEMA
    """number of the schema"""


def audit_diff(a: AuditReport, b: AuditReport) -> AuditDiff:
    """Return every difference between two audits, except new ids of retrained runs and the order of runs."""
    pairs, only_a, only_b = _matched(a.runs, b.runs)
    ids = {before.record.run_id: after.record.run_id for before, after in pairs}
    opinions = _opinions(a, b), _opinions(b, a)
    runs = tuple(change for pair in pairs if (change := _run_change(pair, ids, opinions)))
    report = tuple(_changes(_report(a), _report(b)))
    sides = (
        DiffSide(one.title, one.selection, describe_edition(one.edition), len(one.runs), jsonio.digest_of(one))
        for one in (a, b)
    )
    return AuditDiff(
        *sides,
        same=not (report or runs or only_a or only_b),
        matched=len(pairs),
        trained_again=sum(_how(pair) == BY_SPECIFICATION for pair in pairs),
        report=report,
        rules=tuple(_rule_changes(pairs)),
        runs=runs,
        only_a=tuple(map(_run_name, only_a)),
        only_b=tuple(map(_run_name, only_b)),
    )


def _run_name(run: RunAudit) -> RunName:
    record = run.record
    spec = record.spec
    return RunName(record.run_id, record.name, spec.label, record.setting, spec.seed, run.verdict.full_label)


def _matched(a: Sequence[RunAudit], b: Sequence[RunAudit]) -> tuple[list[Pair], list[RunAudit], list[RunAudit]]:
    """Return the tuple (pairs of runs in both audits, runs only in A, runs only in B).

    A run matches the run with the same id. A retrained run matches the first unmatched run with the same specification.
    """
    ids_of_a = {run.record.run_id for run in a}
    by_id = {run.record.run_id: run for run in b}
    unmatched: defaultdict[str, deque[RunAudit]] = defaultdict(deque)
    for run in b:
        if run.record.run_id not in ids_of_a:
            unmatched[run.record.spec.identity].append(run)
    matches = [(run, by_id.get(run.record.run_id) or _next(unmatched[run.record.spec.identity])) for run in a]
    pairs = [(before, after) for before, after in matches if after]
    matched_ids = {after.record.run_id for _, after in pairs}
    only_b = [run for run in b if run.record.run_id not in matched_ids]
    return pairs, [before for before, after in matches if not after], only_b


def _next(runs: deque[RunAudit]) -> RunAudit | None:
    return runs.popleft() if runs else None


def _how(pair: Pair) -> str:
    before, after = pair
    return BY_ID if before.record.run_id == after.record.run_id else BY_SPECIFICATION


def _run_change(pair: Pair, ids: Mapping[str, str], opinions: tuple[Mapping[str, Blocks], ...]) -> RunChange | None:
    """Return the changes of one run, or None if nothing changed.

    The mapping `ids` is: run id in A → id of the matching run in B. The opinions are those of A and of B, see `_opinions`.
    """
    a, b = pair
    findings = tuple(_finding_changes(a, b))
    figures = tuple(_figure_changes(a.record.measurements, b.record.measurements))
    same_control = ids.get(a.frozen_run_id, a.frozen_run_id) == b.frozen_run_id  # that of A, or the same trained again
    controls = (b.frozen_run_id if same_control else a.frozen_run_id, b.frozen_run_id)
    changes = tuple(_changes(*map(_run, pair, controls, opinions)))
    if not (findings or figures or changes or a.verdict != b.verdict):
        return None
    return RunChange(
        run_id_a=a.record.run_id,
        run_id_b=b.record.run_id,
        matched=_how(pair),
        method=b.record.spec.label,
        setting=b.record.setting,
        seed=b.record.spec.seed,
        verdict_a=a.verdict,
        verdict_b=b.verdict,
        findings=findings,
        figures=figures,
        changes=changes,
    )


def _differing(
    a: Mapping, b: Mapping, comparable: Callable = lambda value: value, missing: Any = None
) -> Iterator[tuple]:
    """Yield (key, value in A, value in B) for each key whose values differ; an absent value is `missing`."""
    for key in {**a, **b}:
        before, after = a.get(key, missing), b.get(key, missing)
        if comparable(before) != comparable(after):
            yield key, before, after


def _finding_changes(a: RunAudit, b: RunAudit) -> Iterator[FindingChange]:
    for rule, before, after in _differing(_by_rule(a), _by_rule(b), _comparable):
        decided = _decision(before) != _decision(after)
        yield FindingChange(rule, (after or before).title, decided, before, after)


def _by_rule(run: RunAudit) -> dict[str, Finding]:
    return {finding.rule: finding for finding in run.findings}


def _decision(finding: Finding | None) -> tuple[str, str] | None:
    return finding and (finding.outcome, finding.state)


def _comparable(finding: Finding | None) -> Finding | None:
    """Return the finding without run ids and texts.

    A retrained run has a new id, and another release may word the same finding differently.
    """
    without = dict.fromkeys((*IDS, *TEXTS), "")
    return finding and dataclasses.replace(finding, observed=_number(finding.observed), **without)


def _number(reading: Reading | None) -> Reading | None:
    """Return the reading without the text of its reason.

    For a missing value, the result shows only whether the value was not finite or was not computed.
    """
    return reading if reading is None or reading.value is not None else NO_NUMBER[reading.not_finite]


def _figure_changes(a: Measurements, b: Measurements) -> Iterator[FigureChange]:
    for name, before, after in _differing(dict(_readings(a)), dict(_readings(b)), _number):
        yield FigureChange(name, before or NOT_MEASURED, after or NOT_MEASURED)


def _readings(measured: Measurements) -> Iterator[tuple[str, Reading]]:
    yield from measured.scalars.items()
    last_sites = (name for name in table("diff_command") if at_last_site(name))
    yield from ((name, reading) for name in last_sites if (reading := value_in(measured, name)))
    for name, row in measured.sites.items():
        yield from ((f"{name}[{site}]", reading) for site, reading in enumerate(row))


def _run(run: RunAudit, control: str, opinions: Mapping[str, Blocks]) -> Blocks:
    record = run.record
    values = {
        "convention": record.measurements.conventions,
        "crashed diagnostic": record.measurements.failures,
        **{field.name: getattr(record, field.name) for field in dataclasses.fields(record)},
        "frozen control": control,
    }
    blocks = {
        name: value if isinstance(value, Mapping) else {"": value}
        for name, value in values.items()
        if name not in COMPARED_APART
    }
    return {**blocks, **opinions.get(record.run_id, {})}


def _opinions(report: AuditReport, other: AuditReport) -> Mapping[str, Blocks]:
    """Return run id → verdict and findings by each further edition that both audits have."""
    names = {opinion.edition.name for opinion in other.opinions}
    by_run: dict[str, dict[str, Mapping[str, Any]]] = {}
    for opinion in (opinion for opinion in report.opinions if opinion.edition.name in names):
        for one in opinion.judgements:
            blocks = by_run.setdefault(one.run_id, {})
            blocks[f"verdict by {opinion.edition.name}"] = {"": one.verdict.label}
            blocks[f"findings by {opinion.edition.name}"] = {"": tuple(map(_comparable, one.findings))}
    return by_run


def _rule_changes(pairs: Sequence[Pair]) -> Iterator[RuleChange]:
    by_rule: dict[str, list[Findings]] = {}
    for before, after in (map(_by_rule, pair) for pair in pairs):
        for rule in {**before, **after}:
            by_rule.setdefault(rule, []).append((before.get(rule), after.get(rule)))
    for rule, several in by_rule.items():
        sides = [[finding for finding in side if finding] for side in zip(*several, strict=True)]
        required = [tuple(dict.fromkeys(finding.required for finding in side)) for side in sides]
        outcomes = [dict(sorted(Counter(finding.outcome for finding in side).items())) for side in sides]
        changed_run_ids = tuple(
            (after or before).run_id
            for before, after in several
            if getattr(before, "outcome", "") != getattr(after, "outcome", "")
        )
        if changed_run_ids or _has_other_limits(*sides):
            title = (sides[1] or sides[0])[0].title
            yield RuleChange(rule, title, *required, *outcomes, changed_run_ids)


def _has_other_limits(before: Sequence[Finding], after: Sequence[Finding]) -> bool:
    """Return whether the limits, operators or confidence levels of a rule differ between A and B.

    Another wording of a limit is no difference. Only a rule that fires has an operator, and only an interval has a level. Therefore
    operators and levels are compared only if A and B both contain them.
    """
    sides = (before, after)
    crossed_a, crossed_b = ({one.quantity: one.crossed for one in side if one.crossed} for side in sides)
    levels_a, levels_b = ({one.confidence for one in side if one.interval} for side in sides)
    return (
        _limits(before) != _limits(after)
        or any(crossed_a[metric] != crossed_b[metric] for metric in crossed_a.keys() & crossed_b.keys())
        or bool(levels_a and levels_b and levels_a != levels_b)
    )


def _limits(findings: Sequence[Finding]) -> set[tuple[str, float | None]]:
    leading = {(finding.quantity, finding.threshold) for finding in findings}
    return leading | {(further.quantity, further.threshold) for finding in findings for further in finding.further}


def _report(report: AuditReport) -> Blocks:
    return {
        "": {"title": report.title, "selection": report.selection},
        "edition": _edition(report.edition),
        **{f"further edition {opinion.edition.name}": _edition(opinion.edition) for opinion in report.opinions},
        "waiver": _waivers(report),
        "not judged": {f"{one.name} ({one.run_id})": one.reason for one in report.excluded},
        "remark": dict.fromkeys(report.remarks, "present"),
        **{f"card {name}:": card for name, card in sorted(report.cards.items())},
        "reference": {name: getattr(report.reproduction, name, "") for name in REFERENCE},
        "reproduction of": _figures(report.reproduction),
    }


def _edition(edition: EditionReference) -> dict[str, Any]:
    overrides = {f"override {name}": value for name, value in edition.overrides.items()}
    return {**{name: getattr(edition, name) for name in EDITION}, **overrides}


def _waivers(report: AuditReport) -> dict[str, str]:
    """Return a mapping of the waivers: text with rule and run (or method) → dates, author and reason."""
    terms: dict[str, list[str]] = {}
    for waiver in report.waivers:
        terms.setdefault(f"of {waiver.rule} for {waiver.run or waiver.method}", []).append(_terms(waiver))
    return {key: "; ".join(texts) for key, texts in terms.items()}


def _terms(waiver: Waiver) -> str:
    expired = " (expired)" if waiver.expired else ""
    return f"{waiver.date} to {waiver.expiry}{expired} by {waiver.author}: {waiver.reason}"


def _figures(reproduction: Reproduction | None) -> dict[str, str]:
    rows = reproduction.rows if reproduction else ()
    return {f"{row.figure.label} {row.figure.quantity} {jsonio.digest_of(row.figure)[:8]}": _row(row) for row in rows}


def _row(row: FigureVerdict) -> str:
    numbers = {"mean": row.mean, "std": row.std, "difference": row.difference}
    value_texts = [f"{name} {reading.value!r}" for name, reading in numbers.items() if reading.value is not None]
    text = [*value_texts, *([f"90 % interval {row.interval_90}"] if row.interval_90 else []), f"margin {row.margin!r}"]
    return f"{row.outcome}: {row.reason} ({', '.join(text)}; {row.setting})"


def _changes(a: Blocks, b: Blocks) -> Iterator[Change]:
    """Yield every value that differs between two sides; an absent value is an empty text."""
    for name in {**a, **b}:
        for key, *values in _differing(a.get(name, {}), b.get(name, {}), missing=""):
            yield Change(f"{name} {key}".strip(), *map(_text_of, values))


def _text_of(value: Any) -> str:
    text = value if isinstance(value, str) else jsonio.canonical(value)
    return text if len(text) <= LONGEST else f"SHA-256 {jsonio.digest_of(value)}"
