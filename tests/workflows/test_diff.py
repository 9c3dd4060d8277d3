"""The diff verb: two audits of real small runs, and what is no audit."""

from __future__ import annotations

import json

import pytest

from fa_registry.records import SCHEMA

AUDIT = ("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--exit-zero")


def test_the_same_runs_audited_twice_are_identical(trained):
    for folder in ("a", "b"):
        assert trained(*AUDIT, "--out", folder).exit_code == 0
    result = trained("diff", "a", "b/audit.json")
    assert result.exit_code == 0 and "identical: 4 runs" in result.output
    assert json.loads(trained("diff", "a", "b", "--json").stdout)["same"]


def test_another_threshold_is_exit_1_and_names_rule_run_and_figure(trained):
    trained(*AUDIT, "--out", "a")
    trained(*AUDIT, "--threshold", "D1=1.0001", "--out", "b")
    result = trained("diff", "a", "b")
    assert result.exit_code == 1
    for words in ("edition override D1.threshold", "By rule", "Findings judged otherwise", "EXPLODED", "different:"):
        assert words in result.output
    found = json.loads(trained("diff", "a", "b", "--json").stdout)
    assert found["rules"][0]["rule"] == "D1" and found["rules"][0]["moved"] and found["schema"] == SCHEMA


def test_a_study_trained_again_is_matched_by_specification(trained):
    trained(*AUDIT, "--out", "a")
    assert trained("study", "tiny", "--jobs", "1", "--device", "cpu", "--force").exit_code == 0
    trained(*AUDIT, "--out", "b")
    found = json.loads(trained("diff", "a", "b", "--json").stdout)
    assert found["trained_again"] == found["matched"] > 0 and not (found["only_a"] or found["only_b"])
    assert not any(run["figures"] or run["findings"] for run in found["runs"])


BAD = {
    "text": ("not json", "cannot be read as JSON"),
    "nan": ('{"title": NaN}', "NaN is no number"),
    "list": ("[]", "expected an object, found list"),
    "other": ('{"title": "notes"}', "edition: missing"),
    "older": (f'{{"schema": {SCHEMA - 1}}}', "an older release wrote it: audit its runs again"),
    "newer": (f'{{"schema": {SCHEMA + 1}}}', "a newer release wrote it: update fa_registry"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_audit_of_this_schema_is_refused(kind, registry, workplace):
    text, words = BAD[kind]
    (workplace / "bad.json").write_text(text)
    result = registry("diff", "bad.json", "bad.json")
    assert result.exit_code == 2 and "AUDIT_A" in result.stderr and "AUDIT_B" in result.stderr
    assert words in result.stderr


def test_bytes_that_are_no_text_and_missing_files_are_named_together(registry, workplace):
    (workplace / "bytes.json").write_bytes(b"\xff\xfe\x00")
    result = registry("diff", "bytes.json", "nowhere")
    assert result.exit_code == 2 and "2 problems" in result.stderr
    assert "AUDIT_A bytes.json: file: cannot be read as JSON" in result.stderr
    assert "AUDIT_B: expected an audit.json or the folder of one, found no file nowhere" in result.stderr


def test_a_file_without_its_schema_is_no_audit(trained, workplace):
    trained(*AUDIT, "--out", "a")
    text = (workplace / "a" / "audit.json").read_text(encoding="utf-8")
    (workplace / "bare.json").write_text(text.replace(f',\n"schema": {SCHEMA}', ""), encoding="utf-8")
    result = trained("diff", "a", "bare.json")
    assert result.exit_code == 2 and f"schema: expected {SCHEMA}, found nothing" in result.stderr
