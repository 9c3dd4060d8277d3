"""Every metric is declared once, with a known filter, text and mean; tables name what is declared; one mean over seeds."""

from __future__ import annotations

import math

import pytest

from fa_registry import diagnostics, jsonio
from fa_registry.errors import InvalidFields, PluginError
from fa_registry.metrics import (
    ARITHMETIC,
    CHOICES,
    DECLARED,
    DEVIATIONS,
    GEOMETRIC,
    HEADLINES,
    NONE,
    NOT_SHOWN,
    PLACED,
    SITE_TABLES,
    SUBJECTS,
    TABLES,
    Metric,
    at_last_site,
    kind_of,
    logged_headline,
    metric_named,
    metrics_of_cards,
    over_seeds,
    run_metrics,
    subject_of,
    table,
)
from fa_registry.protocol.rules import load_edition, shipped
from fa_registry.records import Reading
from fa_registry.reporting.labels import means_in_text
from fa_registry.reporting.text.filters import KINDS
from fa_registry.statistics import summary

CARDS = {
    f"diagnostics/{name}": jsonio.encode(diagnostics.CATALOG.get(name).card) for name in diagnostics.CATALOG.names()
}
KNOWN = metrics_of_cards(CARDS)


def test_every_quantity_is_declared_whole():
    assert set(CHOICES["kind"]) == set(KINDS)
    assert all(one.words and one.unit and one.where and (one.symbol or one.family) for one in KNOWN.values())
    assert {one.about for one in DECLARED.values()} - {""} <= set(DECLARED)


def test_only_what_stands_in_a_table_counts_as_placed():
    """Otherwise a metric that is declared and in no table would be on no page at all: `further` lists what has no place."""
    assert not {name for name in PLACED if ({**DECLARED, **KNOWN})[name].about} - set(TABLES["run_scalars"])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("headline", HEADLINES.values(), ids=HEADLINES)
def test_the_names_in_a_table_are_those_of_metrics(name, headline):
    """Any other name would be a column that no page ever shows, without an error."""
    shown = table(name, [headline])
    assert len(shown) == len(set(shown)) > 0
    assert [metric for metric in shown if metric not in {**DECLARED, **KNOWN} and not at_last_site(metric, KNOWN)] == []


def test_a_table_of_two_tasks_has_the_columns_of_both():
    both = [HEADLINES["accuracy"], HEADLINES["token_loss"]]
    shown = table("audit", both)
    assert shown[:6] == ("accuracy", "token_loss", "frozen_accuracy", "frozen_token_loss", "margin_pp", "margin_nats")
    assert all(DECLARED[name].compared_with_control for name in shown[2:6])
    assert {name for name in shown if metric_named(name).with_deviation} == {
        "accuracy",
        "token_loss",
        "gamma_deep_mean",
    }


def test_the_margin_is_positive_if_the_run_is_better():
    accuracy, loss = HEADLINES["accuracy"], HEADLINES["token_loss"]
    assert accuracy.difference(0.82, 0.80) == 2.0 and loss.difference(3.0, 3.25) == 0.25
    assert accuracy.exceeds(0.8, 0.1) and loss.exceeds(1.0, 2.0) and not loss.exceeds(2.0, 2.0)
    assert DECLARED["accuracy"].direction == "higher" and DECLARED["token_loss"].direction == "lower"


@pytest.mark.parametrize(("recorded", "chance"), [(0.25, 0.25), (3, 3.0), (None, None)])
def test_chance_is_what_the_run_recorded(recorded, chance):
    for headline in HEADLINES.values():
        assert headline.chance({"chance": recorded, "classes": 32}) == chance
        assert headline.chance({}) is None


def test_half_a_test_sample_is_a_step_of_an_accuracy_only():
    accuracy, loss = HEADLINES["accuracy"], HEADLINES["token_loss"]
    assert accuracy.half_sample(360) == pytest.approx(100 / 720) and accuracy.half_sample(0) == 0.0
    assert loss.half_sample(360) == 0.0


