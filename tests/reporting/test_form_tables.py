"""Every metric by seed and site: text where a finding has it, N/A with reasons, what a diagnostic cannot show."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fa_registry.metrics import DECLARED, SITE_TABLES
from fa_registry.protocol.grouping import groups
from fa_registry.provenance import NOT_A_CHECKOUT
from fa_registry.records import Conformance, Measurements, Reading, RunAudit
from fa_registry.reporting.pages.form_tables import (
    OF_MAPS,
    description,
    first_fires,
    gamma_table,
    identification,
    site_tables,
)
from tests.reporting.report_changes import with_record
from tests.reporting.sample_reports import a_finding


def runs_of(report, method) -> list[RunAudit]:
    return [run for run in report.runs if run.record.spec.method == method and run.record.spec.control == "none"]


def measuring(run: RunAudit, **changes) -> RunAudit:
    """The run with other site metrics; None takes one away."""
    sites = {name: row for name, row in (run.record.measurements.sites | changes).items() if row is not None}
    measurements = dataclasses.replace(run.record.measurements, sites=sites)
    return with_record(run, measurements=measurements)


def spoken(runs, report) -> dict:
    """(metric, seed, site) → (word, outcome) of every cell that has a word."""
    return {
        (row.name, int(line.name), site): (cell.word, cell.outcome)
        for table in site_tables(runs, report)
        for row in table.rows
        for line in row.rows
        for site, cell in enumerate(line.cells)
        if cell.word
    }


@pytest.fixture
def dfa(report):
    return runs_of(report, "dfa")


def test_sites_that_are_exact_by_construction_stand_apart_and_are_folded(rich, rich_pages):
    """Rows of 1.000 that no run can change show nothing, and must not be where a reader looks for alignment."""
    runs = runs_of(rich, "bp")
    counted, apart = (gamma_table(runs, [0, 4], informative=counted) for counted in (True, False))
    assert [row.name for row in counted.rows] == ["1", "2", "3"] and [row.name for row in apart.rows] == ["0", "4"]
    assert "exact by construction" in apart.title and "exact" not in counted.title
    for method, open_rows in (("bp", 0), ("dfa", 5)):
        page = next(text for name, text in rich_pages.items() if re.fullmatch(rf"forms/{method}-[^+]*html", name))
        section = page[page.index('<h2 id="gamma">') : page.index('<h2 id="diagnostics">')]
        opened = section[: section.index("<details>")]
        assert opened.count('<th scope="row">') == open_rows and "1.000" not in opened
        assert (apart.title in section) == (method == "bp")


def test_of_maps_both_cosines_are_shown_and_told_apart(dfa, report):
    absent, flat = (Reading(None, "no map"),) * 5, (Reading(-0.33), Reading(-0.007), *(Reading(None, "no map"),) * 3)
    for row, has_maps in ((None, False), (absent, False), (flat, True)):
        runs = [measuring(run, gamma_flat=row) for run in dfa]
        assert (OF_MAPS in gamma_table(runs, exact=()).notes) == has_maps
        names = [line.name for table in site_tables(runs, report) for line in table.rows]
        assert ("gamma_flat" in names) == has_maps
    assert names.index("gamma_flat") == names.index("gamma") + 1


def test_an_unknown_state_is_shown_as_it_is(rich):
    finding = a_finding("X9", "warn", quantity="rho", site=2, state="ODD")
    run = dataclasses.replace(runs_of(rich, "dfa")[0], findings=(finding,))
    assert spoken([run], rich) == {("rho", 42, 2): ("ODD", "warn")}


def test_what_only_some_methods_have_is_left_out_without_a_value(rich):
    run = runs_of(rich, "dfa")[0]
    shown = {row.name for table in site_tables([run], rich) for row in table.rows}
    assert not {"bridge_residual", "costate_cosine"} & shown
    row = run.record.measurements.sites["bridge_residual"]
    valued = measuring(run, bridge_residual=(*row[:-1], Reading(0.3)))
    assert "bridge_residual" in {row.name for table in site_tables([valued], rich) for row in table.rows}


def test_where_one_seed_measured_it_the_other_says_that_it_did_not(rich):
    first, second = runs_of(rich, "dfa")
    tables = site_tables([first, measuring(second, rho=None)], rich)
    line = next(row for table in tables for row in table.rows if row.name == "rho").rows[1]
    (absent,) = {cell.number.reading for cell in line.cells}
    assert absent.value is None and f"ρ: {absent.reason}" in tables[-1].notes


def test_a_run_that_measured_nothing_keeps_the_core_without_sites(dfa, report):
    record = dataclasses.replace(dfa[0].record, measurements=Measurements({}, {}))
    tables = site_tables([dataclasses.replace(dfa[0], record=record)], report)
    assert [(table.title, table.columns) for table in tables] == [
        ("Scale and reference", ()),
        ("Credit and its null", ()),
    ]
    core = {name for _, names in SITE_TABLES for name in names if DECLARED[name].always}
    assert {row.name for table in tables for row in table.rows} == core


def test_a_quantity_with_fewer_sites_is_filled_with_na(dfa, report):
    run = measuring(dfa[1], gain=dfa[1].record.measurements.sites["gain"][:2])
    table = site_tables([run], report)[0]
    line = next(row for row in table.rows if row.name == "gain").rows[0]
    assert [cell.number.reading.value is None for cell in line.cells] == [False, False, True, True, True]
    assert f"{DECLARED['gain'].symbol}: {line.cells[2].number.reading.reason}" in table.notes


def test_the_first_fire_is_shown_for_every_seed(dfa, report):
    assert first_fires(report.runs[:1]) == ()
    quiet = dataclasses.replace(dfa[1], findings=(dataclasses.replace(dfa[1].findings[0], first_fire=None),))
    assert first_fires([dfa[0], quiet])[0].cells[1] == "never"


@pytest.fixture
def entries(report):
    def of(method, changed=report):
        group = next(group for group in groups(changed) if group.method == method)
        return {entry.term: entry.values for entry in identification(group, changed)}

    return of


def test_a_report_without_cards_and_provenance_says_not_recorded(entries, report):
    runs = tuple(with_record(run, provenance={}) for run in report.runs)
    found = entries("dfa", dataclasses.replace(report, runs=runs, cards={}))
    assert {found[term][0].text for term in ("Rule", "Source", "Hardware", "Commit", "Versions", "Data digest")} == {
        "not recorded"
    }


def test_anchor_steps_are_shown_with_their_interval_if_the_card_describes_them(entries, report):
    assert "Anchor steps" not in entries("dfa")
    cards = {**report.cards, "methods/dfa": {**report.cards["methods/dfa"], "anchor_steps": "exact"}}
    runs = tuple(
        with_record(run, spec=dataclasses.replace(run.record.spec, method_options={"anchor_every": "3"}))
        if run.record.spec.method == "dfa"
        else run
        for run in report.runs
    )
    (value,) = entries("dfa", dataclasses.replace(report, cards=cards, runs=runs))["Anchor steps"]
    assert value.text == "anchor_every = 3: exact"


@pytest.fixture
def texts(entries, report):
    """The texts of an entry of dfa, its two runs holding this provenance."""

    def of(term, *provenances):
        runs = list(report.runs)
        for index, held in zip((2, 3), provenances, strict=True):
            runs[index] = with_record(runs[index], provenance=held)
        found = entries("dfa", dataclasses.replace(report, runs=tuple(runs))).get(term, ())
        return [value.text for value in found], [value.run_ids for value in found]

    return of


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({"commit": "0123abc", "dirty": None}, "0123abc (tree unknown)"),
        ({"commit": "0123abc"}, "0123abc (tree unknown)"),
        ({"commit": "0123abc", "dirty": False}, "0123abc (clean tree)"),
        ({"commit": NOT_A_CHECKOUT, "dirty": None}, "not a git checkout"),
        ({"commit": NOT_A_CHECKOUT, "dirty": False}, "not a git checkout"),  # as older runs recorded it
        ({"commit": "unknown: git timed out", "dirty": None}, "unknown: git timed out"),
        ({"commit": "unknown: git timed out", "dirty": False}, "unknown: git timed out"),
        ({"commit": "", "dirty": None}, "not recorded"),
    ],
)
def test_a_tree_is_called_clean_only_where_git_reports_it(texts, held, text):
    assert texts("Commit", held, held)[0] == [text]


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        (list(range(1024)), "1,024 samples, indices 0 to 1023"),
        ([7, 3, 950], "3 samples, indices between 3 and 950"),
        ([5], "1 sample, index 5"),
        ([], "not recorded"),
        (None, "not recorded"),
    ],
)
def test_the_eval_batch_is_shown_by_range_and_count(texts, indices, text):
    held = {"eval_indices": indices}
    assert texts("Eval batch", held, held)[0] == [text]


def test_a_resumed_run_says_after_which_epoch_and_one_that_ran_through_says_nothing(texts, report):
    assert texts("Resumed", {"resumed_from": 0}, {}) == ([], [])
    after = "resumed after epoch 7"
    assert texts("Resumed", {"resumed_from": 7}, {"resumed_from": 0}) == ([after], [(report.runs[2].record.run_id,)])
    assert texts("Resumed", {"resumed_from": 7}, {"resumed_from": 7}) == ([after], [()])


def test_an_adopted_run_says_so_and_one_that_was_trained_here_says_nothing(texts, report):
    assert texts("Adopted", {}, {}) == ([], [])
    found = texts("Adopted", {"origin": {"trained": "", "file": "w.pt"}}, {})
    assert found == (["file w.pt"], [(report.runs[2].record.run_id,)])


@pytest.mark.parametrize(
    ("conformance", "shown"),
    [
        (None, False),
        (Conformance("own", sign="tested"), False),
        (Conformance("own", sign="not tested"), True),
        (Conformance("passed", sign="tested"), False),
        (Conformance("passed", sign="not tested"), True),
        (Conformance("failed", ("bp",), sign="not tested"), True),
    ],
)
def test_a_form_says_that_the_sign_of_a_method_was_not_tested(entries, report, conformance, shown):
    runs = tuple(with_record(run, conformance=conformance) for run in report.runs)
    found = entries("dfa", dataclasses.replace(report, runs=runs)).get("Conformance", ())
    assert any("sign not tested" in value.text for value in found) == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not recorded"),
        ({}, "not recorded"),
        ("", "not recorded"),
        (True, "yes"),
        (1437, "1,437"),
        ({"a": 1, "b": ""}, "a 1"),
        (["x", 2], "x, 2"),
    ],
)
def test_text(value, text):
    assert description(value) == text
