"""What is asked of an executor of a cluster, reported at once if not available; and which stores its machines can reach."""

from __future__ import annotations

import importlib.util
import json
import platform
import socket
import threading

import pytest

from fa_registry.errors import StoreError
from fa_registry.studies.coordination import asked_resources, check_reach
from fa_registry.studies.executors.base import Capacity, ClusterOptions
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import fields

HERE, OTHERS = (
    Capacity(machines=frozenset([platform.node()])),
    Capacity(machines=frozenset(["a", "b", platform.node()])),
)


def asked(executor: str, device: str = "cpu", **typed):
    problems: list[str] = []
    return asked_resources(executor, ClusterOptions(**typed), device, problems), problems


def test_what_is_typed_becomes_numbers():
    resources, problems = asked("ray", address="local", cpus_per_run="2", gpus_per_run="0.125", memory="4GiB")
    assert problems == []
    assert (resources.cpus, resources.gpus, resources.memory, resources.in_turns) == (2, 0.125, 4 * 2**30, 8)
    assert asked("ray", address="local", memory="1.5 GB")[0].memory == 1_500_000_000
    assert asked("ray", "cuda", address="local")[0].in_turns == 8 and asked("ray", address="local")[0].in_turns == 1


@pytest.mark.parametrize("gpus", ["1.5", "-1", "nan", "a"])
@pytest.mark.parametrize("memory", ["4", "4XB", "GiB", "-1GiB"])
def test_all_that_is_wrong_is_named_at_once(gpus, memory):
    _, problems = asked("ray", "cuda:1", address="nowhere", cpus_per_run="1.5", gpus_per_run=gpus, memory=memory)
    named = [problem.partition(":")[0] for problem in problems]
    assert named == ["cpus_per_run", "gpus_per_run", "memory", "device", "address"]


def test_a_cluster_for_an_executor_of_this_machine_is_named():
    for executor in ("", "local", "side_by_side"):
        _, problems = asked(executor, address="head:6379", cpus_per_run=2, memory="1GiB")
        assert [problem.partition(":")[0] for problem in problems] == ["address", "memory", "cpus_per_run"]
        assert asked(executor)[1] == []


@pytest.mark.parametrize("executor", ["ray", "submitit"])
def test_what_is_not_installed_is_reported_with_how_to_install_it(executor, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (problem,) = asked(executor, address="local")[1]
    assert problem.startswith("executor: ") and f"fa_registry[{executor}]" in problem


def test_an_address_that_does_not_answer_is_reported_before_ray_is_asked():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for address in (f"127.0.0.1:{port}", "ray://head:10001", "head", "head:99999999", "::1"):
        (problem,) = asked("ray", address=address)[1]
        assert problem.startswith("address: "), address


@pytest.mark.parametrize("text", [b"HTTP/1.1 505", b""])
def test_another_server_than_rays_is_named(text):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(text)

        thread = threading.Thread(target=serve)
        thread.start()
        (problem,) = asked("ray", address=f"127.0.0.1:{server.getsockname()[1]}")[1]
        thread.join()
    assert problem.startswith("address: ")


def test_submitit_knows_slurm_and_this_machine(monkeypatch, tmp_path):
    assert "no command sbatch" in asked("submitit")[1][0] and asked("submitit", address="local")[1] == []
    (problem,) = asked("submitit", address="head:6379")[1]
    assert problem.startswith("address: ")
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asked("submitit")[1] == []


def test_an_sqlite_store_is_for_the_machine_that_it_lies_on(tmp_path):
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    check_reach(store, Capacity())
    check_reach(store, HERE)
    with pytest.raises(StoreError, match="a, b"):
        check_reach(store, OTHERS)
    check_reach("http://registry:5000", OTHERS)


@pytest.mark.parametrize(
    "store", ["http://ann:s3cret@registry:5000", "postgresql://ann:s3cret@db/x", "postgresql://db/x?password=s3cret"]
)
def test_a_password_in_the_address_is_not_handed_on(store):
    check_reach(store, Capacity())
    for room in (HERE, OTHERS):
        with pytest.raises(StoreError) as refused:
            check_reach(store, room)
        assert "s3cret" not in str(refused.value) and "PGPASSFILE" in str(refused.value)


def test_an_audit_is_measured_by_the_executor_that_was_asked_for(trained):
    """By one that hands its jobs to other processes; by Ray: tests/stress/test_cluster.py."""
    result = trained("audit", "--study", "tiny", "--device", "cpu", "--executor", "local", "--jobs", "1", "--json")
    report = json.loads(result.stdout)["report"]
    assert {run["record"]["integrity"]["state"] for run in report["runs"]} == {"verified"} and len(report["runs"]) == 4


def test_the_command_line_refuses_before_anything_is_written(registry):
    result = registry("study", "tiny", "--executor", "ray", "--address", "127.0.0.1:1", "--gpus-per-run", "2")
    assert sorted(fields(result)) == ["address", "gpus_per_run"] and not MlflowTracker().search({})
    assert fields(registry("audit", "--study", "tiny", "--executor", "submitit", "--address", "there")) == ["address"]