def test_a_run_has_the_headline_that_it_recorded():
    assert logged_headline({"token_loss": Reading(1.5)}).margin == "margin_nats"
    assert logged_headline({"accuracy": Reading(None, "no classes"), "loss_train": Reading(1.0)}).name == "accuracy"
    assert logged_headline({}).name == "accuracy"


def test_a_number_that_has_a_line_in_the_form_is_in_what_lists_all_numbers_too():
    listed = [one.name for one in run_metrics(["feature_drift_blocks", "mine", "blocks_trained", "accuracy"], NONE)]
    assert listed == ["blocks_trained", "feature_drift_blocks", "mine"]


def test_a_card_uses_no_other_text_than_the_catalogue():
    """A built-in diagnostic may declare its metrics itself, as one of another package does; what is declared it only names."""
    for name, quantity in ((name, quantity) for name, quantity in KNOWN.items() if name in DECLARED):
        unit, symbol = DECLARED[name].unit or quantity.unit, DECLARED[name].symbol or quantity.symbol
        assert jsonio.encode(quantity) == jsonio.encode(DECLARED[name]) | {"unit": unit, "symbol": symbol}


def test_tables_name_what_is_declared_and_each_once():
    tables = [name for _, names in SITE_TABLES for name in names]
    assert len(tables) == len(set(tables)) and {KNOWN[name].where for name in tables} == {"site"}
    assert {{**DECLARED, **KNOWN}[name].where for name in TABLES["run_scalars"]} <= {"run", "epoch"}
    assert all(KNOWN[deviation].about == mean for mean, deviation in DEVIATIONS.items())


@pytest.mark.parametrize(
    ("quantity", "kind"),
    [
        ("margin_pp", "pp"),
        ("accuracy", "pct"),
        ("g_norm", "sci"),
        ("gamma_deep_mean", "cos"),
        ("stability_mid", "cos"),
        ("feature_drift/embed.weight", "num"),
        ("unheard_of", "num"),
    ],
)
def test_a_figure_is_written_by_its_quantity(quantity, kind):
    assert kind_of(quantity) == kind_of(quantity, KNOWN) == kind


def test_a_member_of_a_family_has_its_text_and_its_own_name():
    member = metric_named("feature_drift/embed.weight")
    assert member.symbol == "embed.weight" and member.words


@pytest.mark.parametrize("entry", [{"name": "mine", "colour": "red"}, {"name": "mine", "kind": "furlongs"}, "mine", {}])
def test_a_card_with_an_entry_that_is_no_metric_is_refused(entry):
    with pytest.raises((InvalidFields, PluginError)):
        metrics_of_cards({"diagnostics/mine": {"described": [entry]}})


def test_what_cannot_be_written_is_refused_where_it_is_declared():
    with pytest.raises(
        PluginError,
        match=r"metric 'mine': kind \(expected one of num, .*found 'percent'\); where \(expected one of site,",
    ):
        Metric("mine", kind="percent", where="layer")


def test_editions_judge_one_subject_by_different_quantities():
    assert subject_of("g_norm") == subject_of("g_norm_mean_ce") == "reference"
    assert subject_of("accuracy") == subject_of("margin_pp") == "depth"
    assert subject_of("gamma_null_p") == "gamma_null_p"
    every = [name for names in SUBJECTS.values() for name in names]
    assert len(every) == len(set(every))


def over(name, *values):
    """Each value as one seed's; None is a seed without one."""
    readings = (Reading(None, "no file") if value is None else Reading.of(value) for value in values)
    return over_seeds(enumerate(readings), name)


