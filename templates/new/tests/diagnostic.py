"""skeleton is 1 if the credit is the gradient, 0 for its opposite, and N/A without a credit."""

from dataclasses import replace

import torch
from skeleton.diagnostic import PLUGIN

from fa_registry.diagnostics import Observation

STATES = [torch.randn(6, 4) for _ in range(3)]


def measured(credits):
    observation = Observation(STATES, STATES, torch.randn(6, 2), credits=STATES)
    return PLUGIN.measure(replace(observation, credits=credits)).sites[PLUGIN.card.name]


def test_it_tells_a_credit_from_its_opposite():
    assert [reading.value for reading in measured(STATES)] == [1.0, 1.0, 1.0]
    assert [reading.value for reading in measured([-state for state in STATES])] == [0.0, 0.0, 0.0]


def test_without_a_credit_every_site_has_the_reason():
    assert all(reading.value is None and reading.reason for reading in measured(None))
