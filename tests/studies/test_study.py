"""study.toml to specs: what is expanded, what is replaced, what a setting is called."""

from __future__ import annotations

import pytest

from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.studies.study import load_study, names
from tests.studies.tiny import TINY, study_file


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


def test_cells_that_repeat_are_one_run(tmp_path):
    grid = TINY[TINY.index("[[grid]]") :]
    assert len(load_study(study_file(tmp_path, TINY + grid)).specs) == len(load_study(study_file(tmp_path)).specs)


def test_a_grid_may_train_for_several_lengths_each_with_its_own_control(tmp_path):
    text = TINY.replace("epochs = 1", "").replace("seeds = [1, 2]", "seeds = [1]\nepochs = [2, 5]  # epochs_as_an_axis")
    study = load_study(study_file(tmp_path, text))
    assert sorted((spec.method_label, spec.epochs) for spec in study.specs) == [
        ("bp", 2), ("bp", 5), ("dfa", 2), ("dfa", 5), ("frozen", 2), ("frozen", 5)
    ]  # fmt: skip
    replaced = load_study(study_file(tmp_path, text), {"epochs": "3"})
    assert {spec.epochs for spec in replaced.specs} == {3} and len(replaced.specs) == 3


def test_overrides_replace_epochs_and_seeds(tmp_path):
    specs = load_study(study_file(tmp_path), {"epochs": "5", "seeds": ["9"], "device": "cpu"}).specs
    assert {(spec.epochs, spec.seed) for spec in specs} == {(5, 9)}


@pytest.mark.parametrize("nothing", ["", [], (), None])
def test_an_empty_override_replaces_nothing(tmp_path, nothing):
    path = study_file(tmp_path)
    assert load_study(path, {"epochs": nothing, "seeds": nothing, "device": "cpu"}) == load_study(path)


def test_an_unknown_study_and_a_broken_file(tmp_path):
    assert "digits" in names()
    with pytest.raises(UnknownName, match="did you mean 'digits'"):
        load_study("digit")
    with pytest.raises(InvalidFields, match="not TOML"):
        load_study(study_file(tmp_path, "name = "))
    (tmp_path / "latin.toml").write_bytes('name = "é"'.encode("latin-1"))
    with pytest.raises(InvalidFields, match="not TOML"):
        load_study(str(tmp_path / "latin.toml"))


def test_a_setting_is_called_what_its_grids_call_it(tmp_path):
    grid = TINY[TINY.index("[[grid]]") :]
    text = (
        TINY
        + 'name = "one"\n'
        + grid
        + 'name = "two"\n'
        + grid
        + 'name = "one"\n'
        + grid.replace("[1, 2]", "[1]\nepochs = [9]")
    )
    study = load_study(study_file(tmp_path, text))
    (both, longer) = study.settings
    assert study.labels == {both: ("one", "two")}
    assert {spec.epochs for spec in study.settings[longer]} == {9}
    assert sum(map(len, study.settings.values())) == len(study.specs) == 9
