"""What is edited after an audit: its report, its pages, the tags of verdicts, each with its digests computed again."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

from fa_registry import jsonio, load_model
from fa_registry.audits.recorded_verdicts import UNPROVEN
from fa_registry.errors import IntegrityError
from fa_registry.tracking import schema
from fa_registry.tracking.schema import PAGE_DIGESTS
from tests.security.conftest import audited, call
from tests.security.test_editions import audit_run, forge, loose

pytestmark = pytest.mark.long


def verify(*arguments):
    """The exit code of `verify`, and name of each row → (state, details)."""
    result = call("verify", *arguments, "--json")
    rows = {row["name"]: row["integrity"] for row in json.loads(result.stdout)}
    return result.exit_code, {name: (one["state"], "; ".join(one["details"])) for name, one in rows.items()}


def verified_run(store, run_id):
    """The exit code, the row of the run, and those of its audit's verdicts and pages."""
    code, rows = verify("--run", run_id)
    audit_id = audit_run(store)
    (own,) = [row for name, row in rows.items() if " audit " not in f" {name}"]
    return code, own, rows[f"the verdicts of audit {audit_id}"], rows[f"the pages of audit {audit_id}"]


def pass_all(report):
    for run in report["runs"]:
        if run["verdict"]["outcome"] != "control":
            run["verdict"] = {"outcome": "pass", "label": "PASS", "flags": []}


def passed(text: str) -> str:
    return text.replace("FAIL", "PASS")


def edit_verdicts(store, run_id):
    """In the recorded report, and in the file that the audit left next to the store."""
    forge(store, pass_all)
    report = store.json(audit_run(store), "audit.json")
    (store.folder / "pages" / "audit.json").write_text(jsonio.pretty(report), encoding="utf-8")


def edit_page(store, run_id):
    """With every digest of the audit's pages as the files are now, and the tag over them."""
    audit_id = audit_run(store)
    folder = store.artifacts(audit_id)
    (folder / "index.html").write_text(passed((folder / "index.html").read_text(encoding="utf-8")), encoding="utf-8")
    digests = {name: jsonio.file_digest(folder / name) for name in store.json(audit_id, PAGE_DIGESTS)}
    store.change_json(audit_id, PAGE_DIGESTS, lambda held: held.update(digests))
    store.set_tag(audit_id, schema.TAG_PAGES, jsonio.file_digest(folder / PAGE_DIGESTS))


def edit_page_of_another_release(store, run_id):
    edit_page(store, run_id)
    store.set_tag(audit_run(store), schema.TAG_RENDERER, "fa_registry 0.1.0")


def edit_attached_pages(store, run_id):
    recorded = json.loads(store.tags(run_id)[schema.TAG_PAGES])
    for name in (schema.FORM, schema.SHORT_FORM):
        path = store.artifacts(run_id) / name
        path.write_text(passed(path.read_text(encoding="utf-8")), encoding="utf-8")
        recorded[name] = jsonio.file_digest(path)
    store.set_tag(run_id, schema.TAG_PAGES, jsonio.canonical(recorded))


def edit_verdict_tags(store, run_id):
    for name in [name for name in store.tags(run_id) if name.startswith("fa.verdict")]:
        store.set_tag(run_id, name, "PASS")


def edit_proof_tag(store, run_id):
    """The audit trusted the logged values, so its level is `stated`."""
    assert store.tags(run_id)[schema.TAG_PROOF] == "stated"
    store.set_tag(run_id, schema.TAG_PROOF, "replayed")


def edit_levels(store, run_id):
    """In the recorded report, whose records show no replay."""
    forge(store, lambda report: [run["verdict"].update(proof="replayed") for run in report["runs"]])


def remove_levels(store, run_id):
    """A report without the field reads as `stated`, as it was, but it has other bytes than its pages."""
    forge(store, lambda report: [run["verdict"].pop("proof") for run in report["runs"]])


def edit_nothing(store, run_id):
    pass


long = partial(pytest.param, marks=pytest.mark.long)
ATTACKS = [  # what is edited, and the states of the run, of its audit's verdicts and of its pages
    (edit_nothing, 0, "verified verified verified"),
    (edit_verdicts, 3, "mismatch mismatch mismatch"),  # the run's tags are those of the honest audit
    (edit_page, 3, "verified verified mismatch"),
    long(edit_page_of_another_release, 3, "verified verified unverifiable"),  # no alarm: they cannot be compared
    long(edit_attached_pages, 3, "mismatch verified verified"),
    (edit_verdict_tags, 3, "mismatch verified verified"),
    (edit_proof_tag, 3, "mismatch verified verified"),
    (edit_levels, 3, "mismatch mismatch mismatch"),
    long(remove_levels, 3, "verified verified mismatch"),
]


