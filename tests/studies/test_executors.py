"""Executors as a family: every built-in one keeps the same promises, and another package's runs a study like a built-in one."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fa_registry
from fa_registry.errors import Interrupted, InvalidFields, RegistryError
from fa_registry.studies import execution as workflow
from fa_registry.studies import executors
from fa_registry.studies.execution import default_executor
from fa_registry.studies.executors import local
from fa_registry.studies.executors.base import ENDS, SILENCE, Executor, JobEvent, JobResources
from fa_registry.studies.executors.local import run_jobs, stop_on_signal
from fa_registry.studies.executors.side_by_side import run_side_by_side
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.loop import run_to_completion, train_epochs
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer
from tests.commands.conftest import STUDY
from tests.helpers.plugins import NAME, installed
from tests.helpers.tiny_tasks import Recorder, tiny_task, weights_equal
from tests.studies.jobs import alone, three_steps, until_stopped

IN_TURNS = """
from fa_registry.studies.executors.base import Executor, JobEvent, ended
from fa_registry.training.loop import run_to_completion

class Backwards(Executor):
    def run(self, jobs, work, resources, stop, report):
        for index in reversed(range(len(jobs))):
            if {forgets} and index == 0:
                return
            progress = lambda value: report(JobEvent(index, "progress", value))
            report(ended(index, lambda: run_to_completion(work(jobs[index], stop, progress))))

PLUGIN = Backwards()
"""


CLUSTERS = ("ray", "submitit")  # test_ray.py, test_submitit.py


@pytest.fixture(params=[name for name in executors.CATALOG.names() if name not in CLUSTERS])
def run(request):
    def call(jobs, resources, stop=lambda: False, work=three_steps):
        events = []
        executors.CATALOG.get(request.param).run(jobs, work, resources, stop, events.append)
        return events

    return call


def test_every_executor_ends_every_job_once_and_a_failure_stops_no_other(run):
    events = run(["a", "breaks", "c"], JobResources(at_once=2))
    ends = sorted((event.index, event.kind) for event in events if event.kind in ENDS)
    assert ends == [(0, "done"), (1, "failed"), (2, "done")]
    values = {event.index: event.value for event in events if event.kind in ENDS}
    assert values[0] == "a done" and values[2] == "c done" and "this one breaks" in values[1]
    assert [event.index for event in events if event.kind == "progress"].count(2) == 3  # reported while it was at work


def test_every_executor_stops_on_request_and_tells_of_every_job(run):
    assert [event.kind for event in run(["a", "b"], JobResources(), stop=lambda: True)] == ["stopped", "stopped"]


def test_every_executor_lets_two_jobs_of_one_process_work_in_turns_and_never_at_once(run):
    """Threads, random numbers and the device are the process's own."""
    values = [
        event.value
        for event in run(["a", "b", "c", "d"], JobResources(at_once=4), work=alone)
        if event.kind == "progress"
    ]
    assert values == ["alone"] * 12


def test_every_executor_gives_each_job_its_number_of_threads(run):
    values = {event.value for event in run(["a"], JobResources(threads=2)) if event.kind == "progress"}
    assert values == {2} and torch.get_num_threads() == 1, (
        "training.devices.pinned_threads(resources.threads), around each job"
    )


@pytest.fixture
def backwards(tmp_path, monkeypatch):
    """An executor of another package, as pip would leave it; backwards(forgets=True): it never reports the first job."""

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


@pytest.mark.long
def test_another_packages_executor_trains_a_study(backwards, workplace):
    backwards()
    (workplace / "study.toml").write_text(STUDY.replace("epochs = 2", "epochs = 1"))
    result = fa_registry.study("study.toml", device="cpu", executor="backwards")
    assert result.exit_code == 0 and len(result.trained) == 4
    assert "backwards" in sys.modules


