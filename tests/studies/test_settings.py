"""Values of `--set` in a study: they replace those of the file, and several values are several settings."""

from __future__ import annotations

import json
from itertools import product

import pytest

from fa_registry.audits.selection import _asked
from fa_registry.errors import InvalidFields
from fa_registry.studies.options import RunSelector, SpecOptions, StudyOverrides, settings
from fa_registry.studies.study import load_study
from tests.commands.conftest import call
from tests.studies.tiny import TINY, study_file


def values(study, name):
    return [getattr(spec.recipe, name) for spec in study.specs if spec.control == "none" and spec.method == "dfa"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["a=1,b=2"], {"a": "1", "b": "2"}),
        (["a=1,2,b=3"], {"a": ["1", "2"], "b": "3"}),
        (["a=1,2", "a=3"], {"a": "3"}),
        (["a=x=y"], {"a": "x=y"}),
        ([], {}),
    ],
)
def test_a_value_without_a_name_belongs_to_the_name_before_it(typed, expected):
    assert settings(typed) == expected


@pytest.mark.parametrize("typed", [["3"], ["a=1", "3,b=2"], ["=1"]])
def test_a_value_without_any_name_is_refused(typed):
    with pytest.raises(InvalidFields, match="expected NAME=VALUE"):
        settings(typed)


def test_several_values_are_several_settings_each_with_its_control(tmp_path):
    given = {"learning_rate": ["1e-3", "3e-3"], "architecture.d_hidden": [8, 16], "weight_decay": "0.1"}
    study = load_study(study_file(tmp_path), {"settings": given, "seeds": [1]})
    assert len(study.settings) == 4 and values(study, "weight_decay") == [0.1] * 4
    assert sorted(set(values(study, "learning_rate"))) == [0.001, 0.003]
    assert {spec.architecture_options["d_hidden"] for spec in study.specs} == {8, 16}
    assert all(sum(spec.control == "frozen" for spec in specs) == 1 for specs in study.settings.values())


def test_they_come_before_the_file_and_an_option_is_added_to_its_table(tmp_path):
    text = TINY.replace('["bp", "dfa"]', '["dtp"]') + "recipe = { learning_rate = 0.5 }\npenalties = [0.1]\n"
    given = {"learning_rate": 0.25, "penalty": [0, 0.2], "method.sigma": [0.5, 0.1]}
    specs = [spec for spec in load_study(study_file(tmp_path, text), {"settings": given}).specs if spec.method == "dtp"]
    assert {spec.recipe.learning_rate for spec in specs} == {0.25} and {spec.penalty for spec in specs} == {0.0, 0.2}
    assert {spec.method_options["sigma"] for spec in specs} == {0.5, 0.1}
    assert all(spec.architecture_options["num_blocks"] == 2 for spec in specs), "the file's options stay"


def test_penalties_on_the_embedding_are_an_axis_and_a_setting(tmp_path):
    text = TINY + "penalties = [0.0, 0.1]\npenalties_embedding = [0.0, 0.2]\n"
    path = study_file(tmp_path, text)
    strengths = {(spec.method, spec.penalty, spec.penalty_embedding, spec.control) for spec in load_study(path).specs}
    trained = {(method, *pair, "none") for method in ("bp", "dfa") for pair in product((0.0, 0.1), (0.0, 0.2))}
    assert strengths == trained | {("bp", 0.0, 0.0, "frozen")}
    replaced = load_study(path, {"settings": {"penalty_embedding": 0.3}}).specs
    assert {spec.penalty_embedding for spec in replaced if spec.control == "none"} == {0.3}


def test_an_option_applies_to_the_methods_of_the_study_that_have_it(tmp_path):
    text = TINY.replace('["bp", "dfa"]', '["bp", "dtp"]')
    plain, changed = (
        load_study(study_file(tmp_path, text), {"settings": given}) for given in ({}, {"method.sigma": "0.5"})
    )
    changed_runs = [spec for spec in changed.specs if spec not in plain.specs]
    assert {spec.method for spec in changed_runs} == {"dtp"} and len(changed.specs) == len(plain.specs)
    assert all(spec.method_options["sigma"] == 0.5 for spec in changed_runs)
    with pytest.raises(InvalidFields, match=r"unknown name 'method.sigma'.*architecture.d_hidden"):
        load_study(study_file(tmp_path), {"settings": {"method.sigma": "0.5"}})


def test_a_list_in_the_recipe_of_the_study_is_swept_in_every_grid(tmp_path):
    text = TINY.replace("[recipe]", "[recipe]\nlearning_rate = [1e-3, 3e-3]")
    assert sorted(set(values(load_study(study_file(tmp_path, text)), "learning_rate"))) == [0.001, 0.003]


@pytest.mark.parametrize("name", ["lr", "seed", "epochs", "methods.sigma"])
def test_a_name_that_cannot_be_replaced_is_refused_once(tmp_path, name):
    with pytest.raises(InvalidFields) as refused:
        load_study(study_file(tmp_path), {"settings": {name: "1"}})
    (problem,) = refused.value.problems
    assert problem.startswith(f"settings: unknown name '{name}'") and "architecture.d_hidden" in problem


def test_a_field_of_the_recipe_directly_in_a_grid_has_a_hint(tmp_path):
    with pytest.raises(InvalidFields, match=r":15: grid\[0\]\.learning_rate: belongs to \[grid\.recipe\]"):
        load_study(study_file(tmp_path, TINY + "learning_rate = [1e-3, 3e-3]\n"))


def test_one_run_takes_one_value():
    with pytest.raises(
        InvalidFields, match="learning_rate: expected one value, found several; `fa-registry study NAME"
    ):
        SpecOptions(method="dfa", settings={"learning_rate": ["1", "2"]}).fields  # noqa: B018


def test_the_command_plans_them_and_an_audit_asks_for_them_again(tmp_path, monkeypatch):
    path = study_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = call("study", str(path), "--set", "learning_rate=1e-3,3e-3", "--seeds", "1", "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["settings"]) == 2
    overrides = StudyOverrides(settings={"learning_rate": (1e-3, 3e-3), "penalty": 0}).by_name
    selector = RunSelector(str(path), overrides=overrides)
    assert _asked(selector.as_asked, overrides) == {"set": "learning_rate=0.001,0.003,penalty=0"}
