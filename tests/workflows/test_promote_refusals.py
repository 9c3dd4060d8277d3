"""What is not promoted, and what promote says then. Nothing is written in any of these cases."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from fa_registry import jsonio
from fa_registry.cli import main
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.workflows import evidence
from tests.workflows.promotion import spoilt, tagged

BY_2026_11 = ("--edition", "2026-11")


def test_a_fail_without_a_reason(judged):
    words = judged.refused(judged.run())
    assert "is FAIL(D3) by edition 2026-05 and is not promoted" in words and '--despite "reason"' in words
    assert (
        words.count("\n  - ") == 1
        and "- D3 depth utility: required at least 2 pp above the reference, observed" in words
    )


def test_a_reason_where_none_is_needed(judged):
    words = judged.refused(judged.run(), *BY_2026_11, "--despite", "to be sure")
    assert "is WARN(D3 provisional): there is nothing to promote it despite of" in words


def test_everything_wrong_that_was_typed_is_named_at_once(judged):
    typed = ("--name", "a/b", "--alias", "v3", "--alias", "Latest", "--alias", "a b", "--despite", " ")
    words = judged.refused(judged.run(), *typed)
    assert "promote: 5 problems" in words
    assert "name: expected" in words and "found 'a/b'" in words
    assert all(f"found {alias!r}" in words for alias in ("v3", "Latest", "a b"))
    assert "despite: expected a reason, found none" in words


@pytest.mark.parametrize("name", ["it's", "x:y", "a\nb", " x", "x" * 201])
def test_a_name_that_mlflow_could_not_find_again(judged, name):
    assert "promote: 1 problem\n  - name: expected" in judged.refused(judged.run(), *BY_2026_11, "--name", name)


def test_a_reason_too_long_for_a_description(judged):
    assert "at most 1000 characters, found 1001" in judged.refused(judged.run(), "--despite", "x" * 1001)


@pytest.mark.parametrize("alias", ["pass", "Pass", "fail"])
def test_an_alias_that_names_another_verdict(judged, alias):
    words = judged.refused(judged.run(), *BY_2026_11, "--alias", alias)
    assert f"alias: {alias!r} is a verdict, and this run is WARN(D3 provisional)" in words


@pytest.mark.parametrize("status", ["running", "failed", schema.STOPPED_EARLY])
def test_a_run_that_did_not_end(judged, status):
    with tagged(judged, judged.run(), fa_status=status) as run:
        words = judged.refused(run, *BY_2026_11)
    assert f"fa.status: expected complete or diverged, found {status}" in words


def test_the_run_of_a_study(judged):
    (study,) = judged.tracker.search({schema.TAG_KIND: "study"})
    assert "is no training run" in judged.refused(study)


def test_a_run_that_is_not_there(judged):
    result = CliRunner().invoke(main, ["promote", "0123abcd", "--store", judged.store])
    assert result.exit_code == 2 and "0 runs begin so" in result.stderr


def test_a_run_that_was_never_audited(judged):
    with tagged(judged, judged.run(), fa_report="") as run:
        words = judged.refused(run, *BY_2026_11)
    assert "was never audited; judge it first: `fa-registry audit --study tiny --edition 2026-11`" in words


def test_a_run_that_another_edition_judged(judged):
    words = judged.refused(judged.run(), "--edition", "2026-04")
    assert "expected a verdict by edition 2026-04" in words
    assert "judged by 2026-05 " in words and "2026-11 " in words
    assert "`fa-registry audit --study tiny --edition 2026-04`" in words


def test_an_edition_that_does_not_exist(judged):
    assert "did you mean '2026-11'?" in judged.refused(judged.run(), "--edition", "2026-1")


def test_an_edition_with_changed_thresholds_decides_nothing(judged, tmp_path):
    """Else `--threshold D3=-100` would make a PASS of anything."""
    run = judged.run("frozen")
    command = ["audit", "--run", run.run_id, "--edition", "2026-05", "--threshold", "D1=100", "--out", str(tmp_path)]
    CliRunner().invoke(main, [*command, "--store", judged.store], catch_exceptions=False)
    modified = judged.run("frozen").tags[schema.TAG_REPORT]
    with tagged(judged, judged.run(), fa_report=modified) as dfa:
        assert "which did not judge it" in judged.refused(dfa, code=3)
    words = judged.refused(judged.run("frozen"))
    assert "expected a verdict by edition as published, its newest audit judged by 2026-05" in words
    assert " modified; judge it first" in words


def test_weights_that_were_changed(judged):
    run = judged.run()
    path = judged.artifact(run, schema.FINAL)
    with spoilt(path, path.read_bytes() + b" "):
        assert "final.safetensors: expected SHA-256" in judged.refused(run, *BY_2026_11, code=3)
    with spoilt(path, None):
        assert "missing" in judged.refused(run, *BY_2026_11, code=3)


def test_a_feedback_that_was_lost_or_changed(judged):
    run = judged.run()
    path = judged.artifact(run, schema.FEEDBACK)
    with spoilt(path, path.read_bytes()):
        save_tensors(path, {name: -value for name, value in load_tensors(path).items()})
        assert "state.safetensors: expected SHA-256" in judged.refused(run, *BY_2026_11, code=3)
    with spoilt(path, None):
        assert f"{schema.FEEDBACK} missing" in judged.refused(run, *BY_2026_11, code=3)


def test_a_changed_file_where_nothing_can_be_measured_again(judged, monkeypatch):
    """A GPU's run on a machine without one: its figures must be believed, its files need not."""
    monkeypatch.setattr(evidence, "obstacle", lambda spec: "there is no GPU here")
    run = judged.run()
    path = judged.artifact(run, schema.FINAL)
    with spoilt(path, path.read_bytes() + b" "):
        assert "final.safetensors: expected SHA-256" in judged.refused(run, *BY_2026_11, code=3)
    judged.promoted(run, *BY_2026_11, "--name", "unverifiable")
    assert judged.registry.find("models:/unverifiable/1").tags["fa.integrity"] == "unverifiable"


