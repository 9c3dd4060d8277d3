"""Methods keep names that distinguish them, and means that hide no broken run."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace

import pytest

from fa_registry import jsonio
from fa_registry.analyses import CATALOG, Analysis, AnalysisCell, AnalysisColumn, AnalysisTable
from fa_registry.analyses._methods import mean_cell, trained
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Exclusion, Reading
from tests.analyses.builders import SEEDS, analysed, controlled, frozen, report_of, row, run, values

EDITION = load_edition("2026-05")


def methods(*runs):
    return trained(report_of(runs, EDITION))


def mean(name, *runs):
    (method,) = methods(*runs)
    return mean_cell(method.runs, name)


def test_controls_are_no_methods():
    assert [method.label for method in methods(frozen(), run("dfa"), run("bp", spec={"control": "shallow"}))] == ["dfa"]


def test_options_are_part_of_the_label():
    labels = [
        method.label for method in methods(run("ep"), run("ep", spec={"method_options": {"beta": 0.5, "alpha": 1}}))
    ]
    assert labels == ["ep", "ep (alpha=1,beta=0.5)"]


def test_two_methods_of_one_name_and_setting_are_distinguished():
    """Credit normalisation is part of a method, not of its setting."""
    plain = run("dfa")
    other = run("dfa", 1, spec={"recipe": replace(plain.spec.recipe, credit_norm="none")})
    assert [method.label for method in methods(plain, other)] == ["dfa", "dfa (credit_norm=none)"]


def test_a_seed_without_a_value_is_left_out_of_n():
    cell = mean("accuracy", run("dfa", 1, accuracy=0.4), run("dfa", 2, accuracy=0.6), run("dfa", 3, accuracy="lost"))
    assert (cell.reading.value, cell.n, cell.run_ids) == (0.5, 2, ("dfa-1", "dfa-2"))


def test_a_seed_that_is_not_finite_leaves_no_mean():
    cell = mean("h_L", *(run("dfa", seed, h_L=math.inf if seed == 123 else 2.0) for seed in SEEDS))
    assert cell.reading.not_finite and cell.run_ids == ("dfa-123",)


@pytest.mark.parametrize("values", [(1e-300, 1e300), (1e308, 1e308), (1.7e308, 1.0)])
def test_scales_of_any_size_have_a_mean(values):
    cell = mean("h_L", *(run("dfa", seed, h_L=value) for seed, value in enumerate(values)))
    assert math.isclose(math.log10(cell.reading.value), sum(map(math.log10, values)) / 2, rel_tol=1e-12, abs_tol=1e-9)


def test_a_number_beyond_arithmetic_is_reported_and_does_not_overflow():
    cell = mean("nudge", *(run("dfa", seed, nudge=1e200) for seed in SEEDS))
    assert "arithmetic mean" in cell.reading.reason


NAMES = sorted(CATALOG.names())
COUNTED = ("text", "count", "chosen")  # no measurements: a person chose them, or they count rows


def demo():
    """Two methods, a sweep, a diverged run and one without figures."""
    runs = [run("bp", seed, accuracy=0.95, lines={"growth_max": (1.0, 2.0), "h_L": (1.0, 2.0)}) for seed in SEEDS]
    runs += [run("dfa", seed, growth=900.0, accuracy=0.3, sites={"gamma": (0.4, 0.1, -0.1)}) for seed in SEEDS]
    runs += [run("dfa", seed, accuracy=0.52, spec={"penalty": 0.01}) for seed in SEEDS]
    runs += [run("fa", 42, status="diverged", growth=math.inf), run("fa", 123, gamma="no feedback")]
    return controlled(*runs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("edition", ["2026-04", "2026-05", "2026-05:strict", "2026-12"])
def test_json_both_ways_and_every_measured_number_names_its_runs(name, edition):
    analysis = analysed(name, demo(), edition)
    text = jsonio.canonical(analysis)
    again = jsonio.decode(Analysis, json.loads(text))
    assert again == analysis and jsonio.canonical(again) == text
    known = {record.run_id for record in demo()}
    for table in analysis.tables:
        for cells in table.rows:
            assert {run_id for cell in cells.values() for run_id in cell.run_ids} <= known
            for column in table.columns:
                cell = cells[column.name]
                if column.kind not in COUNTED and cell.reading.value is not None:
                    assert cell.run_ids, f"{table.name}.{column.name}"


@pytest.mark.parametrize("name", NAMES)
def test_every_analysis_says_what_it_asks_who_asked_first_and_in_which_units(name):
    plugin = CATALOG.get(name)
    assert plugin.name == name.replace("_", "-")
    assert plugin.question.endswith("?") and plugin.question.count("?") == 1 and plugin.source
    analysis = analysed(name, demo())
    for table in analysis.tables:
        for column in table.columns:
            assert column.words, f"{table.name}.{column.name}"
            assert column.unit or column.kind in COUNTED, f"{table.name}.{column.name} has no unit"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "records",
    [[], [frozen()], [run("dfa")], [run("bp", growth="lost", g="lost", accuracy="lost")]],
    ids=["nothing", "controls alone", "one run", "nothing measured"],
)
def test_little_data_is_reported_and_breaks_nothing(name, records):
    analysis = analysed(name, records)
    assert jsonio.decode(Analysis, jsonio.encode(analysis)) == analysis
    if not any(record.spec.control == "none" for record in records):
        assert any("no trained method" in remark for remark in analysis.remarks)


def test_excluded_runs_and_the_reports_own_remarks_travel_with_the_answer():
    gone = Exclusion("x", "dfa-9", "half-written")
    analysis = analysed("penalty", demo(), excluded=(gone,), remarks=("older runs exist",))
    assert analysis.excluded == (gone,) and "older runs exist" in analysis.remarks
    assert analysis.columns == analysis.tables[0].columns and analysis.rows == analysis.tables[0].rows


def test_a_report_of_other_rules_is_refused():
    ours, other = load_edition("2026-05"), load_edition("2026-05", {"D1": 60.0})
    with pytest.raises(ValueError, match="judge the records again"):
        CATALOG.get("sensitivity").run(report_of(demo(), other), ours)


def test_wrong_tables_are_refused():
    with pytest.raises(ValueError, match="expected one of the kinds text"):
        AnalysisColumn("a", "words", kind="number")
    with pytest.raises(ValueError, match="expected a number, a text or both"):
        AnalysisCell()
    with pytest.raises(
        ValueError, match=r"row 0: expected one cell per column, found only a column or only a cell for: a, b"
    ):
        AnalysisTable("t", "T", (AnalysisColumn("a", "words"),), ({"b": AnalysisCell(text="x")},))


def test_no_nan_goes_into_a_file():
    table = AnalysisTable(
        "t", "T", (AnalysisColumn("a", "words"),), ({"a": AnalysisCell(Reading(1.0), interval=(math.nan, 1.0))},)
    )
    analysis = dataclasses.replace(analysed("penalty", demo()), tables=(table,))
    with pytest.raises(ValueError, match="nan"):
        jsonio.canonical(analysis)


def of(*records):
    return analysed("ladder", records)


def ladder_run(count, accuracy, seed=42, method="dfa", **changes):
    return run(method, seed, accuracy=accuracy, spec={"control": f"ladder_{count}", **changes})


def test_ladder_runs_rise_from_zero_trained_blocks_to_the_method():
    analysis = of(
        *(
            made
            for seed in (1, 2)
            for made in (ladder_run(0, 0.3, seed), ladder_run(1, 0.4, seed), run("dfa", seed, accuracy=0.6))
        )
    )
    assert [row["trained"].reading.value for row in analysis.rows] == [0.0, 1.0, 2.0]
    assert [row["accuracy"].reading.value for row in analysis.rows] == pytest.approx([0.3, 0.4, 0.6])
    assert [row["gain"].reading.value for row in analysis.rows] == pytest.approx([0.0, 10.0, 30.0])
    assert [row["of"].text for row in analysis.rows] == ["dfa ladder 0", "dfa ladder 1", "dfa"]
    assert analysis.remarks == ()


def test_the_frozen_control_is_zero_trained_blocks_where_no_ladder_0_was_run():
    analysis = of(frozen(accuracy=0.3), ladder_run(1, 0.4), run("dfa", accuracy=0.6))
    assert [row["of"].text for row in analysis.rows] == ["frozen", "dfa ladder 1", "dfa"]
    assert [row["of"].text for row in of(frozen(accuracy=0.3), run("dfa")).rows] == [
        "frozen",
        "dfa",
    ]  # one trained block stays open
    both = of(frozen(accuracy=0.1), ladder_run(0, 0.3), ladder_run(1, 0.4), run("dfa", accuracy=0.6))
    assert values(row(both.tables[0], trained=0.0), "accuracy") == [0.3]


@pytest.mark.parametrize(("blocks", "expected"), [(10**15, 1e15), ("many", 2.0)])
def test_a_number_of_blocks_that_no_network_has_is_not_counted_up_to(blocks, expected):
    """A report from another person. A search for 10^15 ladder controls would not end, and neither would the suite."""
    options = {"architecture_options": {"num_blocks": blocks}}
    analysis = of(ladder_run(0, 0.3, **options), run("dfa", spec=options, sites={"gamma": (0.1, 0.2)}))
    assert [row["blocks"].reading.value for row in analysis.rows if row["of"].text == "dfa"] == [expected]


def test_the_foot_of_a_penalised_ladder_has_no_penalty():
    analysis = of(
        ladder_run(0, 0.3),
        ladder_run(1, 0.4, penalty=0.1),
        ladder_run(1, 0.9),
        run("dfa", accuracy=0.6, spec={"penalty": 0.1}),
    )
    assert [row["accuracy"].reading.value for row in analysis.rows] == [0.3, 0.4, 0.6]


def test_ladder_runs_of_another_method_or_setting_are_not_its_own():
    analysis = of(
        ladder_run(1, 0.4, method="fa"), ladder_run(1, 0.4, epochs=9), frozen(accuracy=0.3, epochs=9), run("dfa")
    )
    assert [row["of"].text for row in analysis.rows] == ["dfa"]
    assert "ladder_0" in values(analysis.rows[0], "gain")[0]
    assert any("ladder_K" in remark and "dfa" in remark for remark in analysis.remarks)


def test_depths_of_one_method_stand_together():
    def deep(blocks, accuracy):
        options = {"d_hidden": 16, "num_blocks": blocks}
        made = run("dfa", accuracy=accuracy, spec={"architecture_options": options})
        return dataclasses.replace(made, run_id=f"{blocks}", setting=f"resmlp-16x{blocks}")

    control = frozen(accuracy=0.3, architecture_options={"d_hidden": 16, "num_blocks": 4})
    wide = run("dfa", spec={"architecture_options": {"d_hidden": 32, "num_blocks": 4}})
    table = of(deep(8, 0.7), deep(2, 0.5), deep(4, 0.6), control, wide).table("depth")
    assert [row["blocks"].reading.value for row in table.rows] == [2.0, 4.0, 8.0]
    assert {row["scan"].text for row in table.rows} == {"resmlp-16x2"}
    first, second, third = [values(row, "frozen")[0] for row in table.rows]
    assert second == 0.3 and first == third and "no frozen control" in first


def test_one_depth_is_no_scan():
    assert of(run("dfa"), run("fa")).table("depth").rows == ()
