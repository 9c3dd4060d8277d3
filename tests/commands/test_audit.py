"""The audit command on real small runs: exit codes, missing and tampered files, what is written back to the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fa_registry import jsonio, process_ownership
from fa_registry.audits import audit_command
from fa_registry.audits.selection import select_runs
from fa_registry.cli import main
from fa_registry.diagnostics import CATALOG
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured
from fa_registry.diagnostics.h_norm import PLUGIN as H_NORM
from fa_registry.errors import StoreError
from fa_registry.evidence import remeasure, run_passes
from fa_registry.methods import CATALOG as METHODS
from fa_registry.plugin_registry import Location
from fa_registry.records import Reading, RunRecord
from fa_registry.studies.executors.base import JobEvent
from fa_registry.studies.options import RunSelector
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.measuring import NO_FEEDBACK
from tests.builders import verdict_tag
from tests.commands.conftest import fields
from tests.helpers.plugins import put_plugin

pytestmark = pytest.mark.long

AUDIT = ("audit", "--study", "tiny", "--device", "cpu")


def audited(registry, *more):
    result = registry(*AUDIT, "--json", *more)
    return result.exit_code, json.loads(result.stdout)


def run_of(method):
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run", "fa.method": method})
    return run


def spoil(method, name, change):
    """Change one artifact of the method's run."""
    path = MlflowTracker().artifact(run_of(method).run_id, name)
    change(path)


def entry(report, method):
    return next(
        run
        for run in report["report"]["runs"]
        if run["record"]["spec"]["method"] == method and run["record"]["spec"]["control"] == "none"
    )


def test_every_figure_is_recomputed_and_judged_against_the_frozen_control(drawn, trained):
    code, result = audited(trained)
    runs = result["report"]["runs"]
    assert {run["record"]["integrity"]["state"] for run in runs} == {"verified"}
    frozen = next(run for run in runs if run["record"]["spec"]["control"] == "frozen")
    assert frozen["verdict"]["label"] == "CONTROL"
    for run in runs:
        if run is not frozen:
            assert run["frozen_run_id"] == frozen["record"]["run_id"]
    labels = [run["verdict"]["outcome"] for run in runs if run is not frozen]
    assert code == (1 if "fail" in labels else 0)


def test_a_report_is_made_from_measured_runs_without_the_store(unpublished, trained, monkeypatch):
    calls, genuine = [], audit_command.make_report
    monkeypatch.setattr(
        audit_command, "make_report", lambda *given: calls.append((given, genuine(*given))) or calls[-1][1]
    )
    trained(*AUDIT)

    def refuse(*arguments, **named):
        raise StoreError("the store is not needed")

    for query in ("search", "get", "artifact", "log"):
        monkeypatch.setattr(MlflowTracker, query, refuse)
    ((given, report),) = calls
    assert genuine(*given) == report


def test_verdict_note_and_report_are_written_back_without_reopening_the_run(audited_once):
    run, verdict = run_of("dfa"), entry(audited_once, "dfa")["verdict"]["label"]
    assert run.state == "FINISHED"
    assert run.tags[verdict_tag("2026-05")] == verdict and verdict in run.tags[schema.TAG_NOTE]
    assert run.tags[schema.TAG_REPORT] == audited_once["audit_run_id"]
    tracker = MlflowTracker()
    assert tracker.artifact(audited_once["audit_run_id"], "index.html")
    assert tracker.artifact(audited_once["audit_run_id"], "audit.json")


def test_a_lost_feedback_file_makes_gamma_na_and_leaves_the_verdict_but_for_a_warning(unpublished, trained):
    before = entry(audited(trained)[1], "dfa")["verdict"]
    spoil("dfa", schema.FEEDBACK, lambda path: path.unlink())
    for trust, more in (
        ((), [{"rule": "credit rule", "state": "not told apart", "side": ""}]),
        (("--trust-logged",), []),
    ):
        _, result = audited(trained, *trust)
        run = entry(result, "dfa")
        assert run["verdict"]["outcome"] == before["outcome"] and run["verdict"]["flags"] == [*before["flags"], *more]
        assert set(map(str, run["record"]["measurements"]["sites"]["gamma"])) == {str({"na": NO_FEEDBACK})}
        assert run["record"]["measurements"]["scalars"]["gamma_deep_mean"] == {"na": NO_FEEDBACK}
        assert run["record"]["integrity"]["state"] == "unverifiable"