def test_figures_that_do_not_come_out_again(judged, monkeypatch):
    genuine = evidence.remeasure

    def other(spec, checkpoint, feedback, digests, *more):
        return genuine(
            spec, judged.artifact(judged.run(), schema.INITIAL), feedback, {**digests, "checkpoint": None}, *more
        )

    monkeypatch.setattr(evidence, "remeasure", other)
    words = judged.refused(judged.run(), *BY_2026_11, code=3)
    assert "logged " in words and "recomputed " in words


def test_an_audit_whose_report_was_changed(judged):
    run = judged.run()
    report = judged.tracker.artifact(run.tags[schema.TAG_REPORT], "audit.json")
    forged = report.read_text(encoding="utf-8").replace('"outcome": "fail"', '"outcome": "pass"')
    assert forged != report.read_text(encoding="utf-8")
    with spoilt(report, forged.encode()):
        assert "expected a report with digest" in judged.refused(run, code=3)
    with spoilt(report, None):
        expected = "audit.json is missing; audit again: `fa-registry audit --study tiny`"
        assert expected in judged.refused(run, code=3)


def test_an_audit_of_other_files(judged):
    """Sealed anew after the audit: the run holds together, but it is not what was judged."""
    run = judged.run()
    proof = judged.artifact(run, schema.PROVENANCE)
    content = json.loads(proof.read_text())
    content["digests"]["extra"] = "0"
    text = json.dumps(content)
    with spoilt(proof, text.encode()):
        sealed = jsonio.digest_of({**content["digests"], schema.PROVENANCE: jsonio.file_digest(proof)})
        with tagged(judged, run, fa_artifacts=sealed) as changed:
            assert "judged other files than it has now; judge it again" in judged.refused(changed, *BY_2026_11)


def test_a_store_without_a_model_registry(judged, monkeypatch):
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "gopher://nowhere")
    result = judged.promote(judged.run(), *BY_2026_11)
    assert result.exit_code == 2 and "its model registry refuses" in result.stderr


def test_help_shows_examples(judged):
    words = CliRunner().invoke(main, ["promote", "--help"]).stdout
    assert "Examples:" in words and "fa-registry promote 4f1c… --alias champion" in words
