"""Verdicts come from a report that is judged again or compared with its digest, never from a tag or a number in a file alone."""

from __future__ import annotations

import json

import pytest

from fa_registry.audits.recorded_verdicts import UNPROVEN
from tests.security.conftest import call, written_report


@pytest.fixture
def store(audited_store):
    """The honest store after an audit that tagged its runs."""
    return audited_store


@pytest.fixture
def published(store):
    """The verdicts by run id."""
    report = written_report(store.folder)
    return {run.record.run_id: run.verdict.full_label for run in report.runs}


def in_list() -> dict[str, str]:
    """Run id → verdict, with its level of proof if it has one."""
    runs = json.loads(call("list", "runs", "--json", "--limit", "0").stdout)
    return {run["run_id"]: " · ".join(filter(None, (run["verdict"], run["proof"]))) for run in runs}


def in_show(run_id: str) -> str:
    (shown,) = (line for line in call("show", run_id).stdout.splitlines() if line.startswith("verdict: "))
    return shown.removeprefix("verdict: ")


def passing(report: dict) -> dict:
    """The report with PASS for every run of a method, as a forger writes it: verdict, findings and opinions agree."""
    for run in report["runs"]:
        if run["record"]["spec"]["control"] == "none":
            run["verdict"] = {"outcome": "pass", "label": "PASS", "flags": []}
            for finding in run["findings"]:
                finding.update(outcome="pass", state="CLEARS" if finding["rule"] == "D3" else "OK")
    return report


def test_a_tag_is_no_verdict(store, published):
    run_id = store.run_id(method="fa", seed=1)
    assert in_list() == published and in_show(run_id) == published[run_id] != "PASS · replayed"
    store.set_tag(run_id, "fa.verdict", "PASS")
    store.set_tag(run_id, "fa.proof", "replayed")
    assert in_list() == published and in_show(run_id) == published[run_id]
    store.sql("DELETE FROM tags WHERE run_uuid = ? AND key = 'fa.report'", run_id)
    assert in_list() == {**published, run_id: UNPROVEN} and in_show(run_id) == UNPROVEN


@pytest.mark.parametrize("damage", ["another verdict", "no JSON", "a list"])
def test_a_report_without_its_recorded_digest_is_no_verdict(store, published, damage):
    run_id = store.run_id(method="fa", seed=1)
    ((audit_id,),) = store.sql("SELECT value FROM tags WHERE run_uuid = ? AND key = 'fa.report'", run_id)
    path = store.artifacts(audit_id) / "audit.json"
    report = passing(json.loads(path.read_text(encoding="utf-8")))
    text = {"another verdict": json.dumps(report), "no JSON": "{", "a list": "[1]"}[damage]
    path.write_text(text, encoding="utf-8")
    assert set(in_list().values()) == {UNPROVEN} and in_show(run_id) == UNPROVEN


def test_a_run_without_an_audit_has_no_verdict(honest, monkeypatch):
    monkeypatch.chdir(honest)
    assert set(in_list().values()) == {""}


def test_a_forged_report_is_not_rendered(store, published):
    path = store.folder / "pages" / "audit.json"
    assert call("report", str(path), "--out", "again").exit_code == 0
    forged = store.folder / "forged.json"
    forged.write_text(json.dumps(passing(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    result = call("report", str(forged), "--out", "elsewhere")
    assert result.exit_code == 3 and not (store.folder / "elsewhere").exists()


def test_verdicts_that_cannot_be_computed_again_are_marked(store, published):
    report = passing(json.loads((store.folder / "pages" / "audit.json").read_text(encoding="utf-8")))
    report["edition"] |= {"name": "mine", "digest": "0" * 64, "shipped": False}
    forged = store.folder / "forged.json"
    forged.write_text(json.dumps(report), encoding="utf-8")
    assert call("report", str(forged), "--out", "elsewhere").exit_code == 0
    (written,) = (store.folder / "elsewhere").glob("audit.json")
    remarks = json.loads(written.read_text(encoding="utf-8"))["remarks"]
    assert len(remarks) == len(report["remarks"]) + 1 and "mine" in remarks[-1]
