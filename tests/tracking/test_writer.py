"""A run in the store: complete by design.md §3, in either kind of tracker."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import math
import tempfile
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
import torch
from mlflow import MlflowClient

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, StoreError
from fa_registry.metrics import ACCURACY, at_last_site
from fa_registry.records import Measurements, Reading, RunRecord, Series, SiteSeries
from fa_registry.safe_files import UnreadableFile
from fa_registry.tracking import schema, series_parquet, writer
from fa_registry.tracking.base import RetentionOptions
from fa_registry.tracking.integrity_checks import FILES, checks
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record, read_recorded, table_history
from fa_registry.tracking.schema import spread
from fa_registry.tracking.series_parquet import MOST_EPOCHS, by_site, read_rows, trajectory, write_series
from fa_registry.tracking.store_errors import StoreRefusal
from fa_registry.tracking.writer import Origin, RunWriter
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.loop import EpochRow
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec, run_name
from tests.tracking.conftest import TINY, write_run

pytestmark = pytest.mark.long

ARTIFACTS = (
    schema.SPEC,
    schema.MEASUREMENTS,
    schema.PROVENANCE,
    schema.SERIES,
    schema.FINAL,
    schema.FEEDBACK,
    schema.FEEDBACK_CARD,
)
MOST_OF_A_RECORD = 30_000  # bytes of the tiny run's


def test_a_run_that_the_store_does_not_take_leaves_no_folder(tmp_path, monkeypatch):
    def full(*given):
        raise StoreError("full")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(MemoryTracker, "create", full)
    with pytest.raises(StoreError, match="full"):
        RunWriter(MemoryTracker(tmp_path / "runs"), build_setup(parse_spec(TINY), torch.device("cpu")))
    assert list(tmp_path.glob("fa_registry-run-*")) == []


def test_a_run_says_that_it_is_complete_once_its_files_are_there(tmp_path, monkeypatch):
    """Killed in between, it would be taken for one that needs no training, and have no file."""
    uploads, upload = [], MemoryTracker.upload

    def uploaded(tracker, run_id, folder):
        uploads.append(tracker.get(run_id).tags[schema.TAG_STATUS])
        upload(tracker, run_id, folder)

    monkeypatch.setattr(MemoryTracker, "upload", uploaded)
    write_run(MemoryTracker(tmp_path))
    assert uploads == ["running"]


def test_a_complete_run_holds_every_artifact_and_tag(tracker):
    writer, _, _ = write_run(tracker, study="tiny")
    run = tracker.get(writer.run_id)
    assert run.state == "FINISHED"
    assert run.tags[schema.TAG_STATUS] == "complete" and run.tags[schema.TAG_STUDY] == "tiny"
    assert run.tags[schema.TAG_NOTE] == schema.NOT_AUDITED
    assert run.tags[schema.TAG_SPEC] == parse_spec(TINY).identity
    assert run.name == run_name(parse_spec(TINY))
    assert all(tracker.artifact(run.run_id, name) for name in ARTIFACTS)
    recorded = json.loads(tracker.artifact(run.run_id, schema.PROVENANCE).read_text(encoding="utf-8"))
    assert all(run.tags.get(tag, "") == recorded[name] for tag, name in schema.REPEATED_TAGS.items())


def test_the_record_that_is_read_is_the_run_that_was_written(tracker):
    writer, _, outcome = write_run(tracker)
    record = read_record(tracker, tracker.get(writer.run_id))
    assert record.spec == parse_spec(TINY)
    assert record.measurements == outcome.final
    assert jsonio.decode(RunRecord, json.loads(jsonio.canonical(record))) == record
    for name, line in record.trajectory.items():
        if quantity := at_last_site(name):
            assert line == Series(row.measurements.sites[quantity][-1] for row in writer.rows)
        elif name != "loss_train":
            assert line == Series(row.measurements.scalars[name] for row in writer.rows)
    assert record.trajectory["loss_train"][0].reason and record.trajectory["loss_train"][1].value > 0


def test_a_further_record_takes_little_memory(tmp_path):
    """An audit holds all of them: what runs have in common is there once, and readings are bare numbers."""
    tracker = MemoryTracker(tmp_path)
    run = tracker.get(write_run(tracker)[0].run_id)
    held = [read_record(tracker, run) for _ in range(2)]
    assert held[0].provenance["versions"] is held[1].provenance["versions"]
    tracemalloc.start()
    held += [read_record(tracker, run) for _ in range(10)]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / 10 < MOST_OF_A_RECORD


def test_initial_final_and_feedback_tensors_are_the_trainers(tracker):
    writer, trainer, _ = write_run(tracker, keep=RetentionOptions(checkpoint_every=1))
    final = load_tensors(tracker.artifact(writer.run_id, schema.FINAL))
    initial = load_tensors(tracker.artifact(writer.run_id, schema.INITIAL))
    feedback = load_tensors(tracker.artifact(writer.run_id, schema.FEEDBACK))
    state = trainer.setup.network.state_dict()
    assert all(final[name].equal(value) for name, value in state.items())
    assert any(not initial[name].equal(value) for name, value in state.items())
    assert all(feedback[name].equal(value) for name, value in trainer.setup.feedback.state_dict().items())
    card = json.loads(tracker.artifact(writer.run_id, schema.FEEDBACK_CARD).read_text())
    assert card["sha256"] == jsonio.file_digest(tracker.artifact(writer.run_id, schema.FEEDBACK))
    assert card["tensors"] == {"B_01": [16, 10], "B_02": [16, 10]}


def test_metrics_are_logged_by_epoch_and_zero_padded_site_as_they_are_read(tmp_path, empty_store, tracker):
    writer, _, _ = write_run(tracker)
    if isinstance(tracker, MlflowTracker):
        history = MlflowClient(tracker.uri).get_metric_history(writer.run_id, "h_norm/site_02")
        logged = {metric.step: metric.value for metric in history}
    else:
        logged = {point.step: point.value for point in tracker.points[writer.run_id] if point.key == "h_norm/site_02"}
    exact = {row.epoch: row.measurements.sites["h_norm"][2].value for row in writer.rows}
    assert logged == {epoch: float(f"{value:.3e}") for epoch, value in exact.items()} != exact


@pytest.mark.parametrize(("points", "shown"), [(3, [0, 2, 5]), (0, [0, 1, 2, 3, 4, 5]), (50, [0, 1, 2, 3, 4, 5])])
def test_the_tables_have_so_many_points_of_a_metric_and_the_series_all(tmp_path, points, shown):
    tracker = MemoryTracker(tmp_path)
    writer, _, outcome = write_run(tracker, keep=RetentionOptions(points=points), epochs=5)
    assert [point.step for point in tracker.points[writer.run_id] if point.key == "accuracy/test"] == shown
    record = read_record(tracker, tracker.get(writer.run_id))
    assert len(record.trajectory["accuracy"]) == 6
    assert {check.outcome for check in record.integrity.checks} == {"agrees"}
    assert table_history(tracker, tracker.get(writer.run_id)).outcome == "agrees"


def test_every_epoch_is_logged_by_default(tmp_path):
    tracker = MemoryTracker(tmp_path)
    writer, trainer, _ = write_run(tracker, epochs=40)
    steps = {}
    for point in tracker.points[writer.run_id]:
        steps.setdefault(point.key, []).append(point.step)
    trained = {"loss/train", "accuracy/train", "penalty/total"}  # known from the first epoch on
    due = [epoch for epoch in range(41) if trainer.setup.spec.is_due(epoch)]
    assert steps.pop("fidelity/min") == due and len(due) < 41
    assert {key: logged for key, logged in steps.items() if logged != list(range(41))}.keys() <= trained
    assert all(steps[key][-40:] == list(range(1, 41)) for key in trained & steps.keys())
    assert table_history(tracker, tracker.get(writer.run_id)).outcome == "agrees"


def test_the_logged_gradient_is_that_of_the_mean_loss_as_on_every_page(tmp_path):
    """As published: median over samples of the norm of the gradient of the mean cross entropy at N = 128."""
    tracker = MemoryTracker(tmp_path)
    writer, trainer, _ = write_run(tracker)
    images, labels = trainer.setup.eval_batch
    assert len(labels) == 128
    trainer.setup.network.eval()
    logits, states = trainer.setup.network(images, return_hidden=True)
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, labels), states)
    expected = [gradient.norm(dim=1).quantile(0.5).item() for gradient in gradients]  # fa: ok FA008 the published scale
    last = {point.key: point.value for point in tracker.points[writer.run_id] if point.step == 2}
    assert [last[f"g_norm/site_{site:02d}"] for site in range(3)] == pytest.approx(expected, rel=1e-3)
    assert last["g_L"] == last["g_norm/site_02"]
    assert not any("mean_ce" in key for key in last)
    assert table_history(tracker, tracker.get(writer.run_id)).outcome == "agrees"


def test_the_last_epoch_of_a_run_that_diverged_is_among_its_points(tmp_path):
    tracker = MemoryTracker(tmp_path)
    writer, _, outcome = write_run(tracker, keep=RetentionOptions(points=2), epochs=40, learning_rate=1e30)
    assert outcome.status == "diverged" and 0 < outcome.epochs < 40
    steps = [point.step for point in tracker.points[writer.run_id] if point.key == "accuracy/test"]
    assert steps == [0, outcome.epochs]
    record = read_record(tracker, tracker.get(writer.run_id))
    assert {check.outcome for check in record.integrity.checks} == {"agrees"}


def test_a_deep_network_has_few_charts_and_a_whole_series(tmp_path):
    tracker = MemoryTracker(tmp_path)
    writer, _, outcome = write_run(tracker, epochs=1, architecture_options={"d_hidden": 8, "num_blocks": 40})
    keys = {point.key for point in tracker.points[writer.run_id]}
    shown = sorted(key for key in keys if key.startswith("h_norm/"))
    assert len(keys) + 1 <= schema.MAX_METRICS  # an audit adds the margin
    sites = spread(40, len(shown))
    assert 10 < len(sites) < 41 and shown == [f"h_norm/site_{site:02d}" for site in sites]
    tag = tracker.get(writer.run_id).tags[schema.TAG_SITES]
    assert tag.startswith(f"{', '.join(map(str, sites))} of 0..40")
    series = pq.read_table(tracker.artifact(writer.run_id, schema.SERIES)).to_pylist()
    stored = [row["value"] for row in series if (row["quantity"], row["epoch"]) == ("h_norm", 1)]
    assert stored == [reading.value for reading in outcome.final.sites["h_norm"]] and len(stored) == 41


def test_every_site_of_a_shallow_network_has_its_charts(tracker):
    writer, _, _ = write_run(tracker)
    assert schema.TAG_SITES not in tracker.get(writer.run_id).tags


def test_both_splits_of_the_data_are_recorded_in_one_entry_with_the_whole_digest(tracker):
    writer, trainer, _ = write_run(tracker)
    if isinstance(tracker, MlflowTracker):
        (entry,) = MlflowClient(tracker.uri).get_run(writer.run_id).inputs.dataset_inputs
        name, profile = entry.dataset.name, json.loads(entry.dataset.profile)
        assert {tag.key: tag.value for tag in entry.tags} == {"mlflow.data.context": "training and evaluation"}
    else:
        (entry,) = tracker.datasets[writer.run_id]
        name, profile = entry.name, {"sha256": entry.digest, **entry.profile}
    splits = trainer.setup.splits
    sizes = {"train_samples": len(splits.train_labels), "test_samples": len(splits.test_labels)}
    assert name == "digits"
    assert profile == {
        "sha256": splits.digest,
        **sizes,
        "classes": 10,
        "shape": "x".join(map(str, trainer.setup.card.image_shape)),
    }


BEST = {"validation": 0.1, "select": "best validation", "learning_rate": 1.0, "schedule": "constant", "epochs": 4}


def test_the_selected_epoch_is_recorded_and_found_again_from_the_series(tracker):
    writer, _, outcome = write_run(tracker, **BEST)
    assert outcome.selected not in (0, BEST["epochs"])  # so that it is no other word for the last epoch
    record = read_record(tracker, tracker.get(writer.run_id))
    assert record.provenance[schema.SELECTED] == outcome.selected and record.provenance["epochs_run"] == 4
    assert len(record.trajectory["accuracy"]) == 5
    assert record.trajectory["accuracy"][outcome.selected] == record.measurements.scalars["accuracy"]
    assert {check.outcome for check in record.integrity.checks} == {"agrees"}


def test_the_epoch_with_the_smallest_loss_is_selected_and_found_again(tmp_path):
    tokens = {"architecture": "causal_transformer", "dataset": "markov_text", "batch_size": 512}
    options = {"d_hidden": 8, "num_blocks": 1, "heads": 2}
    writer, _, outcome = write_run(
        tracker := MemoryTracker(tmp_path), **{**BEST, **tokens}, architecture_options=options
    )
    record = read_record(tracker, tracker.get(writer.run_id))
    losses = [row.measurements.scalars["token_loss_validation"].value for row in writer.rows]
    assert losses[outcome.selected] == min(losses[1:]) < max(losses[1:])
    assert {check.outcome for check in record.integrity.checks} == {"agrees"}


@pytest.mark.parametrize("value", [0.25, 0.5])
def test_of_equal_recorded_epochs_the_first_is_the_selected_one(tmp_path, value):
    """And epoch 0, the state before the first step, is none."""
    tracker = MemoryTracker(tmp_path)
    writer, _, outcome = write_run(tracker, **BEST)
    names = (schema.SPEC, schema.MEASUREMENTS, schema.SERIES, schema.PROVENANCE)
    recorded = read_recorded({name: tracker.artifact(writer.run_id, name) for name in names})
    name = "accuracy_validation"
    rows = [
        (*row[:3], 0.5 if row[0] in (2, 3) else value / 2 if row[0] else 1.0, *row[4:]) if row[1] == name else row
        for row in recorded.rows
    ]
    assert dataclasses.replace(recorded, rows=rows).final_epoch == 2


@pytest.mark.parametrize("change", ["last", "another", "none"])
def test_another_selected_epoch_than_that_of_the_series_differs(tmp_path, change):
    tracker = MemoryTracker(tmp_path)
    writer, _, outcome = write_run(tracker, **BEST)
    paths = {name: tracker.artifact(writer.run_id, name) for name in (schema.SPEC, schema.MEASUREMENTS, schema.SERIES)}
    recorded = read_recorded(paths | {schema.PROVENANCE: tracker.artifact(writer.run_id, schema.PROVENANCE)})
    run = tracker.get(writer.run_id)
    assert {check.outcome for check in checks(recorded, run)} == {"agrees"}
    epoch = {"last": 4, "another": 3 if outcome.selected != 3 else 2}.get(change)
    given = {name: value for name, value in recorded.provenance.items() if name != schema.SELECTED}
    changed = given if epoch is None else {**given, schema.SELECTED: epoch}
    (check,) = (
        one for one in checks(dataclasses.replace(recorded, provenance=changed), run) if one.outcome == "differs"
    )
    assert check.subject == FILES and check.detail.count("selected epoch") == 1


def test_no_pickle_is_written(tracker):
    writer, _, _ = write_run(tracker)
    folder = tracker.artifact(writer.run_id, schema.SPEC).parent
    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".parquet", ".safetensors"}


@pytest.mark.parametrize("name", [schema.SPEC, schema.MEASUREMENTS, schema.SERIES, schema.PROVENANCE])
def test_a_changed_file_is_an_integrity_error_naming_it(tracker, name):
    writer, _, _ = write_run(tracker)
    path = tracker.artifact(writer.run_id, name)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(IntegrityError, match=name):
        read_record(tracker, tracker.get(writer.run_id))


def test_a_missing_file_is_an_integrity_error_naming_it(tracker):
    writer, _, _ = write_run(tracker)
    tracker.artifact(writer.run_id, schema.SERIES).unlink()
    with pytest.raises(IntegrityError, match="series.parquet missing"):
        read_record(tracker, tracker.get(writer.run_id))


def test_numbers_that_are_not_finite_go_to_the_series_and_a_tag_not_to_the_store(tracker):
    writer, trainer, outcome = write_run(tracker, seed=8)
    broken = Measurements(
        {**outcome.final.sites, "h_norm": tuple([Reading.of(math.inf)] * 3)},
        {**outcome.final.scalars, "h_L": Reading.of(math.inf)},
        outcome.final.conventions,
    )
    second = RunWriter(tracker, trainer.setup)
    second.start(trainer.setup.network)
    second.on_epoch(EpochRow(0, broken), trainer)
    second.complete(type(outcome)("diverged", 0, broken))
    run = tracker.get(second.run_id)
    assert run.tags[schema.TAG_STATUS] == "diverged"
    assert "h_L from epoch 0" in run.tags[schema.TAG_NOT_FINITE]
    assert list(read_record(tracker, run).trajectory["h_L"]) == [Reading.of(math.inf)]


def test_a_run_that_was_stopped_early_is_finished_for_the_store_and_says_what_stopped_it(tracker):
    writer, trainer, outcome = write_run(tracker)
    early = RunWriter(tracker, trainer.setup)
    early.start(trainer.setup.network)
    early.on_epoch(writer.rows[0], trainer)
    early.complete(type(outcome)("stopped_early", 0, outcome.final, "D1 at epoch 0"))
    run = tracker.get(early.run_id)
    assert (run.state, run.tags[schema.TAG_STATUS]) == ("FINISHED", "stopped_early")
    assert run.tags[schema.TAG_STOPPED_ON] == "D1 at epoch 0" and all(
        tracker.artifact(run.run_id, name) for name in ARTIFACTS
    )
    assert schema.TAG_STOPPED_ON not in tracker.get(writer.run_id).tags


def test_a_failed_run_says_so_and_keeps_the_traceback(tracker):
    writer, trainer, _ = write_run(tracker)
    broken = RunWriter(tracker, trainer.setup)
    broken.start(trainer.setup.network)
    broken.fail(RuntimeError("the disk is full"))
    run = tracker.get(broken.run_id)
    assert (run.state, run.tags[schema.TAG_STATUS]) == ("FAILED", "failed")
    assert "the disk is full" in tracker.artifact(run.run_id, schema.FAILURE).read_text()


def test_a_method_without_feedback_has_no_feedback_file(tracker):
    writer, _, _ = write_run(tracker, method="bp")
    assert tracker.artifact(writer.run_id, schema.FEEDBACK) is None


def test_what_was_not_given_is_recorded_and_has_no_digest():
    provenance = Origin("name", "w.pt", "ab12").provenance
    assert provenance["feedback file"] == "none given" and "feedback sha256" not in provenance
    assert (provenance["file"], provenance["sha256"]) == ("w.pt", "ab12") and provenance["trained"].startswith(
        "not trained here"
    )


def test_given_feedback_is_never_recorded_as_drawn_by_the_package():
    origin = Origin("name", "w.pt", "ab12", "B.pt", "cd34")
    assert origin.provenance["feedback file"] == "B.pt" and origin.provenance["feedback sha256"] == "cd34"
    assert origin.feedback_card.keys() == {"distribution", "source_sha256"}
    assert "B.pt" in origin.feedback_card["distribution"] and origin.feedback_card["source_sha256"] == "cd34"


def measured(epoch: int, sites: int = 3) -> Measurements:
    growth = (Reading(None, "site 0 has no block before it"), *(Reading(epoch + site) for site in range(sites - 1)))
    return Measurements({"growth": growth, "gamma": (Reading.of(math.inf),) * sites, "h_norm": growth}, {})


def test_every_site_is_read_at_evenly_spread_epochs(tmp_path):
    path = tmp_path / "series.parquet"
    write_series(path, [(epoch, measured(epoch)) for epoch in range(101)])
    found = by_site(read_rows(path))
    assert set(found) == {"growth", "gamma"}
    growth = found["growth"]
    assert len(growth.epochs) == MOST_EPOCHS and (growth.epochs[0], growth.epochs[-1]) == (0, 100)
    assert [reading.value for reading in growth.sites[2]] == [epoch + 1 for epoch in growth.epochs]
    assert growth.sites[0][3].value is None and found["gamma"].sites[1][5].not_finite
    assert jsonio.decode(SiteSeries, jsonio.encode(growth)) == growth


def test_an_epoch_that_was_skipped_says_so(tmp_path):
    path = tmp_path / "series.parquet"
    write_series(path, [(0, measured(0)), (2, measured(2))])
    assert by_site(read_rows(path))["growth"].sites[1][1].value is None


def test_a_text_is_held_once_however_many_rows_say_it(tmp_path):
    """A file of 2 kB said one of 40 MB in 300 rows, and 12 GB were read."""
    rows = [(epoch, Measurements({}, {"gamma": Reading(None, "why " * 1000)})) for epoch in range(3)]
    write_series(tmp_path / "series.parquet", rows)
    reasons = [row[4] for row in read_rows(tmp_path / "series.parquet")]
    assert reasons == ["why " * 1000] * 3 and len(set(map(id, reasons))) == 1


@pytest.mark.parametrize("name", series_parquet.SCHEMA.names)
def test_a_series_with_another_name_of_a_column_is_refused(tmp_path, name):
    names = ["quantita" if known == name else known for known in series_parquet.SCHEMA.names]
    columns = [pa.array([None], type=field.type) for field in series_parquet.SCHEMA]
    pq.write_table(pa.table(columns, names=names), tmp_path / schema.SERIES)
    with pytest.raises(UnreadableFile, match="is not a series that a run wrote"):
        read_rows(tmp_path / schema.SERIES)


def test_a_series_that_unpacks_to_more_than_any_has_is_refused_before_it_is(tmp_path, monkeypatch):
    write_series(tmp_path / "series.parquet", [(0, Measurements({}, {"gamma": Reading(0.5)}))])
    monkeypatch.setattr(series_parquet, "MOST_BYTES", 10)
    with pytest.raises(UnreadableFile, match=r"is not a series that a run wrote: 1 rows of .*, \d+ bytes"):
        read_rows(tmp_path / "series.parquet")


def test_nothing_by_site_is_nothing(tmp_path):
    path = tmp_path / "series.parquet"
    write_series(path, [])
    assert by_site(read_rows(path)) == {}
    write_series(path, [(0, Measurements({}, {"accuracy": Reading(0.5)}))])
    assert by_site(read_rows(path)) == {}


@pytest.mark.parametrize(
    ("last", "most", "epochs"),
    [(-1, 5, ()), (0, 5, (0,)), (2, 5, (0, 1, 2)), (100, 3, (0, 50, 100)), (10, 4, (0, 3, 7, 10))],
)
def test_spread(last, most, epochs):
    assert spread(last, most) == epochs


class Absent(MemoryTracker):
    """Its server is away for the calls in `away`, counted from 0; who waits for it finds it back."""

    def __init__(self, folder, away):
        super().__init__(folder)
        self.away, self.calls = away, 0

    def without_retry(self):
        hurried = copy.copy(self)
        hurried.log = lambda *given: self.tried(*given)
        hurried.upload = hurried.finish = self.gone
        return hurried

    def tried(self, *given):
        self.calls += 1
        return self.gone() if self.calls - 1 in self.away else self.log(*given)

    def gone(self, *given):
        raise StoreRefusal("store http://away", requests.exceptions.ConnectionError("refused"))


def test_a_server_that_is_away_costs_no_epoch_and_gets_every_point_once_and_in_order(tmp_path, monkeypatch, caplog):
    for seconds in ("FLUSH_SECONDS", "AWAY_SECONDS"):  # every epoch is sent, or tried
        monkeypatch.setattr(writer, seconds, -1.0)
    tracker = Absent(tmp_path / "runs", away={1, 2})
    run, _, _ = write_run(tracker, epochs=4)
    undisturbed = MemoryTracker(tmp_path / "undisturbed")
    expected, _, _ = write_run(undisturbed, epochs=4)
    assert tracker.points[run.run_id] == undisturbed.points[expected.run_id]
    assert all(point.time for point in tracker.points[run.run_id])
    assert tracker.get(run.run_id).tags[schema.TAG_STATUS] == "complete" and tracker.calls == 5
    assert caplog.text.count(": refused; ") == caplog.text.count("reachable again: all") == 1


def test_points_are_sent_in_calls_that_the_store_takes_as_one(tmp_path, monkeypatch):
    """Whole epochs, as many as go into one: a call costs a server as much as what it brings."""
    sent, log = [], MemoryTracker.log

    def logged(tracker, run_id, points=(), *given, **named):
        sent.append([point.step for point in points])
        log(tracker, run_id, points, *given, **named)

    monkeypatch.setattr(MemoryTracker, "log", logged)
    write_run(MemoryTracker(tmp_path / "whole"), epochs=5)
    (whole,) = [steps for steps in sent if steps]
    sent.clear()
    most = max(map(whole.count, whole))
    monkeypatch.setattr(writer, "FLUSH_POINTS", 2 * most)
    write_run(MemoryTracker(tmp_path / "parts"), epochs=5)
    parts = [steps for steps in sent if steps]
    assert [step for steps in parts for step in steps] == whole and len(parts) == 3
    assert all(len(steps) <= 2 * most and len(set(steps)) == 2 for steps in parts)


class Faulty(Absent):
    """Its server answers, and cannot write files."""

    def without_retry(self):
        hurried = super().without_retry()
        hurried.finish = self.finish
        return hurried

    def gone(self, *given):
        raise StoreRefusal("store http://away", requests.exceptions.RetryError("too many 500 error responses"))


def test_a_fault_of_the_server_takes_the_place_of_no_other_reason(tmp_path, caplog):
    """Neither of Ctrl-C, which would end as a failure, nor of a method's own error; and the run is recorded as ended."""
    tracker = Faulty(tmp_path / "runs", away={0})
    run = RunWriter(tracker, build_setup(parse_spec(TINY), torch.device("cpu")))
    run.interrupt("stopped")
    assert "responds with errors" in caplog.text and "last files" in caplog.text
    assert tracker.get(run.run_id).state == "KILLED"


