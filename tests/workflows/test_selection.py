"""Choosing runs: exactly one way, ids by their beginning, and what is not finished is shown, never dropped."""

from __future__ import annotations

import pytest

from fa_registry.errors import NothingSelected, UsageError
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.workflows.requests import Chosen
from fa_registry.workflows.selection import select, whole_id
from tests.workflows.test_audit import run_of


@pytest.mark.parametrize("given", [{}, {"study": "tiny", "experiment": "x"}, {"experiment": "x", "run_ids": ["a"]}])
def test_runs_are_chosen_in_one_way(given):
    with pytest.raises(UsageError, match="choose runs by one of --study, --experiment or --run; found"):
        select(None, Chosen(**given))


def test_a_run_is_found_by_the_beginning_of_its_id_and_never_guessed(trained):
    tracker, run = MlflowTracker(), run_of("dfa")
    assert whole_id(tracker, run.run_id[:8]) == run.run_id
    with pytest.raises(UsageError, match="runs begin so"):
        whole_id(tracker, "")


def test_what_is_not_finished_is_excluded_with_its_status_and_nothing_else_is_an_error(trained):
    tracker, run = MlflowTracker(), run_of("dfa")
    tracker.log(run.run_id, tags={schema.TAG_STATUS: "running"})
    found = select(tracker, Chosen(run_ids=(run.run_id, run_of("bp").run_id)))
    assert [one.run_id for one in found.runs] == [run_of("bp").run_id]
    assert [(one.run_id, one.reason) for one in found.excluded] == [
        (run.run_id, "integrity failure: tag fa.status is 'running', its sealed files say complete")
    ]
    with pytest.raises(NothingSelected, match="fa.status is 'running', its sealed files say complete"):
        select(tracker, Chosen(run_ids=(run.run_id,)))
