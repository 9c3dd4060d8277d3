"""First fires by hand: an epoch, never, or the reason why it is unknown; and their order over runs."""

from __future__ import annotations

import math

import pytest

from fa_registry.metrics import symbol_of
from tests.analyses.builders import OURS, SEEDS, analysed, controlled, row, run, values

D1, D2 = "growth_max", "g_norm_mean_ce_L"


def climbing(epoch, length=12):
    """Growth that passes 50 in the given epoch; never where that is beyond the end."""
    return tuple(60.0 if step >= epoch else 2.0 for step in range(length + 1))


def summary_of(*runs, rule="D1", method="dfa", edition="2026-05"):
    return row(analysed("first-fire", runs, edition).tables[0], rule=rule, method=method)


def test_the_published_seeds():
    """DFA on the residual MLP: D1 first fires at 8, 11 and 8; without an explosion never, 3 of 3."""
    runs = [run("dfa", seed, lines={D1: climbing(epoch)}) for seed, epoch in zip(SEEDS, (8, 11, 8), strict=True)]
    cells = summary_of(*runs, *(run("bp", seed, lines={D1: climbing(99)}) for seed in SEEDS))
    assert values(cells, "fired", "never", "unknown") == [3.0, 0.0, 0.0]
    assert values(cells, "earliest", "median", "latest") == [8.0, 8.0, 11.0]
    assert cells["epochs"].text == "8, 11, 8"  # in the order of SEEDS, which are the run's own order too
    bp = row(
        analysed("first-fire", [*runs, *(run("bp", s, lines={D1: climbing(99)}) for s in SEEDS)]).tables[0], method="bp"
    )
    assert bp["epochs"].text == "never, 3 of 3" and bp["median"].text == "never"
    assert "never fires" in values(bp, "median")[0]


def test_initialisation_is_epoch_zero():
    assert values(summary_of(run("dfa", lines={D1: climbing(0)})), "earliest", "latest") == [0.0, 0.0]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ((3, 9), [3.0, 6.0, 9.0]),
        ((3, 99), [3.0, "the rule never fires in 12 epochs", "the rule never fires in 12 epochs"]),
        ((99, 5, 3), [3.0, 5.0, "the rule never fires in 12 epochs"]),
        ((99, 99, 3), [3.0, "the rule never fires in 12 epochs", "the rule never fires in 12 epochs"]),
        ((4,), [4.0, 4.0, 4.0]),
    ],
)
def test_a_run_that_never_fires_is_later_than_all(epochs, expected):
    """A median over the runs that fire alone would come out earlier the fewer of them do."""
    runs = [run("dfa", seed, lines={D1: climbing(epoch)}) for seed, epoch in enumerate(epochs)]
    assert values(summary_of(*runs), "earliest", "median", "latest") == expected


def test_what_was_not_followed_is_unknown_and_not_never():
    runs = [run("dfa", 1, lines={D1: climbing(99)}), run("dfa", 2)]
    cells = summary_of(*runs)
    assert values(cells, "fired", "never", "unknown") == [0.0, 1.0, 1.0]
    assert all(isinstance(one, str) and "growth" in one for one in values(cells, "earliest", "median"))
    assert cells["epochs"].text == "never, N/A"


def test_an_epoch_without_a_number_leaves_never_open():
    gap = run("dfa", 1, lines={D1: (2.0, "not measured in this epoch", 2.0)})
    cells = summary_of(gap, run("dfa", 2, lines={D1: (2.0, 99.0)}))
    assert "1 of 3 epochs" in values(cells, "earliest")[0]
    assert cells["epochs"].text == "N/A, 1"


def test_a_fire_after_an_open_epoch_is_an_upper_bound():
    late = run("dfa", lines={D1: (2.0, "not measured in this epoch", 99.0, "lost")})
    assert summary_of(late)["epochs"].text == "≤2"
    sure = run("dfa", lines={D1: (2.0, 99.0, "lost")})
    assert summary_of(sure)["epochs"].text == "1"


def test_an_explosion_fires():
    assert values(summary_of(run("dfa", lines={D1: (2.0, 3.0, math.inf)})), "earliest") == [2.0]


def test_all_conditions_of_a_compound_rule_must_hold_in_one_epoch():
    lines = {"g_norm_mean_ce_L": (1.0, 1e-8, 1e-8), "gain_L": (0.7, 0.7, 1e-5), "fidelity_L": (1.0, 1.0, 1.0)}
    cells = summary_of(run("dfa", lines=lines), rule="D2", edition=OURS)
    assert values(cells, "earliest") == [2.0]
    without_gain = {name: line for name, line in lines.items() if name != "gain_L"}
    both = [run("dfa", 1, lines=lines), run("dfa", 2, lines=without_gain)]
    reason = values(summary_of(*both, rule="D2", edition=OURS), "earliest")[0]
    assert "2 of 3 epochs" in reason and symbol_of("gain") in reason


def test_rules_that_no_run_can_answer_are_remarks_with_their_reason():
    analysis = analysed("first-fire", controlled(run("dfa", lines={D1: climbing(3)})), "2026-12")
    assert {cells["rule"].text for cells in analysis.rows} == {"D1"}
    found = {remark.split("rule ")[1][:2]: remark for remark in analysis.remarks if "rule " in remark}
    assert "g_norm_mean_ce" in found["D2"]
    assert "over seeds" in found["D3"] and "newly drawn feedback" in found["D4"]
    analysis = analysed("first-fire", controlled(run("dfa", lines={D1: climbing(3)})))
    assert any("rule D3" in remark and "frozen control" in remark for remark in analysis.remarks)


def test_every_run_is_listed_with_the_epochs_it_was_followed():
    table = analysed("first-fire", [run("dfa", lines={D1: climbing(3), D2: (1e-3,) * 13})]).table("runs")
    assert values(row(table, rule="D1"), "epoch", "trained", "seed") == [3.0, 12.0, 42.0]
    never = row(table, rule="D2")["epoch"]
    assert (never.text, never.reading.value, never.run_ids) == ("never", None, ("dfa-42",))
