"""What an audit leaves in the store: on its own run, on every audited run, and on the study's."""

from __future__ import annotations

import json

import pytest

from fa_registry import jsonio, process_ownership
from fa_registry.audits import audit_command as workflow
from fa_registry.audits.audit_command import study_reference
from fa_registry.audits.publication import RULE, outdated_verdict_tags
from fa_registry.audits.recorded_verdicts import RecordedVerdict, recorded_verdicts
from fa_registry.audits.reports import recorded_report
from fa_registry.errors import StoreError
from fa_registry.evidence import remeasure
from fa_registry.jsonio import file_digest
from fa_registry.records import AuditReport
from fa_registry.studies.options import RunSelector
from fa_registry.tracking import schema
from fa_registry.tracking.base import Point
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.page_digests import check_audit_pages
from fa_registry.tracking.reader import read_record
from tests.builders import edition_text, verdict_tag
from tests.commands.conftest import call
from tests.commands.test_audit import AUDIT, audited, run_of, spoil

pytestmark = pytest.mark.long

TRUSTING = ("audit", "--study", "tiny", "--trust-logged")


def audit_logged(*more: str):
    """Audit the tiny study of the working folder with these options; returns what --json printed."""
    result = call(*TRUSTING, "--json", *more)
    assert result.stdout, result.output
    return json.loads(result.stdout)


@pytest.fixture
def trusting_audit(trained):
    return audit_logged


def test_every_run_has_the_leading_editions_verdict_as_a_column(audited_once):
    for run in audited_once["report"]["runs"]:
        stored = MlflowTracker().get(run["record"]["run_id"])
        assert stored.tags[schema.TAG_VERDICT] == run["verdict"]["label"] == stored.tags[verdict_tag("2026-05")]
        assert stored.tags[schema.TAG_PROOF] == run["verdict"]["proof"] == "stated"


def test_the_level_of_proof_is_that_of_the_newest_audit(trusting_audit):
    """The level belongs to an audit and not to a run, so the next audit replaces it."""

    def levels(*more: str) -> set[tuple[str, str]]:
        report = trusting_audit(*more)["report"]
        return {
            (run["verdict"]["proof"], MlflowTracker().get(run["record"]["run_id"]).tags[schema.TAG_PROOF])
            for run in report["runs"]
        }

    assert levels() == {("stated", "stated")}
    for replay, level in (("off", "stated"), ("8", "started"), ("auto", "replayed")):
        report = json.loads(call("audit", "--study", "tiny", "--device", "cpu", "--replay", replay, "--json").stdout)
        assert {run["verdict"]["proof"] for run in report["report"]["runs"]} == {level}
        assert run_of("dfa").tags[schema.TAG_PROOF] == level


def test_a_report_has_the_origin_of_its_nonce_and_the_number_of_audits(trained):
    def replay(*more: str) -> tuple[bool, int]:
        result = call("audit", "--study", "tiny", "--device", "cpu", "--json", *more)
        found = json.loads(result.stdout)["report"]["replay"]
        return found["typed"], found["audits"]

    assert replay() == (False, 1) and replay("--nonce", "1f") == (True, 2)
    assert call("audit", "--run", run_of("dfa").run_id, "--trust-logged").exit_code in (0, 1, 3)  # counts too
    assert replay() == (False, 4) and run_of("dfa").tags[schema.TAG_AUDITS] == "4"
    assert run_of("bp").tags[schema.TAG_AUDITS] == "4"
    for run_id in (run_of(method).run_id for method in ("bp", "fa", "dfa", "frozen")):
        MlflowTracker().log(run_id, tags={schema.TAG_AUDITS: "many"})  # no number: the count begins again
    assert replay() == (False, 1)


def test_a_verdict_by_other_thresholds_goes_with_the_next_audit_by_the_editions_own(trusting_audit):
    def verdicts() -> set[str]:
        return {name for name in run_of("dfa").tags if name.startswith(f"{schema.TAG_VERDICT}.")}

    own, changed = verdict_tag("2026-05"), f"{verdict_tag('2026-05')}.modified"
    trusting_audit("--threshold", "D1.threshold=1")
    assert verdicts() == {changed} and run_of("dfa").tags[schema.TAG_VERDICT].endswith(" (modified edition)")
    trusting_audit("--editions", "2026-12")  # of another edition: nothing is reported about this one
    assert verdicts() == {changed, verdict_tag("2026-12")}
    trusting_audit()
    assert verdicts() == {own, verdict_tag("2026-12")}
    trusting_audit("--threshold", "D1.threshold=1")  # the edition's own verdict is not taken back by another's
    assert verdicts() == {own, changed, verdict_tag("2026-12")}


