"""parse_spec: every wrong field at once, each with what was expected."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fa_registry import architectures, jsonio, methods
from fa_registry.datasets.digits import Digits
from fa_registry.errors import InvalidFields
from fa_registry.records import Recipe, RunSpec
from fa_registry.reporting.labels import control_of
from fa_registry.studies.study import load_study, names
from fa_registry.training.specs import MAX_NAME, parse_spec, run_name, setting_label
from tests.helpers.tiny_tasks import RAW, tiny_spec


def problems(**changes) -> tuple[str, ...]:
    with pytest.raises(InvalidFields) as caught:
        tiny_spec(**changes)
    return caught.value.problems


def test_text_as_mlflow_hands_it_over_gives_the_same_spec():
    text = {
        **RAW,
        "seed": "3",
        "epochs": "2",
        "penalty": "0.0",
        "batch_size": "128",
        "control": "",
        "architecture_options": {"d_hidden": "16", "num_blocks": "2", "w2_std": "0.5", "terminal_ln": "true"},
    }
    assert parse_spec(text) == parse_spec(RAW)
    assert parse_spec(text).identity == parse_spec(RAW).identity


def test_an_option_that_method_and_architecture_both_have_is_suggested_of_both(monkeypatch):
    card = architectures.CATALOG.get("resmlp").card
    both = dataclasses.replace(
        card, options={**card.options, "sigma": methods.CATALOG.get("dtp").card.options["sigma"]}
    )
    monkeypatch.setattr(type(architectures.CATALOG.get("resmlp")), "card", both)
    assert any(one.startswith("sigma:") and "method.sigma" in one for one in problems(method="dtp", sigma=0.3))


def test_options_are_resolved_so_that_the_identity_names_them_all():
    spec = tiny_spec(architecture_options={})
    assert spec.architecture_options == {
        "d_hidden": 256,
        "num_blocks": 4,
        "terminal_ln": True,
        "residual": True,
        "w2_std": 0.01,
    }
    assert spec.identity == tiny_spec(architecture_options={"d_hidden": 256}).identity
    assert spec.recipe == Recipe()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"method": "dfaa"}, "method:"),
        ({"architecture": "resmpl"}, "architecture:"),
        ({"dataset": "digit"}, "dataset:"),
        ({"penalty": -1}, "penalty:"),
        ({"penalty": "nan"}, "penalty:"),
        ({"penalty": True}, "penalty:"),
        ({"penalty": "much"}, "penalty:"),
        ({"epochs": -1}, "epochs:"),
        ({"epochs": "notafloat"}, "epochs:"),
        ({"epochs": 1.5}, "epochs:"),
        ({"epochs": True}, "epochs:"),
        ({"epochs": [3]}, "epochs:"),
        ({"batch_size": 0}, "batch_size:"),
        ({"batch_size": 1438}, "batch_size:"),
        ({"seed": None}, "seed:"),
        ({"learning_rate": "inf"}, "learning_rate:"),
        ({"optimizer": "adam"}, "optimizer:"),
        ({"control": "frozn"}, "control:"),
        ({"control": "ladder_02"}, "control:"),
        ({"control": "ladder_-1"}, "control:"),
        ({"control": ["frozen"]}, "control:"),
        ({"control": "ladder_7", "architecture_options": {"num_blocks": 4}}, "control:"),
        ({"control": "ladder_3"}, "control:"),
        ({"control": "ladder_0", "penalty": 1}, "penalty:"),
        ({"colour": "red"}, "colour:"),
        ({"d_hidden": 64}, "d_hidden:"),
        ({"method": "dtp", "simga": 1}, "simga:"),
        ({"epoch": 3}, "epoch:"),
        ({"architecture_options": {"depth": 2}}, "architecture_options.depth:"),
        ({"architecture_options": {"d_hiden": 2}}, "architecture_options.d_hiden:"),
        ({"architecture_options": {"d_hidden": 0}}, "architecture_options.d_hidden:"),
        ({"architecture_options": {"terminal_ln": "maybe"}}, "architecture_options.terminal_ln:"),
        ({"architecture_options": "d_hidden"}, "architecture_options:"),
        ({"method_options": {"beta": 1}}, "method_options.beta:"),
        ({"control": "frozen"}, "control:"),
        ({"control": "shallow", "method": "bp", "penalty": 1}, "penalty:"),
        ({"control": "deep_supervision", "method": "mono_forward"}, "control:"),
        ({"control": "deep_supervision", "method": "bp", "penalty": 1}, "control:"),
        ({"control": "deep_supervision", "method": "bp", "architecture_options": {"num_blocks": 0}}, "control:"),
        ({"control": "frozen_long", "method": "bp", "epochs": 3}, "epochs: expected an even number"),
        ({"control": "frozen_long", "method": "dfa", "epochs": 4}, "control: expected method 'bp'"),
        ({"architecture_options": {"num_blocks": 0}}, "architecture_options:"),
        ({"momentum": 0.9}, "momentum: expected optimizer=sgd"),
        ({"momentum": 1.0, "optimizer": "sgd"}, "momentum:"),
        ({"beta2": 0.9, "optimizer": "sgd"}, "beta2: expected optimizer=adamw"),
        ({"clip_credit": 1}, "clip_credit: expected credit_norm=none"),
        ({"clip_gradient": -1}, "clip_gradient:"),
        ({"step_factor": 0.5}, "step_factor: expected schedule=step"),
        ({"step_factor": 1, "schedule": "step", "step_epochs": 1}, "step_factor:"),
        ({"schedule": "step"}, "step_epochs: expected a number from 1 to 1"),
        ({"schedule": "step", "step_epochs": 2}, "step_epochs: expected a number from 1 to 1"),
        ({"schedule": "step", "step_epochs": 1, "warmup_epochs": 1}, "step_epochs: expected a longer training"),
        ({"warmup_epochs": 3}, "warmup_epochs: expected at most the 2 epochs"),
        ({"warmup_epochs": 3, "epochs": 4, "control": "frozen_long", "method": "bp"}, "warmup_epochs:"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_one_wrong_field_is_one_problem(changes, text):
    found = problems(**changes)
    assert len(found) == 1, found
    assert found[0].startswith(text)


def test_the_default_batch_is_held_against_the_data_too(monkeypatch):
    monkeypatch.setattr(Digits, "card", dataclasses.replace(Digits.card, train_samples=100))
    (problem,) = problems()
    assert problem.startswith("batch_size: 128") and "100" in problem


def test_all_wrong_fields_are_reported_at_once():
    found = problems(
        method="dfaa",
        seed=None,
        epochs="notafloat",
        penalty=-1,
        batch_size=5000,
        colour=1,
        architecture_options={"depth": 2, "d_hidden": 0},
    )
    assert sorted(problem.split(":")[0] for problem in found) == [
        "architecture_options.d_hidden",
        "architecture_options.depth",
        "batch_size",
        "colour",
        "epochs",
        "method",
        "penalty",
        "seed",
    ]


def test_the_message_names_its_subject():
    with pytest.raises(InvalidFields, match="^run 3 of study x: 5 problems"):
        parse_spec({}, "run 3 of study x")


def test_bp_may_have_no_blocks():
    assert tiny_spec(method="bp", architecture_options={"num_blocks": 0}).architecture_options["num_blocks"] == 0


@pytest.mark.parametrize("method", ["bp", "fa", "dfa"])
@pytest.mark.parametrize("trained_blocks", [0, 1, 2])
def test_every_number_of_trained_blocks_is_a_control_of_every_method(method, trained_blocks):
    spec = tiny_spec(method=method, control=f"ladder_{trained_blocks}", penalty=0.1 if trained_blocks else 0)
    assert (spec.method, spec.control) == (method, f"ladder_{trained_blocks}")
    assert spec.identity != tiny_spec(method=method, penalty=spec.penalty).identity
    assert spec.setting == tiny_spec(method=method).setting


def test_minus_zero_is_the_same_specification_as_zero():
    fields = {"method": "dfa", "architecture": "resmlp", "dataset": "digits", "seed": 1, "epochs": 1}
    assert parse_spec(fields | {"penalty": "-0"}).identity == parse_spec(fields | {"penalty": 0}).identity


def test_a_number_too_large_for_a_float_is_one_problem():
    fields = {"method": "dfa", "architecture": "resmlp", "dataset": "digits", "seed": 1, "epochs": 1}
    with pytest.raises(InvalidFields, match="penalty:"):
        parse_spec(fields | {"penalty": 10**400})


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("teacher_student:1.0", "teacher_student"),
        ("random_targets:teacher_student:.5", "random_targets:teacher_student:0.5"),
    ],
)
def test_a_data_set_with_an_argument_has_one_spelling(typed, name):
    fields = {"method": "bp", "architecture": "resmlp", "seed": 1, "epochs": 1}
    spec = parse_spec({**fields, "dataset": typed})
    assert spec.dataset == name and spec.identity == parse_spec({**fields, "dataset": name}).identity


def test_a_wrong_argument_of_a_data_set_is_one_problem():
    (problem,) = problems(dataset="teacher_student:2")
    assert problem.startswith("dataset:") and "'2'" in problem and "0.25" in problem


BASE = tiny_spec(architecture_options={})


def test_a_later_field_of_the_recipe_is_part_of_the_identity_only_where_it_differs():
    spec = tiny_spec(warmup_epochs=0, beta1=0.9)
    assert list(jsonio.encode(spec)["recipe"]) == list(jsonio.encode(Recipe()))
    assert len(jsonio.encode(Recipe())) == 6 and spec.identity == tiny_spec().identity
    other = tiny_spec(warmup_epochs=1, beta1=0.8)
    assert jsonio.encode(other)["recipe"] == {**jsonio.encode(Recipe()), "beta1": 0.8, "warmup_epochs": 1}
    assert jsonio.decode(RunSpec, jsonio.encode(other)) == other


def test_clipping_of_the_credit_belongs_to_the_method_and_that_of_the_gradient_to_the_setting():
    plain = tiny_spec(credit_norm="none")
    credit, gradient = tiny_spec(credit_norm="none", clip_credit=0.5), tiny_spec(credit_norm="none", clip_gradient=0.5)
    assert credit.setting == plain.setting != gradient.setting
    assert credit.label == "dfa (clip_credit=0.5,credit_norm=none)"
    assert "clip_credit" not in setting_label(credit) and "clip_gradient=0.5" in setting_label(gradient)
    assert control_of(credit) == control_of(tiny_spec())


def test_run_name():
    usual = {"epochs": 100, "architecture_options": {}}
    assert run_name(tiny_spec(penalty=0.01, **usual)).split(" · ") == ["dfa+pen λ=0.01", "resmlp-256x4", "digits", "s3"]
    assert run_name(tiny_spec(method="bp", control="frozen", **usual)).startswith("frozen · ")


def test_setting_label_says_what_differs_from_the_defaults():
    assert setting_label(tiny_spec()).split(" · ") == ["resmlp-16x2", "w2_std=0.5", "digits", "2 epochs"]
    plain = tiny_spec(architecture_options={"terminal_ln": False})
    assert "terminal_ln=False" in setting_label(plain)


def test_the_runs_of_all_shipped_studies_in_one_store_have_names_of_their_own():
    specs = {spec.identity: spec for study in names() for spec in load_study(study).specs}
    assert len(specs) > 600
    assert len({run_name(spec) for spec in specs.values()}) == len(specs)


def options_of(card):
    """Some values of every option of a card, of its default's type."""
    kinds = {
        bool: st.booleans(),
        int: st.integers(1, 64),
        float: st.floats(0, 1, allow_subnormal=False),
        str: st.text("abc", min_size=1, max_size=3),
    }
    fields = {
        name: st.sampled_from(option.choices) if option.choices else kinds[type(option.default)]
        for name, option in card.options.items()
    }
    return st.fixed_dictionaries(fields)