def flip_last_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def test_a_file_that_was_changed_is_an_integrity_failure(unpublished, trained):
    changed = {"bp": schema.FINAL, "fa": schema.FEEDBACK, "dfa": schema.FEEDBACK_CARD, "frozen": schema.MEASUREMENTS}
    for method, name in changed.items():
        spoil(method, name, flip_last_byte)
    for trust in ((), ("--trust-logged",)):  # trusted are the figures, not the files behind them
        code, result = audited(trained, *trust)
        excluded = {one["run_id"]: one for one in result["report"]["excluded"]}
        assert code == 3 and excluded.keys() == {run_of(method).run_id for method in changed}
        for method, name in changed.items():
            one = excluded[run_of(method).run_id]
            assert one["kind"] == "integrity" and "SHA-256" in one["reason"] and name in one["reason"]


def test_without_the_frozen_control_nothing_passes(unpublished, trained):
    ids = [run_of(method).run_id for method in ("bp", "fa", "dfa")]
    result = trained("audit", *(part for run_id in ids for part in ("--run", run_id)), "--json")
    report = json.loads(result.stdout)["report"]
    assert result.exit_code == 3
    assert all(run["verdict"]["label"].startswith("INCOMPLETE") for run in report["runs"])


def test_a_study_that_is_half_trained_is_incomplete_and_says_what_is_missing(unpublished, trained, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace("seeds = [1]", "seeds = [1, 2]"))
    code, result = audited(trained)
    assert code == 3
    assert {(one["kind"], one["spec"]["seed"]) for one in result["report"]["excluded"]} == {("not trained", 2)}


def test_a_half_written_run_is_refused_visibly(unpublished, trained):
    half_written = {run_of("dfa").run_id: "running", run_of("fa").run_id: "failed"}
    for run_id, status in half_written.items():
        tags = {schema.TAG_STATUS: status, schema.TAG_PROCESS: process_ownership.process_tag()}
        MlflowTracker().log(run_id, tags=tags)
        MlflowTracker().remove_tags(run_id, [schema.TAG_ARTIFACTS])  # not recorded yet: nothing can be hidden in it
    code, result = audited(trained)
    excluded = result["report"]["excluded"]
    assert code == 3 and {one["run_id"] for one in excluded} == half_written.keys()
    for one in excluded:
        assert one["kind"] != "integrity" and half_written[one["run_id"]] in one["reason"]
    printed = trained(*AUDIT).stdout
    assert all(one["name"] in printed and one["reason"] in printed for one in excluded)


def test_a_diverged_run_is_audited_as_such(drawn, registry, workplace):
    path = workplace / "tiny" / "study.toml"
    text = path.read_text().replace("epochs = 2", "epochs = 2\nlearning_rate = 1e30")
    path.write_text(text.replace('"bp", "fa", "dfa"', '"dfa"'))
    registry("study", "tiny", "--device", "cpu", "--jobs", "1")
    _, result = audited(registry)
    label = entry(result, "dfa")["verdict"]["label"]
    assert label.startswith("DIVERGED") and "D1" in label


def test_runs_of_an_older_specification_are_counted_not_hidden(unpublished, trained):
    trained("study", "tiny", "--device", "cpu", "--epochs", "1", "--jobs", "1")
    _, result = audited(trained, "--trust-logged")
    assert len(result["report"]["runs"]) == 4 and result["report"]["choice"]["others"] == 4


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (AUDIT, "tiny"),
        (("audit",), "none"),
        (("audit", "--study", "tiny", "--run", "x"), "found --study, --run"),
        (("audit", "--study", "tinny"), "unknown study 'tinny'"),
        (("audit", "--run", "nowhere"), "run 'nowhere'"),
        (("audit", "--experiment", "nowhere"), "no experiment 'nowhere'"),
    ],
)
def test_an_audit_of_nothing_is_a_usage_error(registry, workplace, arguments, name):
    result = registry(*arguments)
    assert result.exit_code == 2 and name in result.stderr
    assert not (workplace / "reports").exists()


