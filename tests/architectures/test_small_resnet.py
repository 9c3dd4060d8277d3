"""small_resnet: names, shapes, and a block that is its usual form less its input."""

from __future__ import annotations

import pytest
import torch

from fa_registry.architectures.small_resnet import PLUGIN
from tests.architectures.drawing import (
    CLASSES,
    assert_drawn_from_its_generator_alone,
    assert_shallow,
    build,
    normal,
    shapes,
)

SHAPE = (3, 6, 5)
SMALL = {"width": 4, "num_blocks": 2}


def norm_shapes(name: str) -> dict[str, tuple[int, ...]]:
    per_channel = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{kind}": (4,) for kind in per_channel}, f"{name}.num_batches_tracked": ()}


def test_names_and_shapes():
    expected = {"stem_conv.weight": (4, 3, 3, 3), **norm_shapes("stem_bn")}
    for block in ("blocks.0", "blocks.1"):
        for index in (1, 2):
            expected |= {f"{block}.conv{index}.weight": (4, 4, 3, 3), **norm_shapes(f"{block}.bn{index}")}
    expected |= {"out_head.weight": (CLASSES, 4), "out_head.bias": (CLASSES,)}
    assert shapes(build(PLUGIN, SHAPE, **SMALL)) == expected


def test_the_default_is_the_papers():
    _, hidden = build(PLUGIN, (3, 32, 32))(torch.zeros(2, 3, 32, 32), return_hidden=True)
    assert [tuple(state.shape) for state in hidden] == [(2, 64, 32, 32)] * 5  # no stride


def test_no_blocks_is_stem_and_head():
    assert_shallow(PLUGIN, SHAPE, {"stem_conv", "stem_bn", "out_head"}, width=4)


def test_initialisation_neither_reads_nor_moves_the_global_generator():
    assert_drawn_from_its_generator_alone(PLUGIN, SHAPE, **SMALL)


def batch_norm(h: torch.Tensor, bn: torch.nn.BatchNorm2d, training: bool) -> torch.Tensor:
    mean, variance = bn.running_mean, bn.running_var
    if training:
        mean, variance = h.mean((0, 2, 3)), h.var((0, 2, 3), unbiased=False)
    normal_form = (h - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
    return normal_form * bn.weight[:, None, None] + bn.bias[:, None, None]


def convolved(h: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """3×3, stride 1, padding 1, as nine shifted products."""
    padded, (height, width) = torch.nn.functional.pad(h, [1] * 4), h.shape[2:]
    return sum(
        torch.einsum("nchw,dc->ndhw", padded[:, :, i : i + height, j : j + width], kernel[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )


@pytest.mark.parametrize("training", [True, False])
def test_the_block_is_the_equation_less_its_input(training):
    network = build(PLUGIN, SHAPE, **SMALL).double()
    block = network.blocks[1].train(training)
    with torch.no_grad():
        for seed, bn in enumerate((block.bn1, block.bn2)):
            bn.weight.add_(normal(4, seed=seed))
            bn.bias.add_(normal(4, seed=seed + 2))
            bn.running_mean.add_(normal(4, seed=seed + 4))
            bn.running_var.add_(normal(4, seed=seed + 6).square())
    h = normal(3, 4, 6, 5)
    inner = batch_norm(convolved(h, block.conv1.weight), block.bn1, training).relu()
    new = (h + batch_norm(convolved(inner, block.conv2.weight), block.bn2, training)).relu()
    branch = block(h)
    torch.testing.assert_close(branch, new - h, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(network.step(h, branch), new, rtol=1e-11, atol=1e-11)


def test_the_readout_reads_the_mean_over_positions():
    network, maps = build(PLUGIN, SHAPE, **SMALL).double(), normal(3, 4, 6, 5)
    assert torch.equal(network.readout(maps), network.out_head(maps.mean((2, 3))))
