"""audit.csv: every run once, numbers to the last digit, reasons for what is missing, and nothing that calculates."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_registry.metrics import metric_named
from fa_registry.records import Exclusion
from fa_registry.reporting.files.csv import CALCULATED, audit_table, columns_of, guarded, write_csv
from fa_registry.text_safety import escape_control
from tests.reporting.runs import NO_FEEDBACK

DTYPES = {"text": "string", "integer": "Int64", "number": "Float64", "boolean": "boolean"}


def lines(report, folder) -> list[dict[str, str]]:
    write_csv(report, folder / "audit.csv")
    return list(csv.DictReader(io.StringIO((folder / "audit.csv").read_bytes().decode("utf-8"), newline="")))


@pytest.mark.parametrize("which", ["report", "rich"])
def test_one_line_a_run_then_the_runs_that_were_not_judged(which, request, tmp_path):
    audit = request.getfixturevalue(which)
    found = lines(audit, tmp_path)
    ids = [run.record.run_id for run in audit.runs] + [exclusion.run_id for exclusion in audit.excluded]
    assert [line["run_id"] for line in found] == ids
    for line, run in zip(found, audit.runs, strict=False):
        assert (line["method"], int(line["seed"])) == (run.record.spec.method, run.record.spec.seed)
        assert (line["verdict"], line["outcome"]) == (run.verdict.label, run.verdict.outcome)
        assert line["proof"] == run.verdict.proof
        for finding in run.findings:
            assert line[f"outcome_{finding.rule}"] == finding.outcome


def test_every_edition_has_its_verdict(rich, tmp_path):
    for line, run, old in zip(lines(rich, tmp_path), rich.runs, rich.opinions[1].judgements, strict=True):
        assert line["verdict_2026-12"] == run.verdict.label and line["verdict_2026-04"] == old.verdict.label


def test_what_is_a_mean_over_seeds_says_so_in_every_line_it_stands_in(rich_of_three, tmp_path):
    over = [run.findings for run in rich_of_three.runs]
    assert {finding.seeds for findings in over for finding in findings} >= {1, 3}
    for line, findings in zip(lines(rich_of_three, tmp_path), over, strict=True):
        for finding in findings:
            assert line[f"seeds_{finding.rule}"] == str(finding.seeds)


def test_two_editions_of_one_name_keep_their_columns(rich, tmp_path):
    same_edition = dataclasses.replace(rich.opinions[0], edition=rich.edition)
    first = lines(dataclasses.replace(rich, opinions=(same_edition,)), tmp_path)[0]
    assert first["verdict_2026-12_2"] == same_edition.judgements[0].verdict.label


def test_numbers_keep_every_digit_and_what_is_missing_says_why(report, tmp_path):
    lost, broken = lines(report, tmp_path)[2:4]  # after two seeds of bp
    scalars = report.runs[2].record.measurements.scalars
    assert float(lost["growth_max"]) == scalars["growth_max"].value
    assert lost["gamma_deep_mean"] == "" and json.loads(lost["reasons"])["gamma_deep_mean"] == NO_FEEDBACK.reason
    assert broken["h_L"] == "" and json.loads(broken["reasons"])["h_L"] == "not finite (inf)"


def test_a_run_that_was_not_judged_says_why(report, tmp_path):
    line = lines(report, tmp_path)[-1]
    assert line["status"] == "excluded" and json.loads(line["reasons"]) == {"excluded": "half-written: the run broke"}
    assert not any(line[name] for name in line if name not in ("run_id", "name", "selection", "status", "reasons"))


def test_an_audit_without_runs_is_a_header(report, tmp_path):
    assert lines(dataclasses.replace(report, runs=(), excluded=()), tmp_path) == []


def test_it_is_as_rfc_4180_wants_it(report, tmp_path):
    write_csv(report, tmp_path / "audit.csv")
    data = (tmp_path / "audit.csv").read_bytes()
    assert data.startswith(b"run_id,name,") and data.endswith(b"\r\n")
    assert data.count(b"\n") == data.count(b"\r\n") == len(report.runs) + len(report.excluded) + 1


def test_pandas_reads_the_types_back(rich, tmp_path):
    excluded = (Exclusion("0" * 32, "x", "running"),)
    audit = dataclasses.replace(rich, excluded=excluded)
    write_csv(audit, tmp_path / "audit.csv")
    dtypes = {column.heading: DTYPES[column.type] for column in audit_table(audit).columns if column.heading}
    table = pandas.read_csv(tmp_path / "audit.csv", keep_default_na=False, na_values=[""], dtype=dtypes)
    assert list(table.columns) == [*dtypes, "reasons"]
    accuracy = [run.record.measurements.scalars["accuracy"].value for run in rich.runs]
    assert list(table["accuracy"][:-1]) == accuracy and table["accuracy"].isna().iloc[-1]
    assert list(table["seed"][:-1]) == [run.record.spec.seed for run in rich.runs]
    assert table["run_id"].iloc[-1] == "0" * 32 and table["control"].iloc[0] == "none"


@pytest.mark.parametrize(
    "name",
    ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", " =1", "\u00a0=1", "\ufeff=1", "'x", "\r=1", "\n"],
)
def test_a_spreadsheet_calculates_nothing(name, report, tmp_path):
    first = dataclasses.replace(report.runs[0].record, name=name)
    audit = dataclasses.replace(report, runs=(dataclasses.replace(report.runs[0], record=first),), excluded=())
    (line,) = lines(audit, tmp_path)
    assert line["name"] == guarded(escape_control(name)) and line["name"].removeprefix("'") == escape_control(name)
    assert not CALCULATED.match(line["name"]) or line["name"][0] == "'"


@pytest.mark.parametrize("name", ["＝1", "＋1", "－1", "＠SUM(1)"])
def test_only_ascii_signs_are_guarded(name):
    assert guarded(name) == name


@given(st.text())
def test_the_guard_comes_off_again(text):
    assert guarded(text).removeprefix("'") == text
    assert not guarded(text).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_a_name_that_is_not_utf_8_and_one_of_many_lines(report, tmp_path):
    first = dataclasses.replace(report.runs[0].record, name='a\udc80,"\r\nb')
    audit = dataclasses.replace(report, runs=(dataclasses.replace(report.runs[0], record=first),), excluded=())
    assert lines(audit, tmp_path)[0]["name"] == 'a⟨U+DC80⟩,"⟨U+000D⟩\nb'


def test_names_are_distinct_and_all_have_descriptions(rich):
    made = [column for column in audit_table(rich).columns if column.heading]
    assert len({column.heading for column in made}) == len(made) and all(column.words for column in made)
    assert {column.type for column in made} == {"text", "integer", "number", "boolean"}


def test_a_metric_with_the_name_of_a_column_gets_a_suffix():
    headings = [column.heading for column in columns_of(("e",), (), (), [metric_named("seed"), metric_named("other")])]
    assert headings[-2:] == ["seed_2", "other"] and headings.count("seed") == 1


def test_a_rule_that_did_not_judge_a_run_leaves_its_cells_empty_and_says_so(rich, tmp_path):
    first = dataclasses.replace(rich.runs[0], findings=())
    line = lines(dataclasses.replace(rich, runs=(first, *rich.runs[1:])), tmp_path)[0]
    names = [f"{name}_D1" for name in ("outcome", "state", "observed", "seeds", "first_fire")]
    assert not any(line[name] for name in names)
    assert all(json.loads(line["reasons"])[name].startswith("D1 did not judge") for name in names)
