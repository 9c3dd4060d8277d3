"""What changed of one run: verdict, findings, figures, and every other field of its record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fa_registry.records import AuditReport, Finding, Judgement, Measurements, Reading, RunAudit, RunRecord
from fa_registry.reporting.audit_diff.matching import Matching, Pair
from fa_registry.reporting.audit_diff.records import FigureChange, FindingChange, RunChange, RunName
from fa_registry.reporting.audit_diff.rules import paired_findings
from fa_registry.reporting.audit_diff.values import Change, changed, changed_entries

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
        figures = tuple(_figures(a.record.measurements, b.record.measurements))
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


def _figures(a: Measurements, b: Measurements) -> Iterator[FigureChange]:
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
