"""What an audit leaves in the store: on its own run, on every audited run, and on the study's."""

from __future__ import annotations

import json

import pytest

from fa_registry.tracking import schema
from fa_registry.tracking.base import Point
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from fa_registry.workflows.audit import RULE
from tests.builders import verdict_tag
from tests.workflows.test_audit import spoil

AUDIT = ("audit", "--study", "tiny", "--trust-logged")


@pytest.fixture
def audited(trained):
    """audited(…) → audits the tiny study with these options; returns what --json printed."""

    def call(*more: str):
        result = trained(*AUDIT, "--json", *more)
        assert result.stdout, result.output
        return json.loads(result.stdout)

    return call


def run_of(method):
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run", "fa.method": method})
    return run


def test_every_run_has_the_leading_editions_verdict_as_a_column(audited):
    printed = audited("--editions", "2026-05,2026-11")
    for run in printed["report"]["runs"]:
        stored = MlflowTracker().get(run["record"]["run_id"])
        assert stored.tags[schema.TAG_VERDICT] == run["verdict"]["label"] == stored.tags[verdict_tag("2026-05")]


def test_a_verdict_by_other_thresholds_says_so(audited):
    audited("--threshold", "D1.threshold=1")
    assert run_of("dfa").tags[schema.TAG_VERDICT].endswith(" (modified edition)")


def test_the_margin_is_a_metric_of_the_last_epoch(audited):
    audited()
    tracker = MlflowTracker()
    accuracy = {
        method: read_record(tracker, run_of(method)).measurements.scalars["accuracy"].value
        for method in ("dfa", "frozen")
    }
    (point,) = tracker._client.get_metric_history(run_of("dfa").run_id, schema.MARGIN)
    assert point.step == 2 and point.value == pytest.approx(100 * (accuracy["dfa"] - accuracy["frozen"]))
    assert tracker._client.get_metric_history(run_of("frozen").run_id, schema.MARGIN) == []


def test_a_margin_that_an_audit_before_found_is_not_written_again(audited):
    audited()
    audited()
    tracker, run = MlflowTracker(), run_of("dfa")
    (point,) = tracker._client.get_metric_history(run.run_id, schema.MARGIN)
    tracker.log(run.run_id, [Point(schema.MARGIN, point.value + 1, point.step)])
    audited()
    assert run_of("dfa").metrics[schema.MARGIN] == point.value
    assert len(tracker._client.get_metric_history(run.run_id, schema.MARGIN)) == 3


def test_a_runs_note_leads_to_its_form_and_to_the_whole_audit(audited):
    audit_id = audited()["audit_run_id"]
    tracker, run = MlflowTracker(), run_of("dfa")
    first = run.tags[schema.TAG_NOTE].splitlines()[0]
    assert first == (
        f"**{run.tags[schema.TAG_VERDICT]}** · [The reporting form]({tracker.link(run.run_id, schema.FORM)})"
        f" · [The whole audit]({tracker.link(audit_id, 'index.html')})"
    )
    control = run_of("frozen")
    assert "The reporting form" not in control.tags[schema.TAG_NOTE]
    assert tracker.artifact(control.run_id, schema.FORM) is None


def test_the_form_lies_beside_the_run_and_breaks_no_seal(audited, trained):
    audited()
    tracker, run = MlflowTracker(), run_of("dfa")
    form = tracker.artifact(run.run_id, schema.FORM).read_text(encoding="utf-8")
    assert "<h1>dfa" in form and "../index.html" not in form
    assert read_record(tracker, run).run_id == run.run_id
    assert trained("verify", "--run", run.run_id).exit_code == 0
    assert trained("verify", "reports/audit.json").exit_code == 0


def test_a_later_audit_replaces_the_form_and_the_note(audited):
    first = audited()["audit_run_id"]
    second = audited("--threshold", "D1.threshold=1")["audit_run_id"]
    run = run_of("dfa")
    assert run.tags[schema.TAG_REPORT] == second and first not in run.tags[schema.TAG_NOTE]
    form = MlflowTracker().artifact(run.run_id, schema.FORM).read_text(encoding="utf-8")
    assert "modified" in form


def test_the_studys_note_says_what_was_found_above_what_it_asks(audited):
    tracker = MlflowTracker()
    (study,) = tracker.search({schema.TAG_KIND: "study"})
    asks = study.tags[schema.TAG_NOTE]
    assert asks.startswith("**Three methods, one seed**")
    audited()
    again = audited()["audit_run_id"]
    (study,) = tracker.search({schema.TAG_KIND: "study"})
    found, below = study.tags[schema.TAG_NOTE].split(RULE)
    assert below == asks and study.tags[schema.TAG_REPORT] == again
    assert found == tracker.get(again).tags[schema.TAG_NOTE].rstrip()
    assert "FAIL**" in found and tracker.link(again, "index.html") in found
    assert study.state == "FINISHED"


def test_an_audit_of_single_runs_leaves_the_studys_note_alone(trained):
    (before,) = MlflowTracker().search({schema.TAG_KIND: "study"})
    trained("audit", "--run", run_of("dfa").run_id, "--trust-logged")
    (after,) = MlflowTracker().search({schema.TAG_KIND: "study"})
    assert after.tags == before.tags


def test_a_run_whose_file_was_changed_loses_the_verdicts_of_older_audits(audited):
    audited("--editions", "2026-05,2026-11")
    before = run_of("fa").tags
    assert before[schema.TAG_VERDICT] and "NOT JUDGED" not in before[schema.TAG_VERDICT]
    spoil("fa", schema.FEEDBACK, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!"))
    audited("--editions", "2026-05")
    after = run_of("fa").tags
    verdicts = {name: value for name, value in after.items() if name.startswith(schema.TAG_VERDICT)}
    assert set(verdicts) == {schema.TAG_VERDICT, verdict_tag("2026-05"), verdict_tag("2026-11")}
    assert set(verdicts.values()) == {"NOT JUDGED (integrity failure)"}
    assert (
        after[schema.TAG_NOTE].startswith("**NOT JUDGED (integrity failure)**") and "SHA-256" in after[schema.TAG_NOTE]
    )
    assert "NOT JUDGED" not in run_of("dfa").tags[schema.TAG_VERDICT]


@pytest.mark.parametrize("status, told", [("running", False), ("failed", True), (schema.STOPPED_EARLY, True)])
def test_a_run_that_may_still_be_at_work_is_left_alone(audited, status, told):
    """Whoever trains it writes its tags and its note."""
    run_id = run_of("fa").run_id
    MlflowTracker().log(run_id, tags={schema.TAG_STATUS: status, schema.TAG_NOTE: "at work"})
    MlflowTracker()._client.delete_tag(run_id, schema.TAG_ARTIFACTS)  # a run at work has sealed nothing
    audited()
    tags = run_of("fa").tags
    assert tags[schema.TAG_STATUS] == status
    assert (tags[schema.TAG_NOTE] != "at work") == (schema.TAG_VERDICT in tags) == told
