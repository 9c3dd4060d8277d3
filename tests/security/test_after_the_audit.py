"""What is edited after an audit: its report, its pages, the tags of verdicts, each with its digests computed again."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from fa_registry import jsonio, load_model
from fa_registry.errors import IntegrityError
from fa_registry.tracking import schema
from fa_registry.tracking.schema import PAGE_DIGESTS
from tests.helpers.pictures import blank_pictures
from tests.helpers.stores import copy_store, made_once, working_in
from tests.security.attacks import Store
from tests.security.conftest import audited, call
from tests.security.test_editions import audit_run, forge, loose


@pytest.fixture(scope="session")
def audited_once(honest, tmp_path_factory):
    """The folder of the honest store with one audit whose pages, without pictures, are in `pages`."""

    def run_audit(folder):
        copy_store(honest, folder)
        with working_in(folder), blank_pictures():
            command = ("audit", "--study", "tiny", "--out", "pages", "--trust-logged", "--edition", "2026-05")
            assert call(*command).exit_code in (0, 1)

    return made_once(tmp_path_factory, "audited", run_audit)


@pytest.fixture
def audited_store(audited_once, tmp_path, monkeypatch):
    """A copy of the audited store in a separate working folder."""
    copy_store(audited_once, tmp_path / "store")
    monkeypatch.chdir(tmp_path / "store")
    return Store(tmp_path / "store")


def verify(*arguments):
    """The exit code of `verify`, and name of each row → (state, details)."""
    result = call("verify", *arguments, "--json")
    rows = json.loads(result.stdout)
    return result.exit_code, {
        row["name"]: (row["integrity"]["state"], "; ".join(row["integrity"]["details"])) for row in rows
    }


def verified_run(store, run_id):
    """The exit code, the row of the run, and those of its audit's verdicts and pages."""
    code, rows = verify("--run", run_id)
    audit_id = audit_run(store)
    (own,) = [row for name, row in rows.items() if " audit " not in f" {name}"]
    return code, own, rows[f"the verdicts of audit {audit_id}"], rows[f"the pages of audit {audit_id}"]


def write_report(store, report):
    """Write the store's edited report over the page that the audit left next to it."""
    (store.folder / "pages" / "audit.json").write_text(jsonio.pretty(report), encoding="utf-8")


def pass_all(report):
    for run in report["runs"]:
        if run["verdict"]["outcome"] != "control":
            run["verdict"] = {"outcome": "pass", "label": "PASS", "flags": []}


def seal_pages_again(store):
    """Every digest of the audit's pages as the files are now, and the tag over them."""
    run_id = audit_run(store)
    folder = store.artifacts(run_id)
    store.change_json(
        run_id, PAGE_DIGESTS, lambda held: held.update({name: jsonio.file_digest(folder / name) for name in held})
    )
    store.set_tag(run_id, schema.TAG_PAGES, jsonio.file_digest(folder / PAGE_DIGESTS))


def test_an_untouched_audit_is_verified(audited_store):
    run_id = audited_store.run_id(method="fa", seed=1)
    code, *rows = verified_run(audited_store, run_id)
    assert code == 0 and {state for state, _ in rows} == {"verified"}
    code, rows = verify("pages/audit.json")
    assert code == 0 and {state for state, _ in rows.values()} == {"verified"}


def test_verdicts_edited_in_the_report_are_judged_again(audited_store):
    forge(audited_store, pass_all)
    write_report(audited_store, audited_store.json(audit_run(audited_store), "audit.json"))
    code, rows = verify("pages/audit.json")
    assert code == 3 and rows["the report itself, audit.json"][0] == "verified"  # its digest was computed again
    state, details = rows["the verdicts of audit.json"]
    assert state == "mismatch" and re.search(r"gives FAIL\S* instead of PASS", details)
    code, own, verdicts, pages = verified_run(audited_store, audited_store.run_id(method="fa", seed=1))
    assert (code, verdicts[0], pages[0]) == (3, "mismatch", "mismatch")
    assert own[0] == "mismatch" and "but the audit has 'PASS'" in own[1]  # its tags are those of the honest audit


EDITS = {
    "loss_train": lambda record: record["measurements"]["scalars"].update(loss_train=0.5),
    "trajectory": lambda record: record["trajectory"].update(h_L=record["trajectory"]["g_L"]),
    "provenance": lambda record: record["provenance"].update(commit="0" * 40),
    "accuracy": lambda record: record["measurements"]["scalars"].update(accuracy=0.999),
}


