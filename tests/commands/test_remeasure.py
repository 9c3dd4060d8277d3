"""Every metric recomputed from the run's files, those of the initial and feedback weights included."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry import diagnostics
from fa_registry.errors import IntegrityError
from fa_registry.evidence import remeasure, run_passes
from fa_registry.evidence.exclusions import RemeasuredRun
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.remeasure import remeasure_all, remeasure_one, remeasure_run
from fa_registry.records import Exclusion
from fa_registry.studies.executors.base import JobEvent
from fa_registry.tracking import schema
from fa_registry.tracking.base import RetentionOptions, StoredRun
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.training.measuring import NO_FEEDBACK
from tests.tracking.conftest import write_run


@pytest.fixture
def written(tmp_path):
    """(tracker, run, final measurements) of a small dfa run."""
    return small_run(tmp_path)


@pytest.fixture
def with_initial(tmp_path):
    """The same of a run whose initial weights were kept."""
    return small_run(tmp_path, RetentionOptions(checkpoint_every=1))


def small_run(folder, keep=RetentionOptions()):
    tracker = MemoryTracker(folder)
    writer, _, outcome = write_run(tracker, keep=keep)
    return tracker, tracker.get(writer.run_id), outcome.final


@pytest.mark.parametrize("kept", ["written", "with_initial"])
def test_every_figure_is_verified_bit_by_bit(request, kept):
    tracker, run, final = request.getfixturevalue(kept)
    assert bool(tracker.artifact(run.run_id, schema.INITIAL)) == (kept == "with_initial")
    record, _ = remeasure_run(tracker, run)
    assert {check.outcome for check in record.integrity.checks if check.subject == "initial weights"} == {"agrees"}
    assert record.integrity.state == "verified" and "bit-equal" in record.integrity.details[0]
    assert record.measurements == final
    assert {"rho", "nudge", "stability", "gamma_null_p", "gamma_block_input"} <= set(record.measurements.sites)
    assert record.measurements.scalars["blocks_trained"].value == 2
    if kept == "with_initial":  # lost, they are those that the seed gives
        tracker.artifact(run.run_id, schema.INITIAL).unlink()
        record, _ = remeasure_run(tracker, run)
        assert record.integrity.state == "verified" and record.measurements == final


def test_changed_initial_weights_are_an_integrity_error(with_initial):
    tracker, run, _ = with_initial
    path = tracker.artifact(run.run_id, schema.INITIAL)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(IntegrityError, match=f"{run.run_id}: checkpoints/init.safetensors: "):
        remeasure_run(tracker, run)


@pytest.mark.parametrize("trust_logged", [False, True])
def test_without_the_feedback_every_figure_of_a_credit_is_na_and_no_other(written, trust_logged):
    tracker, run, final = written
    tracker.artifact(run.run_id, schema.FEEDBACK).unlink()
    record, _ = remeasure_run(tracker, run, RemeasureOptions(trust_logged))
    assert record.integrity.state == "unverifiable"
    cards = [diagnostics.CATALOG.get(name).card for name in diagnostics.CATALOG.names()]
    lost = {quantity for card in cards for quantity in card.needs_credit}
    for name, row in final.sites.items():
        found = record.measurements.sites[name]
        if name not in lost:
            assert found == row, name
        elif name not in ("bridge_residual", "costate_cosine") or trust_logged:
            assert {reading.reason for reading in found} == {NO_FEEDBACK}, name
    for name, reading in final.scalars.items():
        assert record.measurements.scalars[name] == reading or name in lost, name


@pytest.fixture
def stored():
    return lambda run_id: StoredRun(run_id, f"run {run_id}", "fa_registry", "FINISHED", 0)


@pytest.mark.parametrize(("error", "kind"), [(IntegrityError("changed"), "integrity"), (KeyError("threads"), "broken")])
def test_a_changed_file_is_distinguished_from_other_failures(stored, tmp_path, monkeypatch, error, kind):
    def broken(*_):
        raise error

    monkeypatch.setattr(remeasure, "remeasure_run", broken)
    gathered = remeasure_one(MemoryTracker(tmp_path), stored("a"), RemeasureOptions(), None)
    assert (gathered.record, gathered.exclusion.kind) == (None, kind)
    # a traceback of what is a bug or a machine's, none of what is evidence
    assert bool(gathered.exclusion.failure) == (kind == "broken")


@pytest.mark.parametrize(("count", "cores", "processes"), [(7, 4, 1), (15, 8, 1), (16, 4, 2), (99, 4, 4), (0, 4, 1)])
def test_processes_are_started_where_they_pay(stored, tmp_path, monkeypatch, count, cores, processes):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # a GPU does not matter to CPU runs
    monkeypatch.setattr(run_passes, "usable_cores", lambda: cores)
    names = [f"run {number}" for number in range(count)]
    runs = [dataclasses.replace(stored(name), params={"cfg/epochs": "100"}) for name in names]
    started = []

    def run_jobs(jobs, work, processes, stop, tell):
        started.append(processes)
        for index, run in enumerate(jobs):
            tell(JobEvent(index, "done", RemeasuredRun(run, exclusion=Exclusion(run.run_id, run.name, "none"))))

    monkeypatch.setattr(run_passes, "run_jobs", run_jobs)
    on_gpu = [dataclasses.replace(run, params=run.params | {"cfg/device_class": "cuda"}) for run in runs]
    for chosen in (runs, on_gpu):
        remeasure_all(MemoryTracker(tmp_path), chosen, RemeasureOptions())
    assert started == ([processes, 1] if runs else started)


@pytest.mark.parametrize(
    ("count", "cores", "epochs", "processes"),
    [(3, 4, "100", 3), (3, 2, "100", 2), (3, 4, "4", 1), (1, 4, "100", 1), (3, 4, "many", 1)],
)
def test_a_replay_of_many_epochs_pays_sooner(stored, monkeypatch, count, cores, epochs, processes):
    monkeypatch.setattr(run_passes, "usable_cores", lambda: cores)
    runs = [dataclasses.replace(stored(f"run {number}"), params={"cfg/epochs": epochs}) for number in range(count)]
    assert run_passes.default_processes(runs, run_passes.REPLAYING) == processes
