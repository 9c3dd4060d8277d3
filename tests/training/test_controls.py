"""Controls decide which parameters train."""

from __future__ import annotations

from fa_registry.training.controls import trainable_parameters
from tests.helpers.small import tiny_task


def test_without_control_everything_trains():
    network = tiny_task().network
    assert len(trainable_parameters(network, "none")) == len(list(network.parameters()))


def test_frozen_switches_the_blocks_off_and_nothing_else():
    network = tiny_task().network
    kept = {id(parameter) for parameter in trainable_parameters(network, "frozen")}
    for name, parameter in network.named_parameters():
        assert (id(parameter) in kept) == parameter.requires_grad == (not name.startswith("blocks.")), name