RECORDED = ("trajectory", "provenance")  # compared with the run's files as loss_train is


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in RECORDED)) for name in EDITS])
def test_figures_edited_in_the_report_are_not_those_of_the_run(audited_store, name):
    """The verdict then follows from the report's own figures, and no edition can object."""
    run_id = audited_store.run_id(method="fa", seed=1)

    def edit(report):
        (run,) = [run for run in report["runs"] if run["record"]["run_id"] == run_id]
        EDITS[name](run["record"])

    forge(audited_store, edit)
    write_report(audited_store, audited_store.json(audit_run(audited_store), "audit.json"))
    recorded = f"the report's {name} differs from the value that the run recorded"
    text = "recomputed 0.999" if name == "accuracy" else recorded
    code, rows = verify("pages/audit.json")
    assert code == 3 and any(state == "mismatch" and text in details for state, details in rows.values())
    _, _, verdicts, _ = verified_run(audited_store, audited_store.run_id(method="bp", seed=2, control="none"))
    assert verdicts[0] == "mismatch" and run_id in verdicts[1]


def test_pages_edited_with_their_digests_are_rendered_again(audited_store):
    page = audited_store.artifacts(audit_run(audited_store)) / "index.html"
    page.write_text(page.read_text(encoding="utf-8").replace("FAIL", "PASS"), encoding="utf-8")
    seal_pages_again(audited_store)
    code, own, verdicts, pages = verified_run(audited_store, audited_store.run_id(method="fa", seed=1))
    assert (code, own[0], verdicts[0], pages[0]) == (3, "verified", "verified", "mismatch")
    assert "1 of " in pages[1] and pages[1].endswith("newly rendered pages: index.html")
    assert verify("--study", "tiny", "--replay", "off")[0] == 3


def test_attached_pages_edited_with_their_digests_are_rendered_again(audited_store):
    run_id = audited_store.run_id(method="fa", seed=1)
    sealed = json.loads(audited_store.tags(run_id)[schema.TAG_PAGES])
    for name in (schema.FORM, schema.SHORT_FORM):
        path = audited_store.artifacts(run_id) / name
        path.write_text(path.read_text(encoding="utf-8").replace("FAIL", "PASS"), encoding="utf-8")
        sealed[name] = jsonio.file_digest(path)
    audited_store.set_tag(run_id, schema.TAG_PAGES, jsonio.canonical(sealed))
    code, own, verdicts, pages = verified_run(audited_store, run_id)
    assert (code, own[0], verdicts[0], pages[0]) == (3, "mismatch", "verified", "verified")
    listed = own[1].partition("attached pages that differ")[2]
    assert schema.FORM in listed and schema.SHORT_FORM in listed


def test_pages_of_another_release_cannot_be_compared_and_raise_no_alarm(audited_store):
    page = audited_store.artifacts(audit_run(audited_store)) / "index.html"
    page.write_text(page.read_text(encoding="utf-8").replace("FAIL", "Fail"), encoding="utf-8")
    seal_pages_again(audited_store)
    audited_store.set_tag(audit_run(audited_store), schema.TAG_RENDERER, "fa_registry 0.1.0")
    code, own, verdicts, pages = verified_run(audited_store, audited_store.run_id(method="fa", seed=1))
    assert (code, own[0], verdicts[0], pages[0]) == (3, "verified", "verified", "unverifiable")
    assert "the pages were rendered by fa_registry 0.1.0; the installed release is " in pages[1]


def test_pages_of_user_templates_cannot_be_rendered_again(store, audit):
    (store.folder / "mine").mkdir()
    (store.folder / "mine" / "audit_table.tex.j2").write_text("a table of my own\n", encoding="utf-8")
    audit("--trust-logged", "--templates", "mine", published=True)
    code, own, verdicts, pages = verified_run(store, store.run_id(method="fa", seed=1))
    assert (code, own[0], verdicts[0], pages[0]) == (3, "verified", "verified", "unverifiable")
    assert "the pages can be rendered again only with the user's templates" in pages[1]


