"""A run whose figures are not those of the manifest gets no verdict, regardless of the metrics."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fa_registry import jsonio
from fa_registry.audits.promote import verified
from fa_registry.audits.reports import load_report
from fa_registry.errors import IntegrityError, InvalidFields
from fa_registry.protocol.engine import judge, judge_all
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.helpers.pictures import blank_pictures
from tests.helpers.stores import copy_store, made_once, working_in
from tests.security.attacks import Store
from tests.security.conftest import audited, call, judged, written_report
from tests.security.test_tables import caught

ATTACKED = {"method": "dfa", "seed": 2}


def raise_accuracy(store, run_id, by=0.1):
    """In the figures and in the series, so that only recomputing shows it."""

    def change(held):
        for name in ("accuracy", "h_L", "growth_max", "g_L", "gamma_deep_mean", "stability_mid", "fidelity_min"):
            if isinstance(held["scalars"].get(name), float):
                held["scalars"][name] += by

    store.change_json(run_id, schema.MEASUREMENTS, change)
    store.write_manifest(run_id)


@pytest.fixture(scope="session")
def attacked_store(honest, tmp_path_factory) -> Path:
    """The folder of a store in which a dfa run was judged, its figures then made better and recorded again; and its audit."""

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


@pytest.mark.long
def test_it_is_not_judged_with_the_figures_that_differ_named(attacked):
    run_id, report = attacked
    caught(report, run_id, "accuracy: logged 0.")
    assert {run.record.spec.seed for run in judged(report, method="dfa")} == {1, 3}


@pytest.mark.long
def test_no_tag_says_a_verdict(store, attacked):
    run_id, _ = attacked
    tags = store.tags(run_id)
    verdicts = {value for name, value in tags.items() if name.startswith(schema.TAG_VERDICT)}
    assert verdicts == {"NOT JUDGED (integrity failure)"}
    form = (store.artifacts(run_id) / schema.FORM).read_text(encoding="utf-8")  # an older audit left one with a verdict
    assert (store.artifacts(run_id) / schema.SHORT_FORM).read_text(encoding="utf-8") == tags[schema.TAG_NOTE]
    assert "NOT JUDGED" in form and "FAIL" not in form and "Claims" not in form
    cases = ElementTree.parse(store.folder / "pages" / "junit.xml").iter("testcase")
    (mine,) = [case for case in cases if run_id in case.get("name")]
    assert mine.find("error") is not None
    csv = (store.folder / "pages" / "audit.csv").read_text(encoding="utf-8")
    (line,) = [line for line in csv.splitlines() if run_id in line]
    assert "mismatch" in line and "PASS" not in line


@pytest.mark.long
def test_promote_refuses_it(store, attacked):
    run_id, _ = attacked
    result = call("promote", run_id, "--override-reason", "I like it")
    assert result.exit_code == 3 and "accuracy: logged" in result.output
    # independent of earlier audits, it is recomputed first
    with pytest.raises(IntegrityError, match="accuracy: logged"):
        verified(MlflowTracker(), MlflowTracker().get(run_id))


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        *("compare dfa bp --study tiny", "compare dfa bp --study tiny --recompute"),
        *("analyse aggregation --study tiny", "analyse aggregation --study tiny --recompute", "verify --study tiny"),
    ],
)
def test_the_other_commands_drop_it_too(attacked, command):
    assert call(*command.split()).exit_code == 3


def test_a_frozen_control_that_was_lowered_is_no_reference(store, audit):
    control = store.run_id(control="frozen", seed=1)
    raise_accuracy(store, control, -0.2)
    code, report = audit()
    assert code == 3
    caught(report, control, "accuracy: logged")
    for run in judged(report, seed=1):
        assert run.frozen_run_id == "" and run.verdict.outcome not in ("pass", "warn")


def spoiled(report: AuditReport, method: str, seed: int, control: str = "none") -> AuditReport:
    """A report that no audit writes: a mismatch, and a verdict all the same."""
    raw = jsonio.encode(report)
    for run in raw["runs"]:
        spec = run["record"]["spec"]
        if (spec["method"], spec["seed"], spec["control"]) == (method, seed, control):
            run["record"]["integrity"] = {"state": "mismatch", "details": ["accuracy: logged 1.0, recomputed 0.2"]}
            run["verdict"] = {"outcome": "pass", "label": "PASS", "flags": []}
    return jsonio.decode(AuditReport, raw)


@pytest.mark.long
def test_a_report_that_judges_a_mismatch_is_refused(honest_report, tmp_path):
    report = spoiled(honest_report, "dfa", 2)
    (index,) = [index for index, run in enumerate(report.runs) if run.record.integrity.state == "mismatch"]
    (tmp_path / "audit.json").write_text(jsonio.pretty(report), encoding="utf-8")
    with pytest.raises(InvalidFields) as refusal:
        load_report(tmp_path / "audit.json")
    (problem,) = refusal.value.problems
    assert problem.partition(": ")[0] == f"runs[{index}].record.integrity.state"
    assert call("report", str(tmp_path / "audit.json")).exit_code == 2


@pytest.mark.long
def test_the_protocol_alone_gives_no_verdict(honest_report):
    """A direct call, with or without a control."""
    edition = load_edition("2026-12")
    records = [run.record for run in spoiled(honest_report, "dfa", 2).runs]
    (mine,) = [run for run in judge_all(records, edition) if run.record.integrity.state == "mismatch"]
    assert (mine.verdict.outcome, mine.verdict.label) == ("incomplete", "NOT JUDGED")
    assert judge(mine.record, None, edition).verdict.label == "NOT JUDGED"
    controls = [run.record for run in spoiled(honest_report, "bp", 1, "frozen").runs]
    assert {run.frozen_run_id for run in judge_all(controls, edition) if run.record.spec.seed == 1} == {""}
