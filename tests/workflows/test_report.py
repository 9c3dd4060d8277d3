"""The report verb: pages of a file, or of what the store keeps of a study's newest audit; the same bytes either way."""

from __future__ import annotations

from pathlib import Path

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker


def pages(folder):
    return {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_a_studys_newest_audit_is_rendered_from_the_store(trained):
    assert trained("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--exit-zero").exit_code == 0
    newest = ("--threshold", "D1=1.001", "--out", "newest")
    assert (
        trained("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--exit-zero", *newest).exit_code == 0
    )
    result = trained("report", "--study", "tiny", "--out", "again")
    assert result.exit_code == 0, result.output
    assert pages("again") == pages("newest") != pages("reports")


def test_a_study_that_was_never_audited_says_what_to_do(trained):
    result = trained("report", "--study", "tiny")
    assert result.exit_code == 2
    assert (
        "study tiny: no audit of it in" in result.stderr
        and "`fa-registry audit --study tiny` makes one" in result.stderr
    )


def test_a_file_and_a_study_are_one_too_many_and_a_missing_file_is_named(trained):
    assert "one of REPORT or --study; found both" in trained("report", "a.json", "--study", "tiny").stderr
    missing = trained("report")
    assert missing.exit_code == 2 and "reports/audit.json: no such file" in missing.stderr


def test_a_report_that_was_changed_in_the_store_is_refused(trained):
    trained("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--exit-zero")
    tracker = MlflowTracker()
    (audit,) = tracker.search({schema.TAG_KIND: "audit"})
    path = tracker.artifact(audit.run_id, "audit.json")
    path.write_text(
        path.read_text(encoding="utf-8").replace("Audit of study tiny", "Audit of nothing"), encoding="utf-8"
    )
    result = trained("report", "--study", "tiny")
    assert result.exit_code == 3 and "expected a report with digest" in result.stderr


def test_an_audit_whose_report_is_gone_says_what_to_do(trained):
    trained("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--exit-zero")
    tracker = MlflowTracker()
    (audit,) = tracker.search({schema.TAG_KIND: "audit"})
    tracker.artifact(audit.run_id, "audit.json").unlink()
    result = trained("report", "--study", "tiny")
    assert result.exit_code == 3 and "audit again: `fa-registry audit --study tiny`" in result.stderr