def test_points_wait_for_a_server_at_fault_too(tmp_path, monkeypatch):
    for seconds in ("FLUSH_SECONDS", "AWAY_SECONDS"):
        monkeypatch.setattr(writer, seconds, -1.0)
    tracker, undisturbed = Faulty(tmp_path / "runs", away={1, 2}), MemoryTracker(tmp_path / "undisturbed")
    (run, *_), (expected, *_) = write_run(tracker, epochs=4), write_run(undisturbed, epochs=4)
    assert tracker.points[run.run_id] == undisturbed.points[expected.run_id]


def test_a_run_that_ends_while_the_server_is_away_says_that_it_still_says_running(tmp_path, caplog):
    run = RunWriter(Absent(tmp_path / "runs", away={0}), build_setup(parse_spec(TINY), torch.device("cpu")))
    run.interrupt("stopped")
    assert f"{run.run_id} stays RUNNING" in caplog.text


def test_an_epoch_later_than_any_run_has_is_refused(tmp_path):
    """A file of 1.5 kB with two rows took 1 GB: a trajectory has an entry for every epoch up to the last."""
    path = tmp_path / "series.parquet"
    write_series(path, [(epoch, Measurements({}, {"accuracy": Reading(0.5)})) for epoch in (0, 100_000)])
    assert len(trajectory(read_rows(path), ACCURACY)["accuracy"]) == 100_001
    write_series(path, [(epoch, Measurements({}, {"accuracy": Reading(0.5)})) for epoch in (0, 100_001)])
    with pytest.raises(
        UnreadableFile, match=r"is not a series that a run wrote: it contains the invalid row \(100001, "
    ):
        read_rows(path)
