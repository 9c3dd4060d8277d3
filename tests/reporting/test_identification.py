"""What was run is told from records and cards; where seeds differ, every value names its runs."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.provenance import NOT_A_CHECKOUT
from fa_registry.reporting.pages.form_tables import identification, words


@pytest.fixture
def entries(report):
    def of(method, changed=report):
        group = next(group for group in groups(changed) if group.method == method)
        return {entry.term: entry.values for entry in identification(group, changed)}

    return of


def test_what_all_seeds_share_stands_once(entries):
    found = entries("dfa")
    assert [value.text for value in found["Seeds"]] == ["42, 123"]
    assert [value.text for value in found["Parameters"]] == ["566,026"]
    assert [value.text for value in found["LayerNorm before the head"]] == ["yes"]
    assert found["Rule"][0].text == "c_l = e B_lᵀ, B_l fixed and random"
    assert found["Hardware"][0].text == "machine x86_64 · cpu Xeon · cores 2"
    assert all(value.run_ids == () for value in found["Data digest"])


def test_what_seeds_do_not_share_names_its_runs(entries, report):
    dirty = {value.text: value.run_ids for value in entries("dfa")["Commit"]}
    assert dirty == {
        "0123abc (clean tree)": (report.runs[2].record.run_id,),
        "0123abc (tree was DIRTY)": (report.runs[3].record.run_id,),
    }


def test_a_feedback_file_that_is_not_there_is_said(entries):
    texts = [value.text for value in entries("dfa")["Feedback file"]]
    assert texts[0] == "none saved"
    assert texts[1] == f"sha256 {123:064x} · N(0, 1/C) · seed 123 · B_01 (256, 10)"


def test_a_report_without_cards_and_provenance_says_not_recorded(entries, report):
    runs = tuple(dataclasses.replace(run, record=dataclasses.replace(run.record, provenance={})) for run in report.runs)
    found = entries("dfa", dataclasses.replace(report, runs=runs, cards={}))
    assert {found[term][0].text for term in ("Rule", "Source", "Hardware", "Commit", "Versions", "Data digest")} == {
        "not recorded"
    }


@pytest.fixture
def texts(entries, report):
    """The texts of an entry of dfa, its two runs holding this provenance."""

    def of(term, *provenances):
        runs = list(report.runs)
        for index, held in zip((2, 3), provenances, strict=True):
            runs[index] = dataclasses.replace(
                runs[index], record=dataclasses.replace(runs[index].record, provenance=held)
            )
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
def test_a_tree_is_called_clean_only_where_git_said_so(texts, held, text):
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
def test_the_eval_batch_is_told_by_range_and_count(texts, indices, text):
    held = {"eval_indices": indices}
    assert texts("Eval batch", held, held)[0] == [text]


def test_a_resumed_run_says_after_which_epoch_and_one_that_ran_through_says_nothing(texts, report):
    assert texts("Resumed", {"resumed_from": 0}, {}) == ([], [])
    after = "resumed after epoch 7"
    assert texts("Resumed", {"resumed_from": 7}, {"resumed_from": 0}) == ([after], [(report.runs[2].record.run_id,)])
    assert texts("Resumed", {"resumed_from": 7}, {"resumed_from": 7}) == ([after], [()])


def test_an_adopted_run_says_so_and_one_that_was_trained_here_says_nothing(texts, report):
    assert texts("Adopted", {}, {}) == ([], [])
    found = texts("Adopted", {"origin": {"trained": "not trained here", "file": "w.pt"}}, {})
    assert found == (["trained not trained here · file w.pt"], [(report.runs[2].record.run_id,)])


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
def test_words(value, text):
    assert words(value) == text
