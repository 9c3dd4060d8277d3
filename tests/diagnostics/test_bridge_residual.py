"""bridge_residual: of a fake bridge with known residuals; of every other method it is N/A."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry.methods.base import Bridge
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.training.measuring import measure
from tests.helpers.tiny_tasks import tiny_task


class Bridging(DirectFeedbackAlignment, Bridge):
    """dfa with a value net that is off by ±(site + 1), and by the generator's noise at the last site."""

    def bridge_residuals(self, feedback, inputs):
        assert inputs.gradients is not None and feedback is not None
        count = len(inputs.error)
        signs = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)
        noise = torch.rand(count, generator=inputs.generator)
        return [*((site + 1) * signs for site in range(len(inputs.hidden) - 1)), noise]


class TooShort(Bridging):
    def bridge_residuals(self, feedback, inputs):
        return super().bridge_residuals(feedback, inputs)[:-1]


def bridged(method) -> dataclasses:
    return dataclasses.replace(tiny_task(method="dfa"), method=method)


def test_it_is_the_mean_absolute_residual():
    row = measure(bridged(Bridging()), moments=("final",)).sites["bridge_residual"]
    assert [reading.value for reading in row[:2]] == [1.0, 2.0]  # signed they would cancel
    assert row[2].value == pytest.approx(0.5, abs=0.1)


def test_its_noise_is_the_runs_own():
    first, second = (measure(bridged(Bridging()), moments=("final",)) for _ in range(2))
    assert first.sites["bridge_residual"] == second.sites["bridge_residual"]


def test_other_methods_have_none():
    for method in ("bp", "dfa"):
        row = measure(tiny_task(method=method), moments=("final",)).sites["bridge_residual"]
        assert all(repr(method) in reading.reason for reading in row)


def test_without_its_feedback_file_it_is_na():
    row = measure(bridged(Bridging()), "the file is gone", ("final",)).sites["bridge_residual"]
    assert {reading.reason for reading in row} == {"the file is gone"}


def test_residuals_for_too_few_sites_are_a_failure_that_says_so():
    measured = measure(bridged(TooShort()), moments=("final",))
    assert "bridge_residual" not in measured.sites
    assert "[(128,), (128,), (128,)]" in measured.failures["bridge_residual"]
