"""The limit of a step is its counted work at the rates that were measured beside it."""

from __future__ import annotations

import torch

from benchmarks import card
from benchmarks.card import REPEATS, Card, card_lines, measure_card, shape_of
from benchmarks.limit import Shape
from fa_registry.training.trainer import Trainer
from tests.helpers.small import tiny_task

CPU = torch.device("cpu")
FLOP = 2 * 128 * (2 * 144 * 16 + 2 * 6 * 16 * 16 + 2 * 16 * 10 + 3 * 16 * 10)  # digits, D = 16, L = 2


def test_the_floor_is_the_counted_work_at_the_measured_rates(monkeypatch):
    """One multiplication a second, two seconds a byte that is copied; the rounds' steps take twice and four times their floor."""
    trainer, side = Trainer(tiny_task()), 4
    moved = 7 * 4 * sum(one.numel() for one in trainer.task.network.parameters())
    floor = FLOP + moved * 2
    seconds = {
        "fp32": [REPEATS * 2 * side**3] * 2,
        "tf32": [REPEATS * 2 * side**3 / 8] * 2,
        "copy": [2 * REPEATS * 2 * 4 * side**2] * 2,
        "step": [3 * 2 * floor, 3 * 4 * floor],
    }
    monkeypatch.setattr(card, "in_rounds", lambda works, rounds, device: {name: seconds[name] for name in works})
    found = measure_card(trainer, 3, 2, side)
    assert (found.fp32, found.tf32, found.bandwidth) == (1, 8, 0.5)
    assert (found.flop, found.moved, found.floor) == (FLOP, moved, floor)
    assert (found.share.low, found.share.high) == (0.25, 0.5)


def test_everything_is_measured_in_small():
    found = measure_card(Trainer(tiny_task()), 1, 1, side=32)
    assert found.fp32 > 0 and found.tf32 > 0 and found.bandwidth > 0 and found.share.low > 0
    assert "32 × 32" in card_lines(found)[0] and len(card_lines(found)) == 5


def test_the_table_is_in_words_of_a_card():
    spread = {"median": 0.3, "low": 0.2, "high": 0.4}
    rates = {"side": 8192, "fp32": 5e13, "tf32": 4e14, "bandwidth": 4e12}
    lines = card_lines(Card.of({**rates, "flop": 8e8, "moved": 4e7, "floor": 2.6e-5, "share": spread}))
    assert "50.00 TFLOP/s" in lines[1] and "400.00 TFLOP/s" in lines[2] and "4.00 TB/s" in lines[3]
    assert "26.0 µs = 0.80 GFLOP in fp32 + 40 MB; reached 30% (20% to 40%)" in lines[4]


def test_the_shape_is_read_off_the_task():
    task = tiny_task()
    parameters = sum(one.numel() for one in task.network.parameters())
    assert shape_of(task) == Shape(128, 144, 16, 2, 10, parameters)


def test_each_product_is_in_its_own_precision(monkeypatch):
    heard = []
    monkeypatch.setattr(torch, "mm", lambda *given, out: heard.append(torch.backends.cuda.matmul.fp32_precision))
    works = card._at_best(4, CPU)
    works["fp32"](), works["tf32"]()
    assert heard == REPEATS * ["ieee"] + REPEATS * ["tf32"]
