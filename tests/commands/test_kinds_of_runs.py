"""Commands that take the id of a run, where the id is that of an audit, of a study or of another program."""

from __future__ import annotations

import pytest

import fa_registry
from fa_registry.errors import IntegrityError, UsageError
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import training_run

pytestmark = pytest.mark.long


@pytest.fixture
def run_ids(audited_copy) -> dict[str, str]:
    """One run of each kind that is no training run → its id."""
    tracker = MlflowTracker(make=False)
    found = {kind: tracker.search({schema.TAG_KIND: kind})[0].run_id for kind in ("audit", "study")}
    launched = tracker.create("mlflow run: list", {schema.TAG_KIND: schema.LAUNCH}, {})
    return {**found, "launch": launched, "other": tracker.create("of another program", {}, {})}


COMMANDS = (
    ("show", "ID"),
    ("verify", "--run", "ID"),
    ("audit", "--run", "ID"),
    ("compare", "ID", "dfa"),
    ("promote", "ID"),
    ("analyse", "ladder", "--run", "ID"),
)


def test_each_command_reports_the_kind_and_no_integrity_failure(audited_copy, run_ids):
    for kind, run_id in run_ids.items():
        for command in COMMANDS:
            for given in (run_id, run_id[:12]):
                result = audited_copy(*(given if word == "ID" else word for word in command))
                assert result.exit_code == UsageError.exit_code, (kind, command, result.output)
                assert f"run {run_id} (" in result.stderr and "integrity" not in result.stderr, (kind, command)
        with pytest.raises(UsageError, match=run_id):
            fa_registry.series(run_id)


def test_the_commands_for_the_kind_are_named(audited_copy, run_ids):
    assert "report --study tiny" in audited_copy("show", run_ids["audit"]).stderr
    assert "list runs --study tiny" in audited_copy("show", run_ids["study"]).stderr


def test_a_training_run_whose_kind_was_edited_is_still_judged(audited_copy):
    """Else an author could hide a run whose files are missing."""
    tracker = MlflowTracker(make=False)
    run = tracker.search({schema.TAG_KIND: "run"})[0]
    tracker.log(run.run_id, tags={schema.TAG_KIND: "audit"})
    assert training_run(tracker, run.run_id).run_id == run.run_id
    for name in (schema.SPEC, schema.MEASUREMENTS, schema.PROVENANCE, schema.SERIES):
        tracker.remove(run.run_id, name)
    assert audited_copy("show", run.run_id).exit_code == IntegrityError.exit_code


def test_a_bundle_that_does_not_exist_is_no_integrity_failure(registry):
    assert registry("import", "none.fa.zip").exit_code == UsageError.exit_code
