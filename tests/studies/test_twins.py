"""Twins: which data sets are replaced, how epochs are scaled, what is refused."""

from __future__ import annotations

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.studies.study import load_study
from fa_registry.studies.twins import Twin
from tests.studies.tiny import TINY, study_file

TASKS = """
[[grid]]
name = "permuted"
methods = ["bp"]
architectures = ["resmlp"]
datasets = ["random_targets:cifar10", "cifar100", "teacher_student:0.5"]
seeds = [1]

[[grid]]
name = "costate"
methods = ["bp"]
architectures = ["linear_lq"]
datasets = ["lq"]
seeds = [1]
"""


def test_image_sets_are_replaced_and_tasks_of_their_own_stay(tmp_path):
    path = study_file(tmp_path, TINY + TASKS)
    assert {spec.dataset for spec in load_study(path, {"data": "digits_centred"}).specs} == {
        "digits_centred", "random_targets:digits_centred", "teacher_student:0.5", "lq"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "stands_in"),
    [
        ("cifar10", "digits"),
        ("digits", "digits"),
        ("cifar_shaped:2000", "digits"),
        ("random_targets", "random_targets:digits"),
        ("random_targets:cifar10", "random_targets:digits"),
        ("teacher_student", "teacher_student"),
        ("teacher_student:0.25", "teacher_student:0.25"),
        ("lq", "lq"),
    ],
)
def test_what_stands_in_for_a_data_set(name, stands_in):
    assert Twin("digits").dataset(name) == stands_in
    assert Twin(scale=0.5).dataset(name) == name


@pytest.mark.parametrize(
    ("epochs", "scale", "scaled"),
    [(100, 0.02, 2), (60, 0.02, 1), (30, 0.02, 1), (1, 0.001, 1), (5, 0.5, 3), (3, 0.5, 2), (4, 2, 8), (0, 0.5, 0)],
)
def test_epochs_are_rounded_half_up_and_one_at_least(epochs, scale, scaled):
    assert Twin(scale=scale).epochs(epochs) == scaled


def test_every_place_where_epochs_stand_is_scaled(tmp_path):
    grid = TINY[TINY.index("[[grid]]") :]
    text = TINY.replace("epochs = 1", "epochs = 10") + grid + "epochs = [20]\n" + grid + "recipe = { epochs = 30 }\n"
    study = load_study(study_file(tmp_path, text), {"scale": "0.1"})
    assert {spec.epochs for spec in study.specs} == {1, 2, 3}
    assert study.twin == Twin(scale=0.1)


def test_a_twin_is_made_of_other_runs_and_settings_that_become_one_are_one(tmp_path):
    text = TINY.replace('["digits"]', '["digits", "digits_centred"]') + 'name = "both"\n'
    whole, twin = (load_study(study_file(tmp_path, text), {"data": data}) for data in ("", "digits"))
    assert len(whole.settings) == 2 and len(twin.settings) == 1
    assert len(twin.specs) == len(whole.specs) / 2
    scaled = load_study(study_file(tmp_path, text), {"scale": 3})
    assert not {spec.identity for spec in scaled.specs} & {spec.identity for spec in whole.specs}


def test_a_twin_says_what_makes_it_one(tmp_path):
    path = study_file(tmp_path)
    assert load_study(path, {"data": "digits", "scale": "0.02"}).twin.words == "--data digits --scale 0.02"
    assert load_study(path, {"data": "", "scale": "1"}).twin.words == "" == load_study(path).twin.words
    assert load_study(path, {"data": "", "scale": "1"}) == load_study(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"scale": "0"}, "scale: expected a number above 0, found '0'"),
        ({"scale": 0}, "scale: expected a number above 0, found 0"),
        ({"scale": "-1"}, "scale: expected a number above 0, found '-1'"),
        ({"scale": "nan"}, "scale: expected a number above 0, found 'nan'"),
        ({"scale": "inf"}, "scale: expected a number above 0, found 'inf'"),
        ({"scale": "tenth"}, "scale: expected a number above 0, found 'tenth'"),
        ({"scale": "0.5", "epochs": "3"}, "scale: expected --epochs or --scale, found both (3; 0.5)"),
        ({"data": "lq"}, "data: expected the name of an image set, found 'lq', a task of its own"),
        (
            {"data": "teacher_student:1"},
            "data: expected the name of an image set, found 'teacher_student:1', a task of its own",
        ),
        (
            {"data": "random_targets:digits"},
            "data: expected the name of an image set, found 'random_targets:digits', a task",
        ),
        ({"data": "digts"}, "dataset: unknown data set 'digts' (did you mean 'digits'?)"),
    ],
)
def test_what_makes_no_twin_is_refused(tmp_path, overrides, message):
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path), overrides)
    assert len(caught.value.problems) == 1 and caught.value.problems[0].startswith(message)


def test_all_that_is_wrong_with_a_twin_is_named_at_once(tmp_path):
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, TINY.replace("seeds = [1, 2]", "")), {"data": "lq", "scale": "x"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["data", "scale", "seed"]
