"""The two figures every check is made of."""

from __future__ import annotations

import math

import pytest
import torch

from fa_registry.testing.outcomes import cosine, relative_error, within

ONE = torch.tensor([1.0, 2.0, -4.0], dtype=torch.float64)


def test_relative_error_is_of_the_largest_entry():
    assert relative_error(ONE + torch.tensor([0.0, 0.4, 0.0]), ONE) == pytest.approx(0.1)
    assert relative_error(-ONE, ONE) == 2.0
    assert relative_error(ONE, ONE) == 0.0
    assert relative_error(ONE, torch.zeros(3)) == 4.0


@pytest.mark.parametrize("found", [ONE[:2], ONE * float("nan"), ONE * float("inf")])
def test_what_cannot_be_compared_is_infinitely_wrong(found):
    assert relative_error(found, ONE) == math.inf


def test_within_names_the_worst_and_its_figure():
    outcome = within(["a", "b"], [ONE, ONE * 1.5], [ONE, ONE], 1e-3)
    assert (outcome.outcome, outcome.detail) == ("fail", "relative error 5.0e-01 at b, allowed 1e-03")
    assert within(["a"], [ONE], [ONE], 0.0).outcome == "pass"


def test_cosine_reads_several_tensors_as_one_vector():
    left, right = ([torch.tensor([first]), torch.tensor([[second]])] for first, second in ((3.0, 4.0), (4.0, 3.0)))
    assert cosine(left, right) == pytest.approx(0.96)
    assert math.isnan(cosine([torch.zeros(2)], [torch.ones(2)]))
