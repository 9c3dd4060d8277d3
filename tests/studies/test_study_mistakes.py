"""A study.toml with mistakes: all of them are named together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fa_registry.api import study as train_study
from fa_registry.cli import main
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.studies.study import load_study
from fa_registry.studies.study_files import NoStudyFile, name_in_store
from tests.helpers.problems import fields_of, sentences

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
    '["dfa"]': ('["dfaa"]', "grid[0].methods:"),
    '["resmlp"]': ('"resmlp"', "grid[0].architectures:"),
    '["digits"]': ('["digitz"]', "grid[0].datasets:"),
    "seeds = [1, 2]": ('seeds = ["one", -2]', "grid[0].seeds[0]:"),
    "epochs = [1]": ("epochs = [-1]\ncolour = 1\npenalties = [-1.0]", "grid[0].epochs:"),
}
FURTHER = ("grid[0].seeds:", "grid[0].colour:", "grid[0].penalties:")  # further problems of these replacements


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
    assert sentences([problem])[0].startswith(start)
    assert problem.line == VALID[: VALID.index(text)].count("\n") + 1


def test_ten_mistakes_are_ten_problems_in_the_order_of_the_lines(tmp_path):
    changed = VALID
    for text, (replacement, _) in MISTAKES.items():
        changed = changed.replace(text, replacement)
    path = write(tmp_path, changed)
    found = problems(path)
    starts = [start.rstrip(":") for _, start in MISTAKES.values()] + [start.rstrip(":") for start in FURTHER]
    assert sorted(fields_of(found)) == sorted(starts)
    assert [problem.line for problem in found] == sorted(problem.line for problem in found)
    assert {problem.file for problem in found} == {path}


def test_a_field_that_is_missing_is_reported_beside_a_wrong_type(tmp_path):
    text = VALID.replace('datasets = ["digits"]', "").replace("[1, 2]", '["one"]')
    found = problems(write(tmp_path, text))
    assert fields_of(found) == ["grid[0].datasets", "grid[0].seeds[0]"]
    assert [problem.line for problem in found] == [5, 9]  # a missing field has the line of its table


TABLES = """name = "mine"
title = "A study"
edition = "2026-12"
[recipe]
epochs = 1
[controls]
frozen = true
[[grid]]
methods = ["dtp"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1]
"""


@pytest.mark.parametrize(
    ("text", "replacement", "line", "field", "message"),
    [
        ("epochs", "epoch", 5, "recipe.epoch", "unknown; did you mean epochs?"),
        ("title", "titel", 2, "titel", "unknown; did you mean title?"),
        ("[recipe]", "[receipe]", 4, "receipe", "unknown; did you mean recipe?"),
        ("[[grid]]", "[[grids]]", 8, "grids", "unknown; did you mean grid?"),
        ("[[grid]]", "[grid]", 8, "grid", "expected a list of tables (write [[grid]] instead of [grid])"),
        ("[recipe]", "[[recipe]]", 4, "recipe", "expected a table (write [recipe] instead of [[recipe]])"),
        ("[recipe]\n", "", 4, "epochs", "belongs to [recipe]"),
        ("[controls]\n", "", 6, "recipe.frozen", "belongs to [controls]"),
        ("epochs = 1\n[controls]", "[controls]\nepochs = 1", 6, "controls.epochs", "belongs to [recipe]"),
        ("epochs = 1", 'epochs = 1\nmethods = ["bp"]', 6, "recipe.methods", "belongs to [[grid]]"),
        ("[recipe]", "seed = [1]\n[recipe]", 4, "seed", "unknown; did you mean seeds in [[grid]]?"),
        ("seeds = [1]", 'seeds = [1]\ncost = ""', 13, "grid[0].cost", "belongs to the top of the file"),
        ("seeds = [1]", "seeds = [1]\nladder = true", 13, "grid[0].ladder", "belongs to [grid.controls]"),
        ("seeds = [1]", "seeds = [1]\nlearning_rate = 1", 13, "grid[0].learning_rate", "belongs to [grid.recipe]"),
        ("epochs = 1", "epochs = 1\nsigma = 1", 6, "recipe.sigma", "belongs to [grid.method_options]"),
        (
            "seeds = [1]",
            "seeds = [1]\n[grid.architecture_options]\nladder = true",
            14,
            "grid[0].architecture_options.ladder",
            "belongs to [grid.controls]",
        ),
    ],
)
def test_a_misspelt_or_misplaced_key_is_one_problem(text, replacement, line, field, message, tmp_path):
    assert load_study(write(tmp_path, TABLES)).specs and text in TABLES
    (problem,) = problems(write(tmp_path, TABLES.replace(text, replacement, 1)))
    facts = {"file": str(tmp_path / "study.toml"), "line": line, "field": field, "text": message}
    assert problem.fields == facts


@pytest.mark.parametrize(
    ("text", "replacement", "wrong", "fields"),
    [
        ("[recipe]", "[receipe]", "epochs = -1", ["receipe", "recipe.epochs"]),
        ("[recipe]", "[[recipe]]", "epochs = -1", ["recipe", "recipe.epochs"]),
        ("[recipe]\n", "", "epochs = -1", ["epochs", "recipe.epochs"]),
        ("[[grid]]", "[grid]", "epochs = 1\nlambda = 1", ["recipe.lambda", "grid"]),
    ],
)
def test_the_value_of_a_misplaced_key_is_checked_too(text, replacement, wrong, fields, tmp_path):
    found = problems(write(tmp_path, TABLES.replace(text, replacement, 1).replace("epochs = 1", wrong)))
    assert fields_of(found) == fields and all(problem.line for problem in found)


def test_a_key_of_the_grid_belongs_to_every_grid_that_lacks_it(tmp_path):
    text = TABLES.replace("epochs = 1", "epochs = 1\nseeds = [1]").replace("\nseeds = [1]\n", "\n", 2)
    text = text.replace("epochs = 1", "epochs = 1\nseeds = [1]") + TABLES[TABLES.index("[[grid]]") :]
    assert [(problem.line, problem.fields["field"]) for problem in problems(write(tmp_path, text))] == [
        (6, "recipe.seeds")
    ]


@pytest.mark.parametrize(("seeds", "is_wrong"), [("", False), ("architecture_options = { d_hidden = 16 }", True)])
def test_two_grids_of_one_name_have_the_same_settings(seeds, is_wrong, tmp_path):
    grid = TABLES[TABLES.index("[[grid]]") :].replace("[[grid]]", '[[grid]]\nname = "main"')
    path = write(tmp_path, TABLES[: TABLES.index("[[grid]]")] + grid + grid.replace("dtp", "bp") + seeds)
    if is_wrong:
        assert [(problem.line, problem.fields["field"]) for problem in problems(path)] == [(15, "grid[1].name")]
    else:
        assert load_study(path).specs


def test_a_control_that_does_not_fit_is_reported_beside_a_wrong_method(tmp_path):
    text = TABLES.replace("frozen = true", "frozen = false\nfrozen_long = true")
    text += TABLES[TABLES.index("[[grid]]") :].replace("dtp", "dpt")
    found = [(problem.line, problem.fields["field"]) for problem in problems(write(tmp_path, text))]
    assert found == [(8, "controls.frozen_long"), (15, "grid[1].methods")]


def test_a_wrong_option_of_the_command_has_no_line_in_the_file(tmp_path):
    with pytest.raises(InvalidFields) as refused:
        load_study(write(tmp_path, TABLES), {"epochs": -1, "settings": {"batch_size": 0, "method.sigma": -1}})
    assert [(problem.file, problem.line) for problem in refused.value.problems] == [("", 0)] * 3


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a = 1\nb = \n", 2),
        (b"a = 1\n[recipe\nepochs = 1\n", 2),
        (b"a = 1\nb = [1,\n2\n\nc = 3\n", 2),
        (b"a = 1\nb = 2\na = 3\n", 3),
        (b"a = 1\nb = '\xff'\n", 2),
        ("name = 'ü'\n".encode("utf-16"), 1),
        (b"a = 1\nb = " + b"[" * 10**6, 2),
    ],
)
def test_a_file_that_is_not_toml_is_one_problem_with_its_line(content, line, tmp_path):
    (tmp_path / "study.toml").write_bytes(content)
    (problem,) = problems(str(tmp_path / "study.toml"))
    assert (problem.line, problem.steps) == (line, ()) and problem.text.startswith("not TOML") and len(problem) < 1_000


def test_an_empty_file_lacks_the_fields_that_every_study_needs(tmp_path):
    found = problems(write(tmp_path, ""))
    assert fields_of(found) == ["name", "title", "edition", "grid"] and {problem.text for problem in found} == {
        "missing"
    }


def test_the_command_prints_the_facts_as_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, TABLES.replace("epochs", "epoch"))
    result = CliRunner().invoke(main, ["study", "study.toml", "--json"])
    fact = {"file": "study.toml", "line": 5, "field": "recipe.epoch", "text": "unknown; did you mean epochs?"}
    assert result.exit_code == 2 and json.loads(result.stdout) == {"problems": [fact]}
    assert "study.toml:5: recipe.epoch: unknown" in result.stderr


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    assert load_study(write(tmp_path, VALID, "utf-8-sig")).name == "mine"


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
