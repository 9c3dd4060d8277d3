"""The executor ray on a cluster of one machine, of the file's own: what holds of every executor, and what Ray would spoil."""

from __future__ import annotations

import os
import signal
from hashlib import sha256
from pathlib import Path

import pytest
import ray

import fa_registry
from fa_registry.errors import UsageError
from fa_registry.studies.executors import ray as executor
from fa_registry.studies.executors.base import ENDS, JobResources
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.schema import FINAL
from tests.commands.conftest import STUDY
from tests.studies.jobs import at_work_until_stopped, dies_once, three_steps

ROOT = Path(__file__).parents[2]
ALONE = JobResources(at_once=2, address="local")
pytestmark = pytest.mark.long  # Ray starts in half a minute, and each of its processes loads torch again


@pytest.fixture(scope="module")
def cluster():
    """Connected to a cluster of two CPUs' worth; what this process did with SIGTERM it does afterwards."""
    received = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        with executor.PLUGIN.opened(ALONE) as room:
            assert signal.getsignal(signal.SIGTERM) is received
            yield room


def run(jobs, work, stop=lambda: False, resources=ALONE):
    events = []
    executor.PLUGIN.run(jobs, work, resources, stop, events.append)
    return events


def ends(events):
    return {event.index: (event.kind, event.value) for event in events if event.kind in ENDS}


def test_every_job_ends_once_and_a_failure_stops_no_other(cluster, capfd):
    events = run(["a", "breaks", "c"], three_steps)
    assert ends(events)[0] == ("done", "a done") and ends(events)[2] == ("done", "c done")
    assert ends(events)[1][0] == "failed" and "this one breaks" in ends(events)[1][1]
    assert {event.value for event in events if event.kind == "progress"} == {1}, "its number of threads"
    assert capfd.readouterr().out == ""


def test_a_job_whose_process_is_killed_begins_again_in_another(cluster, tmp_path, capfd):
    again, done = run([str(tmp_path / "tried")], dies_once)
    assert again.kind == "again" and again.value.startswith("its process was lost: ") and "\n" not in again.value
    assert done.kind == "done" and done.value[0] != done.value[1]
    assert capfd.readouterr().out == ""


def test_a_stop_reaches_what_is_at_work_and_drops_what_waits(cluster):
    received = []
    executor.PLUGIN.run(["a", "b", "c"], at_work_until_stopped, ALONE, lambda: len(received) > 0, received.append)
    assert sorted(kind for kind, _ in ends(received).values()) == ["stopped"] * 3


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"cpus": 1000}, "1000 CPU"),
        ({"gpus": 0.5}, "1 GPU"),
        ({"memory": 2**50}, "1048576.0 GiB"),
    ],
)
def test_more_than_the_cluster_has_is_refused_and_not_waited_for(cluster, more, text):
    opened = executor.PLUGIN.opened(JobResources(address="local", **more))
    with (
        pytest.raises(
            UsageError, match=f"has enough resources for a process with .*{text}.*the maximum on one machine is"
        ),
        opened,
    ):
        pass


def test_its_address_is_one_at_which_ray_answers(cluster):
    address = ray.get_runtime_context().gcs_address
    assert executor.PLUGIN.problems(JobResources(address=address)) == []


def test_unequal_versions_are_named_before_anything_is_trained(cluster):
    with pytest.raises(UsageError, match="has python 3.* instead of 2.7, torch .* instead of 1.0"):
        executor.check_versions(ray.nodes(), {"python": "2.7", "torch": "1.0"})


def test_a_study_is_bit_equal_to_that_of_this_machine(cluster, workplace):
    Path("study.toml").write_text(STUDY.replace("epochs = 2", "epochs = 1"), encoding="utf-8")
    result = fa_registry.study("study.toml", device="cpu", jobs=1, executor="ray", address="local")
    assert result.exit_code == 0 and len(result.trained) == 4
    tracker = MlflowTracker()
    there = {tracker.get(run_id).name: digests(tracker, run_id) for run_id in result.trained}
    again = fa_registry.study("study.toml", device="cpu", jobs=1, executor="side_by_side", force=True)
    assert {tracker.get(run_id).name: digests(tracker, run_id) for run_id in again.trained} == there


def digests(tracker, run_id):
    return sha256(tracker.artifact(run_id, FINAL).read_bytes()).hexdigest()