def test_asking_for_an_unknown_experiment_creates_none(registry):
    registry("audit", "--experiment", "nowhere")
    with pytest.raises(StoreError, match="known experiments: Default$"):
        select_runs(MlflowTracker(), RunSelector(experiment="nowhere"))


def test_an_experiment_can_be_audited_whole_and_exit_zero_is_for_notebooks(unpublished, trained):
    for more, code in (((), 1), (("--exit-zero",), 0)):
        result = trained(
            "audit", "--experiment", "fa_registry", "--edition", "2026-05", "--trust-logged", "--json", *more
        )
        assert result.exit_code == code and len(json.loads(result.stdout)["report"]["runs"]) == 4


def test_a_run_that_claims_another_specification_is_an_integrity_failure(unpublished, trained):
    tracker = MlflowTracker()
    tracker.log(run_of("dfa").run_id, tags={schema.TAG_SPEC: run_of("fa").tags[schema.TAG_SPEC]})
    code, result = audited(trained)
    assert code == 3
    excluded = {(one["run_id"], one["kind"]) for one in result["report"]["excluded"]}
    assert (run_of("dfa").run_id, "integrity") in excluded


def test_the_traceback_of_a_broken_run_reaches_the_page(trained, workplace, monkeypatch):
    def broken(*arguments, **named):
        raise RuntimeError("on fire <b>")

    monkeypatch.setattr("fa_registry.studies.training_job.train_epochs", broken)
    assert trained("train", "--method", "dfa", "--seed", "5", "--epochs", "1", "--device", "cpu").exit_code == 1
    result = trained("audit", "--experiment", "fa_registry", "--json")
    assert result.exit_code == 3
    (excluded,) = json.loads(result.stdout)["report"]["excluded"]
    assert "on fire <b>" in excluded["failure"]
    assert "on fire &lt;b&gt;" in (workplace / "reports" / "index.html").read_text()


def test_an_audit_stands_in_the_experiment_of_its_runs(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace('"bp", "fa", "dfa"', '"dfa"'))
    registry("study", "tiny", "--jobs", "1", "--device", "cpu", "--experiment", "elsewhere")
    _, result = audited(registry, "--trust-logged")
    audit = MlflowTracker().get(result["audit_run_id"])
    assert (audit.experiment, audit.tags[schema.TAG_STATUS], audit.state) == (
        "elsewhere",
        "complete",
        "FINISHED",
    )