def test_the_margin_is_a_metric_of_the_last_epoch(audited_once):
    tracker = MlflowTracker()
    accuracy = {
        method: read_record(tracker, run_of(method)).measurements.scalars["accuracy"].value
        for method in ("dfa", "frozen")
    }
    (point,) = tracker.history(run_of("dfa").run_id, ["margin_pp"])
    assert point.step == 2 and point.value == pytest.approx(100 * (accuracy["dfa"] - accuracy["frozen"]), rel=1e-3)
    assert not list(tracker.history(run_of("frozen").run_id, ["margin_pp"]))


def test_a_margin_that_an_audit_before_found_is_not_written_again(audited_copy):
    audit_logged()
    tracker, run = MlflowTracker(), run_of("dfa")
    (point,) = tracker.history(run.run_id, ["margin_pp"])
    tracker.log(run.run_id, [Point("margin_pp", point.value + 1, point.step)])
    audit_logged()
    assert run_of("dfa").metrics["margin_pp"] == point.value
    assert len(list(tracker.history(run.run_id, ["margin_pp"]))) == 3


def test_a_runs_note_leads_to_its_form_and_to_the_whole_audit(audited_once):
    audit_id = audited_once["audit_run_id"]
    tracker, run = MlflowTracker(), run_of("dfa")
    first, control = run.tags[schema.TAG_NOTE].splitlines()[0], run_of("frozen")
    for shown in (
        *(run.tags[schema.TAG_VERDICT], run.tags[schema.TAG_PROOF]),
        *(tracker.link(run.run_id, schema.FORM), tracker.link(audit_id, "index.html")),
    ):
        assert shown in first
    assert tracker.link(control.run_id, schema.FORM) not in control.tags[schema.TAG_NOTE]
    assert tracker.artifact(control.run_id, schema.FORM) is None


def test_the_form_is_next_to_the_run_and_breaks_no_manifest(audited_copy):
    tracker, run = MlflowTracker(), run_of("dfa")
    form = tracker.artifact(run.run_id, schema.FORM).read_text(encoding="utf-8")
    assert "<h1>dfa" in form and "../index.html" not in form
    assert read_record(tracker, run).run_id == run.run_id
    assert audited_copy("verify", "--run", run.run_id).exit_code == 0
    assert audited_copy("verify", "reports/audit.json").exit_code == 0


def assert_note_lies_at_the_root(method):
    run = run_of(method)
    short = MlflowTracker().artifact(run.run_id, schema.SHORT_FORM).read_text(encoding="utf-8")
    assert short == run.tags[schema.TAG_NOTE] and "/" not in schema.SHORT_FORM


def test_a_later_audit_replaces_the_form_and_the_note(audited_copy):
    """The note is stored at the root of every run, where MLflow puts two side by side."""
    first = run_of("dfa").tags[schema.TAG_REPORT]
    for method in ("dfa", "frozen"):
        assert_note_lies_at_the_root(method)
    second = audit_logged("--threshold", "D1.threshold=1")["audit_run_id"]
    run = run_of("dfa")
    assert run.tags[schema.TAG_REPORT] == second != first and first not in run.tags[schema.TAG_NOTE]
    form = MlflowTracker().artifact(run.run_id, schema.FORM).read_text(encoding="utf-8")
    assert "modified" in form
    for method in ("dfa", "frozen"):
        assert_note_lies_at_the_root(method)


def test_the_studys_note_says_what_was_found_above_what_it_asks(trusting_audit):
    tracker = MlflowTracker()
    (study,) = tracker.search({schema.TAG_KIND: "study"})
    asks = study.tags[schema.TAG_NOTE]
    trusting_audit()
    again = trusting_audit()["audit_run_id"]
    (study,) = tracker.search({schema.TAG_KIND: "study"})
    found, below = study.tags[schema.TAG_NOTE].split(RULE)
    assert below == asks and study.tags[schema.TAG_REPORT] == again
    assert found == tracker.get(again).tags[schema.TAG_NOTE].rstrip()
    assert "FAIL**" in found and tracker.link(again, "index.html") in found
    assert study.state == "FINISHED"


def test_an_audit_of_single_runs_leaves_the_studys_note_alone(trained):
    (before,) = MlflowTracker().search({schema.TAG_KIND: "study"})
    trained("audit", "--run", run_of("dfa").run_id, "--trust-logged")
    (after,) = MlflowTracker().search({schema.TAG_KIND: "study"})
    assert after.tags == before.tags


