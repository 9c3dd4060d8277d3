"""One audit by several editions, with other thresholds, with waivers: on real runs, measured again once."""

from __future__ import annotations

import pytest

from fa_registry import resources
from fa_registry.jsonio import file_digest
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.workflows import evidence
from tests.builders import verdict_tag
from tests.workflows.test_audit import AUDIT, audited, run_of

pytestmark = pytest.mark.usefixtures("measured_once")
SEVERAL = "2026-04:first-release,2026-04,2026-11,2026-05"
LENIENT = """
name = "lenient [/] (it's mine)"
title = "What nothing can fail"
source = "a test"
fail_if = [["D1"]]

[[rule]]
code = "D1"
title = "scale stability"
quantity = "growth"
take = "max_over_sites"
fires = "above"
threshold = 1e9
unit = "ratio"
source = "a test"
rationale = "a test"
"""
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
    measured, genuine = [], evidence.remeasure

    def count(spec, *arguments):
        measured.append(spec.identity)
        return genuine(spec, *arguments)

    monkeypatch.setattr(evidence, "remeasure", count)
    code, result = audited(trained, "--editions", SEVERAL)
    report = result["report"]
    assert len(measured) == len(set(measured)) == 4
    assert report["edition"]["name"] == "2026-05"
    assert [one["edition"]["name"] for one in report["opinions"]] == ["2026-04:first-release", "2026-04", "2026-11"]
    ids = [run["record"]["run_id"] for run in report["runs"]]
    assert all([one["run_id"] for one in opinion["judgements"]] == ids for opinion in report["opinions"])
    place = ids.index(run_of("dfa").run_id)
    assert tags()[verdict_tag("2026-05")] == report["runs"][place]["verdict"]["label"]
    for opinion in report["opinions"]:
        label = opinion["judgements"][place]["verdict"]["label"]
        assert tags()[verdict_tag(opinion["edition"]["name"])] == label != ""
    assert tags("frozen")[verdict_tag("2026-04")] == "CONTROL"
    outcomes = [run["verdict"]["outcome"] for run in report["runs"] if run["verdict"]["outcome"] != "control"]
    assert code == (1 if "fail" in outcomes else 0)


def test_a_column_an_edition(trained):
    text = trained(*AUDIT, "--editions", "2026-04,2026-05,2026-11").stdout
    header = next(line for line in text.splitlines() if "verdict" in line)
    columns = [cell.strip() for cell in header.split("┃")]
    assert columns[5:8] == ["verdict", "2026-04", "2026-11"]
    row = next(line for line in text.splitlines() if line.startswith("│ dfa"))
    cells = [cell.strip() for cell in row.split("│")]
    assert (cells[5], cells[6]) == (tags()[verdict_tag("2026-05")], tags()[verdict_tag("2026-04")])
    assert "Audit of study tiny by edition 2026-05" in text


def test_the_exit_code_is_the_leading_editions_and_a_name_mlflow_refuses_is_no_obstacle(trained, workplace):
    (workplace / "lenient.toml").write_text(LENIENT)
    strict = trained(*AUDIT, "--editions", "2026-04,lenient.toml", "--threshold", "a=0")
    lenient = trained(*AUDIT, "--editions", "lenient.toml,2026-04")
    assert (strict.exit_code, lenient.exit_code) == (1, 0)
    assert "lenient [/] (it's mine)" in strict.stdout and "by edition lenient [/] (it's mine)" in lenient.stdout
    digest = file_digest(workplace / "lenient.toml")[:8]
    assert tags()[f"fa.verdict.lenient ___ _it_s mine_.{digest}"] == "PASS" != tags()[verdict_tag("2026-04")]
    assert tags()[schema.TAG_VERDICT] == f"PASS (mine {digest})"


def test_another_threshold_is_recorded_shown_and_kept_apart_from_the_editions_own_verdict(trained, workplace):
    audited(trained)
    own = tags()[verdict_tag("2026-05")]
    code, result = audited(trained, "--editions", "2026-05,2026-04", "--threshold", "D1=0", "--threshold", "D3=-100")
    report = result["report"]
    assert report["edition"]["overrides"] == {"D1.threshold": 0.0, "D3.threshold": -100.0}
    assert report["opinions"][0]["edition"]["overrides"] == {}
    assert tags()[verdict_tag("2026-05")] == own
    assert tags()[verdict_tag("2026-05") + ".modified"] == "WARN(D1)" and tags()["fa.first_fire.D1"] == "0"
    page = (workplace / "reports" / "index.html").read_text()
    assert "Modified edition" in page and "D1.threshold = 0" in page
    text = trained(*AUDIT, "--threshold", "D1=0").stdout
    assert "by edition 2026-05 (modified: D1.threshold = 0.0)" in text


