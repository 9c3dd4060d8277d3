"""A study.toml with mistakes: all of them are named together."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_registry.api import study as train_study
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.studies.study import load_study
from fa_registry.studies.study_files import NoStudyFile, name_in_store

VALID = """
name = "mine"
title = "A study"
edition = "2026-12"
[[grid]]
methods = ["dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2]
epochs = [1]
"""
MISTAKES = {  # text of VALID → replacement, beginning of the problem
    'title = "A study"': ("title = 5", "title:"),
    '"2026-12"': ('"2026-99"', "edition:"),
    '["dfa"]': ('["dfaa"]', "method:"),
    '["resmlp"]': ('"resmlp"', "grid[0].architectures:"),
    '["digits"]': ('["digitz"]', "dataset:"),
    "seeds = [1, 2]": ('seeds = ["one", -2]', "grid[0].seeds[0]:"),
    "epochs = [1]": ("epochs = [-1]\ncolour = 1\npenalties = [-1.0]", "epochs:"),
}
FURTHER = ("seed:", "grid[0].colour:", "penalty:")  # further problems of these replacements


def write(folder: Path, text: str, encoding: str = "utf-8") -> str:
    path = folder / "study.toml"
    path.write_text(text, encoding=encoding)
    return str(path)


def problems(path: str) -> list[str]:
    with pytest.raises(InvalidFields) as refused:
        train_study(path)
    return list(refused.value.problems)


@pytest.mark.parametrize("text", MISTAKES)
def test_one_mistake_is_one_problem(text, tmp_path):
    replacement, start = MISTAKES[text]
    replacement = replacement.partition("\n")[0].replace('["one", -2]', '["one", 2]')
    (problem,) = problems(write(tmp_path, VALID.replace(text, replacement)))
    assert problem.startswith(start)


def test_ten_mistakes_are_ten_problems(tmp_path):
    changed = VALID
    for text, (replacement, _) in MISTAKES.items():
        changed = changed.replace(text, replacement)
    found = problems(write(tmp_path, changed))
    starts = [start for _, start in MISTAKES.values()] + list(FURTHER)
    assert sorted(start for start in starts if any(problem.startswith(start) for problem in found)) == sorted(starts)
    assert len(found) == len(starts)


def test_a_field_that_is_missing_is_reported_beside_a_wrong_type(tmp_path):
    text = VALID.replace('datasets = ["digits"]', "").replace("[1, 2]", '["one"]')
    assert [problem.partition(":")[0] for problem in problems(write(tmp_path, text))] == ["grid[0].seeds[0]", "dataset"]


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    assert load_study(write(tmp_path, VALID, "utf-8-sig")).name == "mine"


@pytest.mark.parametrize(
    ("text", "wrong", "advice"),
    [("[[grid]]", "[grid]", "[[grid]]"), ("[[grid]]", "[[recipe]]\nepochs = 2\n[[grid]]", "[recipe]")],
)
def test_a_wrong_number_of_brackets_is_named(text, wrong, advice, tmp_path):
    (problem,) = problems(write(tmp_path, VALID.replace(text, wrong)))
    assert f"write {advice} instead of" in problem


def test_the_values_in_a_table_with_a_wrong_number_of_brackets_are_checked(tmp_path):
    found = problems(write(tmp_path, VALID.replace("[[grid]]", "[grid]").replace("dfa", "dfaa")))
    assert [problem.partition(":")[0] for problem in found] == ["grid", "method"]


@pytest.mark.parametrize("name", ["none.toml", "folder/none", "./none.toml"])
def test_a_path_that_does_not_exist_is_no_unknown_name(name):
    with pytest.raises(NoStudyFile, match="no such file"):
        load_study(name)


def test_a_name_in_the_store_may_lack_a_file_and_a_path_may_not():
    assert name_in_store("folder/none") == "folder/none"
    with pytest.raises(NoStudyFile):
        name_in_store("none.toml")
    with pytest.raises(UnknownName) as refused:
        load_study("digitz")
    assert not isinstance(refused.value, NoStudyFile)
