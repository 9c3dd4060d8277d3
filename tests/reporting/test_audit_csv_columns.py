"""The columns of audit.csv: each of its own name, with words, and verdicts in the order of the editions."""

from __future__ import annotations

from fa_registry.reporting.files.csv import columns, columns_of, rows


def test_names_are_distinct_and_all_have_words(rich):
    made = columns(rich)
    assert len({column.name for column in made}) == len(made) and all(column.words for column in made)
    assert {column.kind for column in made} == {"text", "integer", "number", "boolean"}


def test_a_rule_that_did_not_judge_a_run_leaves_its_cells_empty_and_says_so(rich):
    row = next(rows(rich))
    empty = [column.read(row) for column in columns_of(("e",), ("D99",), (), ()) if column.name.endswith("_D99")]
    assert len(empty) == 5 and {cell.reason for cell in empty} == {"D99 did not judge this run"}


def test_verdicts_stand_in_the_order_of_the_editions(rich):
    for row, run, *others in zip(rows(rich), rich.runs, *(one.judgements for one in rich.opinions), strict=True):
        assert row.verdicts == (run.verdict, *(one.verdict for one in others))
