"""The results table: what its media share."""

from __future__ import annotations

import csv
import dataclasses
import io

from fa_registry.audits.dataframes import audit_frame
from fa_registry.records import Reading, Verdict
from fa_registry.reporting.files.csv import REASONS, csv_lines, write_csv
from fa_registry.reporting.table import Column, ResultsTable, frame

COLUMNS = (Column("method", "Method"), Column("seed", "Seed", "integer"), Column("growth", "‖h‖", "num"))
ROWS = (("fa", 1, Reading(2.5)), ("fa", 2, Reading(None, "lost")), ("bp", 1, Verdict("pass", "PASS")))
TABLE = ResultsTable(COLUMNS, ROWS)


def test_columns_are_selected_by_name_and_get_other_headings():
    selected = TABLE.select({"seed": "n", "method": "m"})
    assert [(column.name, column.heading, column.type) for column in selected.columns] == [
        ("seed", "n", "integer"),
        ("method", "m", "text"),
    ]
    assert selected.rows == ((1, "fa"), (2, "fa"), (1, "bp"))


def test_a_frame_and_a_csv_file_have_the_same_headings_and_cells():
    made = frame(TABLE)
    assert list(made.columns) == ["Method", "Seed", "‖h‖"]
    assert made["‖h‖"].tolist() == [2.5, None, "PASS"] and made["Seed"].tolist() == [1, 2, 1]
    header, first, second, third = csv_lines(TABLE)
    assert header == ["Method", "Seed", "‖h‖", REASONS]
    assert (first, third) == (["fa", "1", "2.5", ""], ["bp", "1", "PASS", ""])
    assert second[2:] == ["", '{"‖h‖": "lost"}']


def test_the_frame_of_an_audit_has_the_numbers_of_its_csv_file(rich, tmp_path):
    write_csv(rich, tmp_path / "audit.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "audit.csv").read_text("utf-8"))))
    made = audit_frame(rich)
    assert made["run_id"].tolist() == [line["run_id"] for line in lines]
    for name in ("accuracy", "growth_max", "h_L", "gamma_deep_mean", "seed"):
        assert [str(value) for value in made[name]] == [line[name] or "nan" for line in lines], name
    first = rich.runs[0]
    record = dataclasses.replace(first.record, spec=dataclasses.replace(first.record.spec, penalty=0.01))
    changed = audit_frame(dataclasses.replace(rich, runs=(dataclasses.replace(first, record=record), *rich.runs[1:])))
    assert changed["method"][0] == record.spec.label != record.spec.method