@pytest.mark.parametrize(("attack", "code", "states"), ATTACKS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_edited_after_the_audit_is_found(audited_store, attack, code, states):
    run_id = audited_store.run_id(method="fa", seed=1)
    attack(audited_store, run_id)
    found, *rows = verified_run(audited_store, run_id)
    assert (found, [state for state, _ in rows]) == (code, states.split())


def test_verdicts_edited_in_the_report_are_judged_again(audited_store):
    code, rows = verify("pages/audit.json")
    assert code == 0 and {state for state, _ in rows.values()} == {"verified"}
    edit_verdicts(audited_store, "")
    code, rows = verify("pages/audit.json")
    assert code == 3 and rows["the report itself, audit.json"][0] == "verified"  # its digest was computed again
    assert rows["the verdicts of audit.json"][0] == "mismatch"


@pytest.mark.parametrize("edit", [edit_verdict_tags, edit_proof_tag])
def test_verdict_tags_that_disagree_are_reported_with_both_values(audited_store, edit):
    run_id = audited_store.run_id(method="fa", seed=1)
    tags = audited_store.tags(run_id)
    for edited in (False, True):
        if edited:
            edit(audited_store, run_id)
        (row,) = [row for row in json.loads(call("doctor", "--json").stdout) if row["check"] == "verdict tags"]
        assert row["ok"] is not edited and (run_id in row["found"]) is edited
    own = verified_run(audited_store, run_id)[1][1]
    before = {name: text for name, text in tags.items() if audited_store.tags(run_id)[name] != text}
    assert before
    for text in (run_id, *before, *before.values()):
        assert text in row["found"] and text in own


def test_a_level_that_no_audit_wrote_is_found(store):
    """The store was never audited."""
    run_id = store.run_id(method="fa", seed=1)
    assert verify("--run", run_id, "--replay", "off")[0] == 0
    store.set_tag(run_id, schema.TAG_PROOF, "replayed")
    assert verify("--run", run_id, "--replay", "off")[0] == 3
    assert call("show", run_id).stdout.endswith(f"verdict: {UNPROVEN}\n")


@pytest.mark.long
def test_a_study_of_which_a_page_was_edited_is_not_verified(audited_store):
    edit_page(audited_store, "")
    assert verify("--study", "tiny", "--replay", "off")[0] == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "states"),
    [
        (("--templates", "mine"), "verified verified unverifiable"),
        (("--edition", "loose.toml"), "verified unverifiable verified"),
    ],
)
def test_pages_of_user_templates_and_verdicts_of_a_user_edition_cannot_be_compared(store, audit, options, states):
    (store.folder / "mine").mkdir()
    (store.folder / "mine" / "audit_table.tex.j2").write_text("a table of my own\n", encoding="utf-8")
    loose(store, "mine")
    audit("--trust-logged", *options, published=True)
    code, *rows = verified_run(store, store.run_id(method="fa", seed=1))
    assert (code, [state for state, _ in rows]) == (3, states.split())


EDITS = {
    "loss_train": lambda record: record["measurements"]["scalars"].update(loss_train=0.5),
    "trajectory": lambda record: record["trajectory"].update(h_L=record["trajectory"]["g_L"]),
    "provenance": lambda record: record["provenance"].update(commit="0" * 40),
    "accuracy": lambda record: record["measurements"]["scalars"].update(accuracy=0.999),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name != "accuracy")) for name in EDITS]
)
def test_figures_edited_in_the_report_are_not_those_of_the_run(audited_store, name):
    """The verdict then follows from the report's own figures, and no edition can object."""
    run_id = audited_store.run_id(method="fa", seed=1)

    def edit(report):
        (run,) = [run for run in report["runs"] if run["record"]["run_id"] == run_id]
        EDITS[name](run["record"])

    forge(audited_store, edit)
    report = audited_store.json(audit_run(audited_store), "audit.json")
    (audited_store.folder / "pages" / "audit.json").write_text(jsonio.pretty(report), encoding="utf-8")
    code, rows = verify("pages/audit.json")
    assert code == 3 and any(state == "mismatch" and name in details for state, details in rows.values())
    _, _, verdicts, _ = verified_run(audited_store, audited_store.run_id(method="bp", seed=2, control="none"))
    assert verdicts[0] == "mismatch" and run_id in verdicts[1]


def test_verdict_tags_without_an_audit_are_not_verified(store):
    run_id = store.run_id(method="fa", seed=1)
    store.set_tag(run_id, "fa.verdict", "PASS")
    code, rows = verify("--run", run_id)
    assert code == 3 and rows["the pages of an unknown audit"][0] == "unverifiable"


@pytest.mark.long
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
    assert verified_run(audited_store, run_id)[1][0] == "mismatch"


@pytest.fixture
def promoted(audited_store):
    """The audited store and the id of a run that was promoted as models:/fa/1."""
    run_id = audited_store.run_id(method="fa", seed=1)
    given = ("--name", "fa", "--override-reason", "for the test", "--author", "A. Author")
    assert call("promote", run_id, *given).exit_code == 0
    return audited_store, run_id


@pytest.mark.long
@pytest.mark.parametrize("changed", ["the file", "the version's tag too", "the run's manifest too"])
def test_zeroed_weights_are_not_loaded(promoted, changed):
    store, run_id = promoted
    path = store.artifacts(run_id) / schema.FINAL
    save_file({name: torch.zeros_like(tensor) for name, tensor in load_file(path).items()}, path)
    if changed == "the version's tag too":
        statement = "UPDATE model_version_tags SET value = ? WHERE key = ?"
        store.sql(statement, jsonio.file_digest(path), schema.TAG_WEIGHTS)
    if changed == "the run's manifest too":
        store.write_manifest(run_id)
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
