"""promote: a judged run becomes a version of a registered model that says what was judged, and loads as what was trained."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from click.testing import CliRunner
from markdown_it import MarkdownIt
from mlflow import MlflowClient

import fa_registry
from fa_registry import jsonio, process_ownership
from fa_registry.cli import main
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.protocol.builtin_editions import digests
from fa_registry.protocol.rules import load_edition
from fa_registry.records import EditionReference, Finding, Integrity, Reading, RunSpec, Verdict
from fa_registry.tracking import models, schema
from fa_registry.tracking.base import StoredRun
from fa_registry.training import model_folder
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.model_folder import ModelCard, Opinion, PromotionOverride
from fa_registry.training.run_setup import build_setup
from fa_registry.workflows import promote, remeasure
from fa_registry.workflows.promote import (
    MAX_REASON,
    check_text,
    model_card_text,
    model_name,
    verdict_alias,
)
from tests.builders import verdict_tag
from tests.helpers.tiny_tasks import weights_equal
from tests.workflows.conftest import long
from tests.workflows.promotion import spoilt, tagged

BY_2026_11 = ("--edition", "2026-11")
REASON = "the negative control of a <b>tutorial</b>"


def files_of(judged, promoted):
    return judged.registry.files(judged.registry.find(promoted["reference"]))


def card_of(judged, promoted):
    return json.loads((files_of(judged, promoted) / model_folder.CARD).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def promoted(judged):
    """What promoting the run with the warning printed; tests only read the version."""
    return judged.promoted(judged.run(), *BY_2026_11, "--name", "says")


def test_a_version_says_what_was_judged(judged, promoted):
    run = judged.run()
    version = judged.registry.find("models:/says@warn")
    assert (promoted["promoted"], promoted["reference"], promoted["aliases"]) == (True, "models:/says/1", ["warn"])
    assert version.run_id == run.run_id
    assert (
        version.tags.items()
        >= {
            schema.TAG_VERDICT: "WARN(D3 provisional)",
            verdict_tag("2026-11"): "WARN(D3 provisional)",
            verdict_tag("2026-05"): "FAIL(D3)",
            models.TAG_EDITION: f"2026-11, sha256 {digests()['2026-11']}",
            models.TAG_RUN: run.run_id,
            schema.TAG_SPEC: run.tags[schema.TAG_SPEC],
            models.TAG_METHOD: "dfa",
            schema.TAG_SETTING: run.tags[schema.TAG_SETTING],
            models.TAG_WEIGHTS: jsonio.file_digest(judged.artifact(run, schema.FINAL)),
            models.TAG_FEEDBACK: jsonio.file_digest(judged.artifact(run, schema.FEEDBACK)),
        }.items()
    )
    assert models.TAG_DESPITE not in version.tags and models.TAG_CONTROL not in version.tags


def test_the_card_holds_every_findings_sentence_and_the_logged_accuracy(judged, promoted):
    run = judged.run()
    card, text = card_of(judged, promoted), (files_of(judged, promoted) / model_folder.CARD_TEXT).read_text("utf-8")
    measured = json.loads(judged.artifact(run, schema.MEASUREMENTS).read_text())
    assert card["accuracy"] == measured["scalars"]["accuracy"]
    assert [opinion["edition"]["name"] for opinion in card["opinions"]] == ["2026-11", "2026-05"]
    assert len(card["opinions"][0]["findings"]) > len(card["opinions"][1]["findings"]) > 2
    assert text.count("D3 depth utility: required at least 2 pp above the frozen control") == 2
    by = f"edition 2026-11, sha256 {digests()['2026-11'][:8]}"
    assert text.startswith(f"**WARN(D3 provisional)** by {by} · dfa · resmlp-16x2 · digits · 1 epochs\n")
    assert "Other editions: FAIL(D3) by 2026-05" in text
    assert "every recomputed metric agrees, bit-equal" in text and "@inproceedings{nokland2016direct" in text


def test_its_files_are_tensors_and_text_and_no_flavour_of_mlflows(judged, promoted):
    files = files_of(judged, promoted)
    names = (model_folder.CARD, model_folder.CARD_TEXT, model_folder.NETWORK, model_folder.FEEDBACK, model_folder.SPEC)
    assert {path.name for path in files.iterdir()} == set(names)


def test_what_is_loaded_is_what_was_trained(judged, promoted):
    run = judged.run()
    spec = jsonio.decode(RunSpec, json.loads(judged.artifact(run, schema.SPEC).read_text()))
    task = build_setup(spec, torch.device("cpu"))
    task.network.load_state_dict(load_tensors(judged.artifact(run, schema.FINAL)))
    for reference in (promoted["reference"], "models:/says@warn", files_of(judged, promoted)):
        loaded = fa_registry.load_model(reference, judged.store)
        images = task.splits.test_images
        assert torch.equal(loaded.network(images), task.network.eval()(images))
        assert not loaded.network.training
        assert weights_equal(loaded.feedback, task.feedback) and weights_equal(loaded.network, task.network)
        assert loaded.spec.identity == run.tags[schema.TAG_SPEC] and loaded.method is task.method


def test_the_run_is_still_verified(drawn, judged, promoted):
    run = judged.run()
    result = CliRunner().invoke(main, ["verify", "--run", run.run_id, "--store", judged.store, "--json"])
    assert result.exit_code == 0
    assert {one["integrity"]["state"] for one in json.loads(result.stdout)} == {"verified"}
    assert judged.tracker.get(run.run_id).state == "FINISHED"


def test_twice_is_one_version_and_no_alias_moves(judged):
    dfa, other = judged.run(), judged.run("frozen")
    first = judged.promoted(dfa, *BY_2026_11, "--name", "twice")
    again = judged.promoted(dfa, *BY_2026_11, "--name", "twice")
    assert (again["promoted"], again["version"], again["aliases"]) == (False, "1", [])
    assert first["verdict"] == again["verdict"]
    judged.promoted(other, "--name", "twice")
    judged.promoted(dfa, *BY_2026_11, "--name", "twice")
    assert len(judged.registry.versions("twice")) == 2
    assert "already promoted with this verdict" in judged.promote(dfa, *BY_2026_11, "--name", "twice").stdout


def test_a_promotion_that_was_killed_before_its_alias_gets_it_the_next_time(judged):
    first = judged.promoted(judged.run(), *BY_2026_11, "--name", "killed")
    MlflowClient(judged.store).delete_registered_model_alias("killed", "warn")
    again = judged.promoted(judged.run(), *BY_2026_11, "--name", "killed")
    assert (again["version"], again["aliases"]) == (first["version"], ["warn"]) and not again["promoted"]


def test_the_newest_of_a_verdict_has_its_alias(judged):
    judged.promoted(judged.run(), "--name", "newest", "--override-reason", "one reason")
    judged.promoted(judged.run(), "--name", "newest", "--override-reason", "another reason")
    assert judged.registry.find("models:/newest@fail").version == "2"


def test_a_fail_carries_its_reason_first(judged):
    promoted = judged.promoted(
        judged.run(), "--name", "despite", "--override-reason", f" {REASON} ", "--author", "A. Nother"
    )
    version = judged.registry.find("models:/despite@fail")
    assert (version.tags[models.TAG_DESPITE], version.tags[models.TAG_AUTHOR]) == (REASON, "A. Nother")
    text = (files_of(judged, promoted) / model_folder.CARD_TEXT).read_text("utf-8")
    first = "**Promoted despite FAIL(D3)** by A. Nother: the negative control of a &lt;b&gt;tutorial&lt;/b&gt;"
    assert text.splitlines()[0] == first
    assert card_of(judged, promoted)["despite"] == {"reason": REASON, "author": "A. Nother"}
    shown = judged.promote(
        judged.run(), "--name", "despite", "--override-reason", REASON, "--author", "A. Nother"
    ).stdout
    assert f"despite FAIL(D3): {REASON}" in shown


def test_a_control_says_that_it_is_one(judged):
    promoted = judged.promoted(judged.run("frozen"), "--name", "control")
    version = judged.registry.find("models:/control@control")
    assert (version.tags[models.TAG_CONTROL], version.tags[schema.TAG_VERDICT]) == ("frozen", "CONTROL")
    text = (files_of(judged, promoted) / model_folder.CARD_TEXT).read_text("utf-8")
    assert text.startswith("**frozen control** · **CONTROL** by edition 2026-05")
    assert isinstance(fa_registry.load_model("models:/control/1", judged.store).network, torch.nn.Module)


def test_a_name_is_made_of_method_and_setting(judged):
    result = judged.promote(judged.run(), *BY_2026_11)
    assert "models:/dfa--resmlp-16x2-digits-1-epochs/1: run " in result.stdout
    assert 'fa_registry.load_model("models:/dfa--resmlp-16x2-digits-1-epochs/1")' in result.stdout


RUN = StoredRun("a" * 32, "dfa 1", "fa_registry", "FINISHED", 0, {schema.TAG_STUDY: "tiny"})
OLD, NEW = (load_edition(name).reference for name in ("2026-05", "2026-11"))
MODIFIED = dataclasses.replace(NEW, overrides={"D1.threshold": 100.0})


def test_the_leading_edition_decides_or_the_one_that_was_asked_for():
    assert promote._deciding(RUN, [NEW, OLD], "") == NEW
    assert promote._deciding(RUN, [NEW, OLD], "2026-05") == OLD
    assert promote._deciding(RUN, [MODIFIED, OLD], "") == OLD


@pytest.mark.parametrize("asked", ["", "2026-11"])
def test_one_with_changed_thresholds_cannot_decide(asked):
    with pytest.raises(
        UsageError, match=r"the run used 2026-11 \w{8} modified; audit the run first: `fa-registry audit --study t"
    ):
        promote._deciding(RUN, [MODIFIED], asked)


def test_a_run_of_no_study_is_audited_by_its_id():
    alone = dataclasses.replace(RUN, tags={})
    assert promote._audit(alone, "mine.toml") == f"`fa-registry audit --run {'a' * 32} --edition mine.toml`"


def test_the_name_of_a_study_is_one_word_of_the_command_that_is_advised():
    of_study = dataclasses.replace(RUN, tags={schema.TAG_STUDY: "x; reboot"})
    assert promote._audit(of_study, "") == "`fa-registry audit --study 'x; reboot'`"


FAILED = Opinion(load_edition("2026-11").reference, Verdict("fail", "FAIL(D1)"), ())


def test_everything_that_was_typed_wrong_is_named_at_once():
    with pytest.raises(InvalidFields) as caught:
        check_text("a/b", "x" * (MAX_REASON + 1))
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["name", "despite (--override-reason)"]
    with pytest.raises(InvalidFields, match=r"despite \(--override-reason\): expected a reason, found none"):
        check_text("", "  ")
    check_text("my model 1.0 (dfa)", "known")


def test_a_verdict_by_an_edition_of_ones_own_has_an_alias_of_its_own():
    own = dataclasses.replace(FAILED.edition, name="Ours (v1)", digest="1a2b3c4d" * 8)
    passed = Opinion(own, Verdict("pass", "PASS"), ())
    assert verdict_alias(FAILED) == "fail" and verdict_alias(passed) == "pass-ours-v1-1a2b3c4d"
    unnamed = dataclasses.replace(passed, edition=dataclasses.replace(own, name="我的"))
    assert verdict_alias(unnamed) == "pass-1a2b3c4d"


def test_a_models_name_is_one_that_the_registry_takes():
    spec = RunSpec("dfa", "resmlp", "digits", 1, 1)
    name = model_name(spec, "digits · ResMLP L=4 / é " + "x" * 300)
    assert name.startswith("dfa--digits-resmlp-l-4-x") and len(name) == 200
    check_text(name, None)


EVIL = "<script>alert(1)</script> {{7*7}} **bold** [link](http://evil.example) `code`\n# heading"


def edition(name):
    return EditionReference(name, "title", "source", digests().get(name, "1a2b3c4d" * 8))


def card(text="plain", **changes):
    finding = Finding("D1", text, "pass", text, Reading(1.0), text, text, "r")
    fields = {
        "method": text,
        "setting": text,
        "control": "none",
        "run_id": "r",
        "run_name": text,
        "identity": "0" * 64,
        "accuracy": Reading(0.9),
        "opinions": (
            Opinion(edition("2026-11"), Verdict("pass", "PASS"), (finding,)),
            Opinion(edition("2026-05"), Verdict("fail", "FAIL(D3)"), ()),
        ),
        "audit_run_id": "a",
        "integrity": Integrity("verified", (text,)),
        "digests": {"network.safetensors": "1" * 64},
        "provenance": {"commit": text, "dirty": None, "eval_indices": list(range(128))},
        "citation": text,
        "bibtex": text,
    }
    return ModelCard(**{**fields, **changes})


def test_the_verdict_that_decided_is_first_and_the_others_are_listed():
    lines = model_card_text(card(), "m").splitlines()
    digest = digests()["2026-11"]
    assert lines[0] == f"**PASS** by edition 2026-11, sha256 {digest[:8]} · plain · plain"
    assert f"Edition sha256 {digest}" in lines
    assert lines[2] == "Other editions: FAIL(D3) by 2026-05"
    assert "- No rule judged this run." in lines and "- pass: plain" in lines


def test_a_control_and_a_modified_edition_are_called_so():
    modified = dataclasses.replace(edition("e"), overrides={"D1.threshold": 100.0})
    text = model_card_text(card(control="frozen", opinions=(Opinion(modified, Verdict("pass", "PASS"), ()),)), "m")
    assert (
        text.startswith("**frozen control** · **PASS**")
        and "## PASS by e, mine (not a shipped edition) (modified)" in text
    )


@pytest.mark.parametrize(
    ("accuracy", "shown"), [(Reading(0.9), "90.0\u00a0%"), (Reading(None, "a regression"), "N/A: a regression")]
)
def test_an_accuracy_that_is_missing_has_its_reason(accuracy, shown):
    assert f"- test accuracy: {shown} (run r)" in model_card_text(card(accuracy=accuracy), "m")


def test_nothing_from_outside_is_more_than_text():
    evil = card(EVIL, despite=PromotionOverride(EVIL, EVIL), feedback={EVIL: EVIL}, control=EVIL)
    html = MarkdownIt().render(model_card_text(evil, "m"))
    assert "<script" not in html and "<a " not in html and "<h1>" not in html and "<em>" not in html
    assert html.count("&lt;script&gt;") > 5 and "<strong>bold" not in html


def test_the_long_list_of_measured_samples_stays_in_the_json():
    text = model_card_text(card(), "m")
    assert "eval" not in text and "- dirty: not recorded" in text


def test_a_fail_without_a_reason(judged):
    text = judged.refused(judged.run(), code=4)
    assert (
        "has the verdict FAIL(D3) by edition 2026-05 and is not promoted" in text
        and '--override-reason "reason"' in text
    )
    assert (
        text.count("\n  - ") == 1
        and "- D3 depth utility: required at least 2 pp above the frozen control, observed" in text
    )


def test_a_reason_where_none_is_needed(judged):
    text = judged.refused(judged.run(), *BY_2026_11, "--override-reason", "to be sure")
    assert "has the verdict WARN(D3 provisional), which needs no reason; omit --override-reason" in text


@pytest.mark.parametrize("name", ["it's", "x" * 201, long("x:y"), long("a\nb"), long(" x")])
def test_a_name_that_mlflow_could_not_find_again(judged, name):
    assert "promote: 1 problem\n  - name: expected" in judged.refused(judged.run(), *BY_2026_11, "--name", name)


def test_a_reason_too_long_for_a_description(judged):
    assert "at most 1000 characters, found 1001" in judged.refused(judged.run(), "--override-reason", "x" * 1001)


@pytest.mark.parametrize("status", ["running", long("failed"), long(schema.STOPPED_EARLY)])
def test_a_run_that_did_not_end(judged, status):
    with tagged(judged, judged.run(), fa_status=status, fa_process=process_ownership.process_tag()) as run:
        text = judged.refused(run, *BY_2026_11)
    assert f"fa.status: expected complete or diverged, found {status}" in text


def test_the_run_of_a_study(judged):
    (study,) = judged.tracker.search({schema.TAG_KIND: "study"})
    assert "expected a training run" in judged.refused(study)


def test_a_run_that_is_not_there(judged):
    result = CliRunner().invoke(main, ["promote", "0123abcd", "--store", judged.store])
    assert result.exit_code == 2 and "no run id begins with these characters" in result.stderr


def test_a_run_that_was_never_audited(judged):
    with tagged(judged, judged.run(), fa_report="") as run:
        text = judged.refused(run, *BY_2026_11)
    assert "was never audited; audit the run first: `fa-registry audit --study tiny --edition 2026-11`" in text


def test_a_run_that_another_edition_judged(judged):
    text = judged.refused(judged.run(), "--edition", "2026-04")
    assert "expected an audit by edition 2026-04" in text
    assert "of the run used 2026-05 " in text and "2026-11 " in text
    assert "`fa-registry audit --study tiny --edition 2026-04`" in text


def test_an_edition_that_does_not_exist(judged):
    assert "did you mean '2026-05'?" in judged.refused(judged.run(), "--edition", "2026-5")


def test_an_edition_with_changed_thresholds_decides_nothing(judged, tmp_path):
    """Else `--threshold D3=-100` would make a PASS of anything."""
    run = judged.run("frozen")
    command = ["audit", "--run", run.run_id, "--edition", "2026-05", "--threshold", "D1=100", "--out", str(tmp_path)]
    CliRunner().invoke(main, [*command, "--store", judged.store], catch_exceptions=False)
    modified = judged.run("frozen").tags[schema.TAG_REPORT]
    with tagged(judged, judged.run(), fa_report=modified) as dfa:
        assert "but this audit did not judge the run" in judged.refused(dfa, code=3)
    text = judged.refused(judged.run("frozen"))
    assert (
        "expected an audit by any edition with unchanged thresholds, but the newest audit of the run used 2026-05"
        in text
    )
    assert " modified; audit the run first" in text


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
        assert f"{schema.FEEDBACK}: expected a file, found none" in judged.refused(
            run, *BY_2026_11, "--name", "lost", code=3
        )


def test_a_changed_file_where_nothing_can_be_measured_again(judged, monkeypatch):
    """A GPU's run on a machine without one: its figures must be believed, its files need not."""
    monkeypatch.setattr(remeasure, "obstacle", lambda spec: "there is no GPU here")
    run = judged.run()
    path = judged.artifact(run, schema.FINAL)
    with spoilt(path, path.read_bytes() + b" "):
        assert "final.safetensors: expected SHA-256" in judged.refused(run, *BY_2026_11, code=3)
    judged.promoted(run, *BY_2026_11, "--name", "unverifiable")
    assert judged.registry.find("models:/unverifiable/1").tags["fa.integrity"] == "unverifiable"


