"""What compare prints: numbers with their interval or why there is none, and pictures in no JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fa_registry.cli.comparing import compared, estimate_text, finding_text
from fa_registry.protocol.grouping import groups
from fa_registry.quantities import quantity_of
from fa_registry.records import Reading
from fa_registry.reporting.lookups import estimate
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.values import Number, SeedValue
from fa_registry.workflows.compare import CompareResult
from tests.reporting import scenes


@pytest.fixture(scope="module")
def result():
    report = scenes.full_report()
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
    assert estimate_text(estimate(quantity_of("num"), seeds(*values))).replace("\u00a0", " ") == text


def test_a_finding_has_its_state_outcome_and_numbers(result):
    rows = [row for rule in result.context.parts[0][0].rules for cell in rule.columns for row in cell]
    texts = [finding_text(row) for row in rows]
    assert any(text.startswith("EXPLODED, fail: ") for text in texts)
    assert not any("_" in text for text in texts)  # outcomes in words


def test_the_table_has_every_column_rule_and_difference(result, capsys):
    compared(result, as_json=False)
    printed = capsys.readouterr().out
    for words in (
        "verdict",
        "D1 scale stability",
        "required ",
        "Γ site 0",
        "what differs",
        "Paired by seed",
        "bp − fa",
    ):
        assert words in printed
    assert "page: reports/compare.html" in printed


def test_every_column_has_its_runs_and_exact_credit_is_marked(result, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    compared(result, as_json=False)
    printed = capsys.readouterr().out
    (part, _) = result.context.parts[0]
    assert all(run_id[:8] in printed for column in part.columns for _, run_id, _ in column.seeds)
    (line,) = [line for line in printed.splitlines() if "Γ site 0" in line]
    assert line.count("(exact)") == sum(0 in sites for sites in part.sites[0].exact) > 0
    assert not any("(exact)" in line for line in printed.splitlines() if "‖h_l‖ site" in line)


def test_json_has_the_parts_and_no_picture(result, capsys):
    compared(result, as_json=True)
    printed = capsys.readouterr().out
    assert "data:image" not in printed
    made = json.loads(printed)
    (part,) = made["parts"]
    site, estimates = part["sites"][0]["rows"][0]
    assert made["page"] == "reports/compare.html" and (site, len(estimates)) == (0, len(part["columns"]))