def test_a_verdict_by_a_user_edition_is_not_judged_again(store, audit):
    loose(store, "mine")
    audit("--trust-logged", "--edition", "loose.toml", published=True)
    code, own, verdicts, pages = verified_run(store, store.run_id(method="fa", seed=1))
    assert (code, own[0], verdicts[0], pages[0]) == (3, "verified", "unverifiable", "verified")
    assert "edition mine with digest " in verdicts[1] and "verdicts of this edition cannot be checked" in verdicts[1]


def test_a_verdict_tag_that_disagrees_is_reported_with_both_values(audited_store):
    run_id = audited_store.run_id(method="fa", seed=1)
    of_edition = next(name for name in audited_store.tags(run_id) if name.startswith("fa.verdict."))
    texts = {name: audited_store.tags(run_id)[name] for name in ("fa.verdict", of_edition)}
    for name in texts:
        audited_store.set_tag(run_id, name, "PASS")
    code, own, verdicts, pages = verified_run(audited_store, run_id)
    assert (code, own[0], verdicts[0], pages[0]) == (3, "mismatch", "verified", "verified")
    (row,) = [row for row in json.loads(call("doctor", "--json").stdout) if row["check"] == "verdict tags"]
    assert not row["ok"] and run_id in row["found"] and f"run {run_id} (" in own[1]
    for name, text in texts.items():
        line = f"tag {name} is 'PASS', but the audit has {text!r}"
        assert line in own[1] and line in row["found"]


def test_the_verdict_tags_of_an_honest_audit_are_no_finding(audited_store):
    (row,) = [row for row in json.loads(call("doctor", "--json").stdout) if row["check"] == "verdict tags"]
    assert row["ok"] and row["found"] == "the tags of 12 runs match their audits"


def test_verdict_tags_without_an_audit_are_not_verified(store):
    run_id = store.run_id(method="fa", seed=1)
    store.set_tag(run_id, "fa.verdict", "PASS")
    code, rows = verify("--run", run_id)
    assert code == 3 and rows["the pages of an unknown audit"][0] == "unverifiable"


def test_a_run_that_a_later_audit_excluded_is_compared_with_that_audit(audited_store):
    run_id = audited_store.run_id(method="fa", seed=1)
    path = audited_store.artifacts(run_id) / schema.SERIES
    whole = path.read_bytes()
    path.write_bytes(whole + b" ")
    assert audited(audited_store.folder, "--trust-logged", published=True)[0] == 3
    path.write_bytes(whole)
    code, own, verdicts, pages = verified_run(audited_store, run_id)
    assert (code, own[0], verdicts[0], pages[0]) == (0, "verified", "verified", "verified"), own
    audited_store.set_tag(run_id, "fa.verdict", "NOT JUDGED (broken)")
    assert "the audit has 'NOT JUDGED (integrity failure)'" in verified_run(audited_store, run_id)[1][1]


@pytest.fixture
def promoted(audited_store):
    """The audited store and the id of a run that was promoted as models:/fa/1."""
    run_id = audited_store.run_id(method="fa", seed=1)
    given = ("--name", "fa", "--override-reason", "for the test", "--author", "A. Author")
    assert call("promote", run_id, *given).exit_code == 0
    return audited_store, run_id


@pytest.mark.parametrize("changed", ["the file", "the version's tag too", "the run's manifest too"])
def test_zeroed_weights_are_not_loaded(promoted, changed):
    store, run_id = promoted
    path = store.artifacts(run_id) / schema.FINAL
    save_file({name: torch.zeros_like(tensor) for name, tensor in load_file(path).items()}, path)
    if changed == "the version's tag too":
        statement = "UPDATE model_version_tags SET value = ? WHERE key = ?"
        store.sql(statement, jsonio.file_digest(path), schema.TAG_WEIGHTS)
    if changed == "the run's manifest too":
        store.seal(run_id)
    with pytest.raises(IntegrityError):
        load_model("models:/fa/1")


def test_figures_edited_in_the_report_are_not_promoted(audited_store):
    run_id = audited_store.run_id(method="fa", seed=1)
    frozen = audited_store.run_id(control="frozen", seed=1)

    def edit(report):
        (run,) = [run for run in report["runs"] if run["record"]["run_id"] == frozen]
        run["record"]["measurements"]["scalars"]["accuracy"] = 0.01

    forge(audited_store, edit)
    refused = call("promote", run_id, "--override-reason", "for the test", "--author", "A. Author")
    assert refused.exit_code == 3 and f"run {frozen}" in refused.output
