"""Workers: what ends one costs its own job alone, and none outlives the process that it works for."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from multiprocessing import forkserver, util
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import pytest

from fa_registry import process_ownership
from fa_registry.errors import StoreError
from fa_registry.studies import local_process, scheduler
from fa_registry.studies.executors import local
from fa_registry.studies.executors.base import ENDS, JobEvent
from fa_registry.studies.executors.local import run_in_subprocess, run_jobs, supervise
from fa_registry.studies.local_process import LocalProcess
from tests.studies.jobs import (
    dies_the_first_time,
    hangs,
    leaves_a_thread,
    may_end_its_process,
    not_read,
    not_sent,
    says_and_is_refused,
    says_how_it_ends,
    sleep_in_foreign_code,
    until_stopped,
    variable,
)

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def supervised(jobs, task, processes=1, **named):
    events = []
    supervise(jobs, task, processes, lambda: False, events.append, **named)
    return events


def ends(events):
    return {event.index: event for event in events if event.kind in ENDS}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files, in which nothing is left; the server has its own. pytest made tmp_path before."""
    local_process._ensure_forkserver(local_process._context())
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        assert not multiprocessing.active_children()
        assert os.listdir(folder) == []


@pytest.mark.skipif(local_process._context().get_start_method() != "forkserver", reason="there is no process server")
def test_a_killed_process_leaves_a_server_and_a_folder_that_name_it():
    assert list(Path(util.get_temp_dir()).glob(f"fa_registry-server{process_ownership.owner_suffix()}"))
    worker = LocalProcess(b"")
    try:
        assert process_ownership.owner_suffix() in worker._folder.name
        environment = Path(f"/proc/{forkserver._forkserver._forkserver_pid}/environ").read_bytes()
        assert f"{process_ownership.VARIABLE}={process_ownership.process_tag()}".encode() in environment.split(b"\0")
        assert worker.process.pid not in process_ownership.abandoned_processes()
    finally:
        worker.ask_to_stop()
        worker.end()


@pytest.mark.parametrize("processes", [1, 2])
def test_who_ends_its_process_costs_its_own_job_alone(processes):
    jobs = ["first", "exits", "exits as if well", "faults", "killed", "asks", "last"]
    events = supervised(jobs, may_end_its_process, processes)
    ended = ends(events)
    assert [ended[index].kind for index in range(7)] == ["done", *["failed"] * 5, "done"]
    how = {
        "exits": "exit code 3",
        "exits as if well": "exit code 0",
        "faults": "signal SIGSEGV",
        "killed": "signal SIGKILL",
    }
    for name, text in how.items():
        assert ended[jobs.index(name)].value.count(text) == 2
    assert {jobs[index] for index, end in ended.items() if end.lost} == {"killed"}
    again = [event for event in events if event.kind == "again"]
    assert sorted(event.index for event in again) == [1, 2, 3, 4]
    assert any("exit code 3;" in event.value for event in again)
    assert "sys.exit(0)," in ended[5].value


def test_a_worker_that_is_killed_is_replaced_and_the_others_never_notice(tmp_path):
    mark = str(tmp_path / "second attempt")
    events = supervised([(False, mark), (True, mark)], dies_the_first_time, 2)
    assert [(event.index, event.kind) for event in events if event.kind != "done"] == [(0, "progress"), (1, "again")]
    assert {event.kind for event in ends(events).values()} == {"done"}
    assert events[0].value == ends(events)[0].value  # the process that waited is the one that began


def test_where_there_is_no_room_for_another_process_those_who_live_do_its_work(monkeypatch, caplog):
    def one_at_most(message):
        if multiprocessing.active_children():
            raise BlockingIOError("no more processes")
        return LocalProcess(message)

    monkeypatch.setattr(local, "LocalProcess", one_at_most)
    events = supervised(["a", "b", "killed"], may_end_its_process, 3)
    assert [(event.index, event.kind) for event in events] == [(0, "done"), (1, "done"), (2, "again"), (2, "failed")]
    (message,) = [record.getMessage() for record in caplog.records]
    assert "BlockingIOError" in message and "1 at a" in message


