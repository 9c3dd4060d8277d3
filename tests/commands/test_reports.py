"""The report command: pages of a file, or of what the store keeps of a study's newest audit; the same bytes either way."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fa_registry import jsonio
from fa_registry.audits.reports import audits_of, load_report, numbered
from fa_registry.bundles import exchange
from fa_registry.errors import InvalidFields
from fa_registry.schema_number import SCHEMA
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import AUDIT_LOGGED
from tests.helpers.audits import publishing
from tests.reporting import scenes


def pages(folder):
    return {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_a_studys_newest_audit_is_rendered_from_the_store(audited_copy):
    assert audited_copy(*AUDIT_LOGGED, "--threshold", "D1=1.001", "--out", "newest").exit_code == 0
    for study in ("tiny", "tiny/study.toml"):  # commands that read the store accept what `audit` accepts
        result = audited_copy("report", "--study", study, "--out", "again")
        assert result.exit_code == 0, result.output
        assert pages("again") == pages("newest") != pages("reports")
        rows = json.loads(audited_copy("list", "runs", "--study", study, "--json").stdout)
        assert {row["study"] for row in rows} == {"tiny"}
        assert len(rows) == len(json.loads(audited_copy("watch", "--study", study, "--once", "--json").stdout))


def test_a_study_that_was_never_audited_says_what_to_do(trained):
    shutil.copytree("tiny", "it's")
    study_file = Path("it's/study.toml")
    study_file.write_text(study_file.read_text("utf-8").replace('name = "tiny"', 'name = "it\'s"'), encoding="utf-8")
    shutil.copy("tiny/study.toml", "copy.toml")
    run = MlflowTracker().search({schema.TAG_KIND: "run"})[0]
    MlflowTracker().log(run.run_id, tags={schema.TAG_STUDY: "moved"})
    for name, advice in (
        ("tiny", "`fa-registry audit --study tiny` audits the study"),
        ("digits", "`fa-registry run digits` trains and audits the study"),
        ("it's", "`fa-registry run 'it'\"'\"'s'` trains and audits the study"),
        ("moved", "`fa-registry audit --study PATH` audits the study; PATH is the path of its study.toml"),
        ("tinny", "unknown study 'tinny'; known: none"),
        ("copy.toml", "`fa-registry audit --study copy.toml` audits the study"),
    ):
        result = trained("report", "--study", name)
        assert result.exit_code == 2
        assert f"study {name}: no complete audit in" in result.stderr and result.stderr.endswith(f"; {advice}\n")


def test_a_file_or_folder_with_the_name_of_a_study_is_no_study(trained):
    (name,) = {
        run.tags[schema.TAG_STUDY]
        for run in MlflowTracker().search({schema.TAG_KIND: "run"})
        if schema.TAG_STUDY in run.tags
    }
    shutil.rmtree(name)
    Path(name).write_bytes(b"\xff")
    assert len(json.loads(trained("list", "runs", "--study", name, "--json").stdout)) == len(
        json.loads(trained("list", "runs", "--json").stdout)
    )


def test_a_file_and_a_study_are_one_too_many_and_a_missing_file_is_named(trained):
    assert "expected either REPORT or --study, found both" in trained("report", "a.json", "--study", "tiny").stderr
    missing = trained("report")
    assert missing.exit_code == 2 and "reports/audit.json: no such file" in missing.stderr
    Path("kept").mkdir()
    Path("kept/audit.json").write_text("{}", encoding="utf-8")
    Path("empty").mkdir()
    assert "empty: expected an audit.json, found no file but a folder" in trained("report", "empty").stderr
    assert "kept: expected a file, found a folder; name the file kept/audit.json" in trained("verify", "kept").stderr
    assert "tiny: expected an audit.json or a bundle (.zip), found no file" in trained("verify", "tiny").stderr
    assert "a.zip: no such file; `fa-registry bundle --study NAME` writes a bundle" in trained("verify", "a.zip").stderr


@pytest.mark.parametrize(
    ("tags", "text"),
    [({}, "audit.json: expected SHA-256"), ({schema.TAG_PAGES: ""}, "digests.json: expected SHA-256")],
    ids=["with digests of pages", "without them"],
)
def test_a_report_that_was_changed_in_the_store_is_refused(audited_copy, tags, text):
    tracker = MlflowTracker()
    (audit,) = tracker.search({schema.TAG_KIND: "audit"})
    tracker.log(audit.run_id, tags=tags)
    path = tracker.artifact(audit.run_id, "audit.json")
    path.write_text(
        path.read_text(encoding="utf-8").replace("Audit of study tiny", "Audit of nothing"), encoding="utf-8"
    )
    result = audited_copy("report", "--study", "tiny")
    assert result.exit_code == 3 and text in result.stderr


def test_an_audit_whose_report_is_gone_says_what_to_do(audited_copy):
    tracker = MlflowTracker()
    (audit,) = tracker.search({schema.TAG_KIND: "audit"})
    tracker.artifact(audit.run_id, "audit.json").unlink()
    result = audited_copy("report", "--study", "tiny")
    assert result.exit_code == 3 and "audit the runs again: `fa-registry audit --study tiny`" in result.stderr


def test_showing_an_old_report_loads_neither_torch_nor_mlflow():
    code = (
        "import sys, fa_registry.audits.reports, fa_registry.audits.reports\n"
        "print([name for name in ('torch', 'mlflow') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("spoilt", "text"),
    [
        (
            lambda judged: judged[:-1],
            r"opinions\[0\]\.judgements: expected the runs of the report in the same order, found 8 of 9",
        ),
        (
            lambda judged: judged[::-1],
            r"opinions\[0\]\.judgements: expected .*, found run \w{32} where run \w{32} is expected",
        ),
    ],
)
def test_an_opinion_that_is_not_of_the_reports_runs_is_refused(tmp_path, spoilt, text):
    rich = scenes.full_report()
    opinion = dataclasses.replace(rich.opinions[0], judgements=spoilt(rich.opinions[0].judgements))
    path = tmp_path / "audit.json"
    path.write_text(jsonio.pretty(dataclasses.replace(rich, opinions=(opinion, *rich.opinions[1:]))), encoding="utf-8")
    with pytest.raises(InvalidFields, match=text):
        load_report(path)


def test_a_run_that_stands_there_twice_is_refused(tmp_path):
    path, rich = tmp_path / "audit.json", scenes.full_report()
    twice = dataclasses.replace(rich, runs=(*rich.runs, rich.runs[0]), opinions=())
    path.write_text(jsonio.pretty(twice), encoding="utf-8")
    with pytest.raises(InvalidFields, match=r"runs: expected every run once, found \w{32} 2 times"):
        load_report(path)


def test_the_same_runs_audited_twice_are_identical(trained):
    for folder, published in (("a", True), ("b", False)):
        with publishing(published):
            assert trained(*AUDIT_LOGGED, "--out", folder).exit_code == 0
    result = trained("diff", "a", "b/audit.json")
    assert result.exit_code == 0 and "identical: 4 runs" in result.output
    assert json.loads(trained("diff", "a", "b", "--json").stdout)["same"]


def test_another_threshold_is_exit_1_and_names_rule_run_and_figure(unpublished, audited_copy):
    audited_copy(*AUDIT_LOGGED, "--threshold", "D1=1.0001", "--out", "b")
    result = audited_copy("diff", "reports", "b")
    assert result.exit_code == 1
    for text in ("edition override D1.threshold", "By rule", "Findings that changed", "EXPLODED", "different:"):
        assert text in result.output
    found = json.loads(audited_copy("diff", "reports", "b", "--json").stdout)
    assert found["rules"][0]["rule"] == "D1" and found["rules"][0]["moved"] and found["schema"] == SCHEMA


def test_a_study_trained_again_is_matched_by_specification(unpublished, audited_copy):
    assert audited_copy("study", "tiny", "--jobs", "1", "--device", "cpu", "--force").exit_code == 0
    audited_copy(*AUDIT_LOGGED, "--out", "b")
    found = json.loads(audited_copy("diff", "reports", "b", "--json").stdout)
    assert found["trained_again"] == found["matched"] > 0 and not (found["only_a"] or found["only_b"])
    assert not any(run["figures"] or run["findings"] for run in found["runs"])


BAD = {
    "text": ("not json", "cannot be read as JSON"),
    "nan": ('{"title": NaN}', "expected a finite number, found NaN"),
    "list": ("[]", "record: expected a table, found []"),
    "other": (f'{{"title": "notes", "schema": {SCHEMA}}}', "edition: missing"),
    "without a number": ('{"title": "notes"}', "made without a schema number"),
    "older": (f'{{"schema": {SCHEMA - 1}}}', f"made by schema {SCHEMA - 1}"),
    "newer": (f'{{"schema": {SCHEMA + 1}}}', f"made by schema {SCHEMA + 1}"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_audit_of_this_schema_is_refused(kind, registry, workplace):
    text, message = BAD[kind]
    (workplace / "bad.json").write_text(text)
    result = registry("diff", "bad.json", "bad.json")
    assert result.exit_code == 2 and "AUDIT_A" in result.stderr and "AUDIT_B" in result.stderr
    assert message in result.stderr


def test_bytes_that_are_no_text_and_missing_files_are_named_together(registry, workplace):
    (workplace / "bytes.json").write_bytes(b"\xff\xfe\x00")
    result = registry("diff", "bytes.json", "nowhere")
    assert result.exit_code == 2 and "2 problems" in result.stderr
    assert "AUDIT_A bytes.json: file: cannot be read as JSON" in result.stderr
    assert (
        "AUDIT_B: expected an audit.json, or a folder that contains an audit.json; there is no file nowhere"
        in result.stderr
    )


def test_an_audit_by_a_clock_two_days_ahead_does_not_stay_the_newest(trained):
    clock = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: clock() + 2 * 86_400)
        assert trained(*AUDIT_LOGGED, "--out", "ahead").exit_code == 0
    assert trained(*AUDIT_LOGGED, "--threshold", "D1=1.001", "--out", "later").exit_code == 0
    tracker = MlflowTracker()
    ahead, later = tracker.search({schema.TAG_KIND: "audit"})  # MLflow's order, by start time
    assert ahead.started - later.started > 86_400_000, "the clock was not ahead"
    assert (ahead.tags[schema.TAG_AUDIT_NUMBER], later.tags[schema.TAG_AUDIT_NUMBER]) == ("1", "2")
    assert trained("report", "--study", "tiny", "--out", "again").exit_code == 0
    assert pages("again") == pages("later") != pages("ahead")
    bundled = exchange.make_bundle("tiny", "tiny.fa.zip")
    assert later.run_id.encode() in bundled.path.read_bytes() and ahead.run_id.encode() not in bundled.path.read_bytes()


def test_an_audit_whose_number_was_changed_is_the_oldest(workplace):
    tracker = MlflowTracker()
    kind = {schema.TAG_KIND: "audit", schema.TAG_STUDY: "s"}
    numbered_one = tracker.create("a", {**kind, **numbered(audits_of(tracker, "s"))}, {})
    tracker.create("b", {**kind, schema.TAG_AUDIT_NUMBER: "x" * 20}, {})
    assert audits_of(tracker, "s")[0].run_id == numbered_one
    assert numbered(audits_of(tracker, "s")) == {schema.TAG_AUDIT_NUMBER: "2"}


def flipped_bit(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_of_a_stored_page_is_reported_when_its_audit_is_handed_out(audited_copy):
    tracker = MlflowTracker()
    (audit,) = tracker.search({schema.TAG_KIND: "audit"})
    sound = audited_copy("report", "--study", "tiny", "--out", "again")
    assert (sound.exit_code, sound.stderr) == (0, "")
    page = tracker.artifact(audit.run_id, "index.html")
    for part in (0.01, 0.3, 0.6, 0.99):
        place = int(part * page.stat().st_size)
        flipped_bit(page, place)
        result = audited_copy("report", "--study", "tiny", "--out", "again")
        assert result.exit_code == 0 and "index.html: expected SHA-256" in result.stderr
        assert "The pages in the store differ from the pages that the audit wrote" in result.stderr
        assert pages("again") == pages("reports")
        flipped_bit(page, place)
