"""What a wrong study.toml is told: every unknown, missing or wrongly typed key, all at once."""

from __future__ import annotations

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.studies.study import load_study
from tests.studies.tiny import TINY, study_file


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        (
            'title = "Two methods"',
            'titel = "Two"',
            ["titel: unknown key 'titel' (did you mean 'title'?)", "title: missing"],
        ),
        ("epochs = 1", "epochs = -1\nspeed = 2", ["recipe.speed: unknown key"]),
        ("epochs = 1", "epochs = -1", ["epochs: expected at least 0, found -1"]),
        ('methods = ["bp", "dfa"]', 'methods = ["dfaa"]', ["method: unknown method 'dfaa' (did you mean 'dfa'?)"]),
        ("seeds = [1, 2]", "seeds = 1", ["grid[0].seeds: expected a list, found 1"]),
        (
            "seeds = [1, 2]",
            "seeds = [1]\nrecipe = { speed = 2 }\ncontrols = { frosen = true }",
            [
                "grid[0].recipe.speed: unknown key",
                "grid[0].controls.frosen: unknown key 'frosen' (did you mean 'frozen'?)",
            ],
        ),
        ("seeds = [1, 2]", "", ["seed: missing"]),
        ("seeds = [1, 2]", "seeds = []", ["grid: expands to no run"]),
        (
            "seeds = [1, 2]",
            "seeds = [1]\npenalties = [-1.0]\nsedes = [1]",
            ["grid[0].sedes: unknown key 'sedes' (did you mean 'seeds'?)"],
        ),
    ],
)
def test_a_wrong_study_is_told_what_is_wrong(tmp_path, old, new, messages):
    assert old in TINY
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, TINY.replace(old, new)))
    for message in messages:
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[recipe]\nepochs = 1", 'recipe = "x"', "recipe: expected a table, found 'x'"),
        ("[recipe]\nepochs = 1", "recipe = []", "recipe: expected a table, found []"),
        ("[recipe]", 'controls = "frozen"\n[recipe]', "controls: expected a table, found 'frozen'"),
        (
            "[recipe]",
            '[controls]\nfrozen = "false"\n[recipe]',
            "controls.frozen: expected true or false, found 'false'",
        ),
        ("[recipe]", "[controls]\nshallow = 1\n[recipe]", "controls.shallow: expected true or false, found 1"),
        ('"tiny"', "5", "name: expected text, found 5"),
        ('"tiny"', "0", "name: expected text, found 0"),
        ('"Two methods"', "[1]", "title: expected text, found [1]"),
        ('"2026-05"', "2026-05-01", "edition: expected text, found datetime.date(2026, 5, 1)"),
        ("[recipe]", "cost = 2\n[recipe]", "cost: expected text, found 2"),
        ('["bp", "dfa"]', '["bp", 5]', "grid[0].methods[1]: expected text, found 5"),
        ('["bp", "dfa"]', '"bp"', "grid[0].methods: expected a list, found 'bp'"),
        ('["resmlp"]', '[{ name = "resmlp" }]', "grid[0].architectures[0]: expected text, found {'name': 'resmlp'}"),
        ('["digits"]', '[["digits"]]', "grid[0].datasets[0]: expected text, found ['digits']"),
        ("[1, 2]", '[1, "2"]', "grid[0].seeds[1]: expected a whole number, found '2'"),
        ("[1, 2]", "[true]", "grid[0].seeds[0]: expected a whole number, found True"),
        ("[1, 2]", "[1]\npenalties = [[0.1]]", "grid[0].penalties[0]: expected a number, found [0.1]"),
        ("[1, 2]", "[1]\nmethod_options = 3", "grid[0].method_options: expected a table, found 3"),
        ("[1, 2]", "[1]\nmethod_options = []", "grid[0].method_options: expected a table, found []"),
        ("[1, 2]", "[1]\nname = 3", "grid[0].name: expected text, found 3"),
        ("[1, 2]", "[1]\nrecipe = 3", "grid[0].recipe: expected a table, found 3"),
        ("[1, 2]", "[1]\ncontrols = { frozen = 1 }", "grid[0].controls.frozen: expected true or false, found 1"),
        ("epochs = 1", "epochs = [1]", "epochs: expected a whole number, found [1]"),
        ("epochs = 1", "epochs = 1\noptimizer = 5", "optimizer: expected one of adamw, sgd, found 5"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_problem_and_nothing_else(tmp_path, old, new, message):
    assert old in TINY
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, TINY.replace(old, new)))
    assert caught.value.problems == (message,)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("5", "grid: expected [[grid]] tables, found 5"),
        ("{ seeds = [1] }", "grid: expected [[grid]] tables, found {'seeds': [1]}"),
        ("[1]", "grid[0]: expected a table, found 1"),
        ("[]", "grid: missing"),
        ('""', "grid: missing"),
    ],
)
def test_a_grid_that_is_no_list_of_tables_is_one_problem(tmp_path, grid, message):
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, f'name = "n"\ntitle = "t"\nedition = "e"\ngrid = {grid}\n'))
    assert caught.value.problems == (message,)


def test_wrong_types_and_wrong_values_are_named_together(tmp_path):
    text = TINY.replace('"tiny"', "5").replace("[recipe]\nepochs = 1", 'recipe = "x"\ncontrols = "frozen"')
    text += '\n[[grid]]\nmethods = ["dfaa"]\narchitectures = ["resmlp"]\ndatasets = ["digits"]\nseeds = [1]\n'
    text += "\n[[grid]]\nmethods = [5]\n"
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, text))
    assert [problem.split("; known")[0] for problem in caught.value.problems] == [
        "name: expected text, found 5",
        "recipe: expected a table, found 'x'",
        "controls: expected a table, found 'frozen'",
        "grid[2].methods[0]: expected text, found 5",
        "method: unknown method 'dfaa' (did you mean 'dfa'?)",
    ]