def test_where_no_process_can_be_started_every_job_has_two_attempts(monkeypatch):
    def none(message):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(local, "LocalProcess", none)
    events = supervised(["a", "b"], may_end_its_process, 2)
    assert [(event.index, event.kind) for event in events] == [(0, "again"), (0, "failed"), (1, "again"), (1, "failed")]
    assert "BlockingIOError" in events[1].value
    assert events[1].lost


def test_every_job_has_a_process_of_its_own_unless_jobs_share_what_they_read():
    def processes(run):
        events = []
        run(list("abcd"), may_end_its_process, 1, lambda: False, events.append)
        return len({event.value.split(" in ")[1] for event in ends(events).values()})

    assert processes(supervise) == 4
    assert processes(partial(supervise, in_turns=3)) == 2


def test_jobs_that_share_what_they_read_are_spread_over_processes():
    """`run_jobs`, which an audit uses: few processes for many jobs, and no process has more than MOST_IN_TURNS."""
    events = []
    run_jobs([f"job {number}" for number in range(40)], may_end_its_process, 2, lambda: False, events.append)
    jobs = Counter(event.value.split(" in ")[1] for event in ends(events).values())
    assert sum(jobs.values()) == 40 and max(jobs.values()) <= local.MOST_IN_TURNS and 5 <= len(jobs) <= 8


def test_the_source_may_change_while_local_jobs_run(monkeypatch):
    """Their processes have the code that this process had; only a cluster's may have another."""
    monkeypatch.setattr(scheduler, "versions", lambda: {"torch": "of an edited source"})
    assert [event.kind for event in supervised(["a", "b"], may_end_its_process)] == ["done", "done"]


def test_a_job_that_ends_as_its_worker_leaves_has_ended(monkeypatch):
    """As after Ctrl-C: the worker does its job, reports it and is gone, all after its last report was read."""
    ended, asked = LocalProcess.reported, []

    def reported_before(worker):
        if asked and worker.process.exitcode is None:
            worker.process.join()
        else:
            yield from ended(worker)

    def receive(event):
        events.append(event)
        asked.append(event.kind == "progress")

    events = []
    monkeypatch.setattr(LocalProcess, "reported", reported_before)
    supervise(["a"], until_stopped, 1, lambda: bool(asked), receive)
    assert [(event.kind, event.value) for event in events] == [("progress", "started"), ("stopped", "stopped as asked")]


def test_who_gives_no_sign_of_life_is_ended_and_the_rest_goes_on(monkeypatch):
    clock, join, graces = SimpleNamespace(now=0.0), BaseProcess.join, []
    monkeypatch.setattr(BaseProcess, "join", lambda process, grace=None: graces.append(grace) or join(process, grace))
    monkeypatch.setattr(scheduler, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(scheduler, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=time.sleep))
    events = []

    def receive(event):
        events.append(event)
        clock.now += 61 if (event.index, event.kind) == (1, "progress") else 0

    supervise(["a", "hangs", "c"], hangs, 1, lambda: False, receive, silence=60)
    ended = ends(events)
    assert [ended[index].kind for index in range(3)] == ["done", "failed", "done"]
    assert "61 s" in ended[1].value and ended[1].lost
    assert 0.05 in graces
    assert [event.kind for event in events if event.index == 1] == ["progress", "failed"]


def test_a_worker_that_is_done_and_does_not_leave_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "GRACE_SECONDS", 0.5)
    (end,) = supervised([str(tmp_path / "late")], leaves_a_thread)
    assert end.kind == "done" and not (tmp_path / "late").exists()


def test_what_interrupts_this_process_ends_all_who_work_for_it(tmp_path, monkeypatch):
    """The second Ctrl-C. One process handles it and can write down what became of its run; one does not, and ends all the same."""
    jobs = [str(tmp_path / name) for name in ("handles", "deaf", "never begins")]
    end, waited = LocalProcess.end, []

    def end_without_a_clock(process, seconds=0.0):
        waited.append((process, seconds))
        end(process, 300 if process is waited[0][0] else 0.0)

    monkeypatch.setattr(LocalProcess, "end", end_without_a_clock)
    started = []

    def interrupted(event):
        started.append(event.index)
        if set(started) == {0, 1}:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervise(jobs, says_how_it_ends, 2, lambda: False, interrupted)
    assert (tmp_path / "handles").read_text() == "interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["handles"]
    assert len({process for process, _ in waited[:2]}) == 2 and 0 < waited[0][1] <= scheduler.GRACE_SECONDS


