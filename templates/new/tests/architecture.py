"""skeleton uses only its generator, and its states are h_0 .. h_L."""

import torch
from skeleton.architecture import PLUGIN

SHAPE, CLASSES = (1, 4, 4), 3


def build(seed, **options):
    return PLUGIN.build(PLUGIN.resolve(options), SHAPE, CLASSES, torch.Generator().manual_seed(seed)).eval()


def test_the_same_seed_gives_the_same_network_and_another_another():
    first, again, other = (build(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_it_has_a_state_a_site_and_logits():
    network = build(1, num_blocks=2)
    logits, states = network(torch.randn(5, *SHAPE), return_hidden=True)
    assert logits.shape == (5, CLASSES) and len(states) == 3
    assert torch.equal(network.logits_from(1, states[1]), logits)
