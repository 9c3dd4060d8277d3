"""What the benchmarks print is what they measured; that they run at all."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmarks.limit import SQUARE, Limit, Shape, limit_of, products
from benchmarks.overheads import Overhead, overhead_lines
from benchmarks.step_time import COMPARED, measure_steps, step_lines
from benchmarks.timing import Spread, interleaved, ratios
from benchmarks.tracking_cost import TrackingCost

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
    text = "\n".join(step_lines(measure_steps(rounds=1, calls=1)))
    assert all(f"{above} / {below}" in text for above, below in COMPARED)
    assert "target dfa / published" in text and text.count("of which dfa reaches") == text.count("target ≥ 70%: ") == 2


def test_a_missed_target_is_said():
    cost = TrackingCost(points=30, seconds_per_epoch=0.001, seconds_per_run=0.1)
    found = Overhead("digits", 12, 12, 0.1, 0.03, 0.01, 0.0, 0.01, 0.01, cost)
    text = "\n".join(overhead_lines(found))
    assert "target measuring ≤ 2%: MISSED (30.0%)" in text
    assert "target tracking ≤ 3%: met (2.0%)" in text
    assert "scaled" not in text


def test_a_scaled_epoch_says_so():
    cost = TrackingCost(points=30, seconds_per_epoch=0.001, seconds_per_run=0.1)
    found = Overhead("cifar-shaped", 391, 24, 6.0, 0.1, 0.0, 0.0, 0.0, 0.1, cost)
    assert "(24 timed, scaled to 391)" in overhead_lines(found)[0]
