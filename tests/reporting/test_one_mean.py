"""A metric over seeds is one number, and a method has one name, on every page: pages, terminal, compare, analyses."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry.analyses import CATALOG
from fa_registry.cli.analyse import cell_text
from fa_registry.cli.compare import estimate_text
from fa_registry.metrics import DECLARED, label_of
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Reading, Recipe
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.text import filters
from tests.reporting.page import section, terminal_rows, text_of, written
from tests.reporting.report_changes import changed
from tests.reporting.runs import SEEDS, full, make_record
from tests.reporting.sample_reports import make_report

pytestmark = pytest.mark.long

GROWTH, MEAN = (1000.0, 4000.0), 2000.0  # the arithmetic mean is 2,500


def grown(record, growth):
    """The record with this growth at every site and over the run."""
    sites = {**record.measurements.sites, "growth": (Reading(None, "site 0"), *[Reading.of(growth)] * 4)}
    scalars = {**record.measurements.scalars, "growth_max": Reading.of(growth)}
    measured = dataclasses.replace(record.measurements, sites=sites, scalars=scalars)
    return dataclasses.replace(record, measurements=measured)


def report_of(growth, **changes):
    fa = [grown(make_record("fa", *given, 3.0, 0.1, 0.1), one) for one, given in zip(growth, seeds(), strict=True)]
    frozen = [make_record("bp", seed, 0.5, 1.0, 0.4, 0.0, control="frozen") for seed, _ in seeds()]
    return make_report([*fa, *frozen], "2026-05", **changes)


def seeds():
    return ((42, 0.8), (123, 0.9))


ACCURACY_PRINTED, GROWTH_PRINTED = label_of("accuracy"), f"{label_of('growth_max')}, geometric mean"


def audit_table(report, folder):
    return text_of(section(written(report, folder)["index.html"], "verdicts"))


def test_a_growth_over_seeds_is_one_number_on_every_page_and_in_the_terminal(tmp_path):
    report = report_of(GROWTH)
    (fa, _) = groups(report)
    shown = filters.num(MEAN)
    pages = written(report, tmp_path)
    assert shown in text_of(section(pages["index.html"], "verdicts"))
    assert shown in pages["audit_table.tex"]
    assert terminal_rows(report)["fa"][GROWTH_PRINTED] == shown
    ((part, _),) = compare_context(report, [fa]).parts
    assert estimate_text(part.columns[0].estimates["growth_max"]).startswith(shown)
    (row, *_) = CATALOG.get("cross_architecture").run(report, load_edition("2026-05")).rows
    assert row["growth_max"].reading.value == pytest.approx(MEAN)
    for text in pages.values():
        assert "2,500" not in text


def test_the_audit_table_the_comparison_and_the_terminal_say_which_mean_it_is(tmp_path):
    report = report_of(GROWTH)
    text = audit_table(report, tmp_path)
    length, growth, gradient = (DECLARED[name].symbol for name in ("h_L", "growth_max", "g_norm_mean_ce_L"))
    metrics = text.split("means over seeds (geometric for ")[1].split(";")[
        0
    ]  # of these and of everything else of that kind in the table `audit`
    assert all(symbol in metrics for symbol in (length, growth, gradient)) and "accuracy" not in metrics, metrics
    assert "eans over seeds (geometric for" in written(report, tmp_path)["audit_table_notes.tex"]
    assert "means over seeds (geometric for" in compare_context(report, list(groups(report))).means


def test_a_seed_that_is_not_finite_leaves_no_mean_on_the_page_and_in_the_terminal(tmp_path):
    report = report_of((989.0, math.inf))
    assert terminal_rows(report)["fa"][GROWTH_PRINTED] == "not finite"
    assert "not finite" in audit_table(report, tmp_path)


def test_the_terminal_says_of_how_many_seeds_a_mean_is(tmp_path):
    report = report_of(GROWTH)
    runs = [changed(run, scalars={"accuracy": None}) if not at else run for at, run in enumerate(report.runs)]
    report = dataclasses.replace(report, runs=tuple(runs))
    assert terminal_rows(report)["fa"][ACCURACY_PRINTED] == f"{filters.pct(0.9)} (1 of 2)"
    assert "(1 of 2)" in audit_table(report, tmp_path)


def on_another_network(run):
    spec = dataclasses.replace(run.record.spec, architecture="cnn")
    record = dataclasses.replace(run.record, spec=spec, run_id=spec.identity[:32], setting="cnn · digits")
    return dataclasses.replace(run, record=record)


def test_a_comparison_and_an_analysis_say_of_how_many_seeds_too(tmp_path):
    report = report_of(GROWTH)
    runs = [changed(run, scalars={"growth_max": None}) if not at else run for at, run in enumerate(report.runs)]
    report = dataclasses.replace(report, runs=tuple(runs))
    ((part, _),) = compare_context(report, list(groups(report))[:1]).parts
    assert "(1 of 2)" in estimate_text(part.columns[0].estimates["growth_max"])
    analysis = CATALOG.get("cross_architecture").run(report, load_edition("2026-05"))
    (column,) = (one for one in analysis.tables[0].columns if one.name == "growth_max")
    assert cell_text(analysis.rows[0]["growth_max"], column, {}) == "4,000 (1 of 2)"
    report = dataclasses.replace(report, runs=(*runs, *map(on_another_network, runs)))  # so that the analysis is shown
    assert "(1 of 2)" in text_of(section(written(report, tmp_path)["index.html"], "analyses"))


def test_a_figure_without_a_mean_has_its_footnote(tmp_path):
    """Every seed has its value, so that no seed's reason can replace the mean's."""
    report = report_of((0.0, 4.0))
    assert terminal_rows(report)["fa"][GROWTH_PRINTED] == "N/A"
    assert "no geometric mean exists" in audit_table(report, tmp_path)


def variant(seed, **fields):
    record = full(make_record("ep", seed, 0.9, 3.0, 0.1, 0.5))
    spec = dataclasses.replace(record.spec, **fields)
    return dataclasses.replace(record, spec=spec, run_id=spec.identity[:32])


VARIANTS = {
    "ep": {},
    "ep (beta=0.5)": {"method_options": {"beta": 0.5}},
    "ep (credit_norm=none)": {"recipe": Recipe(credit_norm="none")},
    "ep (beta=0.5,credit_norm=none)": {"method_options": {"beta": 0.5}, "recipe": Recipe(credit_norm="none")},
}


@pytest.fixture(scope="module")
def variants():
    card = {"options": {"beta": {"default": 0.5, "choices": []}}}
    frozen = [full(make_record("bp", seed, 0.8, 1.02, 0.4, 0.0, control="frozen")) for seed in SEEDS]
    runs = [variant(seed, **fields) for fields in VARIANTS.values() for seed in SEEDS]
    return make_report([*runs, *frozen], "2026-12", cards={"methods/ep": card})


def test_variants_of_a_method_are_no_equal_rows_of_the_terminal(variants):
    assert list(terminal_rows(variants)) == [*VARIANTS, "frozen"]


def test_a_method_has_one_name_in_every_table(variants, tmp_path):
    analysis = CATALOG.get("cross_architecture").run(variants, load_edition("2026-12"))
    assert {row["method"].text for row in analysis.rows} == set(VARIANTS)
    pages = written(variants, tmp_path)
    forms = [text for name, text in pages.items() if name.startswith("forms/ep") and name.endswith(".md")]
    named = {line.split("|")[1].strip() for text in forms for line in text.splitlines() if "| complete |" in line}
    assert {text.replace("\\_", "_") for text in named} == set(VARIANTS)