@pytest.mark.long
def test_a_job_that_an_executor_never_reported_is_a_failure(backwards, workplace):
    backwards(forgets=True)
    (workplace / "study.toml").write_text(STUDY.replace("epochs = 2", "epochs = 1"))
    result = fa_registry.study("study.toml", device="cpu", executor="backwards")
    assert result.exit_code == 1 and len(result.trained) == 3
    ((name, error),) = result.failed.items()
    assert name.startswith("bp ·") and "backwards" in error


@pytest.mark.parametrize("ending", ["sys.exit(0)", "os._exit(0)"])
def test_a_method_that_ends_its_process_costs_its_own_run_alone(ending, tmp_path_factory, workplace):
    """Also with one job: the study would end well, with nothing trained."""
    with installed(tmp_path_factory.mktemp("package")) as plugin:
        plugin.edit("import torch\n", "import os, sys\nimport torch\n")
        plugin.edit("return [inputs.error @", f"{ending}; return [inputs.error @")
        text = STUDY.replace("epochs = 2", "epochs = 1").replace('"fa", "dfa"', f'"{NAME}"')
        (workplace / "study.toml").write_text(text)
        result = fa_registry.study("study.toml", device="cpu", jobs=1)
    assert result.exit_code == 1 and len(result.trained) == 2
    ((name, error),) = result.failed.items()
    assert name.startswith(NAME)
    assert ("sys.exit(0)," if "sys" in ending else "exit code 0") in error.splitlines()[-1]
    states = {run.state for run in MlflowTracker().search({})}
    assert "FAILED" in states and "RUNNING" not in states


def test_a_rule_that_ends_its_process_does_not_answer_for_train(tmp_path_factory, workplace):
    """Exit code 7 and not 0: a suite that a fault ends must not end well either."""
    with installed(tmp_path_factory.mktemp("package")) as plugin:
        plugin.edit("return [inputs.error @", "__import__('os')._exit(7); return [inputs.error @")
        with pytest.raises(RegistryError, match="after the restart, the new process ended with exit code 7"):
            fa_registry.train(method=NAME, seed=1, epochs=1, device="cpu", settings={"architecture.d_hidden": 16})
    assert "RUNNING" not in {run.state for run in MlflowTracker().search({})}


def test_who_trains_what(monkeypatch):
    """No fault of a job reaches this process, and a debugger reaches one run of this process."""
    ours = parse_spec(
        {"method": "dfa", "architecture": "resmlp", "dataset": "digits", "seed": 1, "epochs": 1, "device": "cpu"}
    )
    on_card = dataclasses.replace(ours, device_class="cuda")
    assert [default_executor([ours]), default_executor([on_card])] == ["side_by_side"] * 2
    assert [default_executor([ours] * 2, True), default_executor([on_card] * 2, True)] == ["local", "side_by_side"]
    monkeypatch.setattr(workflow, "runs_others_code", lambda spec: spec is on_card)
    assert [default_executor([on_card]), default_executor([ours, on_card], True)] == ["local"] * 2


def test_how_long_a_run_may_be_silent_is_what_was_asked(workplace, monkeypatch):
    class Asked(Executor):
        def run(self, jobs, work, resources, stop, report):
            seconds.append(resources.silence)
            for index in range(len(jobs)):
                report(JobEvent(index, "stopped"))

    seconds = []
    monkeypatch.setattr(local, "PLUGIN", Asked())
    (workplace / "study.toml").write_text(STUDY)
    for asked in ({}, {"silence": "60"}):
        fa_registry.study("study.toml", device="cpu", executor="local", **asked)
        with pytest.raises(Interrupted):
            fa_registry.train(method="dfa", seed=1, device="cpu", executor="local", **asked)
    assert seconds == [SILENCE, SILENCE, 60, 60]


def test_an_unknown_executor_is_refused_before_anything_is_written(workplace):
    (workplace / "study.toml").write_text(STUDY)
    with pytest.raises(InvalidFields, match=r"executor: unknown executor 'locl' \(did you mean 'local'\?\)"):
        fa_registry.study("study.toml", device="cpu", executor="locl")
    with pytest.raises(InvalidFields, match=r"executor: unknown executor 'locl' \(did you mean 'local'\?\)"):
        fa_registry.train(method="dfa", seed=1, executor="locl")


