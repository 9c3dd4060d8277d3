"""Numbers come from the records, with their runs; the estimates are the statistics of those numbers."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry.quantities import quantity_of
from fa_registry.records import Reading
from fa_registry.reporting.lookups import BY_AUTHOR, Frozen, column_estimate, estimate, last_site, scalar, seed_row
from fa_registry.reporting.values import Number, SeedValue
from fa_registry.statistics import summary
from tests.reporting.asking import changed


def values(*readings):
    return [SeedValue(seed, Number(reading, "pct", (f"run{seed}",))) for seed, reading in enumerate(readings)]


def test_a_seed_row_holds_the_runs_own_numbers(report):
    run = report.runs[2]
    row = seed_row(run, Frozen.of(report))
    assert row.accuracy.reading == run.record.measurements.scalars["accuracy"] == Reading(0.81)
    assert row.g_norm.reading == run.record.measurements.sites["g_norm_mean_ce"][-1]
    assert row.accuracy.run_ids == (run.record.run_id,)
    assert row.frozen.run_ids == (run.frozen_run_id,)
    assert row.margin == Number(Reading(0.0), "pp", (run.record.run_id, run.frozen_run_id))


def test_a_control_is_not_compared_with_itself(report):
    control = next(run for run in report.runs if run.verdict.outcome == "control")
    assert Frozen.of(report).accuracy(control).reading.reason == "this run is the frozen control"


def test_a_missing_frozen_control_is_na_with_its_reason(report):
    alone = dataclasses.replace(report.runs[0], frozen_run_id="")
    assert Frozen.of(report).margin(alone).reading.reason == "no frozen control of the same setting and seed"
    lost = dataclasses.replace(report.runs[0], frozen_run_id="0" * 32)
    assert Frozen.of(report).margin(lost).reading.reason == "the frozen control is not part of this report"


def test_what_was_not_measured_says_so(report):
    assert scalar(report.runs[0].record, "rho") == Reading(None, "rho was not measured")
    assert last_site(report.runs[0].record, "rho") == Reading(None, "rho was not measured")


def test_the_estimate_is_the_summary_of_what_is_there():
    found = estimate(quantity_of("accuracy"), values(Reading(0.9), Reading(None, "no file"), Reading(0.8)))
    expected = summary([0.9, 0.8])
    assert (found.n, found.of) == (2, 3)
    assert (found.mean.reading.value, found.std.value, found.low.value) == (expected.mean, expected.std, expected.low)
    assert found.mean.run_ids == ("run0", "run2")


def test_one_value_that_is_not_finite_leaves_no_mean():
    found = estimate(quantity_of("growth_max"), values(Reading(1.0), Reading.of(math.inf)))
    assert found.n == 0 and found.mean.reading.not_finite and found.mean.run_ids == ("run1",)


@pytest.mark.parametrize(
    ("readings", "reason"),
    [
        ((Reading(0.9),), "one seed: no interval"),
        ((Reading(None, "no file"),), "no file"),
        ((), "no run"),
    ],
)
def test_without_an_interval_there_is_a_reason(readings, reason):
    assert estimate(quantity_of("accuracy"), values(*readings)).low == Reading(None, reason)


def test_a_stated_frozen_accuracy_has_no_interval_that_is_paired_by_seed(report):
    runs = [run for run in report.runs if run.record.spec.method == "dfa" and run.record.spec.control == "none"][:2]
    rows = [seed_row(run, Frozen.of(report)) for run in runs]
    assert column_estimate(rows, "margin").low.value is not None
    alone = [dataclasses.replace(changed(run, scalars={"frozen_accuracy": 0.3}), frozen_run_id="") for run in runs]
    stated = [rows[0], seed_row(alone[1], Frozen.of(report))]
    for column in ("margin", "frozen"):
        found = column_estimate(stated, column)
        assert found.mean.reading.value is not None and found.low.reason == BY_AUTHOR == found.high.reason
    assert column_estimate(stated, "accuracy").low.value is not None