def test_an_audit_that_cannot_be_logged_leaves_no_run_running(trained, monkeypatch):
    monkeypatch.setattr(MlflowTracker, "upload", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trained(*AUDIT)
    (audit,) = MlflowTracker().search({schema.TAG_KIND: "audit"})
    assert (audit.state, audit.tags[schema.TAG_STATUS]) == ("FAILED", "failed")


def test_a_wrong_request_is_refused_before_anything_is_measured(trained, workplace):
    (workplace / "taken").write_text("a file")
    result = trained(*AUDIT, "--out", "taken", "--templates", "none", "--edition", "2099-01")
    assert sorted(fields(result)) == ["edition", "out", "templates"]


def test_reading_makes_no_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (("audit", "--study", "digits"), ("verify", "--study", "digits"), ("show", "abc")):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


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
def moody(monkeypatch, measured_each_time):
    """The catalog of diagnostics with one more plugin, which knows whose run is being recomputed."""
    genuine = remeasure.remeasure

    def remembering(task, *arguments):
        monkeypatch.setattr(Moody, "measuring", task.spec.method_label)
        return genuine(task, *arguments)

    monkeypatch.setattr(remeasure, "remeasure", remembering)
    put_plugin(monkeypatch, CATALOG, "moody", Location(__name__, "MOODY", __file__))
    assert CATALOG.get("moody") is MOODY


def test_a_run_whose_gathering_breaks_is_excluded_with_its_traceback_and_the_others_are_judged(
    trained, workplace, monkeypatch
):
    genuine, broken = remeasure.remeasure_run, run_of("fa").run_id

    def gather(tracker, run, *more):
        if run.run_id == broken:
            raise RuntimeError("<on> fire")
        return genuine(tracker, run, *more)

    monkeypatch.setattr(remeasure, "remeasure_run", gather)
    code, result = audited(trained)
    report = result["report"]
    (excluded,) = report["excluded"]
    assert code == 3 and excluded["run_id"] == broken and len(report["runs"]) == 3
    assert excluded["kind"] == "broken" and "RuntimeError: <on> fire" in excluded["failure"]
    page = (workplace / "reports" / "index.html").read_text()
    assert "in gather" in page and "<on>" not in page
    assert {path.suffix for path in (workplace / "reports" / "forms").iterdir()} == {".html", ".md"}
    assert len(list((workplace / "reports" / "forms").iterdir())) == 4  # bp and dfa, two files each


def test_a_run_whose_record_cannot_be_read_does_not_end_the_audit(unpublished, trained):
    """Its files are the recorded ones, and still no record: written by another version, say."""
    run = run_of("fa")
    tracker = MlflowTracker()
    path = tracker.artifact(run.run_id, schema.PROVENANCE)
    provenance = json.loads(path.read_text())
    del provenance["digests"]
    path.write_text(json.dumps(provenance))
    code, result = audited(trained)
    (excluded,) = result["report"]["excluded"]
    assert code == 3 and excluded["kind"] == "integrity" and "digests" in excluded["reason"]


def test_a_diagnostic_that_crashes_for_one_run_costs_that_run_its_verdict_alone(trained, workplace, moody):
    code, result = audited(trained, "--threshold", "D3=-100")  # nothing fires: what breaks is all there is to say
    report = result["report"]
    assert code == 3 and len(report["runs"]) == 4 and report["excluded"] == []
    outcomes = [entry(result, method)["verdict"]["outcome"] for method in ("bp", "fa", "dfa")]
    assert outcomes == ["pass", "incomplete", "pass"]
    (error,) = [finding for run in report["runs"] for finding in run["findings"] if finding["outcome"] == "error"]
    assert error["run_id"] == run_of("fa").run_id and error["rule"] == "moody"
    assert "Traceback" in error["detail"] and "<b>mood</b>" in error["detail"]
    assert entry(result, "dfa")["record"]["measurements"]["scalars"]["mood"] == 1.0
    page = (workplace / "reports" / "index.html").read_text()
    assert "Traceback" in page and "&lt;b&gt;mood&lt;/b&gt;" in page


def records(result):
    return [jsonio.canonical(jsonio.decode(RunRecord, run["record"])) for run in result["report"]["runs"]]


def test_processes_give_the_same_figures_bit_by_bit_and_one_broken_run_breaks_no_other(unpublished, trained):
    spoil("fa", schema.FEEDBACK, lambda path: path.write_bytes(b"nothing"))
    codes, results = zip(*(audited(trained, "--jobs", jobs) for jobs in ("1", "2")), strict=True)
    here, there = results
    assert codes == (3, 3) and here["report"]["excluded"] == there["report"]["excluded"] != []
    assert records(here) == records(there) and len(records(here)) == 3
    assert here["report"]["runs"] == there["report"]["runs"]


@pytest.mark.parametrize("broken_pass", [0, 1])
def test_a_worker_that_dies_is_the_reason_of_its_runs(unpublished, trained, monkeypatch, broken_pass):
    """The first pass recomputes the runs, and the second replays some of them to their end."""
    passes = []

    def dying(jobs, work, processes, stop, tell):
        passes.append(len(jobs))
        for index, job in enumerate(jobs):
            if index == 0 and len(passes) == broken_pass + 1:
                tell(JobEvent(0, "failed", "the worker process died: BrokenProcessPool('terminated abruptly')"))
            else:
                tell(JobEvent(index, "done", work(job, stop, lambda news: None)))

    monkeypatch.setattr(run_passes, "run_jobs", dying)
    code, result = audited(trained, "--jobs", "2")
    (excluded,) = result["report"]["excluded"]
    assert code == 3 and len(result["report"]["runs"]) == 3 and "BrokenProcessPool" in excluded["failure"]
    assert excluded["kind"] == "broken"


def test_an_audit_that_is_stopped_judges_nothing(trained, workplace, monkeypatch):
    def stopped(jobs, work, processes, stop, tell):
        for index in range(1, len(jobs)):
            tell(JobEvent(index, "stopped"))

    monkeypatch.setattr(run_passes, "run_jobs", stopped)
    result = trained(*AUDIT, "--jobs", "2")
    assert result.exit_code == 130
    assert not (workplace / "reports").exists()


def test_logged_figures_are_judged_where_a_plugin_of_theirs_is_not_installed(trained, monkeypatch, measured_each_time):
    left = {name: METHODS.location(name) for name in METHODS.names() if name != "fa"}
    ids = [part for method in ("bp", "fa", "dfa") for part in ("--run", run_of(method).run_id)]
    monkeypatch.setitem(vars(METHODS), "_locations", left)
    report = json.loads(trained("audit", *ids, "--trust-logged", "--json").stdout)["report"]
    assert len(report["runs"]) == 3 and "methods/fa" not in report["cards"] and "methods/dfa" in report["cards"]
    measured = json.loads(trained("audit", *ids, "--json").stdout)["report"]
    (run,) = (run for run in measured["runs"] if run["record"]["spec"]["method"] == "fa")
    assert run["verdict"]["label"].startswith("INCOMPLETE") and run["record"]["integrity"]["state"] == "unverifiable"
    assert "unknown method 'fa'" in run["record"]["integrity"]["details"][0] and not measured["excluded"]


@pytest.mark.long
def test_runs_of_a_network_that_is_not_trained_are_judged(unpublished, registry):
    """In toy_lq only feedback learns: all methods keep the initial weights, which is no copy."""
    for method in ("bp", "dfa"):
        text = f"--method {method} --architecture linear_lq --dataset lq --seed 42 --epochs 1 --set batch_size=512"
        assert registry("train", *text.split()).exit_code == 0
    assert registry("audit", "--experiment", "fa_registry", "--replay", "off", "--exit-zero").exit_code == 0
    report = json.loads(Path("reports", "audit.json").read_text(encoding="utf-8"))
    assert {run["record"]["spec"]["method"] for run in report["runs"]} == {"bp", "dfa"} and report["excluded"] == []
    checks = [check for run in report["runs"] for check in run["record"]["integrity"]["checks"]]
    assert {check["outcome"] for check in checks if check["subject"] == "final weights"} == {"agrees"}


@pytest.mark.long
def test_an_audit_that_replaces_the_pages_of_another_says_so(trained):
    def warned(*words):
        return trained("audit", *words, "--trust-logged", "--exit-zero").stderr.count("contained: Audit")

    assert warned("--study", "tiny") == 0 and warned("--study", "tiny") == 0
    assert warned("--experiment", "fa_registry", "--out", "elsewhere") == 0
    assert warned("--experiment", "fa_registry") == 1


@pytest.mark.long
def test_a_diagnostic_that_crashes_from_training_on_stops_neither_training_nor_audit(
    registry, workplace, monkeypatch, measured_each_time
):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace('"bp", "fa", "dfa"', '"dfa"'))
    monkeypatch.setattr(type(H_NORM), "measure", lambda self, observation: 1 / 0)
    study = registry("study", "tiny", "--jobs", "1", "--device", "cpu", "--stop-on", "D1")
    assert study.exit_code == 0
    audit = registry(*AUDIT, "--threshold", "D3=-100")  # nothing fires
    assert audit.exit_code == 3 and "INCOMPLETE" in audit.stdout and "N/A" in audit.stdout
    assert "fa.first_fire.D1" not in run_of("dfa").tags  # what was not measured has not fired
