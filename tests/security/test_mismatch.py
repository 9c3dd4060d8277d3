"""A run whose figures are not those of the manifest gets no verdict, regardless of the metrics."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fa_registry import jsonio
from fa_registry.errors import IntegrityError
from fa_registry.protocol.engine import judge, judge_all
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport
from fa_registry.reporting.render import render_report
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.workflows.promote import verified
from tests.helpers.pictures import blank_pictures
from tests.helpers.stores import copy_store, made_once, working_in
from tests.security.attacks import Store
from tests.security.conftest import audited, call, judged, written_report
from tests.security.test_tables import caught, excluded

ATTACKED = {"method": "dfa", "seed": 2}


def raise_accuracy(store, run_id, by=0.1):
    """In the figures and in the series, so that only recomputing shows it."""

    def change(held):
        for name in ("accuracy", "h_L", "growth_max", "g_L", "gamma_deep_mean", "stability_mid", "fidelity_min"):
            if isinstance(held["scalars"].get(name), float):
                held["scalars"][name] += by

    store.change_json(run_id, schema.MEASUREMENTS, change)
    store.seal(run_id)


@pytest.fixture(scope="session")
def attacked_store(honest, tmp_path_factory) -> Path:
    """The folder of a store in which a dfa run was judged, its figures then made better and sealed again; and its audit."""

    def attack(folder: Path) -> None:
        copy_store(honest, folder)
        run_id = Store(folder).run_id(**ATTACKED)
        with working_in(folder), blank_pictures():
            assert audited(folder, published=True)[0] in (0, 1)
            shutil.copy(folder / "pages" / "audit.json", folder / "before.json")
            raise_accuracy(Store(folder), run_id)
            assert audited(folder, published=True)[0] == 3

    return made_once(tmp_path_factory, "attacked", attack)


@pytest.fixture(scope="session")
def honest_report(attacked_store) -> AuditReport:
    """The report of the audit before the attack."""
    return jsonio.decode(AuditReport, json.loads((attacked_store / "before.json").read_text(encoding="utf-8")))


@pytest.fixture
def attacked(attacked_store, store):
    """The run that was attacked, and the report after; its store is the test's."""
    copy_store(attacked_store, store.folder)
    return store.run_id(**ATTACKED), written_report(store.folder)


def test_it_is_not_judged_with_the_figures_that_differ_named(attacked):
    run_id, report = attacked
    caught(report, run_id, "files: measurements.json contains ", "accuracy: logged 0.", ", recomputed 0.")
    assert "and " in excluded(report, run_id).reason and "in all)" in excluded(report, run_id).reason
    assert {run.record.spec.seed for run in judged(report, method="dfa")} == {1, 3}


def test_no_tag_says_a_verdict(store, attacked):
    run_id, _ = attacked
    tags = store.tags(run_id)
    verdicts = {value for name, value in tags.items() if name.startswith(schema.TAG_VERDICT)}
    assert verdicts == {"NOT JUDGED (integrity failure)"}
    assert tags[schema.TAG_NOTE].startswith("**NOT JUDGED (integrity failure)**")
    form = (store.artifacts(run_id) / schema.FORM).read_text(encoding="utf-8")  # an older audit left one with a verdict
    assert (store.artifacts(run_id) / schema.SHORT_FORM).read_text(encoding="utf-8") == tags[schema.TAG_NOTE]
    assert "<h1>NOT JUDGED</h1>" in form and "FAIL" not in form and "Claims" not in form


def test_the_pages_show_it_and_claim_nothing_of_it(store, attacked):
    run_id, report = attacked
    index = (store.folder / "pages" / "index.html").read_text(encoding="utf-8")
    assert "1 run is NOT JUDGED, integrity failure:" in index and "1 mismatch" in index
    (form,) = (store.folder / "pages" / "forms").glob("dfa*.md")
    text = form.read_text(encoding="utf-8")
    assert "**Not judged, and not included in these metrics:** seed 2" in text
    assert f"| dfa | 2 | {run_id}" not in text
    assert "**figures**: 2 agree, 1 differ" in text and "**tables**: 3 agree" in text
    cases = ElementTree.parse(store.folder / "pages" / "junit.xml").iter("testcase")
    (mine,) = [case for case in cases if run_id in case.get("name")]
    assert mine.find("error") is not None
    csv = (store.folder / "pages" / "audit.csv").read_text(encoding="utf-8")
    (line,) = [line for line in csv.splitlines() if run_id in line]
    assert "excluded" in line and "mismatch" in line and "PASS" not in line


