"""The table for a paper: its own footnotes, names that LaTeX would run as commands, and nothing where nothing was judged."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fa_registry.records import Reading
from fa_registry.reporting.pages.index import SHOWN, audit_table_context
from fa_registry.reporting.sources import Sources
from fa_registry.reporting.text.environment import Pages, variables

HOSTILE = r"100%_#$&{}~^\ \input{/etc/passwd}"


@pytest.fixture
def table():
    return lambda report: Pages().render("audit_table.tex.j2", variables(audit_table_context(Sources.of(report))))


def test_a_line_a_method_with_its_runs_in_a_comment(table, report):
    text = table(report)
    for method in ("bp", "dfa", "frozen"):
        assert rf"\raggedright {method}}}" in text
    for run in report.runs:
        assert re.search(rf"^% .*{run.record.run_id}", text, re.MULTILINE)
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert r"95.7~\ensuremath{\pm}~0.3~\% (2)" in text


def test_what_is_missing_has_its_reason_below_the_table_and_no_other(table, report):
    context = audit_table_context(Sources.of(report))
    (part,) = context.tables
    assert [note.mark for note in part.footnotes] == list(range(1, len(part.footnotes) + 1))
    used = {mark for row in part.rows for column in SHOWN for mark in getattr(row, column).marks}
    assert used == {note.mark for note in part.footnotes} and used
    assert "not finite (inf)" in {note.reason for note in part.footnotes}
    assert "feedback file" not in table(report)  # that reason is of Γ, which this table does not show


def test_a_healthy_audit_has_no_footnote(table, judged, record):
    text = table(
        judged([record("dfa", 42, 0.9, 3.0, 0.1, 0.2), record("bp", 42, 0.8, 1.0, 0.4, 0.0, control="frozen")])
    )
    assert r"\textsuperscript" not in text.partition(r"\bottomrule")[0].partition(r"\toprule")[2]


def test_names_are_text(table, report):
    spec = dataclasses.replace(report.runs[0].record.spec, method=HOSTILE)
    run = dataclasses.replace(report.runs[0].record, spec=spec, setting=HOSTILE, name=HOSTILE)
    text = table(
        dataclasses.replace(report, runs=(dataclasses.replace(report.runs[0], record=run),), selection=HOSTILE)
    )
    printed = "\n".join(line for line in text.split("\n") if not line.startswith("%"))
    assert r"\input{" not in printed and r"\textbackslash{}input\{/etc/passwd\}" in text
    assert "100%" not in printed


def test_stability_has_its_column_where_it_was_measured(table, report, rich):
    assert "Stability" in table(rich) and "Stability" not in table(report)


def test_controls_alone_are_a_table_and_no_run_is_none(table, report):
    controls = tuple(run for run in report.runs if run.verdict.outcome == "control")
    assert r"\raggedright frozen}" in table(dataclasses.replace(report, runs=controls))
    text = table(dataclasses.replace(report, runs=()))
    assert "No run was judged" in text and all(line.startswith("%") for line in text.split("\n") if line)


def test_a_setting_is_a_table_of_its_own_with_footnotes_from_one(judged, record):
    first = record("dfa", 42, 0.9, 3.0, 0.1, 0.2)
    lost = dataclasses.replace(
        first.measurements, scalars={**first.measurements.scalars, "h_L": Reading(None, "the file is gone")}
    )
    other = dataclasses.replace(
        first,
        run_id="c" * 32,
        spec=dataclasses.replace(first.spec, epochs=9),
        setting="another",
        measurements=lost,
    )
    context = audit_table_context(Sources.of(judged([first, other])))
    assert [(table.number, table.setting) for table in context.tables] == [(1, first.setting), (2, "another")]
    assert [note.mark for table in context.tables for note in table.footnotes] == [1, 2, 1, 2, 3]
