"""Recipes of a method: which runs have one, their labels, and the margin that D3 judges."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.analyses import answers_of
from fa_registry.analyses.remedies import FEW
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Recipe
from fa_registry.reporting.figures.analyses import analysis_numbers
from tests.analyses.builders import OURS, SEEDS, analysed, controlled, report_of, row, run, values
from tests.builders import answered

SIZES = {"d_hidden": 16, "num_blocks": 2}
NO_NORM = Recipe(credit_norm="none")


def recipe(method="dfa", accuracies=(0.5, 0.6, 0.7), **given):
    spec = {
        name: given.pop(name)
        for name in tuple(given)
        if name in ("recipe", "penalty", "epochs", "architecture_options", "method_options")
    }
    runs = [
        run(method, seed, accuracy=value, spec=spec, **given) for seed, value in zip(SEEDS, accuracies, strict=True)
    ]
    mark = "-".join(map(str, spec.values()))
    return [dataclasses.replace(one, run_id=f"{one.run_id}-{mark}") for one in runs]


TWO = [*recipe(), *recipe(recipe=NO_NORM, accuracies=(0.7, 0.8, 0.9))]


def labels(*runs):
    return [cells["recipe"].text for cells in analysed("remedies", controlled(*runs)).rows]


def test_a_recipe_has_the_method_and_what_differs_but_not_the_epochs():
    changed = recipe(architecture_options={**SIZES, "branch_scale": "depth"}), recipe(recipe=Recipe(learning_rate=1.0))
    longer = recipe(epochs=9)
    assert labels(*TWO, *changed[0], *changed[1], *longer) == [
        "dfa · learning_rate=1.0",
        "dfa · learning_rate=0.001",
        "dfa · learning_rate=0.001",
        "dfa (credit_norm=none) · learning_rate=0.001",
        "dfa · branch_scale=depth · learning_rate=0.001",
    ]


@pytest.mark.parametrize(
    "others",
    [[], recipe(penalty=0.01), recipe(epochs=9), recipe("fa")],
    ids=["one recipe", "another penalty", "another length", "another method"],
)
def test_what_other_analyses_compare_is_no_recipe(others):
    report = report_of(controlled(*recipe(), *others), load_edition("2026-05"))
    assert dict(answers_of(report).left_out)["Remedies"] == FEW
    assert analysed("remedies", controlled(*recipe(), *others)).rows == ()


def test_one_network_each_is_no_recipe():
    vit = [dataclasses.replace(one, spec=dataclasses.replace(one.spec, architecture="vit_mini")) for one in recipe()]
    assert analysed("remedies", [*recipe(), *vit]).rows == ()


def test_an_option_that_all_recipes_of_a_method_share_is_left_out():
    noisy = [recipe("dtp", method_options={"sigma": sigma, "hidden": 256}) for sigma in (0.1, 0.3)]
    same = recipe("pepita", method_options={"scale": 1.0})
    assert labels(*noisy[0], *noisy[1], *same) == ["dtp (sigma=0.1)", "dtp (sigma=0.3)", "pepita"]


def test_every_method_of_the_report_is_a_row_where_one_has_recipes():
    assert labels(*TWO, *recipe("fa"), *recipe("dfa", penalty=0.01)) == [
        "dfa",
        "dfa+pen λ=0.01",
        "dfa (credit_norm=none)",
        "fa",
    ]


def test_the_margin_and_its_interval_are_those_of_rule_d3():
    records = [answered(one) for one in controlled(*TWO)]
    report = report_of(records, OURS)
    found = next(run for run in report.runs if run.record.spec.recipe == NO_NORM)
    finding = next(one for one in found.findings if one.rule == "D3" and one.interval)
    cells = row(analysed("remedies", records, OURS), recipe="dfa (credit_norm=none)")
    assert values(cells, "accuracy", "margin") == pytest.approx([0.8, 30.0])
    assert cells["margin"].interval == finding.interval and cells["margin"].n == 3
    by_network = row(analysed("cross-architecture", records, OURS), method="dfa (credit_norm=none)")
    assert by_network["margin"].interval == finding.interval


def test_without_a_control_there_is_no_margin():
    cells = row(analysed("remedies", TWO), recipe="dfa")
    assert values(cells, "margin") == ["no frozen control of the same setting and seed"]


def test_the_null_of_gamma_is_its_mean_over_the_sites_after_blocks():
    nulls = recipe(recipe=NO_NORM, sites={"gamma_null_mean": (0.9, 0.1, 0.3)})
    exact = recipe("fa", sites={"gamma_null_mean": (0.9, 0.1, "exact")})
    analysis = analysed("remedies", controlled(*recipe(), *nulls, *exact))
    assert values(row(analysis, recipe="fa"), "gamma_null") == pytest.approx([0.1])
    assert values(row(analysis, recipe="dfa (credit_norm=none)"), "gamma_null") == pytest.approx([0.2])
    assert "not measured" in values(row(analysis, recipe="dfa"), "gamma_null")[0]


def test_the_figure_has_margin_and_growth_of_every_recipe():
    runs = [*TWO, *recipe(recipe=NO_NORM, epochs=9, growth_init_max=7.0)]
    frame = analysis_numbers(analysed("remedies", controlled(*runs)), ()).set_index(["recipe", "epochs"])
    last = frame.loc[("dfa (credit_norm=none)", 9.0)]
    assert (
        last["growth_init_max"] == pytest.approx(7.0)
        and last["method_name"] == "dfa"
        and last["unit"] == "percentage points"
    )
    assert frame["value"].notna().sum() == 2  # the controls have other epochs than the long runs
