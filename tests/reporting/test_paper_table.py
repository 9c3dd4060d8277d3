"""The table for a paper: at most seven columns, those asked for, and the interval that the rule about depth judged."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.metrics import SUBJECTS, TABLES
from fa_registry.reporting.pages.paper_table import MOST_COLUMNS, paper_table_context
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from tests.reporting.report_changes import changed


def table_of(report, *names):
    (table, *_) = paper_table_context(Sources.of(report), names).tables
    return table


def names_of(table):
    return [column.name for column in table.columns]


def test_without_a_choice_it_has_the_metrics_of_its_table(report):
    table = table_of(report)
    assert names_of(table) == ["accuracy", "margin_pp", *TABLES["paper"][2:]]
    assert len(TABLES["paper"]) <= MOST_COLUMNS == 5  # with method and verdict: seven columns


def test_the_columns_are_those_asked_for_in_this_order(report):
    assert names_of(table_of(report, "h_L", "accuracy")) == ["h_L", "accuracy"]
    table = table_of(report, "g_norm_mean_ce_L")  # by site: its value at the last one
    (column,) = table.columns
    estimate = table.part.rows[0].estimates[column.name]
    assert (
        estimate.values[0].number.reading.value == report.runs[0].record.measurements.sites["g_norm_mean_ce"][-1].value
    )


@pytest.mark.parametrize(
    ("names", "problems"), [(("accurcy", "nothing"), 2), (("accuracy",) * 6, 1), (("h_norm",), 1), (("",), 1)]
)
def test_what_cannot_be_a_column_is_said_at_once(report, names, problems):
    with pytest.raises(InvalidFields) as refused:
        table_of(report, *names)
    assert len(refused.value.problems) == problems


def test_the_brackets_are_the_interval_that_was_judged(rich):
    table = table_of(rich)
    judged = {
        row.method: {
            (one.interval, one.test)
            for run in rich.runs
            for one in run.findings
            if run.record.run_id in {seed.run_id for seed in row.seeds}
            and one.quantity in SUBJECTS["depth"]
            and one.interval
        }
        for row in table.part.rows
    }
    assert any(judged.values())
    for row, interval in zip(table.part.rows, table.intervals, strict=True):
        assert {(one.ends, one.test) for one in [interval] if one} == judged[row.method]


def test_a_row_has_its_own_interval_and_a_control_none(rich):
    ends = (-1.25, 9.75)
    runs = tuple(
        dataclasses.replace(
            run,
            findings=tuple(
                dataclasses.replace(one, interval=ends, confidence=0.975)
                if one.quantity in SUBJECTS["depth"] and run.record.spec.method == "dfa"
                else dataclasses.replace(one, interval=(3.0, 4.0))  # of another rule, or of another method
                for one in run.findings
            ),
        )
        for run in rich.runs
    )
    other = dataclasses.replace(rich, runs=runs)
    table = table_of(other)
    shown = dict(zip([row.method for row in table.part.rows], table.intervals, strict=True))
    assert (shown["dfa"].ends, shown["dfa"].level) == (ends, "97.5 %")
    assert {one.ends for name, one in shown.items() if one and name != "dfa"} == {(3.0, 4.0)}
    page = variables(paper_table_context(Sources.of(other)))
    text = TemplateRenderer().render("audit_table.tex.j2", page)
    rows = {line.split("}")[1].split()[-1]: line for line in text.split("\n") if line.startswith(r"\parbox")}
    assert "[$-1.2$, +9.8]" in rows["dfa"]
    assert sum("[$-1.2$, +9.8]" in line for line in rows.values()) == 1


def test_a_seed_without_a_value_is_counted_also_below_an_interval(rich):
    runs = list(rich.runs)
    place = next(at for at, run in enumerate(runs) if run.record.spec.method == "dfa")
    runs[place] = changed(runs[place], scalars={"accuracy": None})
    page = variables(paper_table_context(Sources.of(dataclasses.replace(rich, runs=tuple(runs)))))
    text = TemplateRenderer().render("audit_table.tex.j2", page)
    row = next(line for line in text.split("\n") if r"\raggedright dfa}" in line)
    accuracy, margin = row.split(" & ")[1:3]
    assert "(1 of 2)" in accuracy and "(1 of 2)" in margin and "[" in margin.partition("]{@")[2]


def test_the_caption_says_how_many_seeds_the_methods_have(report):
    assert table_of(report).seeds == (2, 2)
    one = [run for run in report.runs if run.record.spec.seed == 42]
    assert table_of(dataclasses.replace(report, runs=tuple(one))).seeds == (1, 1)
    fewer = tuple(run for run in report.runs if (run.record.spec.method, run.record.spec.seed) != ("dfa", 42))
    assert table_of(dataclasses.replace(report, runs=fewer)).seeds == (1, 2)
    page = variables(paper_table_context(Sources.of(dataclasses.replace(report, runs=tuple(one)))))
    assert ", 1 seed.}" in TemplateRenderer().render("audit_table.tex.j2", page)
