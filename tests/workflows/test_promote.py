"""promote: a judged run becomes a version of a registered model that says what was judged, and loads as what was trained."""

from __future__ import annotations

import json

import torch
from click.testing import CliRunner

import fa_registry
from fa_registry import jsonio
from fa_registry.cli import main
from fa_registry.protocol.shipped import digests
from fa_registry.records import RunSpec
from fa_registry.tracking import models, schema
from fa_registry.training import model_folder
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.task import prepare
from tests.builders import verdict_tag
from tests.helpers.small import weights_equal

BY_2026_11 = ("--edition", "2026-11")
REASON = "the negative control of a <b>tutorial</b>"


def files_of(judged, promoted):
    return judged.registry.files(judged.registry.find(promoted["reference"]))


def card_of(judged, promoted):
    return json.loads((files_of(judged, promoted) / model_folder.CARD).read_text(encoding="utf-8"))


def test_a_version_says_what_was_judged(judged):
    run = judged.run()
    promoted = judged.promoted(run, *BY_2026_11, "--name", "says")
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


def test_the_card_holds_every_findings_sentence_and_the_logged_accuracy(judged):
    run = judged.run()
    promoted = judged.promoted(run, *BY_2026_11, "--name", "sentences")
    card, text = card_of(judged, promoted), (files_of(judged, promoted) / model_folder.CARD_TEXT).read_text("utf-8")
    measured = json.loads(judged.artifact(run, schema.MEASUREMENTS).read_text())
    assert card["accuracy"] == measured["scalars"]["accuracy"]
    assert [one["edition"]["name"] for one in card["opinions"]] == ["2026-11", "2026-05"]
    assert len(card["opinions"][0]["findings"]) > len(card["opinions"][1]["findings"]) > 2
    assert text.count("D3 depth utility: required at least 2 pp above the reference") == 2
    by = f"edition 2026-11, sha256 {digests()['2026-11'][:8]}"
    assert text.startswith(f"**WARN(D3 provisional)** by {by} · dfa · resmlp-16x2 · digits · 1 epochs\n")
    assert "Other editions: FAIL(D3) by 2026-05" in text
    assert "every recomputed figure agrees, bit-equal" in text and "@inproceedings{nokland2016direct" in text


def test_its_files_are_tensors_and_text_and_no_flavour_of_mlflows(judged):
    files = files_of(judged, judged.promoted(judged.run(), *BY_2026_11, "--name", "files"))
    names = (model_folder.CARD, model_folder.CARD_TEXT, model_folder.NETWORK, model_folder.FEEDBACK, model_folder.SPEC)
    assert {path.name for path in files.iterdir()} == set(names)


def test_what_is_loaded_is_what_was_trained(judged):
    run = judged.run()
    promoted = judged.promoted(run, *BY_2026_11, "--name", "loads")
    spec = jsonio.decode(RunSpec, json.loads(judged.artifact(run, schema.SPEC).read_text()))
    task = prepare(spec, torch.device("cpu"))
    task.network.load_state_dict(load_tensors(judged.artifact(run, schema.FINAL)))
    for reference in (promoted["reference"], "models:/loads@warn", files_of(judged, promoted)):
        loaded = fa_registry.load_model(reference, judged.store)
        images = task.splits.test_images
        assert torch.equal(loaded.network(images), task.network.eval()(images))
        assert not loaded.network.training
        assert weights_equal(loaded.feedback, task.feedback) and weights_equal(loaded.network, task.network)
        assert loaded.spec.identity == run.tags[schema.TAG_SPEC] and loaded.method is task.method


def test_the_run_is_still_verified(judged):
    run = judged.run()
    judged.promoted(run, *BY_2026_11, "--name", "still")
    result = CliRunner().invoke(main, ["verify", "--run", run.run_id, "--store", judged.store, "--json"])
    assert result.exit_code == 0
    assert [one["integrity"]["state"] for one in json.loads(result.stdout)] == ["verified"]
    assert judged.tracker.get(run.run_id).state == "FINISHED"


def test_twice_is_one_version_and_only_an_alias_that_is_asked_for_moves(judged):
    dfa, other = judged.run(), judged.run("frozen")
    first = judged.promoted(dfa, *BY_2026_11, "--name", "twice")
    again = judged.promoted(dfa, *BY_2026_11, "--name", "twice", "--alias", "champion")
    assert (again["promoted"], again["version"], again["aliases"]) == (False, "1", ["champion"])
    assert first["verdict"] == again["verdict"]
    judged.promoted(other, "--name", "twice", "--alias", "champion")
    judged.promoted(dfa, *BY_2026_11, "--name", "twice")
    assert judged.registry.find("models:/twice@champion").version == "2"
    assert len(judged.registry.versions("twice")) == 2
    assert "already promoted with this verdict" in judged.promote(dfa, *BY_2026_11, "--name", "twice").stdout


def test_the_newest_of_a_verdict_has_its_alias(judged):
    judged.promoted(judged.run(), "--name", "newest", "--despite", "one reason")
    judged.promoted(judged.run(), "--name", "newest", "--despite", "another reason")
    assert judged.registry.find("models:/newest@fail").version == "2"


def test_a_fail_carries_its_reason_first(judged):
    promoted = judged.promoted(judged.run(), "--name", "despite", "--despite", f" {REASON} ", "--author", "A. Nother")
    version = judged.registry.find("models:/despite@fail")
    assert (version.tags[models.TAG_DESPITE], version.tags[models.TAG_AUTHOR]) == (REASON, "A. Nother")
    text = (files_of(judged, promoted) / model_folder.CARD_TEXT).read_text("utf-8")
    first = "**Promoted despite FAIL(D3)** by A. Nother: the negative control of a &lt;b&gt;tutorial&lt;/b&gt;"
    assert text.splitlines()[0] == first
    assert card_of(judged, promoted)["despite"] == {"reason": REASON, "author": "A. Nother"}
    shown = judged.promote(judged.run(), "--name", "despite", "--despite", REASON, "--author", "A. Nother").stdout
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
