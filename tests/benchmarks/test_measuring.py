"""What benchmarks compute from times: ratios, limits and slopes, and that every part runs in small."""

from __future__ import annotations

import dataclasses
import json
import math
import os

import pytest

from benchmarks import step_time, store_scale
from benchmarks.calibration import class_of
from benchmarks.end_to_end import COMPARED, CORES, JOBS, ONE, PUBLISHED, THREADED, EndToEnd
from benchmarks.fair_loop import VARIANTS
from benchmarks.limit import SQUARE, Limit, Shape, limit_of, products
from benchmarks.overheads import Overhead
from benchmarks.products import Limit as StepLimit
from benchmarks.step_time import COMPARED as STEPS
from benchmarks.step_time import FAIR, ShapeTimes, StepTimes, measure_steps
from benchmarks.store_scale import AUDIT, slope
from benchmarks.timing import Spread, interleaved, on_cores, ratios
from benchmarks.tracking_cost import TrackingCost
from benchmarks.verb_cost import Cost, Costs
from tests.helpers.tiny_tasks import tiny_task

SHAPE = Shape(batch=128, inputs=3072, width=256, blocks=4, classes=10, parameters=1_318_000)
ALONE, THREADS = PUBLISHED[1], PUBLISHED[CORES]
CLOCK = {ALONE: [24.0] * 3, THREADS: [36.0] * 3, JOBS: [8.0] * 3, ONE: [6.0] * 3, THREADED: [5.0] * 3}


def read_back(found):
    """The value after it was written as JSON and read."""
    return type(found).of(json.loads(json.dumps(dataclasses.asdict(found))))


def test_ratios_are_taken_round_by_round():
    assert ratios([1.0, 20.0, 3.0], [2.0, 10.0, 12.0]) == Spread(median=0.5, low=0.25, high=2.0)


def test_every_candidate_runs_once_untimed_and_then_in_every_round():
    calls = {"a": 0, "b": 0}

    def count(name: str) -> None:
        calls[name] += 1

    seconds = interleaved({name: lambda name=name: count(name) for name in calls}, rounds=3, calls=2)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}
    assert calls == {"a": 7, "b": 7}


def test_only_the_given_number_of_cores_is_used():
    before = os.sched_getaffinity(0)
    with on_cores(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


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
    assert read_back(limit) == limit and isinstance(limit, Limit)


@pytest.mark.long
def test_measuring_steps_gives_every_ratio():
    times = measure_steps(rounds=1, calls=1)
    assert set(times.shapes[step_time.CIFAR].ratio) == {f"{above} / {below}" for above, below in STEPS}
    assert read_back(times) == times and isinstance(times, StepTimes)


def test_the_baseline_is_the_fastest_fair_loop():
    slow, fast = [0.012, 0.010], [0.008, 0.005]
    seconds = dict.fromkeys(VARIANTS, slow) | {"fair loop, foreach AdamW": fast}
    times = ShapeTimes.of_rounds(seconds | {"dfa": [0.004, 0.004], "published": slow, "bp": slow, "fa": slow})
    assert times.fair == "fair loop, foreach AdamW" and FAIR not in times.milliseconds
    assert times.ratio["dfa / fair loop"].median == pytest.approx((0.004 / 0.008 + 0.004 / 0.005) / 2)
    assert next(iter(times.ratio)) == "dfa / fair loop" and "dfa, bf16 / dfa" not in times.ratio


def test_shares_of_an_epoch_are_of_its_training():
    cost = TrackingCost(points=30, seconds_per_epoch=0.001, seconds_per_run=0.1)
    found = Overhead("digits", 12, 12, 0.1, 0.03, 0.01, 0.0, 0.01, 0.01, cost)
    shares = (found.measuring_share, found.diagnostics_share, found.tracking_share)
    assert shares == pytest.approx((0.3, 0.2, 0.02))  # 100 epochs share the opening and closing of a run


def test_the_flop_of_a_dfa_step_are_counted_product_by_product():
    """Digits, D = 16, L = 2, batch 128; torch's counter knows the products of torch's own layers alone, so in float64."""
    task = tiny_task()
    task.network.double()
    task.feedback.double()
    images = task.splits.train_images.double()
    task = dataclasses.replace(task, splits=dataclasses.replace(task.splits, train_images=images))
    inputs, width, classes, batch = math.prod(task.card.image_shape), 16, 10, 128
    counted = 2 * inputs * width + 2 * (6 * width * width) + 3 * width * classes + 3 * width * classes
    assert StepLimit.of(task).flop == 2 * batch * counted


def test_two_runs_side_by_side_are_counted_by_the_run_and_the_published_time_stands_above():
    found = EndToEnd.timed(CLOCK)
    assert found.seconds == {ALONE: 24.0, THREADS: 36.0, JOBS: 8.0 / CORES, ONE: 6.0, THREADED: 5.0}
    assert [round(one.median, 2) for one in found.ratio.values()] == [9.0, 6.0, 4.8, 4.0, 1.5, 1.2]
    assert read_back(found) == found and list(found.ratio) == list(COMPARED)


def costs_of(runs: int, cpu: float, wall: float = 1.0, peak: float = 100.0) -> Costs:
    return Costs(runs, dict.fromkeys(store_scale.VERBS, Cost(cpu, wall, peak)))


def test_a_further_run_costs_the_slope_from_the_smallest_to_the_largest_store():
    found = [costs_of(100, 10.0), costs_of(300, 10.0), costs_of(1100, 60.0)]
    assert slope(found, AUDIT) == pytest.approx(0.05) and slope(found[:1], AUDIT) is None
    assert read_back(found[0]) == found[0]


def test_a_run_is_classed_by_what_it_is_not_by_what_it_showed():
    stream = {"residual": True, "terminal_ln": True}
    assert class_of("bp", 0.1, {"residual": False, "terminal_ln": True}) == "healthy"
    assert class_of("dfa", 0.0, stream) == "exploding"
    assert class_of("dfa", 0.01, stream) == class_of("fa", 0.0, {**stream, "residual": False}) == ""
