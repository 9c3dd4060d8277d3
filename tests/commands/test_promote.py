"""promote: an audited run becomes a version of a registered model whose tags contain verdicts, editions and digests."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from click.testing import CliRunner

import fa_registry
from fa_registry import jsonio, process_ownership
from fa_registry.audits import promote
from fa_registry.audits.promote import model_name, version_aliases
from fa_registry.cli import main
from fa_registry.errors import UsageError
from fa_registry.evidence import remeasure
from fa_registry.protocol.builtin_editions import digests
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Judgement, RunSpec, Verdict
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.training.checkpoint import load_tensors, save_tensors
from tests.builders import verdict_tag
from tests.commands.conftest import long
from tests.commands.promotion import spoilt, tagged

pytestmark = pytest.mark.long

BY_NEWEST = ("--edition", "2026-12")
REASON = "the negative control of a <b>tutorial</b>"


@pytest.fixture(scope="module")
def promoted(judged):
    """What promoting the run with the warning printed; tests only read the version."""
    return judged.promoted(judged.run(), *BY_NEWEST, "--name", "says")


def test_a_version_has_the_verdicts_the_edition_and_the_digests_as_tags(judged, promoted):
    run = judged.run()
    version = judged.registry.find("models:/says@warn")
    assert (promoted["promoted"], promoted["reference"], promoted["aliases"]) == (True, "models:/says/1", ["warn"])
    assert version.run_id == run.run_id
    assert dict(version.tags) == {
        schema.TAG_VERDICT: "WARN(D3 undecided, below)",
        schema.TAG_PROOF: run.tags[schema.TAG_PROOF],
        verdict_tag("2026-12"): "WARN(D3 undecided, below)",
        verdict_tag("2026-05"): "FAIL(D3)",
        schema.TAG_EDITION: f"2026-12, sha256 {digests()['2026-12']}",
        schema.TAG_RUN: run.run_id,
        schema.TAG_REPORT: run.tags[schema.TAG_REPORT],
        schema.TAG_SPEC: run.tags[schema.TAG_SPEC],
        schema.TAG_METHOD: "dfa",
        schema.TAG_SETTING: run.tags[schema.TAG_SETTING],
        schema.TAG_INTEGRITY: "verified",
        schema.TAG_WEIGHTS: jsonio.file_digest(judged.artifact(run, schema.FINAL)),
        schema.TAG_FEEDBACK: jsonio.file_digest(judged.artifact(run, schema.FEEDBACK)),
    }


def test_the_version_is_the_run_and_no_flavour_of_mlflows(judged, promoted):
    run = judged.run()
    version = judged.registry.find("models:/says/1")
    assert version.source == judged.registry.client.get_run(run.run_id).info.artifact_uri
    names = {path.name for path in judged.artifact(run, schema.SPEC).parent.rglob("*")}
    assert "MLmodel" not in names and not any(name.endswith((".pkl", ".pt", ".pth")) for name in names)


def test_the_run_is_still_verified(drawn, judged, promoted):
    run = judged.run()
    result = CliRunner().invoke(main, ["verify", "--run", run.run_id, "--store", judged.store, "--json"])
    assert result.exit_code == 0
    assert {one["integrity"]["state"] for one in json.loads(result.stdout)} == {"verified"}
    assert judged.tracker.get(run.run_id).state == "FINISHED"


def test_twice_is_one_version_and_no_alias_moves(judged):
    dfa, other = judged.run(), judged.run("frozen")
    first = judged.promoted(dfa, *BY_NEWEST, "--name", "twice")
    again = judged.promoted(dfa, *BY_NEWEST, "--name", "twice")
    assert (again["promoted"], again["version"], again["aliases"]) == (False, "1", [])
    assert first["verdict"] == again["verdict"]
    judged.promoted(other, "--name", "twice")
    judged.promoted(dfa, *BY_NEWEST, "--name", "twice")
    assert {"twice/1", "twice/2"} <= judged.versions().keys() and "twice/3" not in judged.versions()


def test_a_promotion_that_was_killed_before_its_alias_gets_it_the_next_time(judged):
    first = judged.promoted(judged.run(), *BY_NEWEST, "--name", "killed")
    judged.registry.client.delete_registered_model_alias("killed", "warn")
    again = judged.promoted(judged.run(), *BY_NEWEST, "--name", "killed")
    assert (again["version"], again["aliases"]) == (first["version"], ["warn"]) and not again["promoted"]


def test_another_reason_is_another_version_and_the_alias_moves(judged):
    for reason in ("one", "two"):
        judged.promoted(judged.run(), "--name", "newest", "--override-reason", reason, "--author", "A")
    assert str(judged.registry.find("models:/newest@fail").version) == "2"


def test_a_fail_carries_its_reason_and_its_author(judged):
    given = ("--name", "despite", "--override-reason", f" {REASON} ", "--author", "A. Nother")
    promoted = judged.promoted(judged.run(), *given)
    version = judged.registry.find("models:/despite@fail")
    assert (version.tags[schema.TAG_DESPITE], version.tags[schema.TAG_AUTHOR]) == (REASON, "A. Nother")
    assert (promoted["despite"], promoted["verdict"], promoted["promoted"]) == (REASON, "FAIL(D3)", True)


def test_a_control_has_a_tag_that_names_it(judged):
    judged.promoted(judged.run("frozen"), "--name", "control")
    version = judged.registry.find("models:/control@control")
    assert (version.tags[schema.TAG_CONTROL], version.tags[schema.TAG_VERDICT]) == ("frozen", "CONTROL")
    assert isinstance(fa_registry.load_model("models:/control/1", judged.store).network, torch.nn.Module)


def test_a_name_is_made_of_method_and_setting(judged):
    assert judged.promoted(judged.run(), *BY_NEWEST)["reference"] == "models:/dfa--resmlp-16x2-digits-1-epochs/1"


RUN = StoredRun("a" * 32, "dfa 1", "fa_registry", "FINISHED", 0, {schema.TAG_STUDY: "tiny"})
OLD, NEW = (load_edition(name).reference for name in ("2026-05", "2026-12"))
MODIFIED = dataclasses.replace(NEW, overrides={"D1.threshold": 100.0})


def test_the_leading_edition_decides_or_the_one_that_was_asked_for():
    assert promote.deciding_edition(RUN, [NEW, OLD], "") == NEW
    assert promote.deciding_edition(RUN, [NEW, OLD], "2026-05") == OLD
    assert promote.deciding_edition(RUN, [MODIFIED, OLD], "") == OLD


@pytest.mark.parametrize("asked", ["", "2026-12"])
@pytest.mark.parametrize("edition", [MODIFIED, dataclasses.replace(NEW, digest="0" * 64)], ids=["modified", "foreign"])
def test_changed_thresholds_and_a_foreign_file_of_that_name_decide_nothing(edition, asked):
    with pytest.raises(UsageError):
        promote.deciding_edition(RUN, [edition], asked)


@pytest.mark.parametrize(
    ("name", "digest", "outcome", "is_adopted", "aliases"),
    [
        ("2026-12", NEW.digest, "fail", False, ["fail"]),
        ("2026-12", NEW.digest, "pass", True, ["adopted"]),
        ("2026-12", NEW.digest, "fail", True, ["fail", "adopted"]),
        ("Ours (v1)", "1a2b3c4d" * 8, "pass", False, ["pass-ours-v1-1a2b3c4d"]),
        ("Ours (v1)", "1a2b3c4d" * 8, "pass", True, ["adopted-ours-v1-1a2b3c4d", "adopted"]),
        ("我的", "1a2b3c4d" * 8, "pass", False, ["pass-1a2b3c4d"]),
    ],
)
def test_the_alias_of_a_verdict_names_an_edition_of_ones_own(name, digest, outcome, is_adopted, aliases):
    edition = dataclasses.replace(NEW, name=name, digest=digest)
    judged = Judgement("r", (), Verdict(outcome, outcome.upper()))
    assert version_aliases((edition, judged), is_adopted) == tuple(aliases)


def test_a_models_name_is_one_that_the_registry_takes():
    name = model_name(RunSpec("dfa", "resmlp", "digits", 1, 1), "digits · ResMLP L=4 / é " + "x" * 300)
    assert name.startswith("dfa--digits-resmlp-l-4-x") and len(name) == 200


def test_a_fail_needs_a_reason_and_a_warning_takes_none(judged):
    judged.check_refused(judged.run(), code=4)
    judged.check_refused(judged.run(), "--override-reason", " ")
    judged.check_refused(judged.run(), *BY_NEWEST, "--override-reason", "to be sure")


@pytest.mark.parametrize("name", ["x/y", "x:y"])
def test_a_name_that_mlflow_refuses(judged, name):
    judged.check_refused(judged.run(), *BY_NEWEST, "--name", name)


@pytest.mark.parametrize("status", ["running", long("failed"), long(schema.STOPPED_EARLY)])
def test_a_run_that_did_not_end(judged, status):
    with tagged(judged, judged.run(), fa_status=status, fa_process=process_ownership.process_tag()) as run:
        judged.check_refused(run, *BY_NEWEST)


def test_the_run_of_a_study_and_a_run_that_is_not_there(judged):
    (study,) = judged.tracker.search({schema.TAG_KIND: "study"})
    judged.check_refused(study)
    assert CliRunner().invoke(main, ["promote", "0123abcd", "--store", judged.store]).exit_code == 2


def test_a_run_that_was_never_audited(judged):
    with tagged(judged, judged.run(), fa_report="") as run:
        judged.check_refused(run, *BY_NEWEST)
    for edition in ("2026-04", "2026-5"):  # no audit has judged it by this one
        judged.check_refused(judged.run(), "--edition", edition)


def test_an_edition_with_changed_thresholds_decides_nothing(judged, tmp_path):
    """Else `--threshold D3=-100` would make a PASS of anything."""
    run = judged.run("frozen")
    command = ["audit", "--run", run.run_id, "--edition", "2026-05", "--threshold", "D1=100", "--out", str(tmp_path)]
    CliRunner().invoke(main, [*command, "--store", judged.store], catch_exceptions=False)
    modified = judged.run("frozen").tags[schema.TAG_REPORT]
    for tag in ("fa_report", "fa_excluded"):
        with tagged(judged, judged.run(), **{tag: modified}) as dfa:
            judged.check_refused(dfa, code=3)  # the audit that the tag names did not judge dfa
    judged.check_refused(judged.run("frozen"))


@pytest.mark.parametrize("name", [schema.FINAL, schema.FEEDBACK])
@pytest.mark.parametrize("here", [True, False], ids=["measured", "not measured"])
def test_tensors_that_were_lost_or_changed(judged, monkeypatch, name, here):
    """here: False for a GPU's run on a machine without one: its metrics must be believed, its files need not."""
    if not here:
        monkeypatch.setattr(remeasure, "obstacle", lambda spec: "there is no GPU here")
    run = judged.run()
    path = judged.artifact(run, name)
    with spoilt(path, path.read_bytes()):
        save_tensors(path, {name: -value for name, value in load_tensors(path).items()})
        judged.check_refused(run, *BY_NEWEST, code=3)
    with spoilt(path, None):
        judged.check_refused(run, *BY_NEWEST, code=3)


