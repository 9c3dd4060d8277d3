"""Names people read: short, and never the same for two specifications."""

from __future__ import annotations

import dataclasses

from hypothesis import example, given
from hypothesis import strategies as st

from fa_registry import architectures, methods
from fa_registry.studies.study import load_study, names
from fa_registry.training.specs import MAX_NAME, run_name, setting_label
from tests.helpers.small import tiny_spec

BASE = tiny_spec(architecture_options={})


def test_run_name():
    usual = {"epochs": 100, "architecture_options": {}}
    assert run_name(tiny_spec(penalty=0.01, **usual)) == "dfa+pen λ=0.01 · resmlp-256x4 · digits · s3"
    assert run_name(tiny_spec(method="bp", control="frozen", **usual)) == "frozen · resmlp-256x4 · digits · s3"


def test_a_run_name_says_what_is_not_usual():
    spec = tiny_spec(learning_rate=0.2, credit_norm="none")
    assert run_name(spec) == (
        "dfa (credit_norm=none) · resmlp-16x2 · w2_std=0.5 · digits · 2 epochs · learning_rate=0.2 · s3"
    )
    adopted = dataclasses.replace(BASE, weights="3fa1b2c4d5")
    assert run_name(adopted) == "dfa adopted 3fa1b2 · resmlp-256x4 · digits · 2 epochs · s3"


def test_setting_label_says_what_differs_from_the_defaults():
    assert setting_label(tiny_spec()) == "resmlp-16x2 · w2_std=0.5 · digits · 2 epochs"
    plain = tiny_spec(architecture_options={"terminal_ln": False})
    assert setting_label(plain) == "resmlp-256x4 · terminal_ln=False · digits · 2 epochs"


def test_setting_label_says_what_differs_from_the_papers_recipe_but_not_how_a_method_scales_its_credit():
    recipe = {"optimizer": "sgd", "learning_rate": 0.2, "credit_norm": "none"}
    label = setting_label(tiny_spec(**recipe, architecture_options={}))
    assert label == "resmlp-256x4 · digits · 2 epochs · optimizer=sgd · learning_rate=0.2"


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
