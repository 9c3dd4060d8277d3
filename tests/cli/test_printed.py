"""What commands print last, and what compare prints: numbers with their interval or why there is none, and pictures in no JSON."""

from __future__ import annotations

import dataclasses
import gc
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fa_registry.analyses import AnalysisCell, AnalysisColumn
from fa_registry.audits.compare_command import CompareResult
from fa_registry.cli import NEW_OBJECTS_BETWEEN_COLLECTIONS, main
from fa_registry.cli.analyse import cell_text
from fa_registry.cli.audit import _judged, diffed
from fa_registry.cli.compare import compared, estimate_text, finding_text
from fa_registry.metrics import metric_named
from fa_registry.protocol.grouping import groups
from fa_registry.records import Reading, Replay, ReplayedRun
from fa_registry.reporting.diff import audit_diff
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.report_values import seed_estimate
from fa_registry.reporting.view_models import Number, SeedValue
from tests.reporting import sample_reports
from tests.reporting.runs import HOSTILE, SEEDS, diverged, make_record
from tests.reporting.sample_reports import make_report


@pytest.fixture(scope="module")
def result():
    report = sample_reports.full_report()
    return CompareResult(compare_context(report, groups(report)), Path("reports/compare.html"), 0)


def seeds(*values):
    return [SeedValue(place, Number(value, "num", ("r",))) for place, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((Reading(1.0), Reading(3.0)), "2.00 ± 1.41 (2) [−10.7 to 14.7]"),
        ((Reading(1.0),), "1.00 (1), one seed: no interval"),
        ((Reading(None, "not measured"),), "N/A: not measured"),
    ],
)
def test_an_estimate_says_its_n_and_interval_or_why_not(values, text):
    assert estimate_text(seed_estimate(metric_named("num"), seeds(*values))).replace("\u00a0", " ") == text


@pytest.mark.long
def test_a_finding_has_its_state_outcome_and_numbers(result):
    rows = [row for rule in result.context.parts[0][0].rules for cell in rule.columns for row in cell]
    texts = [finding_text(row) for row in rows]
    assert any(text.startswith("EXPLODED, fail: ") for text in texts)
    assert not any("_" in text for text in texts)  # outcomes in words


def test_every_column_has_its_runs_and_exact_credit_is_marked(result, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    compared(result, as_json=False)
    printed = capsys.readouterr().out
    (part, _) = result.context.parts[0]
    assert all(row.run_id[:8] in printed for column in part.columns for row in column.seeds)
    (line,) = [line for line in printed.splitlines() if "Γ site 0" in line]
    assert line.count("(exact)") == sum(0 in sites for sites in part.exact) > 0
    assert not any("(exact)" in line for line in printed.splitlines() if "‖h_l‖ site" in line)


def test_json_has_the_parts_and_no_picture(result, capsys):
    compared(result, as_json=True)
    printed = capsys.readouterr().out
    assert "data:image" not in printed
    made = json.loads(printed)
    (part,) = made["parts"]
    site, estimates = part["sites"][0]["rows"][0]
    assert made["page"] == "reports/compare.html" and (site, len(estimates)) == (0, len(part["columns"]))
    keys = "setting comparable why_not columns quantities aggregates rules paired fields sites"
    assert list(part) == keys.split()
    assert list(part["columns"][0]) == ["label", "setting", "verdict", "seeds", "replays"]
    for metric in (*part["quantities"], *part["aggregates"]):
        assert list(metric) == ["name", "symbol", "words", "label", "estimates"]
        assert len(metric["estimates"]) == len(part["columns"])
    assert all(list(metric) == ["name", "symbol", "words", "rows", "exact"] for metric in part["sites"])
    assert all(list(field) == ["field", "values"] for field in part["fields"])


DFA = [make_record("dfa", seed, 0.90, 3.0, 0.1, 0.1) for seed in SEEDS]


@pytest.fixture
def printed(capsys):
    """What is printed of the difference of two audits of these records."""

    def show(a, b, as_json: bool = False) -> str:
        diffed(audit_diff(a, b), ("before", "after/audit.json"), as_json)
        return capsys.readouterr().out

    return show


def test_a_field_that_all_runs_share_is_one_line(printed):
    moved = [dataclasses.replace(one, setting="elsewhere", digests={"a": one.run_id}) for one in DFA]
    text = printed(make_report(DFA), make_report(moved))
    (setting,) = [line for line in text.splitlines() if "│ setting " in line]
    (digests,) = [line for line in text.splitlines() if "│ digests a" in line]
    assert "elsewhere" in setting and setting.rstrip("│ ").endswith("2") and "elsewhere" not in digests
    further = printed(make_report(DFA), make_report([diverged(DFA[0]), DFA[1]]))
    assert "fail EXPLODED" in further and HOSTILE in further and "h_norm[" not in further
    one_side = printed(make_report(DFA[:1]), make_report(DFA[1:]))
    assert "Only in A" in one_side and "Only in B" in one_side and DFA[1].run_id[:8] in one_side


def test_json_is_the_record(printed):
    found = json.loads(printed(make_report(DFA), make_report([diverged(DFA[0]), DFA[1]]), as_json=True))
    assert found["same"] is False and found["runs"][0]["run_id_a"] == DFA[0].run_id


COUNT = AnalysisColumn("D3", "decision of D3, and number of rejected runs", "runs", "count")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (AnalysisCell(Reading(2.0), text="rejects", n=3), "rejects 2 of 3"),
        (AnalysisCell(Reading(0.0), text="accepts", n=3), "accepts"),  # `accepts 0/3` would read as none accepted
        (AnalysisCell(Reading(0.0), text="warns", n=3), "warns"),
        (AnalysisCell(text="never"), "never"),
        (AnalysisCell(Reading(None, "not measured")), "N/A (1)"),
        (AnalysisCell(Reading(2.0), interval=(1.0, 3.0)), "2 [1, 3]"),
    ],
)
def test_a_cell_reads_as_it_is_meant(cell, text):
    assert cell_text(cell, COUNT, {}) == text


def test_only_replays_that_agree_count_as_trained_again(capsys):
    outcomes = ("agrees", "agrees", "differs", "not possible")
    replayed = tuple(ReplayedRun(f"run {index}", outcome) for index, outcome in enumerate(outcomes))
    report = make_report([make_record("bp", seed, 0.9, 1.5, 0.3, 0.5) for seed in SEEDS])
    _judged(dataclasses.replace(report, replay=Replay("ab", "auto", replayed)))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "--nonce ab" in line]
    assert line.startswith("replay: 2 of 4")


@pytest.fixture
def collector():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_command_is_not_held_up_by_searches_for_cycles(collector):
    gc.set_threshold(700)
    assert CliRunner().invoke(main, ["diff", "none.json", "none.json"]).exit_code == 2
    assert gc.get_threshold()[0] == NEW_OBJECTS_BETWEEN_COLLECTIONS
