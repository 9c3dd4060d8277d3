"""What changed of one run: verdict, findings, figures, and every other field of its record."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fa_registry import jsonio
from fa_registry.protocol.shipped import edition_words
from fa_registry.records import (
    SCHEMA,
    AuditReport,
    EditionReference,
    FigureVerdict,
    Finding,
    Judgement,
    Measurements,
    Reading,
    Reproduction,
    RunAudit,
    RunRecord,
    Verdict,
    Waiver,
)

NOT_THERE = Reading(None, "this audit does not have it")
COMPARED_APART = ("run_id", "measurements")
Said = Mapping[str, Mapping[str, Judgement]]


@dataclass(frozen=True)
class RunComparer:
    """Compares pairs of runs. ids: run id in A → in B. said_a, said_b: further edition → run id → its judgement."""

    ids: Mapping[str, str]
    said_a: Said
    said_b: Said

    @classmethod
    def of(cls, a: AuditReport, b: AuditReport, matching: Matching) -> RunComparer:
        return cls(matching.ids, _said(a), _said(b))

    def __call__(self, pair: Pair) -> RunChange | None:
        """What changed of a run; none where nothing did."""
        a, b = pair.a, pair.b
        findings = tuple(_findings(a, b))
        figures = tuple(_figure_changes(a.record.measurements, b.record.measurements))
        changes = (*_fields(a.record, b.record), *self._control(a, b), *self._opinions(a, b))
        if not (findings or figures or changes or a.verdict != b.verdict):
            return None
        name = run_name(b)
        return RunChange(
            run_id_a=a.record.run_id,
            run_id_b=name.run_id,
            matched=pair.how,
            method=name.method,
            setting=name.setting,
            seed=name.seed,
            verdict_a=a.verdict,
            verdict_b=b.verdict,
            findings=findings,
            figures=figures,
            changes=changes,
        )

    def _control(self, a: RunAudit, b: RunAudit) -> Iterator[Change]:
        """Another frozen control; not where that very control was trained again."""
        if self.ids.get(a.frozen_run_id, a.frozen_run_id) != b.frozen_run_id:
            yield Change("frozen control", a.frozen_run_id, b.frozen_run_id)

    def _opinions(self, a: RunAudit, b: RunAudit) -> Iterator[Change]:
        """What editions say that both audits asked, beside the leading one."""
        for edition in self.said_a:
            if edition in self.said_b:
                before = self.said_a[edition][a.record.run_id]
                after = self.said_b[edition][b.record.run_id]
                yield from changed(f"verdict by {edition}", before.verdict.label, after.verdict.label)
                plain = [tuple(map(_without_ids, one.findings)) for one in (before, after)]
                yield from changed(f"findings by {edition}", *plain)


def run_name(run: RunAudit) -> RunName:
    record = run.record
    spec = record.spec
    return RunName(record.run_id, record.name, spec.label, record.setting, spec.seed, run.verdict.label)


def _said(report: AuditReport) -> Said:
    return {one.edition.name: {each.run_id: each for each in one.judgements} for one in report.opinions}


def _findings(a: RunAudit, b: RunAudit) -> Iterator[FindingChange]:
    for rule, (before, after) in paired_findings(a, b).items():
        if not before or not after:
            yield FindingChange(rule, (after or before).title, True, before, after)
        elif _without_ids(before) != _without_ids(after):
            decided = (before.outcome, before.state) != (after.outcome, after.state)
            yield FindingChange(rule, after.title, decided, before, after)


def _without_ids(finding: Finding) -> Finding:
    """A run that was trained again has another id, and so has its control."""
    return dataclasses.replace(finding, run_id="", reference_run_id="")


def _figure_changes(a: Measurements, b: Measurements) -> Iterator[FigureChange]:
    before, after = dict(_readings(a)), dict(_readings(b))
    for name in dict.fromkeys((*before, *after)):
        readings = before.get(name, NOT_THERE), after.get(name, NOT_THERE)
        if readings[0] != readings[1]:
            yield FigureChange(name, *readings)


def _readings(measured: Measurements) -> Iterator[tuple[str, Reading]]:
    yield from measured.scalars.items()
    for name, row in measured.sites.items():
        yield from ((f"{name}[{site}]", reading) for site, reading in enumerate(row))


def _fields(a: RunRecord, b: RunRecord) -> Iterator[Change]:
    """Every field of the record, whatever fields it has: a new one cannot be forgotten here."""
    yield from changed_entries("convention", a.measurements.conventions, b.measurements.conventions)
    yield from changed_entries("crashed diagnostic", a.measurements.failures, b.measurements.failures)
    for field in dataclasses.fields(RunRecord):
        before, after = getattr(a, field.name), getattr(b, field.name)
        if field.name in COMPARED_APART:
            continue
        if isinstance(before, Mapping):
            yield from changed_entries(field.name, before, after)
        else:
            yield from changed(field.name, before, after)


# The records of a difference between two audits, A and B: what `fa-registry diff --json` prints.


HOW = ("run id", "specification")


@dataclass(frozen=True)
class Side:
    """One of the two audits. title, selection, edition: of the audit. runs: how many were judged.

    digest: SHA-256 of the report's canonical JSON; two audits with one digest are identical.
    """

    title: str
    selection: str
    edition: str
    runs: int
    digest: str


@dataclass(frozen=True)
class Change:
    """Anything else than a figure or a finding. what: which thing. before, after: in A and in B; empty where it has none.

    A long value stands there as its SHA-256.
    """

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class FigureChange:
    """A measured number that is not equal in A and B. name: a scalar, or `quantity[site]`. before, after: in A and in B."""

    name: str
    before: Reading
    after: Reading


@dataclass(frozen=True)
class FindingChange:
    """What a rule of the leading edition says of a run. rule, title: of the rule. before, after: in A and in B, null for none.

    decided: whether its outcome or its state changed, or one of the two is missing; else a figure or a limit alone.
    """

    rule: str
    title: str
    decided: bool
    before: Finding | None
    after: Finding | None


@dataclass(frozen=True)
class RuleChange:
    """What changed for a rule of the leading edition. rule, title: of the rule.

    required_a, required_b: its limits, in words. outcomes_a, outcomes_b: outcome → how many runs, of those in both audits.
    moved: run ids in B of the runs whose outcome changed.
    """

    rule: str
    title: str
    required_a: tuple[str, ...]
    required_b: tuple[str, ...]
    outcomes_a: Mapping[str, int]
    outcomes_b: Mapping[str, int]
    moved: tuple[str, ...]


@dataclass(frozen=True)
class RunName:
    """A run that only one of the audits has. run_id: in the tracking store. name, method, setting, seed: of the run.

    verdict: by the leading edition, as people read it.
    """

    run_id: str
    name: str
    method: str
    setting: str
    seed: int
    verdict: str


@dataclass(frozen=True)
class RunChange:
    """A run that is in both audits and not the same. run_id_a, run_id_b: in A and in B. method, setting, seed: of the run.

    matched: by run id, or by specification where it was trained again. verdict_a, verdict_b: by the leading editions.
    findings: of the leading editions, that differ. figures: that are not equal. changes: whatever else is not equal.
    """

    run_id_a: str
    run_id_b: str
    matched: str
    method: str
    setting: str
    seed: int
    verdict_a: Verdict
    verdict_b: Verdict
    findings: tuple[FindingChange, ...]
    figures: tuple[FigureChange, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class AuditDiff:
    """What changed from audit A to audit B. a, b: the two audits. same: nothing is listed here.

    matched: how many runs are in both; trained_again: those of them that have another run id. report: what was asked and
    what applies to all runs. rules: by rule. runs: by run, those that changed. only_a, only_b: runs in one audit alone.
    schema: version of the records.
    """

    a: Side
    b: Side
    same: bool
    matched: int
    trained_again: int
    report: tuple[Change, ...]
    rules: tuple[RuleChange, ...]
    runs: tuple[RunChange, ...]
    only_a: tuple[RunName, ...]
    only_b: tuple[RunName, ...]
    schema: int = SCHEMA


# Which run of one audit is which of the other: by run id, and where it was trained again by its specification.


BY_ID, BY_SPECIFICATION = HOW


@dataclass(frozen=True)
class Pair:
    """The same run in A and in B. how: one of HOW."""

    a: RunAudit
    b: RunAudit
    how: str


@dataclass(frozen=True)
class Matching:
    """pairs: in the order of A; only_a, only_b: the rest of each."""

    pairs: tuple[Pair, ...]
    only_a: tuple[RunAudit, ...]
    only_b: tuple[RunAudit, ...]

    @property
    def ids(self) -> dict[str, str]:
        """Run id in A → run id in B."""
        return {pair.a.record.run_id: pair.b.record.run_id for pair in self.pairs}


def match(a: Sequence[RunAudit], b: Sequence[RunAudit]) -> Matching:
    """Match every run once; of several runs of one specification the first that is left."""
    known = {run.record.run_id for run in a}
    by_id = {run.record.run_id: run for run in b}
    left: defaultdict[str, deque[RunAudit]] = defaultdict(deque)
    for run in b:
        if run.record.run_id not in known:
            left[run.record.spec.identity].append(run)
    pairs, only_a = [], []
    for run in a:
        same = left[run.record.spec.identity]
        if run.record.run_id in by_id:
            pairs.append(Pair(run, by_id[run.record.run_id], BY_ID))
        elif same:
            pairs.append(Pair(run, same.popleft(), BY_SPECIFICATION))
        else:
            only_a.append(run)
    only_b = {run.record.run_id for runs in left.values() for run in runs}
    return Matching(tuple(pairs), tuple(only_a), tuple(run for run in b if run.record.run_id in only_b))


# What changed of the audits as a whole: what was asked, by which editions, with which waivers, and what was published.


EDITION = ("name", "title", "source", "digest")
REFERENCE = ("reference", "title", "digest", "remarks")


def report_changes(a: AuditReport, b: AuditReport) -> tuple[Change, ...]:
    """Every change that is not one of a run; run by run is what the other modules do."""
    return (
        *changed("title", a.title, b.title),
        *changed("selection", a.selection, b.selection),
        *_edition("edition", a.edition, b.edition),
        *_further_editions(a, b),
        *changed_entries("waiver", _waivers(a), _waivers(b)),
        *changed_entries("not judged", _excluded(a), _excluded(b)),
        *changed_entries("remark", dict.fromkeys(a.remarks, "there"), dict.fromkeys(b.remarks, "there")),
        *_cards(a, b),
        *_reproduction(a.reproduction, b.reproduction),
    )


def _edition(what: str, a: EditionReference, b: EditionReference) -> Iterator[Change]:
    for name in EDITION:
        yield from changed(f"{what} {name}", getattr(a, name), getattr(b, name))
    yield from changed_entries(f"{what} override", a.overrides, b.overrides)


def _further_editions(a: AuditReport, b: AuditReport) -> Iterator[Change]:
    before = {one.edition.name: one.edition for one in a.opinions}
    after = {one.edition.name: one.edition for one in b.opinions}
    for name in dict.fromkeys((*before, *after)):
        if name in before and name in after:
            yield from _edition(f"further edition {name}", before[name], after[name])
        else:
            there = {True: "there", False: ""}
            yield Change(f"further edition {name}", there[name in before], there[name in after])


def _waivers(report: AuditReport) -> dict[str, str]:
    """What each waiver is for → its terms; one for the same thing that was renewed is a change, not another."""
    found: dict[str, str] = {}
    for one in report.waivers:
        key = f"of {one.rule} for {one.run or one.method}"
        found[key] = f"{found[key]}; {_terms(one)}" if key in found else _terms(one)
    return found


def _terms(waiver: Waiver) -> str:
    expired = " (expired)" if waiver.expired else ""
    return f"{waiver.date} to {waiver.expiry}{expired} by {waiver.author}: {waiver.reason}"


def _excluded(report: AuditReport) -> dict[str, str]:
    return {f"{one.name} ({one.run_id})": one.reason for one in report.excluded}


def _cards(a: AuditReport, b: AuditReport) -> Iterator[Change]:
    for name in sorted({*a.cards, *b.cards}):
        yield from changed_entries(f"card {name}:", a.cards.get(name, {}), b.cards.get(name, {}))


def _reproduction(a: Reproduction | None, b: Reproduction | None) -> Iterator[Change]:
    """Figure by figure. The runs behind them are compared as runs."""
    for name in REFERENCE:
        yield from changed(f"reference {name}", getattr(a, name, ""), getattr(b, name, ""))
    yield from changed_entries("reproduction of", _figures(a), _figures(b))


def _figures(found: Reproduction | None) -> dict[str, str]:
    rows = found.rows if found else ()
    return {f"{row.figure.label} {row.figure.quantity} {jsonio.digest_of(row.figure)[:8]}": _row(row) for row in rows}


def _row(row: FigureVerdict) -> str:
    numbers = {"mean": row.mean, "std": row.std, "difference": row.difference}
    known = [f"{name} {reading.value!r}" for name, reading in numbers.items() if reading.value is not None]
    words = [*known, *([f"90 % interval {row.interval_90}"] if row.interval_90 else []), f"margin {row.margin!r}"]
    return f"{row.outcome}: {row.reason} ({', '.join(words)}; {row.setting})"


# What changed, rule by rule: its limits, and how many of the runs that both audits have it judges how.


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


# Any two values as what changed between them, in words.


LONGEST = 200  # characters that still say something to a reader


def text_of(value: Any) -> str:
    """The value in words; of a long one its SHA-256."""
    text = value if isinstance(value, str) else jsonio.canonical(value)
    return text if len(text) <= LONGEST else f"SHA-256 {jsonio.digest_of(value)}"


def changed(what: str, before: Any, after: Any) -> Iterator[Change]:
    """One change, or none where the values are equal."""
    if before != after:
        yield Change(what, text_of(before), text_of(after))


def changed_entries(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """One change for every key whose value is not the same, or that only one of the two has."""
    for key in dict.fromkeys((*before, *after)):
        yield from changed(f"{what} {key}", before.get(key, ""), after.get(key, ""))


# What changed between two audits: by rule and by run, and what was asked of them.


__all__ = ["AuditDiff", "audit_diff"]


def audit_diff(a: AuditReport, b: AuditReport) -> AuditDiff:
    """Everything in which two audits differ, but the ids of runs that were trained again and the order of the runs."""
    matching = match(a.runs, b.runs)
    compare = RunComparer.of(a, b, matching)
    changed = [change for pair in matching.pairs if (change := compare(pair))]
    report = report_changes(a, b)
    alone = (matching.only_a, matching.only_b)
    return AuditDiff(
        a=_side(a),
        b=_side(b),
        same=not (report or changed or any(alone)),
        matched=len(matching.pairs),
        trained_again=sum(pair.how == "specification" for pair in matching.pairs),
        report=report,
        rules=rule_changes(matching.pairs),
        runs=tuple(changed),
        only_a=tuple(map(run_name, alone[0])),
        only_b=tuple(map(run_name, alone[1])),
    )


def _side(report: AuditReport) -> Side:
    return Side(
        report.title, report.selection, edition_words(report.edition), len(report.runs), jsonio.digest_of(report)
    )
