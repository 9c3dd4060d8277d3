"""Looking numbers up in the records: every figure of a page comes through here, with the run it was read from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fa_registry.protocol.operators import margin_pp
from fa_registry.quantities import Known, Quantity, kind_of, over_seeds, quantity_of
from fa_registry.records import AuditReport, Finding, Reading, RunAudit, RunRecord
from fa_registry.reporting.values import Estimate, FindingRow, IntegrityRow, Number, Said, SeedRow, SeedValue
from fa_registry.statistics import CONFIDENCE, level_words

GIVEN = "frozen_accuracy"  # of a run that was adopted together with the accuracy of its owner's own control
BY_AUTHOR = "the frozen accuracy is stated by the author: not paired by seed"
NO_CONTROL = "no frozen control of the same setting and seed"
COLUMNS: Mapping[str, str] = MappingProxyType(  # of a SeedRow → the quantity that stands there
    {
        "accuracy": "accuracy",
        "frozen": "frozen_accuracy",
        "margin": "margin_pp",
        "h_norm": "h_L",
        "g_norm": "g_norm_mean_ce_L",
        "growth": "growth_max",
        "stability": "stability_mid",
        "gamma": "gamma_deep_mean",
    }
)


@dataclass(frozen=True)
class Frozen:
    """The frozen controls of a report, looked up by run id."""

    runs: Mapping[str, RunRecord]

    @classmethod
    def of(cls, report: AuditReport) -> Frozen:
        return cls({run.record.run_id: run.record for run in report.runs})

    def accuracy(self, run: RunAudit) -> Number:
        """The accuracy of the control this run was paired with; one given at adoption only where there is no control."""
        if run.record.spec.control != "none":
            return Number(Reading(None, f"this run is the {run.record.spec.control} control"), "pct", ())
        if not run.frozen_run_id:
            given = run.record.measurements.scalars.get(GIVEN, Reading(None, NO_CONTROL))
            return Number(given, "pct", (run.record.run_id,) if given.value is not None else ())
        control = self.runs.get(run.frozen_run_id)
        reading = (
            scalar(control, "accuracy") if control else Reading(None, "the frozen control is not part of this report")
        )
        return Number(reading, "pct", (run.frozen_run_id,))

    def margin(self, run: RunAudit) -> Number:
        """accuracy − frozen accuracy in percentage points, as the rules compute it."""
        accuracy, frozen = scalar(run.record, "accuracy"), self.accuracy(run)
        run_ids = (run.record.run_id, *frozen.run_ids)
        for reading in (frozen.reading, accuracy):
            if reading.value is None:
                return Number(reading, "pp", run_ids)
        return Number(Reading(margin_pp(accuracy.value, frozen.reading.value)), "pp", run_ids)


def scalar(record: RunRecord, name: str) -> Reading:
    """A scalar measurement, or N/A because it was not measured."""
    return record.measurements.scalars.get(name, Reading(None, f"{name} was not measured"))


def site_row(record: RunRecord, name: str) -> tuple[Reading, ...]:
    return record.measurements.sites.get(name, ())


def last_site(record: RunRecord, name: str) -> Reading:
    """The reading at site L."""
    row = site_row(record, name)
    return row[-1] if row else Reading(None, f"{name} was not measured")


def exact_sites(card: Mapping[str, Any], sites: int) -> range:
    """The sites (of 0..sites−1) whose credit is the gradient by construction, so that Γ = 1 there says nothing.

    card: the method's, as the report holds it; a method without one counts at every site.
    """
    return {"all": range(sites), "last": range(sites)[-1:]}.get(str(card.get("exact_sites")), range(0))


def seed_row(run: RunAudit, frozen: Frozen) -> SeedRow:
    """One run's headline numbers."""
    record = run.record

    def own(reading: Reading, kind: str) -> Number:
        return Number(reading, kind, (record.run_id,))

    return SeedRow(
        method=record.spec.label,
        seed=record.spec.seed,
        run_id=record.run_id,
        name=record.name,
        status=record.status,
        verdict=run.verdict,
        integrity=record.integrity.state,
        accuracy=own(scalar(record, "accuracy"), "pct"),
        frozen=frozen.accuracy(run),
        margin=frozen.margin(run),
        h_norm=own(scalar(record, "h_L"), "num"),
        g_norm=own(last_site(record, "g_norm_mean_ce"), "sci"),
        growth=own(scalar(record, "growth_max"), "num"),
        stability=own(scalar(record, "stability_mid"), "cos"),
        gamma=own(scalar(record, "gamma_deep_mean"), "cos"),
    )


