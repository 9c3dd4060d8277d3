"""small_cnn: names, shapes at every depth, the layers written out, and images that are too small."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fa_registry.architectures.small_cnn import PLUGIN
from tests.architectures.drawing import (
    CLASSES,
    assert_drawn_from_its_generator_alone,
    assert_shallow,
    build,
    normal,
    shapes,
)

SHAPE = (3, 8, 12)


def test_names_and_shapes():
    expected = {"embed.0.weight": (2, 3, 3, 3), "embed.0.bias": (2,)}
    expected |= {"blocks.0.0.weight": (4, 2, 3, 3), "blocks.0.0.bias": (4,)}
    expected |= {"blocks.1.0.weight": (8, 4, 3, 3), "blocks.1.0.bias": (8,)}
    expected |= {"blocks.2.0.weight": (16, 8 * 2 * 3), "blocks.2.0.bias": (16,)}
    expected |= {"out_head.weight": (CLASSES, 16), "out_head.bias": (CLASSES,)}
    assert shapes(build(PLUGIN, SHAPE, width=2)) == expected


def test_the_default_is_the_papers():
    _, hidden = build(PLUGIN, (3, 32, 32))(torch.zeros(2, 3, 32, 32), return_hidden=True)
    assert [tuple(state.shape) for state in hidden] == [(2, 32, 16, 16), (2, 64, 8, 8), (2, 128, 8, 8), (2, 256)]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_head_fits_the_last_state_at_every_depth(count):
    network = build(PLUGIN, SHAPE, width=2, num_blocks=count)
    logits, hidden = network(torch.zeros(2, *SHAPE), return_hidden=True)
    assert logits.shape == (2, CLASSES) and len(hidden) == count + 1
    assert network.out_head.in_features == 2 ** (count + 1) == hidden[-1].shape[1]


def test_no_blocks_is_one_convolution_and_head():
    assert_shallow(PLUGIN, SHAPE, {"embed", "out_head"}, width=2)


def test_initialisation_neither_reads_nor_moves_the_global_generator():
    assert_drawn_from_its_generator_alone(PLUGIN, SHAPE, width=2)


def test_states_are_the_layers_written_out_and_there_is_no_skip():
    network, x = build(PLUGIN, SHAPE, width=2).double(), normal(2, *SHAPE)
    layers = [network.embed[0], network.blocks[0][0], network.blocks[1][0], network.blocks[2][0]]

    def conv(h: torch.Tensor, layer: nn.Conv2d) -> torch.Tensor:
        return nn.functional.conv2d(h, layer.weight, layer.bias, padding=1).relu()

    def pooled(h: torch.Tensor) -> torch.Tensor:
        return h.unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5))

    expected = [pooled(conv(x, layers[0]))]
    expected.append(pooled(conv(expected[-1], layers[1])))
    expected.append(conv(expected[-1], layers[2]))
    expected.append((expected[-1].flatten(1) @ layers[3].weight.T + layers[3].bias).relu())
    logits, hidden = network(x, return_hidden=True)
    for found, state in zip(hidden, expected, strict=True):
        torch.testing.assert_close(found, state, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(logits, network.out_head(expected[-1]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 3, 8), (1, 8, 3), (64, 1, 1)])
def test_images_too_small_for_two_pools_are_refused(shape):
    expected = f"image size: expected 4×4 pixels or more, for two 2×2 pools, found {shape[1]}×{shape[2]}"
    assert PLUGIN.check(PLUGIN.resolve({}), shape) == [expected]


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 7, 9)])
def test_images_that_two_pools_do_not_divide_lose_their_edge_alone(shape):
    assert build(PLUGIN, shape, width=2)(torch.zeros(2, *shape)).shape == (2, CLASSES)