def test_a_run_whose_file_was_changed_loses_the_verdicts_of_older_audits(audited_copy):
    before = run_of("fa").tags
    assert before[schema.TAG_VERDICT] and "NOT JUDGED" not in before[schema.TAG_VERDICT]
    spoil("fa", schema.FEEDBACK, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!"))
    audit_logged("--editions", "2026-05")
    after = run_of("fa").tags
    verdicts = {name: value for name, value in after.items() if schema.is_verdict_tag(name)}
    names = {schema.TAG_VERDICT, schema.TAG_PROOF, verdict_tag("2026-05"), verdict_tag("2026-12")}
    assert set(verdicts) == names
    assert set(verdicts.values()) == {"NOT JUDGED (integrity failure)"} and "SHA-256" in after[schema.TAG_NOTE]
    assert "NOT JUDGED" not in run_of("dfa").tags[schema.TAG_VERDICT]
    audit = max(MlflowTracker().search({schema.TAG_KIND: "audit"}), key=lambda run: run.started)
    assert after[schema.TAG_EXCLUDED] == audit.run_id and schema.TAG_EXCLUDED not in run_of("dfa").tags
    excluded = {run_of("fa").run_id: RecordedVerdict("NOT JUDGED (integrity failure)")}
    assert recorded_verdicts(MlflowTracker(), [run_of("fa")]) == excluded
    MlflowTracker().log(run_of("fa").run_id, tags={schema.TAG_VERDICT: "PASS", schema.TAG_PROOF: "replayed"})
    assert recorded_verdicts(MlflowTracker(), [run_of("fa")]) == excluded


def test_a_run_that_is_judged_again_loses_the_tag_of_the_audit_that_excluded_it():
    stored = {schema.TAG_VERDICT: "NOT JUDGED (broken)", schema.TAG_EXCLUDED: "a1"}
    assert outdated_verdict_tags({schema.TAG_VERDICT: "PASS"}, stored) == [schema.TAG_EXCLUDED]


def test_a_run_that_may_still_be_at_work_is_left_alone(trusting_audit):
    """The worker that trains it writes its tags and its note."""
    statuses = {"fa": "running", "dfa": "failed", "bp": schema.STOPPED_EARLY}
    for method, status in statuses.items():
        tags = {
            schema.TAG_STATUS: status,
            schema.TAG_NOTE: "at work",
            schema.TAG_PROCESS: process_ownership.process_tag(),
        }
        run_id = run_of(method).run_id
        MlflowTracker().log(run_id, tags=tags)
        MlflowTracker().remove_tags(run_id, [schema.TAG_ARTIFACTS])  # a run at work has recorded nothing
    trusting_audit()
    for method, status in statuses.items():
        tags, updated = run_of(method).tags, method != "fa"
        assert tags[schema.TAG_STATUS] == status
        assert (tags[schema.TAG_NOTE] != "at work") == (schema.TAG_VERDICT in tags) == updated


SEVERAL = "2026-04:first-release,2026-04,2026-12,2026-05"
LENIENT = edition_text("lenient [/] (it's mine)", "growth", 1e9, take="max_over_sites")
WAIVER = """
[[waiver]]
rule = "D3"
method = "{method}"
reason = "two epochs are no training"
author = "A. Tester"
date = 2026-01-01
expiry = {expiry}
"""


def tags(method="dfa"):
    return run_of(method).tags


def test_every_edition_judges_the_same_records_and_the_studys_leads(trained, monkeypatch, measured_each_time):
    measured, genuine = [], remeasure.remeasure

    def count(task, *arguments):
        measured.append(task.spec.identity)
        return genuine(task, *arguments)

    monkeypatch.setattr(remeasure, "remeasure", count)
    code, result = audited(trained, "--editions", SEVERAL)
    report = result["report"]
    assert len(measured) == len(set(measured)) == 4
    assert report["edition"]["name"] == "2026-05"
    assert [opinion["edition"]["name"] for opinion in report["opinions"]] == [
        "2026-04:first-release",
        "2026-04",
        "2026-12",
    ]
    ids = [run["record"]["run_id"] for run in report["runs"]]
    assert all([judgement["run_id"] for judgement in opinion["judgements"]] == ids for opinion in report["opinions"])
    place = ids.index(run_of("dfa").run_id)
    assert tags()[verdict_tag("2026-05")] == report["runs"][place]["verdict"]["label"]
    for opinion in report["opinions"]:
        label = opinion["judgements"][place]["verdict"]["label"]
        assert tags()[verdict_tag(opinion["edition"]["name"])] == label != ""
    assert tags("frozen")[verdict_tag("2026-04")] == "CONTROL"
    outcomes = [run["verdict"]["outcome"] for run in report["runs"] if run["verdict"]["outcome"] != "control"]
    assert code == (1 if "fail" in outcomes else 0)


def test_the_exit_code_is_the_leading_editions_and_a_name_mlflow_refuses_is_no_obstacle(trained, workplace):
    (workplace / "lenient.toml").write_text(LENIENT)
    strict = trained(*TRUSTING, "--editions", "2026-04,lenient.toml", "--threshold", "a=0")
    lenient = trained(*TRUSTING, "--editions", "lenient.toml,2026-04")
    assert (strict.exit_code, lenient.exit_code) == (1, 0), lenient.output
    assert "lenient [/]" in strict.stdout and "lenient [/]" in lenient.stdout
    digest = file_digest(workplace / "lenient.toml")[:8]
    assert tags()[f"fa.verdict.lenient ___ _it_s mine_.{digest}"] == "PASS" != tags()[verdict_tag("2026-04")]
    assert tags()[schema.TAG_VERDICT] == f"PASS (mine {digest})"


def test_first_fires_of_another_edition_do_not_stay_behind(trained):
    audited(trained, "--trust-logged", "--threshold", "D1=0")
    assert tags()["fa.first_fire.D1"] == "0" and tags()[schema.TAG_FIRST_FIRE_BY].endswith(" modified")
    audited(trained, "--trust-logged")
    assert tags()["fa.first_fire.D1"] == f"none by {tags()[schema.TAG_FIRST_FIRE_BY]}"
    assert "modified" not in tags()[schema.TAG_FIRST_FIRE_BY] and "fa.first_fire.D2" not in tags()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--editions 2026-05,2026-05", ["editions: 2026-05"]),  # more: test_editions.py
        ("--threshold D1", ["--threshold D1:"]),
        ("--threshold D1=many --threshold =3 --threshold D2=nan", ["D1=many:", "--threshold =3:", "D2=nan:"]),
        ("--threshold D2=1 --threshold D2=2", ["--threshold D2=2: D2"]),
        ("--threshold D9=1 --jobs two", ["threshold D9:", "jobs:"]),
        ("--threshold D2.gian=1 --edition 2026-12", ["'gian'", "'gain'"]),
        ("--waivers none.toml --study tinny", ["waivers none.toml:", "unknown study 'tinny'"]),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_measured(registry, workplace, arguments, names):
    result = registry(*AUDIT, *arguments.split())
    assert result.exit_code == 2 and all(name in result.stderr for name in names)
    assert not (workplace / "reports").exists()


def test_a_waiver_applies_and_one_that_has_expired_is_reported_and_does_not(trained, workplace):
    before = tags().get(verdict_tag("2026-05"))
    text = WAIVER.format(method="dfa", expiry="9999-01-01") + WAIVER.format(method="fa", expiry="2026-02-01")
    text += WAIVER.format(method="bp", expiry="9999-01-01").replace("D3", "D8")
    (workplace / "waivers.toml").write_text(text + WAIVER.format(method="dfaa", expiry="9999-01-01"))
    # a margin of 200 pp: D3 fires for every training
    _, result = audited(trained, "--threshold", "D3=200", "--waivers", "waivers.toml")
    report = result["report"]
    verdicts = {
        run["record"]["spec"]["method"]: run["verdict"]
        for run in report["runs"]
        if run["verdict"]["outcome"] != "control"
    }
    flags = {method: [(flag["rule"], flag["state"]) for flag in verdicts[method]["flags"]] for method in ("dfa", "fa")}
    assert before is None and ("D3", "waived") in flags["dfa"] and verdicts["dfa"]["outcome"] != "fail"
    assert ("D3", "") in flags["fa"] and verdicts["fa"]["outcome"] == verdicts["bp"]["outcome"] == "fail"
    assert [waiver["expired"] for waiver in report["waivers"]] == [False, True, False, False]
    _, expired, unknown, idle = report["remarks"]  # the first is about the replay
    assert "2026-02-01" in expired and "'D8'" in unknown and "'dfaa'" in idle
    assert "2026-02-01" in (workplace / "reports" / "index.html").read_text()


def test_the_store_takes_the_tag_of_a_variant(workplace):
    tracker = MlflowTracker()
    run_id = tracker.create("run", {verdict_tag("2026-04:first-release"): "PASS"}, {})
    assert tracker.search({verdict_tag("2026-04:first-release"): "PASS"})[0].run_id == run_id


REFERENCE = """
title = "Figures of another paper"
source = "A Paper"

[setting.tiny]
architecture = "resmlp"
architecture_options = { d_hidden = 16, num_blocks = 2 }
dataset = "digits"
epochs = 2

[setting.large]
architecture = "resmlp"
dataset = "cifar10"
epochs = 100

[margin.pp]
value = 0.02
why = "small"

[[table]]
quantity = "accuracy"
setting = "tiny"
margin = "pp"
where = "table 1"
figures = [
  { method = "bp", value = 0.9 },
  { method = "bp", control = "frozen", value = 0.9 },
  { method = "dfa", setting = "large", value = 0.306 },
  { method = "ep", value = 0.3 },
]
"""


@pytest.fixture
def referenced(trained, workplace):
    """The trained tiny study (one seed) with published values for it."""
    (workplace / "tiny" / "reference.toml").write_text(REFERENCE, encoding="utf-8")
    return trained


def test_json_and_pages_hold_every_figure(referenced, workplace):
    printed = json.loads(referenced(*TRUSTING, "--exit-zero", "--json").stdout)
    report = jsonio.decode(AuditReport, printed["report"])
    outcomes = [row.outcome for row in report.reproduction.rows]
    assert outcomes == ["not shown", "not shown", "not comparable", "not measured"]
    assert jsonio.decode(AuditReport, json.loads((workplace / "reports" / "audit.json").read_text())) == report


def test_a_wrong_reference_is_refused_before_anything_is_opened(workplace, registry):
    for old, new, names in (
        ("value = 0.9 }", "valu = 0.9 }", ("'valu'", "none.toml")),
        ('margin = "pp"', 'margin = "p"', ("'p'",)),
    ):
        (workplace / "tiny" / "reference.toml").write_text(REFERENCE.replace(old, new), encoding="utf-8")
        result = call(*TRUSTING, "--exit-zero", "--waivers", "none.toml")
        assert result.exit_code == 2 and all(name in result.stderr for name in names)


def test_no_study_and_an_unknown_one_have_no_reference():
    problems: list[str] = []
    assert study_reference(RunSelector(), problems) is study_reference(RunSelector("unknown"), problems) is None
    assert problems == []


def test_two_audits_into_one_folder_store_their_own_pages_each(trained, monkeypatch):
    """The second writes all of its pages into the folder before the first has uploaded one."""
    genuine, inner = workflow.log_audit, []

    def interleaved(*arguments):
        if not inner:
            inner.append(None)
            inner[0] = trained(*TRUSTING, "--json", "--threshold", "D1=1.001")
        return genuine(*arguments)

    monkeypatch.setattr(workflow, "log_audit", interleaved)
    first = json.loads(trained(*TRUSTING, "--json").stdout)
    second = json.loads(inner[0].stdout)
    tracker, found = MlflowTracker(), {}
    for printed in (first, second):
        audit = tracker.get(printed["audit_run_id"])
        check_audit_pages(tracker, audit)
        recorded_report(tracker, audit.run_id, "")
        found[audit.run_id] = tracker.artifact(audit.run_id, "index.html").read_text(encoding="utf-8")
    assert ["1.001" in page for page in found.values()] == [False, True]
    assert len(set(found.values())) == 2


def test_an_audit_gives_a_heartbeat(audited_once):
    """Otherwise no worker could find later that its machine is gone."""
    audit = MlflowTracker().get(audited_once["audit_run_id"])
    assert audit.tags[schema.TAG_HEARTBEAT] == f"0 of {process_ownership.LEASE} s"


def test_the_pages_reach_their_folder_where_the_store_takes_none(trained, monkeypatch, workplace):
    def refuse(*arguments):
        raise StoreError("the store is full")

    monkeypatch.setattr(workflow, "log_audit", refuse)
    assert trained(*TRUSTING).exit_code == StoreError.exit_code
    assert (workplace / "reports" / "audit.json").is_file()


def test_a_second_audit_writes_no_form_again_that_is_unchanged(trusting_audit):
    """The short form names its audit and changes; the form of the group does not."""

    def files(name: str) -> dict[str, int]:
        runs = MlflowTracker().search({schema.TAG_KIND: "run"})
        paths = {run.run_id: MlflowTracker().artifact(run.run_id, name) for run in runs}
        return {run_id: path.stat().st_ino for run_id, path in paths.items() if path}

    trusting_audit()
    forms, short_forms = files(schema.FORM), files(schema.SHORT_FORM)
    trusting_audit()
    assert files(schema.FORM) == forms != {}
    assert files(schema.SHORT_FORM).keys() == short_forms.keys()
    assert not set(files(schema.SHORT_FORM).items()) & set(short_forms.items())