def estimate(quantity: Quantity, values: Iterable[SeedValue]) -> Estimate:
    """A quantity over seeds, by quantities.over_seeds, with the runs it was read from."""
    rows = tuple(values)
    found = over_seeds(((row.seed, row.number.reading) for row in rows), quantity.name, quantity.mean)
    broken = [row for row in rows if row.number.reading.not_finite]
    known = [row for row in rows if row.number.reading.value is not None]
    ids = tuple(dict.fromkeys(run_id for row in broken or known or rows for run_id in row.number.run_ids))
    mean = Number(found.mean, quantity.kind, ids)
    return Estimate(quantity.kind, rows, found.n, mean, found.std, found.low, found.high, average=found.average)


def scalar_estimate(runs: Iterable[RunAudit], quantity: Quantity) -> Estimate:
    """A scalar of the runs' own measurements over seeds."""
    values = (
        SeedValue(record.spec.seed, Number(scalar(record, quantity.name), quantity.kind, (record.run_id,)))
        for record in (run.record for run in runs)
    )
    return estimate(quantity, values)


def column_estimate(rows: Sequence[SeedRow], column: str) -> Estimate:
    """One of COLUMNS over seeds; without an interval where it rests on a stated frozen accuracy.

    What somebody stated is no control of a seed: the interval of the margin is that of the rule that judges it.
    """
    found = estimate(quantity_of(COLUMNS[column]), [SeedValue(row.seed, getattr(row, column)) for row in rows])
    if found.low.value is None or column not in ("frozen", "margin") or not any(map(_stated, rows)):
        return found
    return dataclasses.replace(found, low=Reading(None, BY_AUTHOR), high=Reading(None, BY_AUTHOR))


def _stated(row: SeedRow) -> bool:
    """Whether its frozen accuracy is a figure of the run itself: no control gave it."""
    return row.frozen.reading.value is not None and row.frozen.run_ids == (row.run_id,)


def integrity_row(record: RunRecord) -> IntegrityRow:
    return IntegrityRow(record.run_id, record.name, record.integrity.state, record.integrity.details)


# From findings to what a page says of them: seeds that a rule judges alike stand together, most severe first.


SEVERITY = ("error", "fail", "warn", "not_applicable", "skipped", "waived", "pass")


def finding_rows(runs: Iterable[RunAudit], method: str, setting: str, known: Known) -> tuple[FindingRow, ...]:
    """Every finding of one method in one setting; what a control skips because it *is* the control is no news.

    known: the report's quantities, which say how a figure is written.
    """
    alike: dict[tuple, list[tuple[int, Finding]]] = {}
    for run in runs:
        control = run.record.spec.control != "none"
        for finding in run.findings:
            if not (control and finding.outcome == "skipped"):
                key = (finding.rule, finding.outcome, finding.state, finding.gating, finding.required)
                alike.setdefault(key, []).append((run.record.spec.seed, finding))
    return tuple(_row(several, method, setting, known) for several in alike.values())


def most_severe_first(rows: Iterable[FindingRow]) -> list[FindingRow]:
    """By outcome; of one outcome, what decides the verdict before what is only reported."""
    return sorted(rows, key=lambda row: (SEVERITY.index(row.outcome), not row.gating))


def _row(several: Sequence[tuple[int, Finding]], method: str, setting: str, known: Known) -> FindingRow:
    first = several[0][1]
    same: dict[tuple, list[tuple[int, Finding]]] = {}
    for seed, finding in several:
        words = (finding.sentence, finding.observed, finding.interval, finding.site, finding.first_fire, finding.detail)
        same.setdefault(words, []).append((seed, finding))
    return FindingRow(
        rule=first.rule,
        title=first.title,
        outcome=first.outcome,
        state=first.state,
        gating=first.gating,
        required=first.required,
        method=method,
        setting=setting,
        said=tuple(_said(one, known) for one in same.values()),
        limit=first.limit or first.required,
    )


def _said(same: Sequence[tuple[int, Finding]], known: Known) -> Said:
    first = same[0][1]
    run_ids = tuple(finding.run_id for _, finding in same)
    return Said(
        seeds=tuple(seed for seed, _ in same),
        run_ids=run_ids,
        sentence=first.sentence,
        observed=Number(first.observed, kind_of(first.quantity, known), run_ids),
        interval=first.interval,
        site="" if first.site is None else f"site {first.site}",
        epoch="" if first.first_fire is None else f"first fires at epoch {first.first_fire}",
        reference_run_ids=tuple(
            dict.fromkeys(finding.reference_run_id for _, finding in same if finding.reference_run_id)
        ),
        detail=first.detail,
        level=level_words(first.confidence or CONFIDENCE),
    )
