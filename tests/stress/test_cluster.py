"""A Ray cluster of two nodes: processes and a node are killed while a study trains, and its runs are as in an undisturbed study."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import fa_registry
from fa_registry.cli import main
from fa_registry.studies import execution
from fa_registry.studies.options import RunSelector
from fa_registry.studies.training_job import training_steps
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.end_to_end.server import mlflow_server

ROOT = Path(__file__).parents[2]
SPECS = 8
STUDY = """
name = "kills"
title = "One method and its control, four seeds"
edition = "2026-05"
cost = "a minute"
recipe = { epochs = 40 }

[[grid]]
methods = ["dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2, 3, 4]
architecture_options = { d_hidden = 16, num_blocks = 2 }
"""
WAITS = 1500.0  # seconds; every process of the cluster imports torch, which takes long on a busy machine


def with_states(job, stop, report):
    """Training on the cluster; of every epoch the state is kept, and what it measured is in the store at once."""
    from fa_registry.tracking import writer
    from fa_registry.training import resume

    resume.SECONDS_BETWEEN = writer.FLUSH_SECONDS = -1.0
    return (yield from training_steps(job, stop, report))


def registry(*arguments: str) -> subprocess.Popen:
    """The command line as it ends this file."""
    command = [sys.executable, "-m", "tests.stress.test_cluster", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def at_work(tracker: MlflowTracker) -> list[StoredRun]:
    return tracker.search({schema.TAG_KIND: "run"}, state="RUNNING")


def epoch(run: StoredRun) -> int:
    """The last epoch that the store knows of; −1 where it knows of none."""
    return int(run.tags.get(schema.TAG_EPOCH, "-1 of").split(" of")[0])


def kill_a_process(tracker: MlflowTracker, spared: set[str]) -> None:
    """One whose second epoch is reported, so that there is a state to resume from, and whose specification was spared so far."""
    deadline = time.monotonic() + WAITS
    while time.monotonic() < deadline:
        for run in at_work(tracker):
            if run.tags[schema.TAG_SPEC] in spared and epoch(run) >= 2:
                spared.remove(run.tags[schema.TAG_SPEC])
                if killed_at_work(tracker, run):
                    return
        time.sleep(0.1)
    raise TimeoutError("nothing is trained")


def killed_at_work(tracker: MlflowTracker, run: StoredRun) -> bool:
    """Whether its process could be killed before its run was complete: it is held meanwhile, and what it had asked is answered."""
    process = int(run.tags[schema.TAG_PROCESS].split(":")[1])
    os.kill(process, signal.SIGSTOP)
    time.sleep(1.0)
    is_at_work = schema.TAG_WEIGHTS not in tracker.get(run.run_id).tags
    os.kill(process, signal.SIGKILL if is_at_work else signal.SIGCONT)
    return is_at_work


def weights(tracker: MlflowTracker) -> dict[str, list[str]]:
    """Of each specification the digests of its complete runs' weights."""
    runs = [run for run in tracker.search({schema.TAG_KIND: "run"}) if run.tags[schema.TAG_STATUS] == "complete"]
    found: dict[str, list[str]] = {}
    for run in runs:
        found.setdefault(run.tags[schema.TAG_SPEC], []).append(run.tags[schema.TAG_WEIGHTS])
    return found


@pytest.mark.long
def test_a_study_on_two_nodes_outlives_three_kills(tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    (tmp_path / "study.toml").write_text(STUDY)
    with mlflow_server(f"sqlite:///{tmp_path / 'server.db'}", tmp_path / "mlartifacts") as store:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            node = cluster.add_node(num_cpus=1)
            where = ("--store", store, "--executor", "ray", "--address", cluster.address, "--device", "cpu", "--json")
            with registry("study", "study.toml", "--heartbeat-timeout", "10", *where) as training:
                tracker = MlflowTracker(store)
                spared = {
                    spec.identity for spec in RunSelector("study.toml", overrides={"device": "cpu"}).as_asked.specs
                }
                kill_a_process(tracker, spared)
                spared -= {run.tags[schema.TAG_SPEC] for run in at_work(tracker)}
                cluster.remove_node(node, allow_graceful=False)
                cluster.add_node(num_cpus=1)
                kill_a_process(tracker, spared)
                printed, log = training.communicate(timeout=WAITS)
            with registry("audit", "--study", "study.toml", *where) as auditing:
                report = json.loads(auditing.communicate(timeout=WAITS)[0])["report"]
        finally:
            cluster.shutdown()
        disturbed, states = weights(tracker), Counter(run.state for run in tracker.search({}))
    assert training.returncode == 0, log
    summary = json.loads(printed)
    assert summary["failed"] == {} and summary["stopped"] == [], log
    assert log.count("the job restarts in a new process") >= 2 and log.count("resumed after epoch") >= 2, log
    assert len(disturbed) == SPECS and {len(digests) for digests in disturbed.values()} == {1}
    assert states["RUNNING"] == 0
    assert [run["record"]["integrity"]["state"] for run in report["runs"]] == ["verified"] * SPECS
    here = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert fa_registry.study("study.toml", store=here, device="cpu").exit_code == 0
    assert disturbed == weights(MlflowTracker(here))


if __name__ == "__main__":  # the command line, as the test starts it
    execution.training_steps = importlib.import_module("tests.stress.test_cluster").with_states  # not __main__'s
    main()
