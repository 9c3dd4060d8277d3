"""What breaks one run is told of that run, a changed file apart from all else."""

from __future__ import annotations

import pytest

from fa_registry.errors import IntegrityError, Interrupted
from fa_registry.tracking.base import StoredRun
from fa_registry.workflows import evidence
from fa_registry.workflows.evidence import GatherJob, gather_all, gather_one
from fa_registry.workflows.requests import Measuring


@pytest.fixture
def job(stored):
    return GatherJob(stored("a"), "")


@pytest.fixture
def stored():
    return lambda run_id: StoredRun(run_id, f"run {run_id}", "fa_registry", "FINISHED", 0)


@pytest.mark.parametrize(
    ("error", "tampered", "reason"),
    [
        (IntegrityError("changed"), True, "integrity failure: changed"),
        (KeyError("threads"), False, "cannot be measured again: KeyError: 'threads'"),
    ],
)
def test_a_changed_file_is_told_from_whatever_else_broke(job, monkeypatch, error, tampered, reason):
    def broken(*_):
        raise error

    monkeypatch.setattr(evidence, "gather", broken)
    found = gather_one(None, job)
    assert (found.record, found.tampered, found.reason, found.words) == (None, tampered, reason, reason)
    assert bool(found.failure) != tampered  # a traceback of what is a bug or a machine's, none of what is evidence


@pytest.mark.parametrize(("runs", "cores", "processes"), [(7, 4, 1), (15, 8, 1), (16, 4, 2), (99, 4, 4), (0, 4, 1)])
def test_processes_are_started_where_they_pay(monkeypatch, runs, cores, processes):
    monkeypatch.setattr(evidence.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(evidence, "usable_cores", lambda: cores)
    assert evidence._default_processes(runs) == processes
    monkeypatch.setattr(evidence.torch.cuda, "is_available", lambda: True)
    assert evidence._default_processes(runs) == 1


def test_stopped_midway_judges_nothing(stored, monkeypatch):
    class Store:
        uri = ""

    monkeypatch.setattr(evidence, "run_jobs", lambda *_: None)
    with pytest.raises(Interrupted, match="nothing was judged"):
        gather_all(Store(), [stored("a")], Measuring(jobs=1))