def test_who_is_interrupted_while_it_ends_them_ends_them_all_the_same(tmp_path, monkeypatch):
    """The third Ctrl-C, while one that is deep in third-party code is waited for."""
    end, ended = LocalProcess.end, []

    def interrupted_once(worker, seconds=0.0):
        ended.append(seconds)
        if len(ended) == 1:
            raise KeyboardInterrupt
        end(worker, seconds)

    monkeypatch.setattr(LocalProcess, "end", interrupted_once)

    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervise([str(tmp_path / "deaf")], says_how_it_ends, 1, lambda: False, interrupt)
    assert ended[1:] == [0.0]


def test_a_worker_lives_where_this_process_does_now(tmp_path, monkeypatch):
    """Not where the server was started."""
    monkeypatch.setenv("FA_REGISTRY_TEST", "today")
    monkeypatch.chdir(tmp_path)
    assert ends(supervised(["FA_REGISTRY_TEST"], variable))[0].value == ("today", str(tmp_path))


def test_a_call_apart_tells_how_it_ended():
    assert run_in_subprocess(os.getcwd) == JobEvent(0, "done", os.getcwd())
    end = run_in_subprocess(len)
    assert end.kind == "failed" and "exactly one argument" in end.value and not end.lost


def test_a_call_apart_has_a_limit_in_time(monkeypatch):
    monkeypatch.setattr(scheduler, "GRACE_SECONDS", 0.05)
    end = run_in_subprocess(sleep_in_foreign_code, 0.1)
    assert end.kind == "failed" and end.lost and "sent no heartbeat" in end.value


def test_starting_the_server_leaves_the_environment_as_it_is(monkeypatch):
    """Of the whole process: its other threads read it and write to it meanwhile."""
    seen = []

    def start():
        seen.append(dict(os.environ))
        monkeypatch.setenv("FA_REGISTRY_TEST", "set by another thread")

    monkeypatch.setattr(forkserver, "ensure_running", start)
    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    local_process._ensure_forkserver(multiprocessing.get_context("forkserver"))
    assert seen[0]["PYTHONSAFEPATH"] == "1" and seen[0]["PYTHONPATH"] != "before"
    assert os.environ["PYTHONPATH"] == "before" and "PYTHONSAFEPATH" not in os.environ
    assert os.environ["FA_REGISTRY_TEST"] == "set by another thread"


def test_what_cannot_be_sent_fails_its_own_job():
    ended = ends(supervised(["a", lambda: None, "c"], may_end_its_process))
    assert [ended[index].kind for index in range(3)] == ["done", "failed", "done"]
    assert "pickle" in ended[1].value
    (end,) = supervised(["a"], not_sent)
    assert end.kind == "failed" and "pickle" in end.value


@pytest.mark.parametrize("when", ["returns", "reports"])
def test_what_cannot_be_read_here_fails_its_own_job(when):
    events = supervised(["a", when, "c"], not_read)
    assert [(event.index, event.kind) for event in events] == [(0, "done"), (1, "failed"), (2, "done")]
    assert "argument: 'code'" in events[1].value


SCRIPT = """
import multiprocessing, os, signal, sys
from fa_registry import process_ownership
from fa_registry.studies.executors.local import supervise
from tests.studies import jobs

# with the usual name, another test's cleanup on this machine would end these workers, and the test would not see whether they end
process_ownership.VARIABLE = "FA_REGISTRY_TEST"
stopping = []

def hear(event):
    print(event.kind, event.value, flush=True)
    if event.kind == "progress" and sys.argv[1] == "until_stopped":
        server = multiprocessing.forkserver._forkserver._forkserver_pid
        os.kill(server, signal.SIGTERM)
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        stopping.append(True)

supervise(["hangs", "hangs"], getattr(jobs, sys.argv[1]), 2, lambda: bool(stopping), hear)
supervise(["b"], jobs.hangs, 2, lambda: False, hear)
"""


