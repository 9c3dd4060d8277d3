"""A step's operations are counted as a GPU would launch them, and no method takes many more than it is known to."""

from __future__ import annotations

import pytest
import torch

from benchmarks.operations import Operations, every_method

TIMES_BP = 3.0  # of operations
KNOWN = {"credit_bridge": 4.0, "ep": 17.0, "predictive_coding": 17.0}  # four nets' passes; twenty steps of relaxation


def test_views_and_allocations_are_not_counted():
    left = torch.ones(3, 4)
    with Operations() as seen:
        torch.empty(2)
        (left.T @ left).view(-1).relu()
    assert dict(seen.count) == {"mm": 1, "relu": 1}


@pytest.fixture(scope="module")
def counted():
    return every_method()


def test_a_step_of_every_method_has_at_most_three_times_the_operations_of_bp(counted):
    many = {name: count for name, count in counted.items() if count > KNOWN.get(name, TIMES_BP) * counted["bp"]}
    assert not many


def test_a_step_stays_as_small_as_it_was_made(counted):
    """So many as in 2026-11, on a processor without AVX-512: more would be launches that nobody wanted."""
    assert counted["bp"] <= 100 and counted["dfa"] <= 108 and counted["ep"] <= 1_640
