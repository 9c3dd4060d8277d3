"""An untrusted store: addresses, links and pipes lead out of it. Nothing outside is read or written, nothing waits."""

from __future__ import annotations

import os
import shutil

import pytest

from fa_registry.tracking import schema
from tests.security.conftest import call, written_report

pytestmark = pytest.mark.long

SECRET = "the reviewer's own key"


def lead_to(store, run_id: str, address: str) -> None:
    store.sql("UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", address, run_id)


def hide_its_end(store, run_id: str) -> None:
    """So that an audit looks for the traceback that the run left."""
    store.sql("DELETE FROM tags WHERE run_uuid = ? AND key IN (?, ?)", run_id, schema.TAG_STATUS, schema.TAG_ARTIFACTS)


def link(store, run_id: str, name: str, target: object) -> None:
    path = store.artifacts(run_id) / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def pipe(store, run_id: str, name: str) -> None:
    (store.artifacts(run_id) / name).unlink()
    os.mkfifo(store.artifacts(run_id) / name)


def move_away(store, run_id: str, private) -> None:
    """The run's own folder becomes a link to one that holds its files, and others."""
    folder = store.artifacts(run_id)
    shutil.move(folder, private / "moved")
    folder.symlink_to(private / "moved")


@pytest.fixture
def private(tmp_path):
    """A folder of the reviewer's outside the store, with a file by the name of one that a run has."""
    folder = tmp_path / "private"
    (folder / "report").mkdir(parents=True)
    for name in (schema.FAILURE, "authorized_keys", schema.FORM):
        (folder / name).write_text(SECRET, encoding="utf-8")
    return folder


def test_no_address_link_or_pipe_leads_out_of_the_store(store, private):
    ids = store.run_ids(control="none")
    one, two, three, four, five, six, seven, eight, honest = ids
    for run_id, address in ((one, f"/proc/self/cwd/../{private.name}"), (two, private.as_uri())):
        lead_to(store, run_id, address)
        hide_its_end(store, run_id)
    lead_to(store, three, "ftp://192.0.2.1/without/answer")
    lead_to(store, four, f"s3://bucket/{four}/artifacts")
    pipe(store, five, schema.MEASUREMENTS)
    link(store, six, schema.SPEC, "/dev/zero")
    link(store, seven, schema.FORM, private / "authorized_keys")
    move_away(store, eight, private)
    result = call("audit", "--study", "tiny", "--out", "pages", "--trust-logged")
    assert result.exit_code == 3, result.output
    report = written_report(store.folder)
    assert {run.record.run_id for run in report.runs if run.record.spec.control == "none"} == {seven, honest}
    reasons = {excluded.run_id: excluded.reason for excluded in report.excluded}
    for run_id, name in {
        five: "measurements.json",
        six: "spec.json is a link",
        eight: "is a link",
        three: "location",
    }.items():
        assert name in reasons[run_id], reasons[run_id]
    assert all(SECRET not in page.read_text(encoding="utf-8", errors="replace") for page in written_files(store))
    assert {path.name: path.read_text() for path in private.iterdir() if path.is_file()} == dict.fromkeys(
        (schema.FAILURE, "authorized_keys"), SECRET
    )
    form = store.artifacts(seven) / schema.FORM
    assert not form.is_symlink() and "<html" in form.read_text(encoding="utf-8")
    for run_id in ids[:6]:  # a run that did not finish is shown with code 1
        assert call("show", run_id).exit_code in (1, 2, 3) and call("promote", run_id).exit_code in (2, 3)


def written_files(store):
    pages = [path for path in (store.folder / "pages").rglob("*") if path.is_file()]
    return [*pages, *(store.folder / "mlartifacts" / "fa_registry").glob("**/artifacts/*.html")]


@pytest.fixture
def outside(tmp_path):
    """A folder of the reviewer's that no store knows."""
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


def experiment_outside(store, outside):
    """As a hostile author would: its files are where they were, new ones are to be put into the reviewer's folder."""
    store.sql("UPDATE experiments SET artifact_location = ? WHERE name = 'fa_registry'", f"{outside.as_uri()}/new")


def linked_root(store, outside):
    shutil.move(store.folder / "mlartifacts", outside / "real")
    (store.folder / "mlartifacts").symlink_to(outside / "real")


TRAIN_MORE = ("train", "--method", "bp", "--seed", "9", "--epochs", "1", "--set", "architecture.d_hidden=16")


@pytest.mark.parametrize("attack", [experiment_outside, pytest.param(linked_root, marks=pytest.mark.long)])
def test_no_command_writes_outside_the_store_unless_the_user_allows_it(store, outside, monkeypatch, attack):
    attack(store, outside)
    before, runs = sorted(outside.rglob("*")), store.sql("SELECT count(*) FROM runs")
    monkeypatch.setattr("fa_registry.audits.audit_command.build_report", None)  # nothing may be measured
    for command in (("audit", "--study", "tiny", "--out", "pages", "--trust-logged"), TRAIN_MORE):
        refused = call(*command)
        assert refused.exit_code == 2 and "FA_REGISTRY_ARTIFACTS" in refused.stderr, refused.output
    assert sorted(outside.rglob("*")) == before and store.sql("SELECT count(*) FROM runs") == runs
    assert not (store.folder / "pages" / "index.html").exists()
    assert call("verify", "--study", "tiny", "--replay", "off").exit_code == 0  # reading needs no permission

    monkeypatch.undo()
    monkeypatch.chdir(store.folder)
    monkeypatch.setenv("FA_REGISTRY_ARTIFACTS", str(outside))
    assert call(*TRAIN_MORE).exit_code == 0
    assert call("audit", "--study", "tiny", "--out", "pages", "--trust-logged").exit_code in (0, 1)
    assert len([path for path in outside.rglob("index.html") if "artifacts" in path.parts]) == 1


@pytest.mark.long
def test_the_form_of_a_run_that_lies_outside_is_left_out_and_the_others_get_theirs(store, outside):
    led, other = store.run_ids(method="dfa", control="none")[:2]
    shutil.move(store.artifacts(led), outside / led / "artifacts")
    lead_to(store, led, f"{outside.as_uri()}/{led}/artifacts")
    before = sorted(outside.rglob("*"))
    result = call("audit", "--study", "tiny", "--out", "pages", "--trust-logged")
    assert result.exit_code in (0, 1) and f"run {led}: " in result.stderr, result.output
    assert sorted(outside.rglob("*")) == before
    assert (store.artifacts(other) / schema.FORM).is_file()
    assert led in {run.record.run_id for run in written_report(store.folder).runs}
