"""A study that does not train what its edition compares with is refused; where nothing can be compared it is not."""

from __future__ import annotations

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.protocol.rules import load_edition
from fa_registry.studies.study import load_study, names
from fa_registry.workflows import verbs
from fa_registry.workflows.study import without_frozen
from tests.workflows.conftest import STUDY

NO_FROZEN = STUDY + "\n[controls]\nfrozen = false\n"


def study_of(workplace, text):
    path = workplace / "study.toml"
    path.write_text(text, encoding="utf-8")
    return load_study(str(path))


def test_a_setting_without_its_frozen_control_is_refused_before_anything_is_trained(workplace):
    study_of(workplace, NO_FROZEN)
    with pytest.raises(InvalidFields) as caught:
        verbs.study("study.toml", device="cpu", jobs=1)
    (problem,) = caught.value.problems
    assert problem.startswith(
        "controls.frozen: setting resmlp-16x2 · digits · 2 epochs: expected a frozen control for seed 1"
    )
    assert "D3 of edition 2026-05 cannot be judged without" in problem


def test_every_setting_and_every_seed_that_lacks_it_is_named(workplace):
    other = NO_FROZEN[NO_FROZEN.index("[[grid]]") : NO_FROZEN.index("[controls]")].replace(
        "[1]", "[1, 2]\nepochs = [5]"
    )
    study = study_of(workplace, NO_FROZEN.replace("seeds = [1]", "seeds = [1, 3]") + other)
    problems = without_frozen(study, load_edition("2026-11"))
    assert ["seeds 1, 3" in problems[0], "seeds 1, 2" in problems[1], len(problems)] == [True, True, 2]


def test_a_control_of_one_seed_does_not_stand_in_for_another(workplace):
    grid = STUDY[STUDY.index("[[grid]]") :].replace("seeds = [1]", "seeds = [3]") + "controls = { frozen = false }\n"
    (problem,) = without_frozen(study_of(workplace, STUDY + grid), load_edition("2026-11"))
    assert "a frozen control for seed 3, found none" in problem


def test_an_edition_that_skips_the_rule_without_a_control_needs_none(workplace):
    study = study_of(workplace, NO_FROZEN)
    assert [rule.without_reference for rule in load_edition("2026-04").rules if rule.reference] == ["skipped"]
    assert without_frozen(study, load_edition("2026-04")) == []
    assert without_frozen(study, load_edition("2026-11")) != []


def test_a_task_without_classes_needs_none():
    study = load_study("toy_lq")
    assert not any(spec.control == "frozen" for spec in study.specs)
    assert without_frozen(study, load_edition("2026-11")) == []


@pytest.mark.parametrize("overrides", [{}, {"data": "digits", "scale": "0.02"}])
def test_every_shipped_study_and_its_twin_train_what_they_are_compared_with(overrides):
    for name in names():
        study = load_study(name, {**overrides, "device": "cpu"})
        assert without_frozen(study, load_edition(study.edition)) == [], name
