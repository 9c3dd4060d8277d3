"""Executors as a family: every one of ours keeps the same promises, and another package's runs a study like ours."""

from __future__ import annotations

import sys

import pytest
import torch

import fa_registry
from fa_registry.errors import Interrupted, InvalidFields
from fa_registry.studies import executors
from fa_registry.studies.executors.base import ENDS, Resources
from tests.workflows.conftest import STUDY

IN_TURNS = """
from fa_registry.studies.executors.base import Executor, JobEvent, ended
from fa_registry.training.loop import in_one_go

class Backwards(Executor):
    def run(self, jobs, work, resources, stop, tell):
        for index in reversed(range(len(jobs))):
            if {forgets} and index == 0:
                return
            report = lambda value: tell(JobEvent(index, "progress", value))
            tell(ended(index, lambda: in_one_go(work(jobs[index], stop, report))))

PLUGIN = Backwards()
"""


def three_steps(job, stop, report):
    """A job that tells its threads, can be stopped and may break."""
    for _ in range(3):
        if stop():
            raise Interrupted("as asked")
        if job == "breaks":
            raise ValueError("this one breaks")
        report(torch.get_num_threads())
        yield
    return f"{job} done"


@pytest.fixture(params=executors.CATALOG.names())
def run(request):
    def call(jobs, resources, stop=lambda: False):
        events = []
        executors.CATALOG.get(request.param).run(jobs, three_steps, resources, stop, events.append)
        return events

    return call


def test_every_executor_ends_every_job_once_and_a_failure_stops_no_other(run):
    events = run(["a", "breaks", "c"], Resources(at_once=2))
    ends = sorted((event.index, event.kind) for event in events if event.kind in ENDS)
    assert ends == [(0, "done"), (1, "failed"), (2, "done")]
    values = {event.index: event.value for event in events if event.kind in ENDS}
    assert values[0] == "a done" and values[2] == "c done" and "this one breaks" in values[1]


def test_every_executor_stops_on_request_and_tells_of_every_job(run):
    assert [event.kind for event in run(["a", "b"], Resources(), stop=lambda: True)] == ["stopped", "stopped"]


def test_every_executor_gives_each_job_its_number_of_threads(run):
    told = {event.value for event in run(["a"], Resources(threads=2)) if event.kind == "progress"}
    assert told == {2} and torch.get_num_threads() == 1


@pytest.fixture
def backwards(tmp_path, monkeypatch):
    """An executor of another package, as pip would leave it; backwards(forgets=True): it never tells of the first job."""

    def install(forgets: bool = False) -> None:
        (tmp_path / "backwards.py").write_text(IN_TURNS.replace("{forgets}", str(forgets)))
        information = tmp_path / "backwards-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: backwards\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text("[fa_registry.executors]\nbackwards = backwards\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        vars(executors.CATALOG).pop("_locations", None)

    yield install
    vars(executors.CATALOG).pop("_locations", None)
    sys.modules.pop("backwards", None)


def test_another_packages_executor_trains_a_study(backwards, workplace):
    backwards()
    (workplace / "study.toml").write_text(STUDY.replace("epochs = 2", "epochs = 1"))
    result = fa_registry.study("study.toml", device="cpu", executor="backwards")
    assert result.exit_code == 0 and len(result.trained) == 4
    assert "backwards" in sys.modules


def test_a_job_that_an_executor_never_told_of_is_a_failure(backwards, workplace):
    backwards(forgets=True)
    (workplace / "study.toml").write_text(STUDY.replace("epochs = 2", "epochs = 1"))
    result = fa_registry.study("study.toml", device="cpu", executor="backwards")
    assert result.exit_code == 1 and len(result.trained) == 3
    ((name, error),) = result.failed.items()
    assert name.startswith("bp ·") and error == "the executor backwards returned and never told how this run ended"


def test_an_unknown_executor_is_refused_before_anything_is_written(workplace):
    (workplace / "study.toml").write_text(STUDY)
    with pytest.raises(InvalidFields, match=r"executor: unknown executor 'locl' \(did you mean 'local'\?\)"):
        fa_registry.study("study.toml", device="cpu", executor="locl")
