"""Sweeps of λ: who belongs together, pairs by seed, ratios of scales."""

from __future__ import annotations

import math

import pytest

from tests.analyses.builders import SEEDS, analysed, controlled, row, run, values


def sweep(figures, seeds=SEEDS, method="dfa"):
    """figures: λ → name of a figure → one value a seed."""
    return [
        run(method, seed, spec={"penalty": strength}, **{name: several[place] for name, several in given.items()})
        for strength, given in figures.items()
        for place, seed in enumerate(seeds)
    ]


TWO = sweep(
    {
        0.01: {"accuracy": (0.5, 0.6, 0.7), "h_L": (10.0, 10.0, 10.0)},
        0.0: {"accuracy": (0.3, 0.4, 0.41), "h_L": (1e3, 1e4, 1e5)},
    }
)


def test_a_sweep_by_hand():
    analysis = analysed("penalty", controlled(*TWO))
    assert [cells["penalty"].reading.value for cells in analysis.rows] == [0.0, 0.01]
    zero, strong = analysis.rows
    assert zero["method"].text == strong["method"].text == "dfa"
    assert values(zero, "runs", "accuracy", "h_L") == pytest.approx([3.0, 0.37, 1e4])  # 10^mean(3, 4, 5)
    half = 4.302652729911275 * 1.0 / math.sqrt(3)  # the decimal logarithms 3, 4, 5 have standard deviation 1
    assert zero["h_L"].interval == pytest.approx((10 ** (4 - half), 10 ** (4 + half)))


def test_differences_are_paired_by_seed_and_scales_are_ratios():
    cells = row(analysed("penalty", controlled(*TWO)).table("differences"), method="dfa")
    assert values(cells, "penalty", "baseline", "accuracy", "h_L") == pytest.approx([0.01, 0.0, 23.0, 1e-3])
    deviation = math.sqrt((3.0**2 + 3.0**2 + 6.0**2) / 2)  # of the differences 20, 20 and 29 pp
    half = 4.302652729911275 * deviation / math.sqrt(3)
    assert cells["accuracy"].interval == pytest.approx((23.0 - half, 23.0 + half)) and cells["accuracy"].n == 3
    assert cells["accuracy_outcome"].text == "higher"


def test_only_common_seeds_are_paired():
    runs = [*TWO, run("dfa", 9, accuracy=0.99, spec={"penalty": 0.01})]
    cells = row(analysed("penalty", runs).table("differences"), method="dfa")
    assert cells["accuracy"].n == 3 and values(cells, "accuracy") == pytest.approx([23.0])
    assert "dfa+pen λ=0.01-9" not in cells["accuracy"].run_ids


def test_without_a_common_seed_there_is_no_difference():
    runs = [run("dfa", 1), run("dfa", 2, spec={"penalty": 0.01})]
    cells = row(analysed("penalty", runs).table("differences"), method="dfa")
    assert values(cells, "accuracy") == ["no common seed"] and cells["accuracy_outcome"].text == "no common seed"


def test_one_pair_is_provisional_and_has_no_interval():
    runs = [run("dfa", accuracy=0.3), run("dfa", accuracy=0.5, spec={"penalty": 0.01})]
    cells = row(analysed("penalty", runs).table("differences"), method="dfa")
    assert cells["accuracy_outcome"].text == "provisional" and cells["accuracy"].interval is None
    assert values(cells, "accuracy") == pytest.approx([20.0])


def test_the_weakest_penalty_is_the_baseline_where_none_is_zero():
    runs = sweep({1e-2: {"accuracy": (0.5,) * 3}, 1e-4: {"accuracy": (0.4, 0.41, 0.42)}})
    cells = row(analysed("penalty", runs).table("differences"), method="dfa")
    assert values(cells, "baseline", "penalty") == [1e-4, 1e-2]


def test_a_method_with_one_strength_is_no_sweep():
    analysis = analysed("penalty", [run("bp"), run("fa", spec={"penalty": 0.01})])
    remarks = [remark for remark in analysis.remarks if remark.startswith("no penalty sweep")]
    assert analysis.rows == () and len(remarks) == 2
    assert "bp in" in remarks[0] and remarks[0].endswith("0") and "fa in" in remarks[1] and remarks[1].endswith("0.01")


@pytest.mark.parametrize(
    "other",
    [{"epochs": 9}, {"method_options": {"beta": 2}}, {"architecture_options": {"d_hidden": 8}}, {"dataset": "svhn"}],
)
def test_runs_that_differ_in_anything_else_are_no_sweep(other):
    assert analysed("penalty", [run("dfa"), run("dfa", spec={"penalty": 0.01, **other})]).rows == ()


def test_figures_at_the_middle_site():
    """Four sites are three blocks: ⌊3/2⌋ = 1."""
    sites = {"rho": (0.1, 0.2, 0.3, 0.4), "nudge": (-1e-3, -2e-3, -3e-3, -4e-3)}
    runs = [run("dfa", sites=sites), run("dfa", spec={"penalty": 0.01})]
    zero, strong = analysed("penalty", runs).rows
    assert values(zero, "rho", "nudge") == [0.2, -2e-3]
    assert values(strong, "rho", "nudge") == ["rho was not measured", "nudge was not measured"]
    cells = row(analysed("penalty", runs).table("differences"), method="dfa")
    assert values(cells, "rho") == ["rho was not measured"]


def test_what_is_not_finite_leaves_neither_mean_nor_difference():
    runs = [*sweep({0.0: {"h_L": (1.0, 2.0, math.inf)}, 0.01: {"h_L": (1.0, 2.0, 3.0)}})]
    analysis = analysed("penalty", runs)
    assert values(analysis.rows[0], "h_L") == ["not finite (inf)"] and analysis.rows[0]["h_L"].run_ids == ("dfa-456",)
    assert values(row(analysis.table("differences"), method="dfa"), "h_L") == ["not finite (inf)"]


def test_a_scale_of_zero_has_no_geometric_mean():
    analysis = analysed("penalty", sweep({0.0: {"g": (0.0, 1e-3, 1e-3)}, 0.01: {"g": (1e-3,) * 3}}))
    assert "geometric mean" in values(analysis.rows[0], "g_L")[0]
    assert "no difference" in values(row(analysis.table("differences"), method="dfa"), "g_L")[0]


def test_a_seed_trained_twice_counts_once():
    runs = [run("dfa", 1, accuracy=0.2), run("dfa", 1, accuracy=0.4), run("dfa", 2, accuracy=0.5)]
    cell = analysed("penalty", [*runs, run("dfa", 1, spec={"penalty": 1.0})]).rows[0]["accuracy"]
    assert cell.n == 2 and cell.reading.value == pytest.approx(0.45)  # the newest run of seed 1, not the mean of both


def test_a_ratio_beyond_all_numbers_is_reported():
    runs = [run("dfa", h_L=1e-300), run("dfa", h_L=1e300, spec={"penalty": 0.1})]
    cells = row(analysed("penalty", runs).table("differences"), method="dfa")
    assert "float64" in values(cells, "h_L")[0]