def test_a_run_that_cannot_be_measured_here_is_promoted_as_unverifiable(judged, monkeypatch):
    monkeypatch.setattr(remeasure, "obstacle", lambda spec: "there is no GPU here")
    judged.promoted(judged.run(), *BY_NEWEST, "--name", "unverifiable")
    assert judged.registry.find("models:/unverifiable/1").tags[schema.TAG_INTEGRITY] == "unverifiable"


def test_metrics_that_do_not_come_out_again(judged, monkeypatch):
    genuine = remeasure.remeasure

    def other(task, checkpoint, feedback, digests, *more):
        initial = judged.artifact(judged.run(), schema.INITIAL)
        return genuine(task, initial, feedback, {**digests, "checkpoint": None}, *more)

    monkeypatch.setattr(remeasure, "remeasure", other)
    judged.check_refused(judged.run(), *BY_NEWEST, code=3)


def test_an_audit_whose_report_was_changed_or_lost(judged):
    run = judged.run()
    report = judged.tracker.artifact(run.tags[schema.TAG_REPORT], "audit.json")
    forged = report.read_text(encoding="utf-8").replace('"outcome": "fail"', '"outcome": "pass"')
    assert forged != report.read_text(encoding="utf-8")
    for content in (forged.encode(), None):
        with spoilt(report, content):
            judged.check_refused(run, code=3)


