"""student_net: names, shapes, and φ_α between the linear network and tanh."""

from __future__ import annotations

import pytest
import torch

from fa_registry.architectures.student_net import PLUGIN
from tests.architectures.drawing import (
    CLASSES,
    assert_drawn_from_its_generator_alone,
    assert_shallow,
    build,
    normal,
    shapes,
)

SHAPE = (1, 3, 4)
SMALL = {"d_hidden": 6, "num_blocks": 2}


def test_names_and_shapes():
    layers = {"embed": (6, 12), "out_head": (CLASSES, 6)}
    layers |= {f"blocks.{index}.{name}": (6, 6) for index in range(2) for name in ("w1", "w2")}
    expected = {f"{name}.weight": shape for name, shape in layers.items()}
    expected |= {f"{name}.bias": shape[:1] for name, shape in layers.items()}
    assert shapes(build(PLUGIN, SHAPE, **SMALL)) == expected


def test_the_default_is_the_papers():
    _, hidden = build(PLUGIN, SHAPE)(torch.zeros(2, *SHAPE), return_hidden=True)
    assert [tuple(state.shape) for state in hidden] == [(2, 128)] * 5
    assert build(PLUGIN, SHAPE).blocks[0].alpha == 1.0


def test_no_blocks_is_embedding_and_head():
    assert_shallow(PLUGIN, SHAPE, {"embed", "out_head"}, d_hidden=6)


def test_initialisation_neither_reads_nor_moves_the_global_generator():
    assert_drawn_from_its_generator_alone(PLUGIN, SHAPE, **SMALL)


def test_the_second_weight_is_small_and_its_bias_zero():
    block = build(PLUGIN, SHAPE).blocks[2]
    assert block.w2.weight.std().item() == pytest.approx(0.01, rel=0.03)  # 16,384 entries: its std is 0.6 %
    assert block.w2.bias.eq(0).all()
    assert block.w1.weight.abs().max().item() == pytest.approx(128**-0.5, rel=1e-2)


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_the_block_is_the_equation_and_the_network_adds_the_skip(alpha):
    network = build(PLUGIN, SHAPE, alpha=alpha, **SMALL).double()
    block, h = network.blocks[0], normal(3, 6)
    z = h @ block.w1.weight.T + block.w1.bias
    branch = ((1 - alpha) * z + alpha * torch.tanh(z)) @ block.w2.weight.T + block.w2.bias
    torch.testing.assert_close(block(h), branch, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(network.step(h, block(h)), h + branch, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("alpha", "linear"), [(0.0, True), (0.5, False)])
def test_it_is_linear_at_alpha_zero_alone(alpha, linear):
    network = build(PLUGIN, SHAPE, alpha=alpha, **SMALL).double()
    with torch.no_grad():
        network.blocks[0].w2.weight.normal_(generator=torch.Generator().manual_seed(4))
    x, zero = normal(3, *SHAPE), torch.zeros(1, *SHAPE, dtype=torch.float64)
    assert torch.allclose(network(2 * x) - network(zero), 2 * (network(x) - network(zero)), rtol=1e-9) == linear