def test_first_fires_of_another_edition_do_not_stay_behind(trained):
    audited(trained, "--threshold", "D1=0")
    assert tags()["fa.first_fire.D1"] == "0" and tags()[schema.TAG_FIRST_FIRE_BY].endswith(" modified")
    audited(trained)
    assert tags()["fa.first_fire.D1"] == f"none by {tags()[schema.TAG_FIRST_FIRE_BY]}"
    assert "modified" not in tags()[schema.TAG_FIRST_FIRE_BY] and "fa.first_fire.D2" not in tags()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--edition", "2026-05", "--editions", "2026-04,2026-11"),
            ["editions: expected --edition or --editions, found both"],
        ),
        (("--editions", "2026-05,2026-05"), ["editions: 2026-05 is given twice"]),
        (("--editions", "2026-5"), ["unknown edition '2026-5' (did you mean '2026-05'?)"]),
        (("--threshold", "D1"), ["--threshold D1: expected RULE=NUMBER, D1=100"]),
        (
            ("--threshold", "D1=many", "--threshold", "=3", "--threshold", "D2=nan"),
            ["--threshold D1=many:", "--threshold =3:", "--threshold D2=nan:"],
        ),
        (("--threshold", "D2=1", "--threshold", "D2=2"), ["--threshold D2=2: D2 is given twice"]),
        (
            ("--threshold", "D9=1", "--jobs", "two"),
            ["threshold D9: unknown rule 'D9'", "jobs: expected a whole number"],
        ),
        (("--threshold", "D2.gian=1", "--edition", "2026-11"), ["unknown limit of D2 'gian' (did you mean 'gain'?)"]),
        (
            ("--waivers", "none.toml", "--study", "tinny"),
            ["waivers none.toml: file: No such file", "unknown study 'tinny'"],
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_measured(registry, workplace, arguments, words):
    result = registry(*AUDIT, *arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words)
    assert not (workplace / "reports").exists()


def test_a_waiver_in_the_folder_is_taken_and_one_that_has_expired_is_said_and_not_taken(trained, workplace):
    before = tags().get(verdict_tag("2026-05"))
    text = WAIVER.format(method="dfa", expiry="9999-01-01") + WAIVER.format(method="fa", expiry="2026-02-01")
    text += WAIVER.format(method="bp", expiry="9999-01-01").replace("D3", "D8")
    (workplace / "waivers.toml").write_text(text + WAIVER.format(method="dfaa", expiry="9999-01-01"))
    _, result = audited(trained, "--threshold", "D3=200")  # a margin of 200 pp: D3 fires whatever was trained
    report = result["report"]
    verdicts = {
        run["record"]["spec"]["method"]: run["verdict"]
        for run in report["runs"]
        if run["verdict"]["outcome"] != "control"
    }
    assert before is None and "D3 waived" in verdicts["dfa"]["flags"] and verdicts["dfa"]["outcome"] != "fail"
    assert "D3" in verdicts["fa"]["flags"] and verdicts["fa"]["outcome"] == verdicts["bp"]["outcome"] == "fail"
    assert [waiver["expired"] for waiver in report["waivers"]] == [False, True, False, False]
    _, expired, unknown, idle = report["remarks"]  # the first is of the steps taken again
    assert "The waiver of D3 for fa by A. Tester expired on 2026-02-01 and does not apply" in expired
    assert "two epochs are no training" in expired and "a waiver without effect: unknown rule 'D8'" in unknown
    assert "a waiver of D3 without effect: unknown method 'dfaa' (did you mean 'dfa'?)" in idle
    page = (workplace / "reports" / "index.html").read_text()
    assert "expired on 2026-02-01" in page


def test_a_waivers_file_may_lie_elsewhere(trained, workplace):
    (workplace / "elsewhere.toml").write_text(WAIVER.format(method="dfa", expiry="9999-01-01"))
    _, result = audited(trained, "--waivers", "elsewhere.toml")
    assert [waiver["method"] for waiver in result["report"]["waivers"]] == ["dfa"]
    assert audited(trained)[1]["report"]["waivers"] == []


def test_mlflow_run_hands_several_editions_on():
    text = (resources.templates().parent / "MLproject").read_text()
    assert 'editions: {type: string, default: ""}' in text and "--editions {editions}" in text


def test_the_store_takes_the_tag_of_a_variant(workplace):
    tracker = MlflowTracker()
    run_id = tracker.create("run", {verdict_tag("2026-04:first-release"): "PASS"}, {})
    assert tracker.search({verdict_tag("2026-04:first-release"): "PASS"})[0].run_id == run_id
