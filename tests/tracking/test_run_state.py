"""What RunState says of a stored run, from MLflow's state and the run's tags."""

from __future__ import annotations

import pytest

from fa_registry import process_ownership
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.run_state import HeartbeatMonitor, RunState
from tests.helpers.dead_process import killed_tag


def of(state: str, status: str = "", process: str = "") -> RunState:
    tags = {schema.TAG_STATUS: status} if status else {}
    return RunState(StoredRun("a" * 32, "run", "e", state, 0, tags | {schema.TAG_PROCESS: process}))


@pytest.mark.parametrize(
    ("state", "status", "true"),
    [
        ("RUNNING", "running", {"is_running", "is_marked_running"}),
        ("RUNNING", "", {"is_running", "is_marked_running"}),  # a run that another program began
        ("FAILED", "running", {"is_marked_running"}),  # `mlflow run` ended the run of a killed process
        ("RUNNING", "complete", {"is_running", "is_marked_running", "is_finished", "has_results"}),  # killed at its end
        ("FINISHED", "complete", {"is_finished", "has_results"}),
        ("FINISHED", "diverged", {"is_finished", "has_results"}),
        ("FINISHED", "stopped_early", {"has_results"}),
        ("FINISHED", "", set()),
        ("KILLED", "interrupted", set()),
        ("FAILED", "failed", set()),
    ],
)
def test_what_a_run_is_follows_from_its_state_and_its_status(state, status, true):
    run = of(state, status)
    assert run.status == status
    names = ("is_running", "is_marked_running", "is_finished", "has_results")
    assert {name for name in names if getattr(run, name)} == true


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_a_run_is_abandoned_if_it_is_marked_running_and_its_process_is_dead(state):
    dead, here = killed_tag(), process_ownership.process_tag()
    for status, process, expected in (
        ("running", dead, True),
        ("running", here, False),
        ("running", "elsewhere:1:2:3", False),
        ("complete", dead, state == "RUNNING"),
    ):
        assert of(state, status, process).is_abandoned(HeartbeatMonitor()) is expected
    assert of(state, "running", "elsewhere:1:2:3").host == "elsewhere" and of(state).host == ""
