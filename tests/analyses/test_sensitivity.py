"""The range of a threshold: known by hand, and by judging again with thresholds inside and outside of it."""

from __future__ import annotations

import math
import random

import pytest

from fa_registry.analyses import sensitivity as asking
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Waiver
from fa_registry.statistics import wilson_interval
from tests.analyses.builders import OURS, SEEDS, analysed, controlled, row, run, values

FAR = 1e12


def limits_of(records, edition="2026-05", **changes):
    return {cells["rule"].text: cells for cells in analysed("sensitivity", records, edition, **changes).rows}


def verdicts(records, edition, overrides=None):
    return {audit.record.run_id: audit.verdict for audit in judge_all(records, load_edition(edition, overrides))}


def changes(cell):
    """The two verdicts of a cell that names runs and their change."""
    return cell.text.partition(": ")[2]


def test_the_published_range_of_d1_by_hand():
    """The largest healthy growth is 12, the smallest flagged one 693: the published range 12…693."""
    runs = controlled(run("bp", growth=4.0), run("ep", growth=12.0), run("fa", growth=693.0), run("dfa", growth=1.9e3))
    d1 = limits_of(runs)["D1"]
    assert values(d1, "threshold", "low", "high") == [50.0, 12.0, 693.0]
    assert (d1["low"].run_ids, d1["high"].run_ids) == (("ep-42",), ("fa-42",))
    # fires above: a limit of 12 still spares 12, a limit of 693 spares 693 too, and so changes its verdict
    assert d1["same"].text == "from 12 and below 693"
    assert changes(d1["below"]) == "PASS → WARN(D1)" and changes(d1["above"]) == "WARN(D1) → PASS"


def test_the_range_in_words_is_rounded_inwards_and_not_past_the_threshold():
    """Each number in the text must be one that gives the same verdicts."""
    d1 = limits_of(controlled(run("bp", growth=12.341), run("fa", growth=692.6)))["D1"]
    assert d1["same"].text == "from 12.4 and below 692"
    d1 = limits_of(controlled(run("bp", growth=49.96), run("fa", growth=50.04)))["D1"]
    assert d1["same"].text == "from 50 and up to 50"


def test_a_floor_has_its_open_end_below():
    runs = controlled(run("bp", g=3e-4), run("dfa", g=4.2e-9, growth=99.0))
    d2 = limits_of(runs)["D2"]
    assert values(d2, "low", "high") == [4.2e-9, 3e-4]
    assert d2["same"].text == "above 4.2e-09 and up to 0.0003"
    assert changes(d2["below"]) == "FAIL(D1+D2) → WARN(D1)"


def test_the_outcome_alone_has_a_wider_range_than_the_label():
    """D3 fails dfa regardless of D1, so that D1's limit moves its flag and not its outcome."""
    runs = controlled(run("bp", growth=4.0), run("dfa", growth=700.0, accuracy=0.3))
    d1 = limits_of(runs)["D1"]
    assert values(d1, "low", "high", "outcome_low") == [4.0, 700.0, 4.0]
    assert "no upper limit" in values(d1, "outcome_high")[0]


def test_a_margin_is_compared_in_the_rounding_of_the_rule():
    """.82 − .80 is 1.9999999999999996 in binary; the rule says 2.0 and does not fire at 2.0."""
    d3 = limits_of(controlled(run("bp", accuracy=0.82), accuracy=0.80))["D3"]
    assert values(d3, "high") == [2.0] and d3["same"].text == "up to 2"
    assert changes(d3["above"]) == "PASS → FAIL(D3)"


def test_a_value_that_is_not_finite_or_missing_bounds_nothing():
    runs = controlled(run("dfa", growth=math.inf), run("fa", growth="lost"))
    d1 = limits_of(runs)["D1"]
    low, high = values(d1, "low", "high")
    assert "no lower limit" in low and "no run" in low and "no upper limit" in high and "no run" in high
    assert d1["same"].text == "any" and d1["below"].text == "nothing"


def test_runs_of_the_same_value_bound_together_and_are_named_by_method():
    runs = controlled(*(run("fa", seed, growth=80.0) for seed in SEEDS))
    d1 = limits_of(runs)["D1"]
    assert set(d1["high"].run_ids) == {"fa-42", "fa-123", "fa-456"}
    assert changes(d1["above"]) == "WARN(D1) → PASS"


def test_each_condition_of_a_compound_rule_has_its_own_range():
    """D2 of 2026-12 fires on dfa alone: fa has a small reference and a healthy gain (CONVERGED)."""
    noisy_batch = {"fidelity_batch": [0.5] * 3}
    dfa = [run("dfa", seed, g=1e-8, gain=1e-5, growth=99.0, sites=noisy_batch) for seed in SEEDS]
    fa = [run("fa", seed, g=5e-8, gain=1e-2, sites=noisy_batch) for seed in SEEDS]
    rows = limits_of(controlled(*dfa, *fa), OURS)
    assert values(rows["D2.g_norm_mean_ce"], "low", "threshold") == [1e-8, 1e-7]
    assert values(rows["D2.g_norm_mean_ce"], "high")[0].startswith("no upper limit")
    assert values(rows["D2.gain"], "low", "threshold", "high") == [1e-5, 1e-4, 1e-2]
    assert changes(rows["D2.gain"]["above"]).startswith("PASS → WARN(D2)")
    assert values(rows["D2.fidelity"], "high") == [1.0]
    assert "noisy" in rows["D2.fidelity"]["above"].text