def test_the_first_signal_asks_the_second_interrupts(usual_interrupt):
    with pytest.raises(KeyboardInterrupt), stop_on_signal() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_that_handles_its_termination_is_notified_after_the_safe_point(usual_interrupt):
    received = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append("the program"))
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop() and not received
        received.append("safe point")
    assert received == ["safe point", "the program"]


SUITE = """
import sys, time, click
from click.testing import CliRunner
from fa_registry.studies.executors.local import stop_on_signal

@click.command()
def train():
    with stop_on_signal() as stop:
        print("it trains", file=sys.__stdout__, flush=True)
        while not stop():
            time.sleep(0.01)

def test_that_trains():
    CliRunner().invoke(train)

def test_the_next():
    print("the suite went on")
"""


@pytest.mark.long
def test_a_terminated_suite_ends_while_it_trains(tmp_path):
    """`timeout` sends SIGTERM: a training that takes it for its own would only fail one test of the many."""
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-s", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]
    own = {
        name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"
    }  # `-n 2` would hide what it prints
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=own
    ) as process:
        while "it trains" not in (line := process.stdout.readline()):
            assert line
        process.terminate()
        left = process.communicate(timeout=60)[0]
    assert process.returncode != 0 and "the suite went on" not in left


def test_a_terminate_signal_to_the_whole_group_stops_workers_at_a_safe_point(usual_interrupt):
    """systemd, docker and timeout signal the group: the workers must leave it to the parent, as with Ctrl-C."""
    events = []
    with stop_on_signal() as stop:

        def receive(event):
            events.append(event)
            if event.kind == "progress" and not stop():
                for child in multiprocessing.active_children():
                    os.kill(child.pid, signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)

        run_jobs([1, 2, 3], until_stopped, 2, stop, receive)
    ends = [event for event in events if event.kind in ENDS]
    assert [event.kind for event in ends] == ["stopped"] * 3  # the last of them had not begun
    assert "stopped as asked" in {event.value for event in ends}


def taking_turns(jobs, steps, count):
    """The events of jobs that one process trains in turns, `count` at a time."""
    events = []
    run_side_by_side(jobs, steps, count, lambda: False, events.append)
    return events


def count_to(job, stop, report):
    for turn in range(job):
        if stop():
            raise Interrupted("stopped as asked")
        report(turn)
        yield
    return job * job


def test_so_many_take_turns_and_the_next_begins_when_one_has_ended():
    turns = [event.index for event in taking_turns([2, 2, 1], count_to, 2) if event.kind == "progress"]
    assert turns == [0, 1, 0, 1, 2]


def test_a_stop_ends_those_at_work_and_drops_the_others():
    received = []
    run_side_by_side([5, 5, 5], count_to, 2, lambda: len(received) > 3, received.append)
    assert [event.kind for event in received if event.kind != "progress"] == ["stopped"] * 3


def test_an_interrupt_closes_every_job_at_work():
    closed = []

    def steps(job, stop, report):
        try:
            yield
            raise KeyboardInterrupt
        except GeneratorExit:
            closed.append(job)
            raise

    with pytest.raises(KeyboardInterrupt):
        taking_turns(["first", "second"], steps, 2)
    assert closed == ["second"]


@pytest.mark.long
def test_replicas_are_bit_equal_to_runs_trained_alone():
    changes = [{"seed": 1}, {"seed": 2, "penalty": 0.01}, {"method": "weight_mirror"}]

    def steps(trainer, stop, report):
        return train_epochs(trainer, Recorder(), stop)

    together = [Trainer(tiny_task(**change)) for change in changes]
    ends = {event.index: event.value for event in taking_turns(together, steps, 3)}
    for index, change in enumerate(changes):
        alone = Trainer(tiny_task(**change))
        assert run_to_completion(train_epochs(alone, Recorder())).final == ends[index].final
        assert weights_equal(alone.setup.network, together[index].setup.network)
