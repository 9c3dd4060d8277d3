"""An audit that meets a broken run, a broken diagnostic or a dead worker ends, and says so with the traceback."""

from __future__ import annotations

import json

import pytest

from fa_registry import jsonio
from fa_registry.catalog import Location
from fa_registry.diagnostics import CATALOG
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured
from fa_registry.diagnostics.h_norm import PLUGIN as H_NORM
from fa_registry.methods import CATALOG as METHODS
from fa_registry.records import Reading, RunRecord
from fa_registry.studies.executors.base import JobEvent
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.workflows import evidence
from fa_registry.workflows import evidence as gathering
from tests.workflows.test_audit import AUDIT, audited, entry, run_of, spoil


class Moody(Diagnostic):
    """A diagnostic that raises while a run of the method `cross_with` is measured."""

    card = DiagnosticCard("moody", "m", "a fake", ("mood",), "none", "any", "anything", "a test")
    cross_with, measuring = "fa", ""

    def measure(self, observation):
        if self.measuring == self.cross_with:
            raise RuntimeError("not in the <b>mood</b>")
        return Measured(scalars={"mood": Reading(1.0)})


MOODY = Moody()


@pytest.fixture
def moody(monkeypatch):
    """The catalog of diagnostics with one more plugin, which knows whose run is being measured again."""
    genuine = evidence.remeasure

    def remeasure(spec, *arguments):
        monkeypatch.setattr(Moody, "measuring", spec.method_label)
        return genuine(spec, *arguments)

    monkeypatch.setattr(evidence, "remeasure", remeasure)
    location = Location(__name__, "MOODY", __file__)
    monkeypatch.setitem(vars(CATALOG), "_locations", {**CATALOG._locations, "moody": location})
    assert CATALOG.get("moody") is MOODY


def test_a_run_whose_gathering_breaks_is_excluded_with_its_traceback_and_the_others_are_judged(
    trained, workplace, monkeypatch
):
    genuine, broken = gathering.gather, run_of("fa").run_id

    def gather(tracker, run, *more):
        if run.run_id == broken:
            raise RuntimeError("the disk is <on> fire")
        return genuine(tracker, run, *more)

    monkeypatch.setattr(gathering, "gather", gather)
    code, result = audited(trained)
    report = result["report"]
    (excluded,) = report["excluded"]
    assert code == 3 and excluded["run_id"] == broken and len(report["runs"]) == 3
    assert excluded["reason"] == "cannot be measured again: RuntimeError: the disk is <on> fire"
    assert "Traceback" in excluded["failure"] and "RuntimeError" in excluded["failure"]
    page = (workplace / "reports" / "index.html").read_text()
    assert "Traceback" in page and "in gather" in page and "<on>" not in page
    assert {path.suffix for path in (workplace / "reports" / "forms").iterdir()} == {".html", ".md", ".tex"}
    assert len(list((workplace / "reports" / "forms").iterdir())) == 6  # bp and dfa, three files each


def test_a_run_whose_files_lie_is_still_an_integrity_failure(trained):
    spoil("fa", schema.MEASUREMENTS, lambda path: path.write_text("{}"))
    code, result = audited(trained)
    (excluded,) = result["report"]["excluded"]
    assert code == 3 and excluded["reason"].startswith("integrity failure: ") and excluded["failure"] == ""


def test_a_run_whose_record_cannot_be_read_does_not_end_the_audit(trained):
    """Its files are the recorded ones, and still no record: written by another version, say."""
    run = run_of("fa")
    tracker = MlflowTracker()
    path = tracker.artifact(run.run_id, schema.PROVENANCE)
    provenance = json.loads(path.read_text())
    del provenance["digests"]
    path.write_text(json.dumps(provenance))
    code, result = audited(trained)
    (excluded,) = result["report"]["excluded"]
    assert code == 3 and excluded["reason"] == "cannot be measured again: KeyError: 'digests'"


def test_a_diagnostic_that_crashes_for_one_run_costs_that_run_its_verdict_alone(trained, workplace, moody):
    code, result = audited(trained, "--threshold", "D3=-100")  # nothing fires: what breaks is all there is to say
    report = result["report"]
    assert code == 3 and len(report["runs"]) == 4 and report["excluded"] == []
    assert [entry(result, method)["verdict"]["outcome"] for method in ("bp", "fa", "dfa")] == [
        "pass",
        "incomplete",
        "pass",
    ]
    (error,) = [finding for run in report["runs"] for finding in run["findings"] if finding["outcome"] == "error"]
    assert error["run_id"] == run_of("fa").run_id and error["rule"] == "moody"
    assert "Traceback" in error["detail"] and "RuntimeError: not in the <b>mood</b>" in error["detail"]
    assert entry(result, "dfa")["record"]["measurements"]["scalars"]["mood"] == 1.0
    page = (workplace / "reports" / "index.html").read_text()
    assert "moody: the diagnostic crashed, what it measures is missing" in page


