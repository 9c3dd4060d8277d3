"""The grids of a study and the controls of what they train."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.studies import study
from fa_registry.studies.study import load_study
from fa_registry.training.specs import parse_spec
from tests.studies.tiny import TINY, study_file


def test_every_setting_and_seed_gets_its_own_frozen_control(tmp_path):
    specs = load_study(study_file(tmp_path)).specs
    frozen = [spec for spec in specs if spec.control == "frozen"]
    assert [(spec.method, spec.seed, spec.penalty) for spec in frozen] == [("bp", 1, 0.0), ("bp", 2, 0.0)]
    assert {spec.setting.identity for spec in frozen} == {spec.setting.identity for spec in specs}


def test_controls_can_be_chosen(tmp_path):
    text = TINY + "\n[controls]\nfrozen = false\nshallow = true\n"
    assert [spec.control for spec in load_study(study_file(tmp_path, text)).specs] == ["none"] * 4 + ["shallow"] * 2


def test_a_ladder_is_of_every_method_setting_and_seed_below_the_method_itself(tmp_path):
    specs = load_study(study_file(tmp_path, TINY + "\n[controls]\nladder = true\n")).specs
    rungs = [(spec.method, spec.seed, spec.control) for spec in specs if spec.control.startswith("ladder")]
    assert sorted(rungs) == sorted(product(["bp", "dfa"], [1, 2], ["ladder_0", "ladder_1"]))
    assert [spec.control for spec in specs[:4]] == ["none"] * 4
    assert {spec.setting.identity for spec in specs} == {specs[0].setting.identity}
    for spec in specs:
        recipe = {name: value for name, value in vars(spec.recipe).items() if name != "credit_norm"}
        fields = {"method": spec.method, "architecture": spec.architecture, "dataset": spec.dataset, "seed": spec.seed}
        fields |= {"epochs": spec.epochs, "architecture_options": spec.architecture_options, "control": spec.control}
        assert parse_spec({**fields, **recipe}).identity == spec.identity  # every rung is a spec that could be typed


def test_a_ladder_keeps_options_and_penalty_but_for_the_lowest_rung(tmp_path):
    grid = TINY.replace("seeds = [1, 2]", "seeds = [1]\npenalties = [0.0, 0.1]").replace(
        "epochs = 1", 'epochs = 1\ncredit_norm = "none"'
    )
    specs = load_study(study_file(tmp_path, grid + "\n[controls]\nfrozen = false\nladder = true\n")).specs
    rungs = [(spec.control, spec.penalty) for spec in specs if spec.method == "dfa" and spec.control != "none"]
    assert sorted(rungs) == [("ladder_0", 0.0), ("ladder_1", 0.0), ("ladder_1", 0.1)]
    assert {spec.recipe.credit_norm for spec in specs} == {"none"}
    assert len({spec.identity for spec in specs}) == len(specs) == 4 + 6


def test_a_ladder_needs_blocks_that_can_be_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(
        study, "parse_spec", lambda cell: dataclasses.replace(parse_spec(cell), architecture_options={})
    )
    path = study_file(tmp_path, TINY + "\n[controls]\nladder = true\n")
    with pytest.raises(InvalidFields, match="controls.ladder: expected an architecture with the option num_blocks"):
        load_study(path)


SECOND = """
[[grid]]
name = "longer"
methods = ["bp"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1]
recipe = { epochs = 4, batch_size = 64 }
controls = { frozen = false, shallow = true }
"""


def test_a_grid_may_have_a_recipe_and_controls_of_its_own(tmp_path):
    specs = load_study(study_file(tmp_path, TINY + SECOND)).specs
    own = [spec for spec in specs if spec.epochs == 4]
    assert [(spec.control, spec.recipe.batch_size) for spec in own] == [("none", 64), ("shallow", 64)]
    others = [spec for spec in specs if spec.epochs != 4]
    assert {(spec.epochs, spec.recipe.batch_size) for spec in others} == {(1, 128)}
    assert [spec.control for spec in others] == ["none"] * 4 + ["frozen"] * 2


def test_an_axis_and_an_override_come_before_the_recipe_of_a_grid(tmp_path):
    path = study_file(tmp_path, TINY + SECOND.replace("seeds = [1]", "seeds = [1]\nepochs = [7]"))
    assert {spec.epochs for spec in load_study(path).specs} == {1, 7}
    assert {spec.epochs for spec in load_study(path, {"epochs": "2"}).specs} == {2}


def test_grids_of_one_setting_add_their_controls(tmp_path):
    grid = TINY[TINY.index("[[grid]]") :]
    text = TINY + grid + "controls = { frozen = false, shallow = true }\n"
    specs = load_study(study_file(tmp_path, text)).specs
    assert sorted(spec.control for spec in specs) == ["frozen"] * 2 + ["none"] * 4 + ["shallow"] * 2