def test_figures_that_do_not_come_out_again(judged, monkeypatch):
    genuine = remeasure.remeasure

    def other(task, checkpoint, feedback, digests, *more):
        initial = judged.artifact(judged.run(), schema.INITIAL)
        return genuine(task, initial, feedback, {**digests, "checkpoint": None}, *more)

    monkeypatch.setattr(remeasure, "remeasure", other)
    text = judged.refused(judged.run(), *BY_2026_11, code=3)
    assert "logged " in text and "recomputed " in text


def test_an_audit_whose_report_was_changed(judged):
    run = judged.run()
    report = judged.tracker.artifact(run.tags[schema.TAG_REPORT], "audit.json")
    forged = report.read_text(encoding="utf-8").replace('"outcome": "fail"', '"outcome": "pass"')
    assert forged != report.read_text(encoding="utf-8")
    with spoilt(report, forged.encode()):
        assert "audit.json: expected SHA-256" in judged.refused(run, code=3)
    with spoilt(report, None):
        expected = "audit.json is missing; audit the runs again: `fa-registry audit --study tiny`"
        assert expected in judged.refused(run, code=3)


def test_an_audit_of_other_files(judged):
    """With a new manifest after the audit: the run is consistent, but it is not what was judged."""
    run = judged.run()
    proof = judged.artifact(run, schema.PROVENANCE)
    content = json.loads(proof.read_text())
    content["digests"]["extra"] = "0"
    text = json.dumps(content)
    with spoilt(proof, text.encode()):
        sealed = jsonio.digest_of({**content["digests"], schema.PROVENANCE: jsonio.file_digest(proof)})
        with tagged(judged, run, fa_artifacts=sealed) as changed:
            message = judged.refused(changed, *BY_2026_11)
            assert "the files of the run were changed after audit" in message and "audit the run again: " in message


def test_a_store_without_a_model_registry(judged, monkeypatch):
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "gopher://nowhere")
    result = judged.promote(judged.run(), *BY_2026_11)
    assert result.exit_code == 2 and "reports an error: Model Registry features" in result.stderr