def test_an_audit_of_other_files(judged):
    """With a new manifest after the audit: the run is consistent, but it is not what was judged."""
    run = judged.run()
    proof = judged.artifact(run, schema.PROVENANCE)
    content = json.loads(proof.read_text())
    content["digests"]["extra"] = "0"
    text = json.dumps(content)
    with spoilt(proof, text.encode()):
        recorded = jsonio.digest_of({**content["digests"], schema.PROVENANCE: jsonio.file_digest(proof)})
        with tagged(judged, run, fa_artifacts=recorded) as changed:
            judged.check_refused(changed, *BY_NEWEST)


def test_a_store_without_a_model_registry(judged, monkeypatch):
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "gopher://nowhere")
    assert judged.promote(judged.run(), *BY_NEWEST).exit_code == 2


def test_what_json_prints(promoted):
    assert promoted.keys() == {
        *("name", "version", "reference", "run_id", "verdict", "proof", "edition"),
        *("promoted", "verdicts", "aliases", "despite"),
    }
    assert (promoted["name"], promoted["version"], promoted["despite"]) == ("says", "1", "")
    assert promoted["verdicts"] == {"2026-12": "WARN(D3 undecided, below)", "2026-05": "FAIL(D3)"}
    assert (promoted["verdict"], promoted["edition"]) == ("WARN(D3 undecided, below)", "2026-12")
