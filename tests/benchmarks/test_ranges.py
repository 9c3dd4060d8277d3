"""Healthy and failing ranges, known by hand."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from benchmarks.fair_loop import VARIANTS
from benchmarks.limit import SQUARE, Limit, Shape, limit_of, products
from benchmarks.overheads import Overhead, overhead_lines
from benchmarks.ranges import RANGES, draw, main, numbers
from benchmarks.step_time import COMPARED, FAIR, ShapeTimes, StepTimes, measure_steps, step_lines
from benchmarks.timing import Spread, interleaved, ratios
from benchmarks.tracking_cost import TrackingCost
from fa_registry import jsonio
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Waiver
from fa_registry.reporting.figures.analyses import figure_of
from tests.analyses.builders import OURS, SEEDS, controlled, report_of, row, run, values

NO_FAILING = "no failing run"


def analysed(records, edition="2026-05", **changes):
    rules = load_edition(edition) if isinstance(edition, str) else edition
    return RANGES.run(report_of(records, rules, **changes), rules)


def cells_of(quantity, *runs, edition="2026-05", **changes):
    return row(analysed(controlled(*runs), edition, **changes).tables[0], quantity=quantity)


def state(*runs, edition="2026-05", method="dfa", **changes):
    table = analysed(controlled(*runs), edition, **changes).table("methods")
    return row(table, quantity="growth", method=method)["state"].text


def test_ends_threshold_and_gap_by_hand():
    runs = (run("bp", growth=2.0), run("ep", growth=11.0), run("dfa", growth=1900.0), run("fa", growth=110.0))
    cells = cells_of("growth", *runs)
    assert values(cells, "healthy_low", "healthy_high", "failing_low", "failing_high") == [2.0, 11.0, 110.0, 1900.0]
    assert values(cells, "threshold", "gap") == [50.0, 10.0] and cells["rule"].text == "D1"
    assert cells["healthy_high"].run_ids == ("ep-42",) and cells["gap"].run_ids == ("fa-42", "ep-42")


def test_where_small_is_bad_the_gap_is_healthy_over_failing():
    runs = (
        run("bp", gain=0.5),
        run("sb", gain=0.2),
        run("dfa", growth=99.0, gain=1e-4),
        run("fa", growth=99.0, gain=1e-5),
    )
    cells = cells_of("gain", *runs, edition=OURS)
    assert values(cells, "gap", "threshold") == pytest.approx([2000.0, 1e-4])
    assert values(cells_of("gain", *runs), "threshold") == ["no rule of edition 2026-05 looks at it"]


def test_the_gap_of_fidelity_is_one_of_distances_from_1():
    runs = (run("bp", fidelity=0.999), run("dfa", growth=99.0, fidelity=0.9))
    assert values(cells_of("fidelity", *runs), "gap") == pytest.approx([100.0])
    assert values(cells_of("fidelity", run("bp"), runs[1]), "gap") == ["no ratio to 0"]


def test_an_overlap_is_a_gap_below_one():
    """bp fitted to the end has a smaller reference than the smallest failing one: the published floor is on trial."""
    cells = cells_of("g_norm_mean_ce", run("bp", g=1e-8), run("dfa", growth=99.0, g=1e-7))
    assert values(cells, "healthy_low", "failing_high", "gap") == pytest.approx([1e-8, 1e-7, 0.1])


def test_bp_is_healthy_whatever_fires_unless_it_diverged():
    assert state(run("bp", growth=99.0), method="bp") == "healthy"
    assert state(run("bp", status="diverged"), method="bp") == "failing"


@pytest.mark.parametrize(
    ("figures", "edition", "expected"),
    [
        ({}, "2026-05", "healthy"),
        ({"accuracy": 0.1}, "2026-05", "healthy"),  # D3 does not look at scale
        ({"growth": 99.0}, "2026-05", "failing"),
        ({"g": 1e-9}, "2026-05", "failing"),
        ({"g": 1e-9}, OURS, "healthy"),  # converged: the gain is healthy
        ({"g": 1e-9, "gain": 1e-6}, OURS, "failing"),
        ({"fidelity": 0.5}, OURS, "unknown"),  # noisy: neither clear nor firing
        ({"growth": "lost"}, "2026-05", "unknown"),
        ({"growth": "lost", "g": 1e-9}, "2026-05", "failing"),
        ({"status": "diverged"}, "2026-05", "failing"),
    ],
)
def test_what_is_healthy(figures, edition, expected):
    assert state(run("dfa", **figures), edition=edition) == expected


def test_a_waived_finding_still_fires():
    waiver = Waiver("D1", "known", "me", "2026-01-01", "2099-01-01", method="dfa")
    assert state(run("dfa", growth=99.0), waivers=(waiver,)) == "failing"


def test_one_failing_seed_makes_its_method_failing_with_all_its_values():
    runs = [run("dfa", seed, growth=growth) for seed, growth in zip(SEEDS, (99.0, 3.0, 4.0), strict=True)]
    cells = cells_of("growth", *runs)
    assert values(cells, "failing_low", "failing_high", "healthy_low") == [3.0, 99.0, "no healthy run"]


def test_a_value_that_is_not_finite_is_counted_and_in_no_range():
    cells = cells_of("growth", run("bp"), run("dfa", growth=math.inf), run("fa", growth=99.0))
    assert values(cells, "not_finite", "failing_high") == [1.0, 99.0] and cells["not_finite"].run_ids == ("dfa-42",)


def test_a_method_of_unknown_health_is_in_no_range_but_in_the_list():
    analysis = analysed(controlled(run("bp"), run("dfa", growth="lost", gain=1e-9)), "2026-05")
    assert values(row(analysis.tables[0], quantity="gain"), "healthy_low", "failing_low") == [0.7, NO_FAILING]
    listed = row(analysis.table("methods"), quantity="gain", method="dfa")
    assert values(listed, "low", "high") == [1e-9, 1e-9] and listed["state"].text == "unknown"
    assert listed["verdict"].text == "INCOMPLETE"
    assert any("1 healthy, 0 failing, 1 unknown" in remark for remark in analysis.remarks)


SCENES = {
    "nothing": [],
    "not finite": [run("dfa", growth=math.inf, g=0.0)],
    "the whole range": [run("dfa", 1, growth=1e-300), run("fa", 1, growth=1e300)],
    "foreign names": [run("$\\frac{$\u202e<b>" + "x" * 90)],
    "many": [run(f"m{index}", growth=1.0 + index) for index in range(70)],
}


@pytest.mark.parametrize("scene", SCENES)
def test_the_figure_is_drawn_from_its_dataframe_the_same_every_time(scene):
    frame = numbers(analysed(controlled(*SCENES[scene])), ())
    image = figure_of(draw, frame)
    assert image.startswith(b"<svg ") and image == figure_of(draw, frame)


def test_the_dataframe_has_fidelity_by_its_distance_from_1_and_another_number_is_another_picture():
    frame = numbers(analysed(controlled(run("bp", 1, fidelity=0.9), run("bp", 2, fidelity=0.8)), OURS), ())
    ends = frame[frame["quantity"] == "fidelity"].iloc[0]
    assert (ends["low"], ends["high"], ends["threshold"]) == pytest.approx((0.1, 0.2, 0.01))
    assert figure_of(draw, frame.assign(high=frame["high"] * 1.7)) != figure_of(draw, frame)


def test_the_command_prints_the_tables_of_an_audit_and_draws(tmp_path, capsys):
    report = report_of(controlled(run("bp", growth=2.0), run("fa", growth=110.0)), OURS)
    (tmp_path / "audit.json").write_text(jsonio.pretty(report), encoding="utf-8")
    main([str(tmp_path / "audit.json"), "--figure", str(tmp_path / "ranges.png")])
    printed = capsys.readouterr().out
    assert "| growth | largest growth of a block | ratio | 2 | 2 | 110 | 110 | 0 | D1 | 50 | 55 |" in printed
    assert "1 healthy, 1 failing, 0 unknown" in printed
    assert (tmp_path / "ranges.png").read_bytes().startswith(b"\x89PNG")


SHAPE = Shape(batch=128, inputs=3072, width=256, blocks=4, classes=10, parameters=1_318_000)


def test_ratios_are_taken_round_by_round():
    assert ratios([1.0, 20.0, 3.0], [2.0, 10.0, 12.0]) == Spread(median=0.5, low=0.25, high=2.0)


def test_every_candidate_runs_once_untimed_and_then_in_every_round():
    calls = {"a": 0, "b": 0}

    def count(name: str) -> None:
        calls[name] += 1

    seconds = interleaved({name: lambda name=name: count(name) for name in calls}, rounds=3, calls=2)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}
    assert calls == {"a": 7, "b": 7}


def test_a_step_multiplies_as_often_as_counted_by_hand():
    embed, block, head, credit = 2 * 128 * 3072 * 256, 2 * 128 * 256 * 256, 2 * 128 * 256 * 10, 2 * 128 * 10 * 256
    by_hand = 2 * embed + 4 * 6 * block + 3 * head + 4 * credit
    assert sum(2 * rows * inner * columns * times for rows, inner, columns, times in products(SHAPE)) == by_hand


def test_the_limit_is_products_and_optimizer_traffic():
    flop = sum(2 * rows * inner * columns * times for rows, inner, columns, times in products(SHAPE))
    square = 0.003 * 2 * SQUARE**3 / flop  # seconds of the large product, at a rate at which the step's would take 3 ms
    seconds = {"gemm": [0.010] * 3, "square": [square] * 3, "copy": [0.008] * 3, "dfa": [0.034] * 3}
    limit = limit_of(SHAPE, seconds, "dfa")
    assert limit.floor == pytest.approx(0.010 + 0.008 * 7 / 8)
    assert limit.share.median == pytest.approx(0.5)
    assert limit.gemm_rate == pytest.approx(flop / 0.010) and limit.square_rate == pytest.approx(flop / 0.003)
    assert limit.square_floor == pytest.approx(0.003 + 0.008 * 7 / 8)
    assert limit.square_share.median == pytest.approx(10 / 34)
    assert Limit.of(json.loads(json.dumps(dataclasses.asdict(limit)))) == limit
    assert [share for *_, share in limit.by_rate()] == [limit.share, limit.square_share]


def test_measuring_steps_runs_and_prints_every_ratio():
    times = measure_steps(rounds=1, calls=1)
    text = "\n".join(step_lines(times))
    assert all(f"{above} / {below}" in text for above, below in COMPARED)
    assert text.count("target ≤ 0.9: ") == 2 and text.count("of which dfa reaches") == text.count("target ≥ 70%: ") == 2
    assert StepTimes.of(json.loads(json.dumps(dataclasses.asdict(times)))) == times


def test_the_baseline_is_the_fastest_fair_loop():
    slow, fast = [0.012, 0.010], [0.008, 0.005]
    seconds = dict.fromkeys(VARIANTS, slow) | {"fair loop, foreach AdamW": fast}
    times = ShapeTimes.of_rounds(seconds | {"dfa": [0.004, 0.004], "published": slow, "bp": slow, "fa": slow})
    assert times.fair == "fair loop, foreach AdamW" and FAIR not in times.milliseconds
    assert times.ratio["dfa / fair loop"].median == pytest.approx((0.004 / 0.008 + 0.004 / 0.005) / 2)
    assert next(iter(times.ratio)) == "dfa / fair loop" and "dfa, bf16 / dfa" not in times.ratio


def test_a_missed_target_is_reported():
    cost = TrackingCost(points=30, seconds_per_epoch=0.001, seconds_per_run=0.1)
    found = Overhead("digits", 12, 12, 0.1, 0.03, 0.01, 0.0, 0.01, 0.01, cost)
    text = "\n".join(overhead_lines(found))
    assert "target measuring ≤ 8%: MISSED (30.0%)" in text
    assert "target tracking ≤ 3%: met (2.0%)" in text
    assert "scaled" not in text


def test_a_scaled_epoch_says_so():
    cost = TrackingCost(points=30, seconds_per_epoch=0.001, seconds_per_run=0.1)
    found = Overhead("cifar-shaped", 391, 24, 6.0, 0.1, 0.0, 0.0, 0.0, 0.1, cost)
    assert "(24 timed, scaled to 391)" in overhead_lines(found)[0]