def test_a_rule_over_seeds_is_bounded_by_its_interval():
    """Margins of 19, 20 and 21 pp: mean 20, 95 % interval 20 ± 4.3027/√3 with the error of two shares of 10,000 samples."""
    runs = controlled(*(run("bp", seed, accuracy=0.69 + 0.01 * place) for place, seed in enumerate(SEEDS)))
    d3 = limits_of(runs, OURS)["D3"]
    wilson = [wilson_interval(share, 10_000) for share in (0.70, 0.50)]
    halves = [4.302652729911275 / math.sqrt(3), *(50 * (item.high - item.low) for item in wilson)]
    assert values(d3, "high") == pytest.approx([20 - math.hypot(*halves)])
    assert set(d3["high"].run_ids) == {"bp-42", "bp-123", "bp-456"}
    assert changes(d3["above"]) == "PASS → WARN(D3 undecided, above)"


def test_a_rule_that_does_not_gate_has_no_limit():
    rows = limits_of(controlled(run("dfa", stability_mid=0.9)), OURS)
    low, high = values(rows["S.stability_mid"], "low", "high")
    assert "no lower limit" in low and "this rule" in low and "no upper limit" in high and "this rule" in high


def test_a_waived_finding_changes_the_verdict_where_it_stops_firing():
    waiver = Waiver("D1", "known", "me", "2026-01-01", "2099-01-01", method="fa")
    d1 = limits_of(controlled(run("fa", growth=80.0)), waivers=(waiver,))["D1"]
    assert changes(d1["above"]) == "WARN(D1 waived) → PASS"


def test_a_waiver_also_holds_where_the_threshold_makes_the_rule_fire():
    """Waived, D3 warns however high its threshold is: bp warns of D1 already, and its outcome never changes."""
    waiver = Waiver("D3", "known", "me", "2026-01-01", "2099-01-01", method="bp")
    d3 = limits_of(controlled(run("bp", growth=80.0, accuracy=0.9)), waivers=(waiver,))["D3"]
    assert values(d3, "high") == [40.0] and changes(d3["above"]).startswith("WARN(D1) → WARN(D1;")
    assert "no upper limit" in values(d3, "outcome_high")[0]


def test_the_observed_values_are_listed_with_their_runs():
    analysis = analysed("sensitivity", controlled(run("fa", growth=80.0), run("bp", growth="lost")))
    table = analysis.table("observed")
    assert values(row(table, rule="D1", method="fa"), "value") == [80.0]
    assert values(row(table, rule="D1", method="bp"), "value") == ["lost"]
    assert table.detail


def invented(seed):
    """Runs of five methods whose metrics are on both sides of every threshold, some of them equal, lost or infinite."""
    draw = random.Random(seed)

    def figure(low, high):
        return draw.choice([10 ** draw.uniform(low, high)] * 6 + ["lost", math.inf, 10.0**high])

    runs = []
    for method in ("bp", "fa", "dfa", "ep", "sb"):
        base = draw.uniform(0.3, 0.7)
        for each in SEEDS[: draw.randint(1, 3)]:
            runs.append(
                run(
                    method,
                    each,
                    draw.choice(["complete"] * 5 + ["diverged"]),
                    growth=figure(0.0, 3.0),
                    g=figure(-9.0, -5.0),
                    gain=figure(-6.0, 0.0),
                    fidelity=draw.choice([1.0, 0.999, 0.98, 0.5]),
                    accuracy=base + draw.uniform(-0.05, 0.05),
                    stability_mid=draw.choice([0.1, 0.5, "lost"]),
                )
            )
    return controlled(*runs)


@pytest.mark.parametrize("edition", ["2026-04", "2026-04:first-release", "2026-05", "2026-05:strict", "2026-12"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (1, 2, 3))])
def test_judging_again_inside_and_just_outside_proves_every_range(edition, seed):
    records = invented(seed)
    before = verdicts(records, edition)

    def changed(name, threshold, part):
        after = verdicts(records, edition, {name: threshold})
        return {run_id for run_id in before if getattr(after[run_id], part) != getattr(before[run_id], part)}

    for name, cells in limits_of(records, edition).items():
        for low, high, part in (("low", "high", "label"), ("outcome_low", "outcome_high", "outcome")):
            ends = []
            for end, side in ((low, -1), (high, 1)):
                cell, value = cells[end], cells[end].reading.value
                if value is None:
                    ends.append(side * FAR)
                    continue
                # at the end itself or, where it still belongs to the range, at the next double beyond it
                moved = changed(name, value, part) or changed(name, math.nextafter(value, side * math.inf), part)
                assert moved == set(cell.run_ids) != set(), f"seed {seed}: {name} {end} {value}"
                ends.append(math.nextafter(value, -side * math.inf))
            for threshold in (*ends, *(ends[0] + share * (ends[1] - ends[0]) for share in (0.001, 0.5, 0.9))):
                assert not changed(name, threshold, part), f"seed {seed}: {name} {threshold}"


def test_runs_beyond_the_nearest_edge_are_not_judged_again(monkeypatch):
    """Regardless of theirs, a nearer one is known; runs at the very same value count all."""
    far = [run("fa", seed, growth=700.0 + seed) for seed in range(3, 9)]
    near = [run("dfa", seed, growth=600.0) for seed in (1, 2)]
    asked = []

    edge = asking.edge

    def noted(unit, *rest):
        asked.extend(run.record.run_id for run in unit.runs if unit.limit.name == "D1")
        return edge(unit, *rest)

    monkeypatch.setattr(asking, "edge", noted)
    d1 = limits_of(controlled(*far, *near, run("bp", 1, growth=4.0), run("ep", 2, growth=3.0)))["D1"]
    assert d1["high"].run_ids == ("dfa-1", "dfa-2") and d1["low"].run_ids == ("bp-1",)
    assert {"dfa-1", "dfa-2", "bp-1"} <= set(asked) and not {one for one in asked if one.startswith("fa-")}
