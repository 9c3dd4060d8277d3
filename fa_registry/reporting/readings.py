"""Looking numbers up in the records: every figure of a page comes through here, with the run it was read from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fa_registry.protocol.operators import margin_pp
from fa_registry.records import AuditReport, Reading, RunAudit, RunRecord
from fa_registry.reporting.parts import Estimate, Number, SeedValue
from fa_registry.reporting.rows import IntegrityRow, SeedRow
from fa_registry.statistics import summary

GIVEN = "frozen_accuracy"  # of a run that was adopted together with the accuracy of its owner's own control
BY_AUTHOR = "the frozen accuracy is stated by the author: not paired by seed"
NO_CONTROL = "no frozen control of the same setting and seed"


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


def seed_row(run: RunAudit, frozen: Frozen) -> SeedRow:
    """One run's headline numbers."""
    record = run.record

    def own(reading: Reading, kind: str) -> Number:
        return Number(reading, kind, (record.run_id,))

    return SeedRow(
        method=record.spec.method_label,
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


def estimate(kind: str, values: Iterable[SeedValue]) -> Estimate:
    """Mean, std and interval over the seeds that have a value; one that is not finite leaves no mean."""
    rows = tuple(values)
    known = [row for row in rows if row.number.reading.value is not None]
    broken = [row for row in rows if row.number.reading.not_finite]
    if broken or not known:
        reading = (broken or rows)[0].number.reading if rows else Reading(None, "no run")
        ids = tuple(run_id for row in broken or rows for run_id in row.number.run_ids)
        return Estimate(kind, rows, 0, Number(reading, kind, ids), reading, reading, reading)
    found = summary(row.number.reading.value for row in known)
    ids = tuple(dict.fromkeys(run_id for row in known for run_id in row.number.run_ids))
    single = Reading(None, "one seed: no interval")
    std, low, high = (single if value is None else Reading(value) for value in (found.std, found.low, found.high))
    return Estimate(kind, rows, found.n, Number(Reading(found.mean), kind, ids), std, low, high)


def over_seeds(rows: Iterable[SeedRow], pick: Callable[[SeedRow], Number]) -> Estimate:
    """The estimate of one headline column over seeds; without an interval where it rests on a stated frozen accuracy.

    What somebody stated is no control of a seed: the interval of the margin is that of the rule that judges it.
    """
    given = tuple(rows)
    picked = [SeedValue(row.seed, pick(row)) for row in given]
    found = estimate(picked[0].number.kind if picked else "num", picked)
    if found.low.value is None or not any(pick(row) in (row.frozen, row.margin) and _stated(row) for row in given):
        return found
    return dataclasses.replace(found, low=Reading(None, BY_AUTHOR), high=Reading(None, BY_AUTHOR))


def _stated(row: SeedRow) -> bool:
    """Whether its frozen accuracy is a figure of the run itself: no control gave it."""
    return row.frozen.reading.value is not None and row.frozen.run_ids == (row.run_id,)


def integrity_row(record: RunRecord) -> IntegrityRow:
    return IntegrityRow(record.run_id, record.name, record.integrity.state, record.integrity.details)