def test_promote_refuses_it(store, attacked):
    run_id, _ = attacked
    result = call("promote", run_id, "--override-reason", "I like it")
    assert result.exit_code == 2, result.output
    # independent of earlier audits, it is recomputed first
    with pytest.raises(IntegrityError, match="accuracy: logged"):
        verified(MlflowTracker(), MlflowTracker().get(run_id))


def test_verify_tells_the_figures(attacked):
    run_id, _ = attacked
    result = call("verify", "--run", run_id, "--json")
    found, *audits = json.loads(result.stdout)
    states = {audit["name"].partition(" of ")[0]: audit["integrity"]["state"] for audit in audits}
    # the audit excluded the run, and that is what its pages say
    assert states == {"the verdicts": "verified", "the pages": "verified"}
    assert result.exit_code == 3 and found["integrity"]["state"] == "mismatch"
    assert any(line.startswith("accuracy: logged") for line in found["integrity"]["details"])


@pytest.mark.parametrize(
    "command", [("compare", "dfa", "bp", "--study", "tiny"), ("analyse", "aggregation", "--study", "tiny")]
)
def test_the_other_commands_drop_it_too(attacked, command):
    for more in ((), ("--recompute",)):
        result = call(*command, *more)
        assert result.exit_code == 3, result.output


def test_a_frozen_control_that_was_lowered_is_no_reference(store, audit):
    control = store.run_id(control="frozen", seed=1)
    raise_accuracy(store, control, -0.2)
    code, report = audit()
    assert code == 3
    caught(report, control, "accuracy: logged")
    for run in judged(report, seed=1):
        assert run.frozen_run_id == "" and run.verdict.outcome not in ("pass", "warn")


def spoiled(report: AuditReport, method: str, seed: int, control: str = "none") -> AuditReport:
    """The report as an older release wrote it: a mismatch, and a verdict all the same."""
    raw = jsonio.encode(report)
    for run in raw["runs"]:
        spec = run["record"]["spec"]
        if (spec["method"], spec["seed"], spec["control"]) == (method, seed, control):
            run["record"]["integrity"] = {"state": "mismatch", "details": ["accuracy: logged 1.0, recomputed 0.2"]}
            run["verdict"] = {"outcome": "pass", "label": "PASS", "flags": []}
    return jsonio.decode(AuditReport, raw)


def test_an_old_report_is_shown_without_the_verdict_of_a_mismatch(honest_report, tmp_path):
    report = spoiled(honest_report, "dfa", 2)
    pages = {path.name: path.read_text(encoding="utf-8") for path in render_report(report, tmp_path)}
    assert "1 run is NOT JUDGED, integrity failure:" in pages["index.html"]
    assert not [name for name in pages if name.startswith("dfa")]
    dfa = [line for line in pages["audit.csv"].splitlines() if ",dfa" in line]
    assert len(dfa) == 3 and all("excluded" in line and "PASS" not in line for line in dfa)
    assert (
        jsonio.decode(AuditReport, json.loads(pages["audit.json"])) == report
    )  # the file itself stays what was recorded


def test_an_old_report_does_not_judge_by_a_control_that_is_a_mismatch(honest_report, tmp_path):
    report = spoiled(honest_report, "bp", 1, "frozen")
    pages = {path.name: path.read_text(encoding="utf-8") for path in render_report(report, tmp_path)}
    assert not [name for name in pages if name.endswith(".md")]
    assert pages["index.html"].count("the run was judged together with a run whose integrity is a mismatch") >= 9


def test_the_protocol_alone_gives_no_verdict(honest_report):
    """A direct call, with or without a control."""
    edition = load_edition("2026-11")
    records = [run.record for run in spoiled(honest_report, "dfa", 2).runs]
    (mine,) = [run for run in judge_all(records, edition) if run.record.integrity.state == "mismatch"]
    assert (mine.verdict.outcome, mine.verdict.label) == ("incomplete", "NOT JUDGED")
    assert judge(mine.record, None, edition).verdict.label == "NOT JUDGED"
    controls = [run.record for run in spoiled(honest_report, "bp", 1, "frozen").runs]
    assert {run.frozen_run_id for run in judge_all(controls, edition) if run.record.spec.seed == 1} == {""}
