"""study.toml to specs: what is expanded, what is replaced, what a setting is called."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

from fa_registry import architectures
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.records import Option
from fa_registry.studies import study
from fa_registry.studies.study import cells, load_study, names
from fa_registry.studies.study_files import StudyVariant
from fa_registry.training.specs import parse_spec, setting_label
from tests.helpers.problems import fields_of, sentences
from tests.studies.tiny import TINY, study_file


def test_digits_is_four_methods_and_three_controls_for_every_seed():
    study = load_study("digits")
    labels = [spec.method_label for spec in study.specs]
    assert {label: labels.count(label) for label in labels} == {
        "bp": 3,
        "fa": 3,
        "dfa": 3,
        "dfa+pen λ=0.01": 3,
        "frozen": 3,
        "frozen_long": 3,
        "shallow": 3,
    }
    assert len({spec.identity for spec in study.specs}) == 21
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


SWEEP = (
    TINY.replace('["bp", "dfa"]', '["dtp"]')
    .replace("seeds = [1, 2]", "seeds = [1]")
    .replace("d_hidden = 16, num_blocks = 2", "d_hidden = [32, 16], num_blocks = 2")
)


def test_lists_in_options_and_recipe_are_a_product_in_the_order_of_the_file(tmp_path):
    text = SWEEP + "method_options = { sigma = [0.5, 0.1] }\nrecipe = { batch_size = [64, 32] }\n"
    study = load_study(study_file(tmp_path, text))
    swept = [
        (spec.architecture_options["d_hidden"], spec.method_options["sigma"], spec.recipe.batch_size)
        for spec in study.specs
        if spec.control == "none"
    ]
    assert swept == list(product([32, 16], [0.5, 0.1], [64, 32]))
    assert len({spec.label for spec in study.specs if spec.control == "none"}) == 2  # one name a variant of the method
    assert len({setting_label(spec) for spec in study.specs}) == len(study.settings) == 4
    assert all(sum(spec.control == "frozen" for spec in specs) == 1 for specs in study.settings.values())


def test_the_settings_of_a_named_grid_are_distinguished_by_what_is_swept(tmp_path):
    text = SWEEP + 'name = "main"\nrecipe = { credit_norm = ["rms", "none"], epochs = [2, 3] }\n'
    study = load_study(study_file(tmp_path, text))
    assert sorted(label for labels in study.labels.values() for label in labels) == [
        "main d_hidden=16, epochs=2", "main d_hidden=16, epochs=3", "main d_hidden=32, epochs=2", "main d_hidden=32, epochs=3"
    ]  # fmt: skip
    assert {spec.epochs for spec in load_study(study_file(tmp_path, text), {"epochs": "7"}).specs} == {7}
    assert {spec.epochs for spec in load_study(study_file(tmp_path, text), {"scale": "2"}).specs} == {4, 6}


def test_an_option_that_is_a_list_itself_stays_one(tmp_path, monkeypatch):
    card = architectures.CATALOG.get("resmlp").card
    wide = dataclasses.replace(card, options={**card.options, "widths": Option((8, 8), "widths of the blocks")})
    monkeypatch.setattr(type(architectures.CATALOG.get("resmlp")), "card", wide)
    options = {"widths": [16, 32], "d_hidden": [16, 32]}
    grid = {"methods": ["bp"], "architectures": ["resmlp"], "architecture_options": options}
    swept = [cell.fields["architecture_options"] for cell in cells({}, grid, {}, StudyVariant())]
    assert swept == [{"widths": [16, 32], "d_hidden": 16}, {"widths": [16, 32], "d_hidden": 32}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("method_options = { sigma = [0.1, -1.0] }", "grid[0].method_options.sigma:"),
        ("method_options = { sigma = [[0.1], 0.3] }", "grid[0].method_options.sigma:"),
        ("method_options = { simga = [0.1, 0.3] }", "grid[0].method_options.simga:"),
        ("recipe = { batch_size = [0, 32] }", "grid[0].recipe.batch_size:"),
        ("recipe = { batch_size = [] }", "grid[0]:"),
    ],
)
def test_a_wrong_value_in_a_list_is_one_problem(tmp_path, options, message):
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, SWEEP.replace("[32, 16]", "16") + options))
    (sentence,) = sentences(caught.value.problems)
    assert sentence.startswith(message)


def test_a_grid_of_several_that_expands_to_nothing_is_named(tmp_path):
    with pytest.raises(InvalidFields, match=r"grid\[1\]: expands to no run"):
        load_study(study_file(tmp_path, f"{TINY}\n{SWEEP[SWEEP.index('[[grid]]') :]}method_options = {{ sigma = [] }}"))


def test_a_grid_that_is_no_table_counts_as_a_grid(tmp_path):
    text = TINY[: TINY.index("[[grid]]")].replace("[recipe]", "grid = [1, { seeds = [] }]\n[recipe]")
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, text))
    assert fields_of(caught.value.problems) == ["grid[0]", "grid[1]"]


def test_overrides_replace_epochs_and_seeds(tmp_path):
    specs = load_study(study_file(tmp_path), {"epochs": "5", "seeds": ["9"], "device": "cpu"}).specs
    assert {(spec.epochs, spec.seed) for spec in specs} == {(5, 9)}


@pytest.mark.parametrize("nothing", ["", [], (), None])
def test_an_empty_override_replaces_nothing(tmp_path, nothing):
    path = study_file(tmp_path)
    assert load_study(path, {"epochs": nothing, "seeds": nothing, "device": "cpu"}) == load_study(path)


def test_an_override_fills_a_list_without_entries(tmp_path):
    study = load_study(study_file(tmp_path, TINY.replace("[1, 2]", "[]")), {"seeds": ["7"]})
    assert {spec.seed for spec in study.specs} == {7}


def test_an_unknown_study_and_a_broken_file(tmp_path):
    assert "digits" in names()
    with pytest.raises(UnknownName, match="did you mean 'digits'"):
        load_study("digit")
    (tmp_path / "mine.toml").touch()
    for name, found in (
        (tmp_path, "its study.toml, found a folder without study.toml"),
        ("/dev/null", "its study.toml, found something that is not a regular file"),
        (tmp_path / "mine", f"mine: no such file; did you mean {tmp_path}/mine.toml?"),
        (tmp_path / "none.toml", "none.toml: no such file"),
    ):
        with pytest.raises(UnknownName) as refused:
            load_study(str(name))
        assert str(refused.value).endswith(found)
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


def test_every_setting_and_seed_gets_its_own_frozen_control(tmp_path):
    specs = load_study(study_file(tmp_path)).specs
    frozen = [spec for spec in specs if spec.control == "frozen"]
    assert [(spec.method, spec.seed, spec.penalty) for spec in frozen] == [("bp", 1, 0.0), ("bp", 2, 0.0)]
    assert {spec.setting.identity for spec in frozen} == {spec.setting.identity for spec in specs}


def test_controls_can_be_chosen(tmp_path):
    text = TINY + "\n[controls]\nfrozen = false\nshallow = true\n"
    assert [spec.control for spec in load_study(study_file(tmp_path, text)).specs] == ["none"] * 4 + ["shallow"] * 2


def test_deep_supervision_is_trained_for_methods_with_local_heads(tmp_path):
    text = TINY.replace('["bp", "dfa"]', '["mono_forward", "dfa"]') + "\n[controls]\ndeep_supervision = true\n"
    specs = load_study(study_file(tmp_path, text)).specs
    found = [(spec.method, spec.control, spec.penalty) for spec in specs if spec.control == "deep_supervision"]
    assert found == [("bp", "deep_supervision", 0.0)] * 2
    assert {spec.setting.identity for spec in specs} == {specs[0].setting.identity}


@pytest.mark.parametrize(
    ("text", "table"),
    [
        (TINY + "\n[controls]\ndeep_supervision = true\n", "controls.deep_supervision: "),
        (TINY + "controls = { deep_supervision = true }\n", "grid[0].controls.deep_supervision: "),
    ],
)
def test_a_control_of_heads_for_methods_without_heads_is_refused(tmp_path, text, table):
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, text))
    (problem,) = sentences(caught.value.problems)
    assert problem.startswith(table) and problem.endswith("found bp, dfa")


def test_the_longer_frozen_control_has_twice_the_epochs_and_the_setting_of_its_runs(tmp_path):
    text = TINY + "\n[controls]\nfrozen_long = true\n"
    specs = load_study(study_file(tmp_path, text)).specs
    longer = [spec for spec in specs if spec.control == "frozen_long"]
    assert [spec for spec in specs if spec not in longer] == list(load_study(study_file(tmp_path)).specs)
    assert [(spec.method, spec.seed, spec.epochs) for spec in longer] == [("bp", 1, 2), ("bp", 2, 2)]
    assert {spec.setting.identity for spec in specs} == {specs[0].setting.identity}
    assert {setting_label(spec) for spec in specs} == {setting_label(specs[0])}
    assert {spec.epochs for spec in load_study(study_file(tmp_path, text), {"epochs": "5"}).specs} == {5, 10}


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        ("frozen = false\nfrozen_long = true", "controls.frozen_long: expected frozen = true"),
        ('frozen_long = "yes"', "controls.frozen_long: expected true or false, found 'yes'"),
    ],
)
def test_the_longer_frozen_control_is_only_for_a_study_with_the_frozen_control(tmp_path, controls, message):
    with pytest.raises(InvalidFields, match=message):
        load_study(study_file(tmp_path, f"{TINY}\n[controls]\n{controls}\n"))


def test_a_ladder_is_of_every_method_setting_and_seed_below_the_method_itself(tmp_path):
    specs = load_study(study_file(tmp_path, TINY + "\n[controls]\nladder = true\n")).specs
    ladder = [(spec.method, spec.seed, spec.control) for spec in specs if spec.control.startswith("ladder")]
    assert sorted(ladder) == sorted(product(["bp", "dfa"], [1, 2], ["ladder_0", "ladder_1"]))
    assert [spec.control for spec in specs[:4]] == ["none"] * 4
    assert {spec.setting.identity for spec in specs} == {specs[0].setting.identity}
    for spec in specs:
        recipe = {name: value for name, value in vars(spec.recipe).items() if name != "credit_norm"}
        fields = {"method": spec.method, "architecture": spec.architecture, "dataset": spec.dataset, "seed": spec.seed}
        fields |= {"epochs": spec.epochs, "architecture_options": spec.architecture_options, "control": spec.control}
        assert (
            parse_spec({**fields, **recipe}).identity == spec.identity
        )  # every ladder control is a spec that could be typed


def test_a_ladder_keeps_options_and_penalty_but_for_zero_trained_blocks(tmp_path):
    grid = TINY.replace("seeds = [1, 2]", "seeds = [1]\npenalties = [0.0, 0.1]").replace(
        "epochs = 1", 'epochs = 1\ncredit_norm = "none"'
    )
    specs = load_study(study_file(tmp_path, grid + "\n[controls]\nfrozen = false\nladder = true\n")).specs
    ladder = [(spec.control, spec.penalty) for spec in specs if spec.method == "dfa" and spec.control != "none"]
    assert sorted(ladder) == [("ladder_0", 0.0), ("ladder_1", 0.0), ("ladder_1", 0.1)]
    assert {spec.recipe.credit_norm for spec in specs} == {"none"}
    assert len({spec.identity for spec in specs}) == len(specs) == 4 + 6


def test_a_ladder_needs_blocks_that_can_be_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(
        study, "parse_spec", lambda cell, reported: dataclasses.replace(parse_spec(cell), architecture_options={})
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


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        ('title = "Two methods"', 'titel = "Two"', ["titel"]),
        ("epochs = 1", "epochs = -1\nspeed = 2", ["recipe.speed"]),
        ("epochs = 1", "epochs = -1", ["recipe.epochs"]),
        ('methods = ["bp", "dfa"]', 'methods = ["dfaa"]', ["grid[0].methods"]),
        ("seeds = [1, 2]", "seeds = 1", ["grid[0].seeds"]),
        (
            "seeds = [1, 2]",
            "seeds = [1]\nrecipe = { speed = 2 }\ncontrols = { frosen = true }",
            ["grid[0].recipe.speed", "grid[0].controls.frosen"],
        ),
        ("seeds = [1, 2]", "", ["grid[0].seeds"]),
        ("seeds = [1, 2]", "seeds = []", ["grid[0]"]),
        ("seeds = [1, 2]", "seeds = [1]\npenalties = [-1.0]\nsedes = [1]", ["grid[0].sedes"]),
    ],
)
def test_the_error_for_a_wrong_study_says_what_is_wrong(tmp_path, old, new, messages):
    assert old in TINY
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, TINY.replace(old, new)))
    assert set(messages) <= set(fields_of(caught.value.problems))


DATE = "edition: expected text, a number, true, false, a list or a table, found the date or time 2026-05-01"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[recipe]\nepochs = 1", 'recipe = "x"', "recipe:"),
        ("[recipe]\nepochs = 1", "recipe = []", "recipe:"),
        ("[recipe]", 'controls = "frozen"\n[recipe]', "controls:"),
        ("[recipe]", '[controls]\nfrozen = "false"\n[recipe]', "controls.frozen:"),
        ("[recipe]", "[controls]\nshallow = 1\n[recipe]", "controls.shallow:"),
        ('"tiny"', "5", "name:"),
        ('"tiny"', "0", "name:"),
        ('"Two methods"', "[1]", "title:"),
        ('"2026-05"', "2026-05-01", "edition:"),
        ("[recipe]", "cost = 2\n[recipe]", "cost:"),
        ('["bp", "dfa"]', '["bp", 5]', "grid[0].methods[1]:"),
        ('["bp", "dfa"]', '"bp"', "grid[0].methods:"),
        ('["resmlp"]', '[{ name = "resmlp" }]', "grid[0].architectures[0]:"),
        ('["digits"]', '[["digits"]]', "grid[0].datasets[0]:"),
        ("[1, 2]", '[1, "2"]', "grid[0].seeds[1]:"),
        ("[1, 2]", "[true]", "grid[0].seeds[0]:"),
        ("[1, 2]", "[1]\npenalties = [[0.1]]", "grid[0].penalties[0]:"),
        ("[1, 2]", "[1]\nmethod_options = 3", "grid[0].method_options:"),
        ("[1, 2]", "[1]\nmethod_options = []", "grid[0].method_options:"),
        ("[1, 2]", "[1]\nname = 3", "grid[0].name:"),
        ("[1, 2]", "[1]\nrecipe = 3", "grid[0].recipe:"),
        ("[1, 2]", "[1]\ncontrols = { frozen = 1 }", "grid[0].controls.frozen:"),
        ("epochs = 1", "epochs = [[1]]", "recipe.epochs:"),
        ("epochs = 1", "epochs = 1\noptimizer = 5", "recipe.optimizer:"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_problem_and_nothing_else(tmp_path, old, new, message):
    assert old in TINY
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, TINY.replace(old, new)))
    (sentence,) = sentences(caught.value.problems)
    assert sentence.startswith(message)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("5", "grid:"),
        ("[1]", "grid[0]:"),
        ("[]", "grid:"),
        ('""', "grid:"),
    ],
)
def test_a_grid_that_is_no_list_of_tables_is_one_problem(tmp_path, grid, message):
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, f'name = "n"\ntitle = "t"\nedition = "e"\ngrid = {grid}\n'))
    (sentence,) = sentences(caught.value.problems)
    assert sentence.startswith(message)


def test_wrong_types_and_wrong_values_are_named_together(tmp_path):
    text = TINY.replace('"tiny"', "5").replace("[recipe]\nepochs = 1", 'recipe = "x"\ncontrols = "frozen"')
    text += '\n[[grid]]\nmethods = ["dfaa"]\narchitectures = ["resmlp"]\ndatasets = ["digits"]\nseeds = [1]\n'
    text += "\n[[grid]]\nmethods = [5]\n"
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, text))
    fields = [
        "name",
        "recipe",
        "controls",
        "grid[1].methods",
        "grid[2].architectures",
        "grid[2].datasets",
        "grid[2].seeds",
        "grid[2].methods[0]",
    ]
    assert fields_of(caught.value.problems) == fields


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
    assert StudyVariant("digits").dataset(name) == stands_in
    assert StudyVariant(scale=0.5).dataset(name) == name


@pytest.mark.parametrize(
    ("epochs", "scale", "scaled"),
    [(100, 0.02, 2), (60, 0.02, 1), (30, 0.02, 1), (1, 0.001, 1), (5, 0.5, 3), (3, 0.5, 2), (4, 2, 8), (0, 0.5, 0)],
)
def test_epochs_are_rounded_half_up_and_one_at_least(epochs, scale, scaled):
    assert StudyVariant(scale=scale).epochs(epochs) == scaled


def test_every_place_where_epochs_stand_is_scaled(tmp_path):
    grid = TINY[TINY.index("[[grid]]") :]
    text = TINY.replace("epochs = 1", "epochs = 10") + grid + "epochs = [20]\n" + grid + "recipe = { epochs = 30 }\n"
    study = load_study(study_file(tmp_path, text), {"scale": "0.1"})
    assert {spec.epochs for spec in study.specs} == {1, 2, 3}
    assert study.variant == StudyVariant(scale=0.1)


def test_a_variant_is_made_of_other_runs_and_settings_that_become_one_are_one(tmp_path):
    text = TINY.replace('["digits"]', '["digits", "digits_centred"]') + 'name = "both"\n'
    whole, variant = (load_study(study_file(tmp_path, text), {"data": data}) for data in ("", "digits"))
    assert len(whole.settings) == 2 and len(variant.settings) == 1
    assert len(variant.specs) == len(whole.specs) / 2
    scaled = load_study(study_file(tmp_path, text), {"scale": 3})
    assert not {spec.identity for spec in scaled.specs} & {spec.identity for spec in whole.specs}


def test_a_variant_says_what_makes_it_one(tmp_path):
    path = study_file(tmp_path)
    assert (
        load_study(path, {"data": "digits", "scale": "0.02"}).variant.description
        == "--replace-dataset digits --scale 0.02"
    )
    assert (
        load_study(path, {"data": "", "scale": "1"}).variant.description == "" == load_study(path).variant.description
    )
    assert load_study(path, {"data": "", "scale": "1"}) == load_study(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"scale": "0"}, "scale:"),
        ({"scale": 0}, "scale:"),
        ({"scale": "-1"}, "scale:"),
        ({"scale": "nan"}, "scale:"),
        ({"scale": "inf"}, "scale:"),
        ({"scale": "tenth"}, "scale:"),
        ({"scale": "0.5", "epochs": "3"}, "scale:"),
        ({"data": "lq"}, "data:"),
        ({"data": "teacher_student:1"}, "data:"),
        ({"data": "random_targets:digits"}, "data:"),
        ({"data": "digts"}, "dataset:"),
    ],
)
def test_what_makes_no_variant_is_refused(tmp_path, overrides, message):
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path), overrides)
    (sentence,) = sentences(caught.value.problems)
    assert sentence.startswith(message)


def test_all_that_is_wrong_with_a_variant_is_named_at_once(tmp_path):
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, TINY.replace("seeds = [1, 2]", "")), {"data": "lq", "scale": "x"})
    assert fields_of(caught.value.problems) == ["data", "scale", "grid[0].seeds"]


@pytest.mark.long
def test_lists_whose_product_no_machine_can_hold_are_refused(tmp_path):
    """10^12 runs from a file of 30 kB: the grid is left at the first run too many."""
    lists = TINY.replace("seeds = [1, 2]", f"seeds = {list(range(5_000))}\nepochs = {list(range(1, 5_001))}")
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, lists.replace("d_hidden = 16", f"d_hidden = {list(range(1, 5_001))}")))
    assert fields_of(caught.value.problems) == ["grid[0]"]


def test_controls_count_as_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "MOST_RUNS", 9)
    many = TINY.replace("num_blocks = 2", "num_blocks = 5") + "controls = { ladder = true, frozen = false }\n"
    with pytest.raises(InvalidFields) as caught:
        load_study(study_file(tmp_path, many))
    assert fields_of(caught.value.problems) == ["controls"]