@st.composite
def specs(draw):
    """A specification with anything in it that may differ between two runs of a store."""
    method, architecture = draw(st.sampled_from(["bp", "dfa", "dtp", "ep"])), draw(st.sampled_from(["resmlp", "mlp"]))
    recipe = dataclasses.replace(
        BASE.recipe,
        learning_rate=draw(st.sampled_from([1e-3, 1e-2])),
        credit_norm=draw(st.sampled_from(["rms", "none"])),
    )
    return dataclasses.replace(
        BASE,
        method=method,
        architecture=architecture,
        method_options=draw(options_of(methods.CATALOG.get(method).card)),
        architecture_options=draw(options_of(architectures.CATALOG.get(architecture).card)),
        epochs=draw(st.sampled_from([3, 100])),
        seed=draw(st.integers(0, 3)),
        penalty=draw(st.floats(0, 10, allow_subnormal=False)),
        device_class=draw(st.sampled_from(["cpu", "cuda"])),
        recipe=recipe,
    )


@given(specs(), specs())
@example(dataclasses.replace(BASE, penalty=0.1), dataclasses.replace(BASE, penalty=0.1 + 1e-16))
@example(dataclasses.replace(BASE, epochs=3), dataclasses.replace(BASE, epochs=100))
def test_two_specifications_never_have_one_name(one, other):
    assert (run_name(one) == run_name(other)) == (one == other)
    assert len(run_name(one)) <= MAX_NAME


@given(specs(), st.sampled_from(["epochs", "seed", "penalty", "device_class", "recipe"]), specs())
def test_one_field_that_differs_shows_in_the_name(spec, field, other):
    changed = dataclasses.replace(spec, **{field: getattr(other, field)})
    assert (run_name(spec) == run_name(changed)) == (spec == changed)


def test_a_name_that_would_not_fit_the_store_ends_in_the_identity():
    spec = dataclasses.replace(BASE, dataset="d" * 300)
    assert len(run_name(spec)) == MAX_NAME and run_name(spec).endswith(f"… {spec.identity[:6]}")
