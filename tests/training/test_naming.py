"""Names people read."""

from __future__ import annotations

from fa_registry.training.naming import run_name, setting_label
from tests.helpers.small import tiny_spec


def test_run_name():
    assert run_name(tiny_spec(penalty=0.01)) == "dfa+pen λ=0.01 · resmlp-16x2 · digits · s3"
    assert run_name(tiny_spec(method="bp", control="frozen")) == "frozen · resmlp-16x2 · digits · s3"


def test_setting_label_says_what_differs_from_the_defaults():
    assert setting_label(tiny_spec()) == "resmlp-16x2 · w2_std=0.5 · digits · 2 epochs"
    plain = tiny_spec(architecture_options={"terminal_ln": False})
    assert setting_label(plain) == "resmlp-256x4 · terminal_ln=False · digits · 2 epochs"


def test_setting_label_says_what_differs_from_the_papers_recipe_but_not_how_a_method_scales_its_credit():
    recipe = {"optimizer": "sgd", "learning_rate": 0.2, "credit_norm": "none"}
    label = setting_label(tiny_spec(**recipe, architecture_options={}))
    assert label == "resmlp-256x4 · digits · 2 epochs · optimizer=sgd · learning_rate=0.2"