@pytest.fixture
def script(tmp_path, tmp_path_factory):
    """A separate program, without the guard that multiprocessing asks for, in a folder where a file is called as the package is."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "here").mkdir()
    elsewhere = tmp_path_factory.mktemp(
        "t"
    )  # who is killed leaves files behind; the path is short enough for the server
    (tmp_path / "here" / "fa_registry.py").write_text("raise SystemExit('this is not ours')", encoding="utf-8")

    def start(task, temporary=elsewhere):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
        command = [sys.executable, str(tmp_path / "script.py"), task]
        return subprocess.Popen(command, cwd=tmp_path / "here", env=environment, stdout=subprocess.PIPE, text=True)

    return start


def test_workers_end_with_the_process_that_they_work_for(script):
    """Killed, it asks them for nothing, and they are deep in third-party code."""
    with script("hangs") as process:
        children = [int(process.stdout.readline().split()[1]) for _ in range(2)]
        assert all(_works(child) for child in children)
        process.kill()
    deadline = time.monotonic() + 300  # a worker that stays would sleep for 600
    while any(_works(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_works(child) for child in children)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the server")
def test_the_death_of_the_server_costs_no_job(script):
    """SIGTERM to the whole group (systemd, timeout) reaches it too."""
    with script("until_stopped") as process:
        ended = process.communicate()[0].splitlines()
    assert process.returncode == 0
    stopped = [line for line in ended if line.startswith("stopped")]
    assert ended[0] == "progress started" and "stopped stopped as asked" in stopped and len(stopped) == 2
    assert not any(line.startswith(("again", "failed")) for line in ended) and ended[-1] == "done b"


def test_a_long_temporary_folder_does_without_the_server(script, tmp_path):
    """No address of it fits there."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    with script("may_end_its_process", folder) as process:
        ended = process.communicate()[0].splitlines()
    assert process.returncode == 0 and [line.split()[0] for line in ended] == ["done", "done", "progress", "done"]


def _works(process: int) -> bool:
    """One that has ended may wait for a process that reads its exit code."""
    state = subprocess.run(["ps", "-o", "state=", "-p", str(process)], capture_output=True, text=True).stdout.strip()
    return state not in ("", "Z")


def test_what_a_job_logs_is_logged_here_and_a_refusal_keeps_its_exit_code(caplog):
    """In that process, names would not be made fit for a terminal; a traceback would be no sentence."""
    (event,) = supervised(["two"], says_and_is_refused)
    assert [record.getMessage() for record in caplog.records] == ["the store of two"]
    assert (event.kind, event.value, event.refused) == ("failed", "is full", StoreError.exit_code)


def test_the_server_imports_no_adapter():
    """An adapter imports its framework, which may raise with a CPU torch; the server would end."""
    assert local_process._is_preloaded("fa_registry.training.step")
    assert not local_process._is_preloaded("fa_registry.external.callbacks.lightning")
    assert not local_process._is_preloaded("fa_registry.__main__")
    assert not local_process._is_preloaded("numpy")


STUDY = """
name = "small"
title = "two runs"
edition = "2026-12"
recipe = { epochs = 1 }
grid = [{ methods = ["dfa"], architectures = ["resmlp"], datasets = ["digits"], seeds = [1] }]
"""
TRAINING = """
from fa_registry.cli import main
from fa_registry.studies import execution
from tests.studies import jobs

execution.training_steps = jobs.training_with_imports
main(["study", "study.toml", "--jobs", "1"])
"""


@pytest.mark.skipif(local_process._context().get_start_method() != "forkserver", reason="there is no process server")
def test_a_training_job_imports_and_looks_up_nothing_again(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", TRAINING], cwd=tmp_path, env=environment, check=True, capture_output=True)
    job = json.loads((tmp_path / "job.json").read_text())
    assert len(job["imported"]) < 10, job["imported"]  # small parts of libraries; without the server 700
    assert job["repeated"] == []
