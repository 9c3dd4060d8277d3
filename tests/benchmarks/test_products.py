"""The limit of a step is its own products: all of them, and nothing else."""

from __future__ import annotations

import dataclasses
import math

import torch

from benchmarks.products import Limit, StepProducts
from tests.helpers.small import tiny_task


def test_products_are_kept_and_everything_else_is_not():
    left, right = torch.ones(3, 4), torch.ones(4, 5)
    with StepProducts() as seen:
        (left @ right).relu().sum()
    seen.again()
    assert [call[0].overloadpacket.__name__ for call in seen.calls] == ["mm"]


def test_the_flop_of_a_dfa_step_are_counted_product_by_product():
    """Digits, D = 16, L = 2, batch 128; torch's counter knows the products of torch's own layers alone, so in float64."""
    task = tiny_task()
    task.network.double()
    task.feedback.double()
    task = dataclasses.replace(
        task, splits=dataclasses.replace(task.splits, train_images=task.splits.train_images.double())
    )
    inputs, width, classes, batch = math.prod(task.card.image_shape), 16, 10, 128
    products = 2 * inputs * width + 2 * (6 * width * width) + 3 * width * classes + 3 * width * classes
    assert Limit.of(task).flop == 2 * batch * products
