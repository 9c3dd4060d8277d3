"""The report command: pages of a file, or of what the store keeps of a study's newest audit; the same bytes either way."""

from __future__ import annotations

import dataclasses
import json
import shutil
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
from tests.reporting import sample_reports


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


@pytest.mark.parametrize(
    ("tags", "file"),
    [({}, "audit.json"), ({schema.TAG_PAGES: ""}, "digests.json")],
    ids=["with digests of pages", "without them"],
)
def test_a_report_that_was_changed_in_the_store_is_refused(audited_copy, tags, file):
    tracker = MlflowTracker()
    (audit,) = tracker.search({schema.TAG_KIND: "audit"})
    tracker.log(audit.run_id, tags=tags)
    path = tracker.artifact(audit.run_id, "audit.json")
    path.write_text(path.read_text(encoding="utf-8").replace("tiny", "nothing", 1), encoding="utf-8")
    result = audited_copy("report", "--study", "tiny")
    assert result.exit_code == 3 and f"{file}: expected SHA-256" in result.stderr


def test_an_audit_whose_report_is_gone_says_what_to_do(audited_copy):
    tracker = MlflowTracker()
    (audit,) = tracker.search({schema.TAG_KIND: "audit"})
    tracker.artifact(audit.run_id, "audit.json").unlink()
    result = audited_copy("report", "--study", "tiny")
    assert result.exit_code == 3


def with_judgements(change):
    def spoil(report):
        opinion = dataclasses.replace(report.opinions[0], judgements=change(report.opinions[0].judgements))
        return dataclasses.replace(report, opinions=(opinion, *report.opinions[1:]))

    return spoil


@pytest.mark.parametrize(
    ("spoilt", "field"),
    [
        (with_judgements(lambda judged: judged[:-1]), "opinions[0].judgements"),
        (with_judgements(lambda judged: judged[::-1]), "opinions[0].judgements"),
        (lambda rich: dataclasses.replace(rich, runs=(*rich.runs, rich.runs[0]), opinions=()), "runs"),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(tmp_path, spoilt, field):
    path = tmp_path / "audit.json"
    path.write_text(jsonio.pretty(spoilt(sample_reports.full_report())), encoding="utf-8")
    with pytest.raises(InvalidFields) as refused:
        load_report(path)
    assert [problem.partition(": ")[0] for problem in refused.value.problems] == [field]


@pytest.mark.long
def test_the_same_runs_audited_twice_are_identical(trained):
    for folder, published in (("a", True), ("b", False)):
        with publishing(published):
            assert trained(*AUDIT_LOGGED, "--out", folder).exit_code == 0
    result = trained("diff", "a", "b/audit.json")
    assert result.exit_code == 0 and "identical: 4" in result.output
    assert json.loads(trained("diff", "a", "b", "--json").stdout)["same"]


def test_another_threshold_is_exit_1_and_names_rule_run_and_figure(unpublished, audited_copy):
    audited_copy(*AUDIT_LOGGED, "--threshold", "D1=1.0001", "--out", "b")
    result = audited_copy("diff", "reports", "b")
    assert result.exit_code == 1
    found = json.loads(audited_copy("diff", "reports", "b", "--json").stdout)
    assert found["rules"][0]["rule"] == "D1" and found["rules"][0]["moved"] and found["schema"] == SCHEMA


@pytest.mark.long
def test_a_study_trained_again_is_matched_by_specification(unpublished, audited_copy):
    assert audited_copy("study", "tiny", "--jobs", "1", "--device", "cpu", "--force").exit_code == 0
    audited_copy(*AUDIT_LOGGED, "--out", "b")
    found = json.loads(audited_copy("diff", "reports", "b", "--json").stdout)
    assert found["trained_again"] == found["matched"] > 0 and not (found["only_a"] or found["only_b"])
    assert not any(run["figures"] or run["findings"] for run in found["runs"])


BAD = {
    "text": (b"not json", "file: "),
    "bytes": (b"\xff\xfe\x00", "file: "),
    "nan": (b'{"title": NaN}', "found NaN"),
    "list": (b"[]", "record: "),
    "other": (f'{{"title": "notes", "schema": {SCHEMA}}}'.encode(), "edition: "),
    "without a number": (b'{"title": "notes"}', "schema"),
    "older": (f'{{"schema": {SCHEMA - 1}}}'.encode(), f"schema {SCHEMA - 1}"),
    "newer": (f'{{"schema": {SCHEMA + 1}}}'.encode(), f"schema {SCHEMA + 1}"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_audit_of_this_schema_is_refused(kind, registry, workplace):
    text, message = BAD[kind]
    (workplace / "bad.json").write_bytes(text)
    result = registry("diff", "bad.json", "bad.json")
    assert result.exit_code == 2 and "AUDIT_A" in result.stderr and "AUDIT_B" in result.stderr
    assert message in result.stderr
    assert registry("diff", "bad.json", "nowhere").exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        *(("report", "a.json", "--study", "tiny"), ("report",), ("report", "empty"), ("report", "--study", "tinny")),
        *(("report", "--study", "tiny"), ("verify", "empty"), ("verify", "a.zip")),
    ],
)
def test_what_is_no_report_or_never_audited_is_refused(trained, command):
    Path("empty").mkdir()
    assert trained(*command).exit_code == 2


@pytest.mark.long
def test_an_audit_by_a_clock_two_days_ahead_does_not_stay_the_newest(trained):
    clock = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: clock() + 2 * 86_400)
        assert trained(*AUDIT_LOGGED, "--out", "ahead").exit_code == 0
    assert trained(*AUDIT_LOGGED, "--threshold", "D1=1.001", "--out", "later").exit_code == 0
    tracker = MlflowTracker()
    ahead, later = tracker.search({schema.TAG_KIND: "audit"})  # MLflow's order, by start time
    assert ahead.started - later.started > 86_400_000  # the clock was ahead
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


@pytest.mark.long
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
        assert pages("again") == pages("reports")
        flipped_bit(page, place)


def test_a_file_or_folder_with_the_name_of_a_study_is_no_study(trained):
    shutil.rmtree("tiny")
    Path("tiny").write_bytes(b"\xff")
    of_study, every = (
        json.loads(trained("list", "runs", *chosen, "--json").stdout) for chosen in (("--study", "tiny"), ())
    )
    assert len(of_study) == len(every)
