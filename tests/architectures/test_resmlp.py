"""resmlp: names, options, initialisation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fa_registry.architectures.resmlp import PLUGIN

SHAPE, CLASSES = (1, 12, 12), 10


def build(seed: int = 0, **options):
    return PLUGIN.build(PLUGIN.resolve(options), SHAPE, CLASSES, torch.Generator().manual_seed(seed))


def test_state_dict_names_are_those_of_the_published_checkpoints():
    layers = [
        "embed",
        *(f"blocks.{index}.{part}" for index in range(2) for part in ("ln", "w1", "w2")),
        "out_ln",
        "out_head",
    ]
    expected = {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    assert set(build(num_blocks=2).state_dict()) == expected


def test_shapes_follow_the_options():
    network = build(d_hidden=24, num_blocks=3)
    logits, hidden = network(torch.zeros(5, *SHAPE), return_hidden=True)
    assert network.embed.weight.shape == (24, 144)
    assert [tuple(state.shape) for state in hidden] == [(5, 24)] * 4
    assert logits.shape == (5, CLASSES)


def test_no_blocks_is_embedding_and_head():
    network = build(num_blocks=0)
    _, hidden = network(torch.zeros(2, *SHAPE), return_hidden=True)
    assert len(network.blocks) == 0
    assert len(hidden) == 1
    assert {name.split(".")[0] for name in network.state_dict()} == {"embed", "out_ln", "out_head"}


def test_only_the_embedding_flattens():
    network = build(num_blocks=1)
    images = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(1))
    assert torch.equal(network.embed(images), network.embed(images.flatten(1)))
    assert network.embed(images).shape == (5, 256)
    tokens = torch.rand(5, 3, 256, generator=torch.Generator().manual_seed(1))
    assert network.blocks[0].w1(tokens).shape == (5, 3, 256)


def test_terminal_layer_norm_is_an_option():
    assert isinstance(build().out_ln, nn.LayerNorm)
    assert build(terminal_ln=False).out_ln is None


def test_residual_is_an_option():
    x = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(1))
    for residual in (True, False):
        network = build(residual=residual, num_blocks=1, w2_std=0.5)
        first, second = network(x, return_hidden=True)[1]
        branch = network.blocks[0](first)
        assert torch.equal(second, first + branch if residual else branch)


@pytest.mark.parametrize("std", [0.01, 0.5])
def test_second_weight_is_normal_with_zero_bias(std):
    block = build(w2_std=std).blocks[2]
    assert block.w2.weight.std().item() == pytest.approx(std, rel=0.02)  # 65,536 entries: its std is 0.3 %
    assert abs(block.w2.weight.mean().item()) < 4 * std / 256
    assert block.w2.bias.abs().max().item() == 0


def test_the_first_weight_is_pytorchs_default_and_layer_norm_is_the_identity():
    block = build().blocks[0]
    assert block.w1.weight.abs().max().item() == pytest.approx(1 / 16, rel=1e-3)
    assert block.w1.weight.std().item() == pytest.approx(1 / 16 / 3**0.5, rel=0.02)
    assert block.ln.weight.eq(1).all()
    assert block.ln.bias.eq(0).all()


def test_the_block_is_the_equation():
    block = build(d_hidden=8, w2_std=0.5).blocks[0]
    h = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    normal = (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    u = normal @ block.w1.weight.T + block.w1.bias
    expected = (u * 0.5 * (1 + torch.erf(u / 2**0.5))) @ block.w2.weight.T + block.w2.bias
    torch.testing.assert_close(block(h), expected, rtol=1e-5, atol=1e-6)


def test_the_state_hardly_moves_at_initialisation():
    x = torch.randn(16, *SHAPE, generator=torch.Generator().manual_seed(0))
    hidden = build()(x, return_hidden=True)[1]
    assert (hidden[-1] - hidden[0]).norm() / hidden[0].norm() < 0.5


def test_initialisation_neither_reads_nor_moves_the_global_generator():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    second, other = build(), build(seed=1)
    names = list(first.state_dict())
    assert all(torch.equal(first.state_dict()[name], second.state_dict()[name]) for name in names)
    assert not torch.equal(first.embed.weight, other.embed.weight)
