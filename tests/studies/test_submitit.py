"""The executor submitit with its own processes on this machine: what holds for every executor, and what Slurm would receive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fa_registry.studies.executors import submitit as executor
from fa_registry.studies.executors.base import ENDS, JobResources
from tests.studies.jobs import at_work_until_stopped, dies_once, three_steps

ROOT = Path(__file__).parents[2]
HERE = JobResources(at_once=2, address="local")
pytestmark = pytest.mark.long  # each of its processes loads torch again


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    """Nothing may be left in it, and nothing be printed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    yield
    assert list((tmp_path / ".fa_registry").iterdir()) == []


def run(jobs, work, stop=lambda: False, resources=HERE):
    events = []
    executor.PLUGIN.run(jobs, work, resources, stop, events.append)
    return events


def ends(events):
    return {event.index: (event.kind, event.value) for event in events if event.kind in ENDS}


def test_every_job_ends_once_and_a_failure_stops_no_other(capfd):
    events = run(["a", "breaks", "c"], three_steps, resources=JobResources(at_once=3, gpus=0.3, address="local"))
    assert ends(events)[0] == ("done", "a done") and ends(events)[2] == ("done", "c done")
    assert ends(events)[1][0] == "failed" and "this one breaks" in ends(events)[1][1]
    assert {event.value for event in events if event.kind == "progress"} == {1}, "its number of threads"
    assert capfd.readouterr().out == ""


def test_a_job_whose_process_is_killed_begins_again_in_another(tmp_path):
    again, done = run([str(tmp_path / "tried")], dies_once)
    assert again.kind == "again" and "(FINISHED);" in again.value
    assert done.kind == "done" and done.value[0] != done.value[1]


def test_a_stop_reaches_what_is_at_work():
    received = []
    executor.PLUGIN.run(
        ["a", "b"], at_work_until_stopped, JobResources(address="local"), lambda: len(received) > 0, received.append
    )
    assert sorted(kind for kind, _ in ends(received).values()) == ["stopped"] * 2


SLURM = {
    # What it is given it keeps before it answers, as Slurm does: the caller moves the file then.
    "sbatch": 'cp "$1" "$GIVEN"; cp "$1" "$0.$$"; SLURM_JOB_ID=$$ SLURM_PROCID=0 setsid sh "$0.$$" >/dev/null 2>&1 & '
    'echo "Submitted batch job $$"',
    "srun": 'while [ "${1#-}" != "$1" ]; do case "$1" in --output|--error) shift;; esac; shift; done; exec "$@"',
    "sacct": 'echo "JobID|State"',
    "scancel": ":",
}


def test_what_slurm_receives(tmp_path, tmp_path_factory, monkeypatch):
    """By programs that replace Slurm's: they start at once what they are given."""
    programs = tmp_path_factory.mktemp("slurm")
    for name, text in SLURM.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("GIVEN", str(programs / "given"))
    asked = JobResources(at_once=2, cpus=2, gpus=0.5, memory=3 * 2**30)
    assert executor.PLUGIN.problems(asked) == []
    with executor.PLUGIN.opened(asked) as room:
        assert room.at_once == 512 and room.machines == {"Slurm's machines"}
    assert ends(run(["a", "b"], three_steps, resources=asked)) == {0: ("done", "a done"), 1: ("done", "b done")}
    received = set((programs / "given").read_text().splitlines())
    assert {
        "#SBATCH --cpus-per-task=2",
        "#SBATCH --gpus-per-node=1",
        "#SBATCH --mem=6144M",
        "#SBATCH --time=1440",
    } <= received
