"""A forged run chooses what its files hold: a value that is missing, or another name for it, ends no comparison."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from fa_registry import jsonio
from fa_registry.audits.proof import check_record
from fa_registry.evidence.remeasure import RemeasureOptions, remeasure_one
from fa_registry.evidence.repetitions import must_repeat_bits
from fa_registry.metrics import HEADLINE_GAMMA, declaration, own_headline
from fa_registry.protocol.integrity import compare
from fa_registry.records import Measurements, Reading, SampleScores
from fa_registry.records.readings import NOT_FINITE
from fa_registry.tracking import schema
from fa_registry.tracking.integrity_checks import FILES, TABLES
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from tests.helpers.stores import copy_store, working_in
from tests.security.attacks import Store

HEADLINE = own_headline("foo", "foo", "a metric that no run has", unit="u", direction="lower")
OWN = declaration(HEADLINE)


@pytest.fixture
def forged(honest, tmp_path):
    """forged(name, change) → (record, recomputed record) of a dfa run after a change of one file under a new manifest."""
    copy_store(honest, tmp_path / "store")
    store = Store(tmp_path / "store")
    run_id = store.run_id(method="dfa", seed=1)

    def forge(name, change, **options):
        store.change_json(run_id, name, change)
        store.write_manifest(run_id)
        with working_in(store.folder):
            run = MlflowTracker().get(run_id)
            gathered = remeasure_one(MlflowTracker(), run, RemeasureOptions(**options), None)
            return read_record(MlflowTracker(), run), gathered.record

    return forge


def subjects(record, outcome="differs"):
    return {check.subject for check in record.integrity.checks if check.outcome == outcome}


def test_a_declared_main_metric_is_that_of_the_task(forged):
    recorded, measured = forged(schema.MEASUREMENTS, lambda held: held["conventions"].update(OWN))
    assert "main metric" in subjects(measured) and measured.integrity.state == "mismatch"
    assert TABLES in subjects(recorded)  # the tag declares none


@pytest.mark.parametrize(
    "change", [{"epochs_run": 99}, {"status": "diverged"}, {"epochs_run": 0, "status": "failed"}, {"selected_epoch": 2}]
)
def test_another_ending_than_that_of_the_series_differs(forged, change):
    recorded, measured = forged(schema.PROVENANCE, lambda held: held.update(change))
    assert FILES in subjects(recorded) and FILES in subjects(measured)
    (detail,) = (check.detail for check in recorded.integrity.checks if check.subject == FILES)
    assert len(detail.split("; ")) == len(change)


def rescored(held, share):
    """The scores of the accuracy with the first `share` of the samples right."""
    samples = held["sample_scores"]["accuracy"]["samples"]
    scores = SampleScores.of("right", np.arange(samples) < share * samples)
    held["sample_scores"]["accuracy"] = jsonio.encode(scores)


def without_spread(held):
    """The cosines of all samples equal their mean, which narrows the interval of Γ."""
    samples, mean = held["sample_scores"][HEADLINE_GAMMA]["samples"], held["scalars"][HEADLINE_GAMMA]
    held["sample_scores"][HEADLINE_GAMMA] = jsonio.encode(SampleScores.of("cosine", np.full(samples, mean)))


@pytest.mark.parametrize(
    ("metric", "change"),
    [
        ("accuracy", lambda held: held["sample_scores"].pop("accuracy")),
        ("accuracy", lambda held: rescored(held, 1.0)),
        (
            "accuracy",
            lambda held: rescored(held, held["scalars"]["accuracy"]),
        ),  # the accuracy stays, the answers do not
        (
            "accuracy",
            lambda held: held["sample_scores"].update(accuracy=jsonio.encode(SampleScores.of("right", [1, 0]))),
        ),
        (HEADLINE_GAMMA, without_spread),
        (HEADLINE_GAMMA, lambda held: held["sample_scores"].pop(HEADLINE_GAMMA)),
    ],
    ids=["removed", "others", "of the same mean", "of another test set", "Γ without spread", "Γ without scores"],
)
def test_scores_that_are_not_those_of_the_weights_differ(forged, metric, change):
    _, measured = forged(schema.MEASUREMENTS, change)
    assert measured.integrity.state == "mismatch" and "figures" in subjects(measured)
    assert [one.quantity for one in measured.integrity.differences] == [f"sample_scores {metric}"]


def test_scores_contradict_an_accuracy_that_is_not_their_mean(forged):
    recorded, _ = forged(schema.MEASUREMENTS, lambda held: rescored(held, 1.0))
    (detail,) = (check.detail for check in recorded.integrity.checks if check.subject == FILES)
    assert "scores of mean 1.0" in detail


@pytest.mark.parametrize("kind", ["scalars", "sites"])
def test_metrics_that_were_removed_differ_from_the_recomputed_ones(forged, kind):
    recorded, measured = forged(schema.MEASUREMENTS, lambda held: held[kind].clear())
    assert measured.integrity.state == "mismatch" and "figures" in subjects(measured)
    assert FILES in subjects(recorded)  # the series ends with them


def test_an_unlogged_metric_differs_only_where_every_run_records_it():
    logged, more = Measurements({}, {}), Measurements({"h_norm": (Reading(1.0),)}, {"accuracy": Reading(0.5)})
    assert compare(logged, more).state == "verified"  # a report may hold metrics of the reader's own diagnostics
    found = compare(logged, more, is_complete=True)
    differing = found.differences
    assert found.state == "mismatch"  # on another configuration too: no configuration explains it
    assert {(one.quantity, one.site) for one in differing} == {("h_norm", 0), ("accuracy", None)}


def test_without_a_number_of_threads_a_run_is_a_mismatch_and_not_broken(forged):
    _, measured = forged(schema.MEASUREMENTS, lambda held: held["conventions"].pop("threads"))
    assert measured.integrity.state == "mismatch" and FILES in subjects(measured)


def test_another_digest_of_the_data_is_found_where_the_bits_must_be_equal(forged):
    _, measured = forged(schema.PROVENANCE, lambda held: held.update(dataset_digest="f" * 64))
    assert "data digest" in subjects(measured) and measured.integrity.state == "mismatch"


def test_a_further_entry_of_code_makes_no_run_incomparable(honest, tmp_path):
    copy_store(honest, tmp_path / "store")
    with working_in(tmp_path / "store"):
        tracker = MlflowTracker()
        run = read_record(tracker, tracker.get(Store(tmp_path / "store").run_id(method="dfa", seed=1)))
    assert must_repeat_bits(run, run)
    padded = {**run.provenance, "code": {**run.provenance["code"], "diagnostics/none": {"version": 1}}}
    assert must_repeat_bits(run, dataclasses.replace(run, provenance=padded))
    for change in ({"dataset_digest": ""}, {"code": {}}):
        unknown = dataclasses.replace(run, provenance={**run.provenance, **change})
        assert not must_repeat_bits(run, unknown) and not must_repeat_bits(unknown, unknown)


@pytest.mark.parametrize("change", [{"chance": 0.0}, {"test_samples": 10**6}, {"test_samples_in_train": 1}, OWN])
def test_a_report_cannot_change_the_facts_that_decide_its_verdicts(honest, tmp_path, change):
    copy_store(honest, tmp_path / "store")
    with working_in(tmp_path / "store"):
        tracker = MlflowTracker()
        run = tracker.get(Store(tmp_path / "store").run_id(method="dfa", seed=1))
        record = read_record(tracker, run)
        assert check_record(tracker, run, record).state == "verified"
        measurements = record.measurements
        told = dataclasses.replace(measurements, conventions={**measurements.conventions, **change})
        assert check_record(tracker, run, dataclasses.replace(record, measurements=told)).state == "mismatch"


def test_a_reason_that_a_million_rows_share_is_held_once():
    text = "x" * 100_000
    readings = [Reading(None, text, NOT_FINITE) for _ in range(100)]
    assert len({id(reading.reason) for reading in readings}) == 1


def test_a_tag_that_is_nested_too_deeply_declares_nothing():
    assert schema.headline({schema.TAG_HEADLINE: "[" * 100_000}, ()).name == "accuracy"
    assert schema.headline({schema.TAG_HEADLINE: json.dumps(OWN)}, ()).name == "foo"
    assert jsonio.canonical(OWN) == schema.headline_tag(HEADLINE)[schema.TAG_HEADLINE]