@pytest.mark.parametrize(
    ("quantity", "average"),
    [
        *((name, GEOMETRIC) for name in ("h_norm", "h_L", "growth", "growth_max", "g_norm", "g_norm_mean_ce", "g_L")),
        *((name, GEOMETRIC) for name in ("gain", "norm_ratio", "g_norm_mean_ce_L")),
        *((name, ARITHMETIC) for name in ("accuracy", "margin_pp", "gamma", "gamma_deep_mean", "rho", "nudge")),
        *((name, ARITHMETIC) for name in ("fidelity", "stability_mid", "feature_drift/embed.weight", "unheard_of")),
    ],
)
def test_norms_growth_and_gain_have_a_geometric_mean(quantity, average):
    assert metric_named(quantity).mean == average
    assert over(quantity, 1.0, 100.0).mean.value == pytest.approx(10.0 if average == GEOMETRIC else 50.5)


def test_the_spread_and_interval_of_a_geometric_mean_are_of_its_logarithms():
    found, logs = over("h_L", 1e3, 1e4, 1e5), summary([3.0, 4.0, 5.0])
    assert [found.mean.value, found.std.value] == pytest.approx([1e4, 10.0])
    assert found.interval == pytest.approx((10**logs.low, 10**logs.high)) and (found.n, found.of) == (3, 3)
    arithmetic, plain = over("gamma", 0.1, 0.2, 0.6), summary([0.1, 0.2, 0.6])
    assert (arithmetic.std.value, arithmetic.interval) == (plain.std, (plain.low, plain.high))


@pytest.mark.parametrize("value", [3.7, 1e-310, 1.7e308, 0.0])
def test_one_seed_and_equal_seeds_have_their_own_number_to_the_last_digit(value):
    assert over("h_L", value).mean.value == over("h_L", value, value, value).mean.value == value
    assert over("h_L", value).std.reason == "one seed: no interval"


def test_what_has_no_mean_says_why_and_how_many_there_are():
    assert over("h_L", 0.0, 2.0).mean.value is None
    assert over("nudge", 1e200, 1.0).mean.value is None
    broken = over("h_L", 989.0, math.inf)
    assert broken.mean.not_finite and broken.low.not_finite and (broken.n, broken.of) == (0, 2)
    assert over("accuracy", None, None).mean.reason == "no file" and over("accuracy").mean.reason == "no run"
    half = over("accuracy", None, 0.5)
    assert (half.mean.value, half.n, half.of) == (0.5, 1, 2)
    assert "no logarithm" in over("h_L", 0.0, 0.0).low.reason
    assert "float64" in over("h_L", 1e-300, 1e300).high.reason


def test_runs_of_one_seed_count_as_one_by_the_same_mean():
    again = [(1, Reading(1.0)), (1, Reading(100.0)), (2, Reading(1000.0))]
    found = over_seeds(again, "growth_max")
    assert (found.mean.value, found.n, found.of) == (pytest.approx(100.0), 2, 2)


def test_a_table_says_its_means_once():
    length, growth, gradient = (DECLARED[name].symbol for name in ("h_L", "growth", "g_L"))
    columns = [metric_named(name) for name in ("accuracy", "h_L", "growth", "growth_max", "g_L")]
    assert all(symbol in means_in_text(columns) for symbol in (length, growth, gradient))
    assert length in means_in_text([metric_named("h_L")])
    assert means_in_text([metric_named("gamma")]) == "means over seeds"


@pytest.mark.parametrize("name", sorted(TABLES))
def test_no_table_shows_the_gradient_of_one_sample(name):
    """‖g‖ is shown in the published scale only; what audit.json records by epoch may be judged by a user's edition."""
    shown = set(table(name, HEADLINES.values())) | {row for _, names in SITE_TABLES for row in names}
    assert not shown & set(NOT_SHOWN) or name == "trajectory"
    assert all(DECLARED[hidden].about == "g_norm_mean_ce" for hidden in NOT_SHOWN)


@pytest.mark.parametrize("edition", sorted(shipped()))
def test_every_built_in_edition_judges_the_published_scale_by_the_published_floor(edition):
    rules = load_edition(edition).rules
    assert not any(condition.quantity in NOT_SHOWN for rule in rules for condition in rule.conditions)
    floors = [one.threshold for rule in rules for one in rule.conditions if one.quantity == "g_norm_mean_ce"]
    assert floors == [1e-7]
