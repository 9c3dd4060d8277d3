"""study.toml to specs: what is expanded, which controls are added, what a wrong file is told."""

from __future__ import annotations

import pytest

from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.studies.study import load_study, names

TINY = """
name = "tiny"
title = "Two methods"
edition = "2026-05"

[recipe]
epochs = 1

[[grid]]
methods = ["bp", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2]
architecture_options = { d_hidden = 16, num_blocks = 2 }
"""


def study_file(tmp_path, text=TINY):
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_digits_is_fifteen_runs_with_a_frozen_control_for_every_seed():
    study = load_study("digits")
    labels = [spec.method_label for spec in study.specs]
    assert {label: labels.count(label) for label in labels} == {
        "bp": 3,
        "fa": 3,
        "dfa": 3,
        "dfa+pen λ=0.01": 3,
        "frozen": 3,
    }
    assert len({spec.identity for spec in study.specs}) == 15
    assert {spec.seed for spec in study.specs} == {42, 123, 456}
    assert len({spec.setting.identity for spec in study.specs}) == 1


def test_every_setting_and_seed_gets_its_own_frozen_control(tmp_path):
    specs = load_study(study_file(tmp_path)).specs
    frozen = [spec for spec in specs if spec.control == "frozen"]
    assert [(spec.method, spec.seed, spec.penalty) for spec in frozen] == [("bp", 1, 0.0), ("bp", 2, 0.0)]
    assert {spec.setting.identity for spec in frozen} == {spec.setting.identity for spec in specs}


def test_controls_can_be_chosen(tmp_path):
    text = TINY + "\n[controls]\nfrozen = false\nshallow = true\n"
    assert [spec.control for spec in load_study(study_file(tmp_path, text)).specs] == ["none"] * 4 + ["shallow"] * 2


def test_cells_that_repeat_are_one_run(tmp_path):
    grid = TINY[TINY.index("[[grid]]") :]
    assert len(load_study(study_file(tmp_path, TINY + grid)).specs) == len(load_study(study_file(tmp_path)).specs)


def test_overrides_replace_epochs_and_seeds(tmp_path):
    specs = load_study(study_file(tmp_path), {"epochs": "5", "seeds": ["9"], "device": "cpu"}).specs
    assert {(spec.epochs, spec.seed) for spec in specs} == {(5, 9)}


@pytest.mark.parametrize("nothing", ["", [], (), None])
def test_an_empty_override_replaces_nothing(tmp_path, nothing):
    path = study_file(tmp_path)
    assert load_study(path, {"epochs": nothing, "seeds": nothing, "device": "cpu"}) == load_study(path)


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


def test_an_unknown_study_and_a_broken_file(tmp_path):
    assert "digits" in names()
    with pytest.raises(UnknownName, match="did you mean 'digits'"):
        load_study("digit")
    with pytest.raises(InvalidFields, match="not TOML"):
        load_study(study_file(tmp_path, "name = "))
