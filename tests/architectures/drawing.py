"""What every architecture owes its generator and its options; shared by the tests of the single ones."""

from __future__ import annotations

from typing import Any

import torch

from fa_registry.architectures.base import Architecture, Network

CLASSES = 5


def build(plugin: Architecture, shape: tuple[int, ...], seed: int = 0, **options: Any) -> Network:
    return plugin.build(plugin.resolve(options), shape, CLASSES, torch.Generator().manual_seed(seed))


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_drawn_from_its_generator_alone(plugin: Architecture, shape: tuple[int, ...], **options: Any) -> None:
    """One seed one network, two seeds two, regardless of the global generator, which stays where it was."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build(plugin, shape, **options).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    second, other = (build(plugin, shape, seed, **options).state_dict() for seed in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    drawn = [name for name, value in first.items() if value.dim() > 1]
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


def assert_shallow(plugin: Architecture, shape: tuple[int, ...], parts: set[str], **options: Any) -> None:
    """num_blocks=0: an embedding and a readout, nothing else, and logits all the same."""
    network = build(plugin, shape, num_blocks=0, **options)
    logits, hidden = network(torch.zeros(2, *shape), return_hidden=True)
    assert logits.shape == (2, CLASSES) and len(hidden) == 1
    assert {name.split(".")[0] for name in network.state_dict()} == parts


def shapes(network: Network) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in network.state_dict().items()}
