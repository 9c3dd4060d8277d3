"""Which runs a published figure is about, and what makes them another experiment."""

from __future__ import annotations

import dataclasses

from fa_registry.protocol.grouping import groups
from fa_registry.protocol.reproduction.reproduced import alike, differences, nearest
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Recipe
from tests.analyses.builders import report_of, run
from tests.builders import spec
from tests.protocol.reproduction.builders import figure, seeds

CARDS = {
    "architectures/resmlp": {"options": {"d_hidden": {"default": 256}, "terminal_ln": {"default": True}}},
    "methods/bp": {"options": {"tau": {"default": 1.0}}},
}


def unlike(one, cards=CARDS, **changes):
    return list(differences(one, dataclasses.replace(spec(method="bp"), **changes), cards))


def test_the_published_experiment_has_no_difference():
    assert unlike(figure(0.6)) == []


def test_an_option_the_reference_does_not_name_had_its_default():
    options = {"d_hidden": 16, "num_blocks": 2}
    assert unlike(figure(0.6), architecture_options={**options, "terminal_ln": True}) == []
    assert unlike(figure(0.6), architecture_options={**options, "terminal_ln": False}) == [
        "terminal_ln: published with True, here False"
    ]
    assert unlike(figure(0.6), cards={}, architecture_options={**options, "new": 3}) == [
        "new: the reference does not say it, here 3"
    ]
    assert unlike(figure(0.6), method_options={"tau": 2.0}) == ["tau: published with 1.0, here 2.0"]
    assert unlike(figure(0.6, method_options={"tau": 2.0}), method_options={"tau": 2.0}) == []


def test_an_option_the_runs_do_not_have_is_a_difference():
    setting = {"architecture_options": {"d_hidden": 16, "num_blocks": 2, "alpha": 1.0}}
    assert unlike(figure(0.6, setting=setting)) == ["alpha: published with 1.0, not an option here"]


def test_the_recipe_counts():
    other = Recipe(batch_size=256)
    assert unlike(figure(0.6), recipe=other) == ["batch_size: published with 128, here 256"]
    assert unlike(figure(0.6, setting={"recipe": {"batch_size": 256}}), recipe=other) == []


def found(records):
    return groups(report_of(records, load_edition("2026-05")))


def test_the_nearest_group_is_taken_and_more_runs_before_fewer():
    far = seeds(0.1, 0.1, spec={"epochs": 9})
    here, there = seeds(0.5, 0.5), seeds(0.6, 0.6, 0.6, spec={"device_class": "cuda"})
    group, apart = nearest(figure(0.6), found([*far, *here, *there]), CARDS)
    assert apart == () and len(group.runs) == 3
    assert len(alike(figure(0.6), found([*far, *here, *there]), CARDS)) == 2
    group, apart = nearest(figure(0.6), found(far), CARDS)
    assert apart == ("epochs: published after 3, here 9",)


def test_runs_trained_here_come_before_adopted_ones():
    adopted = [run("bp", seed, spec={"weights": "ab" * 32}) for seed in (1, 2, 3)]
    group, _ = nearest(figure(0.6), found([*adopted, *seeds(0.5)]), CARDS)
    assert not group.runs[0].record.spec.weights


def test_method_penalty_control_and_network_must_be_the_same():
    for one in (
        figure(0.6, method="fa"),
        figure(0.6, penalty=0.1),
        figure(0.6, control="frozen"),
        figure(0.6, setting={"architecture": "mlp"}),
    ):
        assert nearest(one, found(seeds(0.5)), CARDS) is None