def test_the_page_shows_the_traceback_of_a_crashed_diagnostic(trained, workplace, moody):
    trained(*AUDIT)
    page = (workplace / "reports" / "index.html").read_text()
    assert "Traceback" in page and "not in the &lt;b&gt;mood&lt;/b&gt;" in page


def test_a_diagnostic_that_crashes_from_training_on_stops_neither_training_nor_audit(registry, monkeypatch):
    monkeypatch.setattr(type(H_NORM), "measure", lambda self, observation: 1 / 0)
    study = registry("study", "tiny", "--jobs", "1", "--device", "cpu", "--stop-on", "D1")
    assert study.exit_code == 0 and "4 trained" in study.stdout
    audit = registry(*AUDIT, "--threshold", "D3=-100")  # nothing fires: what is missing is all there is to say
    assert audit.exit_code == 3 and "INCOMPLETE" in audit.stdout and "N/A" in audit.stdout
    assert "fa.first_fire.D1" not in run_of("dfa").tags  # what was not measured has not fired


def records(result):
    return [jsonio.canonical(jsonio.decode(RunRecord, run["record"])) for run in result["report"]["runs"]]


def test_processes_give_the_same_figures_bit_by_bit_and_one_broken_run_breaks_no_other(trained):
    spoil("fa", schema.FEEDBACK, lambda path: path.write_bytes(b"nothing"))
    codes, results = zip(*(audited(trained, "--jobs", jobs) for jobs in ("1", "2")), strict=True)
    here, there = results
    assert codes == (3, 3) and here["report"]["excluded"] == there["report"]["excluded"] != []
    assert records(here) == records(there) and len(records(here)) == 3
    assert here["report"]["runs"] == there["report"]["runs"]


def test_a_worker_that_dies_is_the_reason_of_its_runs(trained, monkeypatch):
    def dying(jobs, work, processes, stop, tell):
        tell(JobEvent(0, "failed", "the worker process died: BrokenProcessPool('terminated abruptly')"))
        for index in range(1, len(jobs)):
            tell(JobEvent(index, "done", work(jobs[index], stop, lambda news: None)))

    monkeypatch.setattr(gathering, "run_jobs", dying)
    code, result = audited(trained, "--jobs", "2")
    (excluded,) = result["report"]["excluded"]
    assert code == 3 and len(result["report"]["runs"]) == 3 and "BrokenProcessPool" in excluded["failure"]
    assert excluded["reason"].startswith("cannot be measured again: the worker process died")


def test_an_audit_that_is_stopped_judges_nothing(trained, workplace, monkeypatch):
    def stopped(jobs, work, processes, stop, tell):
        for index in range(1, len(jobs)):
            tell(JobEvent(index, "stopped"))

    monkeypatch.setattr(gathering, "run_jobs", stopped)
    result = trained(*AUDIT, "--jobs", "2")
    assert result.exit_code == 130 and "stopped while runs were measured again" in result.stderr
    assert not (workplace / "reports").exists()


def test_progress_names_every_run_and_how_it_went(trained):
    spoil("fa", schema.FINAL, lambda path: path.unlink())
    result = trained(*AUDIT)
    assert "measuring 4 runs again" in result.stderr and result.stderr.count(": verified") == 3
    assert "fa · resmlp-16x2 · digits · 2 epochs · s1: integrity failure: " in result.stderr
    assert "again" not in trained(*AUDIT, "--trust-logged").stderr


def test_logged_figures_are_judged_where_a_plugin_of_theirs_is_not_installed(trained, monkeypatch):
    left = {name: place for name, place in METHODS._locations.items() if name != "fa"}
    ids = [part for method in ("bp", "fa", "dfa") for part in ("--run", run_of(method).run_id)]
    monkeypatch.setitem(vars(METHODS), "_locations", left)
    report = json.loads(trained("audit", *ids, "--trust-logged", "--json").stdout)["report"]
    assert len(report["runs"]) == 3 and "methods/fa" not in report["cards"] and "methods/dfa" in report["cards"]
    measured = json.loads(trained("audit", *ids, "--json").stdout)["report"]
    (run,) = (one for one in measured["runs"] if one["record"]["spec"]["method"] == "fa")
    assert run["verdict"]["label"].startswith("INCOMPLETE") and run["record"]["integrity"]["state"] == "unverifiable"
    assert "unknown method 'fa'" in run["record"]["integrity"]["details"][0] and not measured["excluded"]
