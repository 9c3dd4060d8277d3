"""verify: of runs, and of an old report against the store as it is now."""

from __future__ import annotations

import json

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.test_audit import AUDIT, run_of, spoil

VERIFY = ("verify", "--study", "tiny", "--device", "cpu", "--json")


def states(result):
    runs = [one for one in json.loads(result.stdout) if one["run_id"]]
    return {one["name"].split(" ")[0]: one["integrity"]["state"] for one in runs}


def test_untouched_runs_are_verified_bit_equal(trained):
    result = trained(*VERIFY)
    assert result.exit_code == 0
    assert states(result) == dict.fromkeys(["bp", "fa", "dfa", "frozen"], "verified")
    assert all("bit-equal" in one["integrity"]["details"][0] for one in json.loads(result.stdout))


def test_a_changed_checkpoint_is_a_mismatch_of_that_run_alone(trained):
    spoil("fa", schema.FINAL, lambda path: path.write_bytes(path.read_bytes() + b" "))
    result = trained(*VERIFY)
    assert result.exit_code == 3
    assert states(result) == {"bp": "verified", "fa": "mismatch", "dfa": "verified", "frozen": "verified"}


def test_a_lost_feedback_is_unverifiable(trained):
    spoil("fa", schema.FEEDBACK, lambda path: path.unlink())
    assert states(trained(*VERIFY))["fa"] == "unverifiable"


def test_an_old_report_stands_until_an_artifact_changes(trained):
    trained(*AUDIT)
    assert trained("verify", "reports/audit.json").exit_code == 0
    spoil("dfa", schema.SERIES, lambda path: path.write_bytes(path.read_bytes() + b" "))
    result = trained("verify", "reports/audit.json", "--json")
    assert result.exit_code == 3
    assert states(result) == {"bp": "verified", "fa": "verified", "dfa": "mismatch", "frozen": "verified"}


def test_a_report_whose_run_is_gone_is_unverifiable(trained, workplace):
    trained(*AUDIT)
    path = workplace / "reports" / "audit.json"
    path.write_text(path.read_text().replace(run_of("bp").run_id, "0" * 32))
    assert states(trained("verify", "reports/audit.json", "--json"))["bp"] == "unverifiable"


def test_what_is_no_report_is_told_so(registry, workplace):
    (workplace / "notes.json").write_text('{"title": "notes"}')
    result = registry("verify", "notes.json")
    assert result.exit_code == 2 and "edition: missing" in result.stderr
    assert registry("verify", "none.json").exit_code == 2
    assert MlflowTracker().search({}) == []
