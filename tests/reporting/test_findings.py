"""Seeds that a rule judges alike stand together; the most severe findings stand first."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.records import OUTCOMES, Reading
from fa_registry.reporting.lookups import SEVERITY, finding_rows, most_severe_first
from tests.reporting.scenes import a_finding


@pytest.fixture
def rows(report):
    """The rows of one method whose seeds have these findings."""

    def of(*findings_of_seeds):
        runs = [
            dataclasses.replace(run, findings=tuple(findings))
            for run, findings in zip(report.runs[:2], findings_of_seeds, strict=True)
        ]
        return finding_rows(runs, "bp", "a setting", {})

    return of


def test_every_outcome_has_its_place():
    assert sorted(SEVERITY) == sorted(OUTCOMES)
    assert SEVERITY == ("error", "fail", "warn", "not_applicable", "skipped", "waived", "pass")


def test_what_is_said_of_both_seeds_in_the_same_words_is_said_once(rows):
    over_seeds = {"quantity": "margin_pp", "observed": Reading(2.5), "interval": (-1.0, 6.0), "state": "UNDECIDED"}
    ours = [
        a_finding("D3", "warn", run_id=run_id, reference_run_id=f"f{run_id}", **over_seeds) for run_id in ("r1", "r2")
    ]
    (row,) = rows(ours[:1], ours[1:])
    (said,) = row.said
    assert (said.seeds, said.run_ids, said.reference_run_ids) == ((42, 123), ("r1", "r2"), ("fr1", "fr2"))
    assert said.interval == (-1.0, 6.0) and said.observed.kind == "pp" and row.seeds == (42, 123)


def test_seeds_with_figures_of_their_own_keep_them_under_one_heading(rows):
    (row,) = rows([a_finding("D1", observed=Reading(60.0))], [a_finding("D1", observed=Reading(70.0))])
    assert [(said.seeds, said.observed.reading.value) for said in row.said] == [((42,), 60.0), ((123,), 70.0)]


@pytest.mark.parametrize(
    "change", [{"outcome": "warn"}, {"state": "ODD"}, {"gating": False}, {"required": "at most 9"}]
)
def test_seeds_that_are_judged_otherwise_stand_apart(rows, change):
    other = dataclasses.replace(a_finding("D1"), **change)
    assert [row.seeds for row in rows([a_finding("D1")], [other])] == [(42,), (123,)]


def test_site_and_first_fire_are_put_into_words(rows):
    (row,) = rows([a_finding("D1", site=4, first_fire=8)], [a_finding("D1")])
    assert [(said.site, said.epoch) for said in row.said] == [("site 4", "first fires at epoch 8"), ("", "")]


def test_a_control_that_skips_what_it_is_the_reference_of_is_no_news(report):
    control = report.runs[-1]
    assert any(finding.outcome == "skipped" for finding in control.findings)
    assert not any(row.outcome == "skipped" for row in finding_rows([control], "frozen", "s", {}))
    trained = dataclasses.replace(report.runs[0], findings=(a_finding("D3", "skipped"),))
    assert [row.outcome for row in finding_rows([trained], "bp", "s", {})] == ["skipped"]


def test_by_severity_and_what_decides_before_what_is_only_reported(rows):
    findings = [
        a_finding(f"{outcome}-{gating}", outcome, gating=gating) for gating in (False, True) for outcome in OUTCOMES
    ]
    ordered = most_severe_first(rows(findings, []))
    assert [row.rule for row in ordered] == [f"{outcome}-{gating}" for outcome in SEVERITY for gating in (True, False)]


def test_the_limit_stands_without_its_unit_where_the_report_knows_it_apart(rows):
    """Read out of the words it would end at the first bracket, wherever that stands."""
    known = a_finding("Z", required="at most 50 (of 100) (ratio)", limit="at most 50 (of 100)")
    older = dataclasses.replace(known, limit="")
    assert [row.limit for row in rows([known], [])] == ["at most 50 (of 100)"]
    assert [row.limit for row in rows([older], [])] == ["at most 50 (of 100) (ratio)"]
