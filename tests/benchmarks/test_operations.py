"""A step's operations are counted as a GPU would launch them; no method takes more than it is known to, and the page says so."""

from __future__ import annotations

import pytest
import torch

from benchmarks.operations import MEASURED, TARGET, Operations, every_method
from benchmarks.recording import recorded

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
    many = {name: count for name, count in counted.items() if count > KNOWN.get(name, TARGET) * counted["bp"]}
    assert not many


def test_the_page_shows_what_is_counted_now(counted):
    assert recorded(MEASURED)["counts"] == counted
