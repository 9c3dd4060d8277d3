"""Ctrl-C on a study with two workers: exit 130, nothing left running, and the same command resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import call
from tests.end_to_end.conftest import BIN


@pytest.fixture
def start(command, workplace):
    """start(epochs): a study with two workers, once its first run is in the store; (process, tracker, arguments)."""
    begun = []

    def begin(epochs):
        path = workplace / "tiny" / "study.toml"
        path.write_text(path.read_text().replace("epochs = 2", f"epochs = {epochs}"))
        arguments = ["study", "tiny", "--jobs", "2", "--device", "cpu"]
        process = subprocess.Popen(
            [str(BIN / "fa-registry"), *arguments],
            cwd=workplace,
            env=command.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        tracker = MlflowTracker(f"sqlite:///{workplace / 'mlflow.db'}")
        while not tracker.search({schema.TAG_KIND: "run"}):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.2)
        return process, tracker, arguments

    yield begin
    for process in begun:
        with process:  # a test that fails leaves no process and no pipe to the next one
            process.kill()


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 2])
def test_a_study_can_be_stopped_and_goes_on(start, workplace, times):
    """By Ctrl-C, at the next epoch; by a second one at once."""
    process, tracker, arguments = start(epochs=20 if times == 1 else 400)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # two signals of one number at once are one
    _, errors = process.communicate(timeout=120)
    # the second signal may come while the study works, or when the first has ended it and the interpreter is leaving
    assert process.returncode in ((130,) if times == 1 else (1, 130, -signal.SIGINT)), errors
    ends = {(run.state, run.tags[schema.TAG_STATUS]) for run in tracker.search({})}
    assert ("KILLED", schema.INTERRUPTED) in ends and ends <= {("KILLED", schema.INTERRUPTED), ("FINISHED", "complete")}
    if times == 2:
        return
    one_at_a_time = [word.replace("2", "1") for word in arguments]
    ended = call(*one_at_a_time)  # in this process: what the stopped one left is all that there is
    assert ended.exit_code == 0, ended.output
    complete = tracker.search({schema.TAG_KIND: "run", schema.TAG_STATUS: "complete"})
    assert len({run.tags[schema.TAG_SPEC] for run in complete}) == 4
    assert not list((workplace / ".fa_registry" / "resume").glob("*"))


@pytest.mark.long
def test_a_worker_that_is_killed_twice_leaves_no_run_running(start):
    """As the kernel does when memory runs out: the worker cannot end its run. Once, the run begins again in another process."""
    process, tracker, _ = start(epochs=400)
    (run, *_) = tracker.search({schema.TAG_KIND: "run"})
    attempts = {schema.TAG_SPEC: run.tags[schema.TAG_SPEC]}
    kill(run)
    assert any("SIGKILL; the job restarts" in line for line in process.stderr)
    while [run.state for run in tracker.search(attempts)][1:] != [
        "KILLED"
    ]:  # it is made first, and then ends the other
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.2)
    newest, _ = tracker.search(attempts)
    kill(newest)
    assert any("restart" in line and line.count("SIGKILL") == 2 for line in process.stderr)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert "RUNNING" not in {run.state for run in tracker.search({})}


def kill(run):
    """The process that trains it."""
    os.kill(int(run.tags[schema.TAG_PROCESS].split(":")[1]), signal.SIGKILL)
