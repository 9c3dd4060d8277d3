"""The form's tables: Γ always, N/A with reasons, words only where a finding speaks."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Measurements
from fa_registry.reporting.build_form import diagnostics_table, form_context, gamma_table, note_context
from fa_registry.reporting.readings import SITE_KINDS


@pytest.fixture
def dfa(report):
    return next(group for group in groups(report) if group.method == "dfa")


def test_gamma_stands_for_every_site_and_seed_with_its_reason(dfa):
    table = gamma_table(dfa.runs)
    assert [column for column, _ in table.columns] == ["seed 42", "seed 123"]
    assert [row.site for row in table.rows] == [0, 1, 2, 3, 4]
    assert all(
        row.cells[0].number.reading.value is None and row.cells[1].number.reading.value is not None
        for row in table.rows
    )
    assert table.notes == ("seed 42: the feedback file is missing: credit cannot be recomputed",)


def test_words_stand_where_a_finding_speaks_and_nowhere_else(dfa, report):
    def spoken(run):
        table = diagnostics_table(run)
        return {
            (table.columns[index][0], row.site): (cell.word, cell.fires)
            for row in table.rows
            for index, cell in enumerate(row.cells)
            if cell.word
        }

    assert spoken(dfa.runs[0]) == {("growth", 4): ("EXPLODED", True), ("g_norm_mean_ce", 4): ("AT FLOOR", True)}
    assert spoken(report.runs[0]) == {("growth", 4): ("OK", False), ("g_norm_mean_ce", 4): ("OK", False)}
    assert spoken(dataclasses.replace(dfa.runs[0], findings=())) == {}


def test_a_run_that_measured_nothing_has_an_empty_table(dfa):
    record = dataclasses.replace(dfa.runs[0].record, measurements=Measurements({}, {}))
    table = diagnostics_table(dataclasses.replace(dfa.runs[0], record=record))
    assert table.rows == () and [name for name, _ in table.columns] == list(SITE_KINDS)


def test_a_quantity_with_fewer_sites_is_filled_with_na(dfa):
    measurements = dfa.runs[1].record.measurements
    short = dataclasses.replace(measurements, sites={**measurements.sites, "gain": measurements.sites["gain"][:2]})
    table = diagnostics_table(
        dataclasses.replace(dfa.runs[1], record=dataclasses.replace(dfa.runs[1].record, measurements=short))
    )
    column = [name for name, _ in table.columns].index("gain")
    assert [row.cells[column].number.reading.value is None for row in table.rows] == [False, False, True, True, True]
    assert "gain: this quantity was not measured at this site" in table.notes


def test_the_form_carries_all_aggregates_and_the_spread(dfa, report):
    names = [metric.name for metric in form_context(dfa, report, {}).aggregates]
    assert len(names) == len(set(names)) == 9 and names[-1] == "gamma_spread"
    assert set(names) <= set(dfa.runs[0].record.measurements.scalars)


def test_the_form_keeps_what_people_wrote(dfa, report):
    form = form_context(dfa, report, {"claim": "ours"})
    assert {blank.key: blank.text for blank in form.blanks}["claim"] == "ours"


def test_a_note_speaks_of_its_run_alone(dfa, report):
    note = note_context(dfa.runs[1], report)
    assert (note.run_id, note.seed, note.verdict.label) == (dfa.runs[1].record.run_id, 123, "DIVERGED(D1+D2+D3)")
    assert {run_id for metric in note.headline for run_id in metric.estimate.mean.run_ids} == {
        note.run_id,
        dfa.runs[1].frozen_run_id,
    }
    assert {claim.run_ids for claim in note.claims} == {(note.run_id,)}
