"""small_cnn, small_resnet and student_net: names and shapes, the papers' defaults, and each network's equations written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fa_registry.architectures.small_cnn import PLUGIN as SMALL_CNN
from fa_registry.architectures.small_resnet import PLUGIN as SMALL_RESNET
from fa_registry.architectures.student_net import PLUGIN as STUDENT_NET
from tests.architectures.drawing import (
    CLASSES,
    assert_drawn_from_its_generator_alone,
    assert_shallow,
    build,
    normal,
    shapes,
)

SMALL_CNN_IMAGE, SMALL_RESNET_IMAGE, STUDENT_NET_IMAGE = (3, 8, 12), (3, 6, 5), (1, 3, 4)
SMALL_RESNET_OPTIONS = {"width": 4, "num_blocks": 2}
STUDENT_NET_OPTIONS = {"d_hidden": 6, "num_blocks": 2}


@pytest.mark.parametrize(
    ("architecture", "image", "parts", "options"),
    [
        (SMALL_CNN, SMALL_CNN_IMAGE, {"embed", "out_head"}, {"width": 2}),
        (SMALL_RESNET, SMALL_RESNET_IMAGE, {"stem_conv", "stem_bn", "out_head"}, {"width": 4}),
        (STUDENT_NET, STUDENT_NET_IMAGE, {"embed", "out_head"}, {"d_hidden": 6}),
    ],
)
def test_no_blocks_is_what_stands_before_and_behind_them(architecture, image, parts, options):
    assert_shallow(architecture, image, parts, **options)


@pytest.mark.parametrize(
    ("architecture", "image", "options"),
    [
        (SMALL_CNN, SMALL_CNN_IMAGE, {"width": 2}),
        (SMALL_RESNET, SMALL_RESNET_IMAGE, SMALL_RESNET_OPTIONS),
        (STUDENT_NET, STUDENT_NET_IMAGE, STUDENT_NET_OPTIONS),
    ],
)
def test_initialisation_neither_reads_nor_moves_the_global_generator(architecture, image, options):
    assert_drawn_from_its_generator_alone(architecture, image, **options)


def test_names_and_shapes_of_small_cnn():
    expected = {"embed.0.weight": (2, 3, 3, 3), "embed.0.bias": (2,)}
    expected |= {"blocks.0.0.weight": (4, 2, 3, 3), "blocks.0.0.bias": (4,)}
    expected |= {"blocks.1.0.weight": (8, 4, 3, 3), "blocks.1.0.bias": (8,)}
    expected |= {"blocks.2.0.weight": (16, 8 * 2 * 3), "blocks.2.0.bias": (16,)}
    expected |= {"out_head.weight": (CLASSES, 16), "out_head.bias": (CLASSES,)}
    assert shapes(build(SMALL_CNN, SMALL_CNN_IMAGE, width=2)) == expected


def test_the_default_of_small_cnn_is_the_papers():
    _, hidden = build(SMALL_CNN, (3, 32, 32))(torch.zeros(2, 3, 32, 32), return_hidden=True)
    assert [tuple(state.shape) for state in hidden] == [(2, 32, 16, 16), (2, 64, 8, 8), (2, 128, 8, 8), (2, 256)]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_head_fits_the_last_state_at_every_depth(count):
    network = build(SMALL_CNN, SMALL_CNN_IMAGE, width=2, num_blocks=count)
    logits, hidden = network(torch.zeros(2, *SMALL_CNN_IMAGE), return_hidden=True)
    assert logits.shape == (2, CLASSES) and len(hidden) == count + 1
    assert network.out_head.in_features == 2 ** (count + 1) == hidden[-1].shape[1]


def test_states_are_the_layers_written_out_and_there_is_no_skip():
    network, x = build(SMALL_CNN, SMALL_CNN_IMAGE, width=2).double(), normal(2, *SMALL_CNN_IMAGE)
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
    expected = (
        f"expected images of at least 4×4 pixels, because the network has two 2×2 pools; found {shape[1]}×{shape[2]}"
    )
    assert SMALL_CNN.check(SMALL_CNN.resolve({}), shape) == [expected]


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 7, 9)])
def test_images_that_two_pools_do_not_divide_lose_their_edge_alone(shape):
    assert build(SMALL_CNN, shape, width=2)(torch.zeros(2, *shape)).shape == (2, CLASSES)


def norm_shapes(name: str) -> dict[str, tuple[int, ...]]:
    per_channel = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{kind}": (4,) for kind in per_channel}, f"{name}.num_batches_tracked": ()}


def test_names_and_shapes_of_small_resnet():
    expected = {"stem_conv.weight": (4, 3, 3, 3), **norm_shapes("stem_bn")}
    for block in ("blocks.0", "blocks.1"):
        for index in (1, 2):
            expected |= {f"{block}.conv{index}.weight": (4, 4, 3, 3), **norm_shapes(f"{block}.bn{index}")}
    expected |= {"out_head.weight": (CLASSES, 4), "out_head.bias": (CLASSES,)}
    assert shapes(build(SMALL_RESNET, SMALL_RESNET_IMAGE, **SMALL_RESNET_OPTIONS)) == expected


def test_the_default_of_small_resnet_is_the_papers():
    _, hidden = build(SMALL_RESNET, (3, 32, 32))(torch.zeros(2, 3, 32, 32), return_hidden=True)
    assert [tuple(state.shape) for state in hidden] == [(2, 64, 32, 32)] * 5  # no stride


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
    network = build(SMALL_RESNET, SMALL_RESNET_IMAGE, **SMALL_RESNET_OPTIONS).double()
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
    network, maps = build(SMALL_RESNET, SMALL_RESNET_IMAGE, **SMALL_RESNET_OPTIONS).double(), normal(3, 4, 6, 5)
    assert torch.equal(network.readout(maps), network.out_head(maps.mean((2, 3))))


def test_names_and_shapes_of_student_net():
    layers = {"embed": (6, 12), "out_head": (CLASSES, 6)}
    layers |= {f"blocks.{index}.{name}": (6, 6) for index in range(2) for name in ("w1", "w2")}
    expected = {f"{name}.weight": shape for name, shape in layers.items()}
    expected |= {f"{name}.bias": shape[:1] for name, shape in layers.items()}
    assert shapes(build(STUDENT_NET, STUDENT_NET_IMAGE, **STUDENT_NET_OPTIONS)) == expected


def test_the_default_of_student_net_is_the_papers():
    _, hidden = build(STUDENT_NET, STUDENT_NET_IMAGE)(torch.zeros(2, *STUDENT_NET_IMAGE), return_hidden=True)
    assert [tuple(state.shape) for state in hidden] == [(2, 128)] * 5
    assert build(STUDENT_NET, STUDENT_NET_IMAGE).blocks[0].alpha == 1.0


def test_the_second_weight_is_small_and_its_bias_zero():
    block = build(STUDENT_NET, STUDENT_NET_IMAGE).blocks[2]
    assert block.w2.weight.std().item() == pytest.approx(0.01, rel=0.03)  # 16,384 entries: its std is 0.6 %
    assert block.w2.bias.eq(0).all()
    assert block.w1.weight.abs().max().item() == pytest.approx(128**-0.5, rel=1e-2)


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_the_block_is_the_equation_and_the_network_adds_the_skip(alpha):
    network = build(STUDENT_NET, STUDENT_NET_IMAGE, alpha=alpha, **STUDENT_NET_OPTIONS).double()
    block, h = network.blocks[0], normal(3, 6)
    z = h @ block.w1.weight.T + block.w1.bias
    branch = ((1 - alpha) * z + alpha * torch.tanh(z)) @ block.w2.weight.T + block.w2.bias
    torch.testing.assert_close(block(h), branch, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(network.step(h, block(h)), h + branch, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("alpha", "linear"), [(0.0, True), (0.5, False)])
def test_it_is_linear_at_alpha_zero_alone(alpha, linear):
    network = build(STUDENT_NET, STUDENT_NET_IMAGE, alpha=alpha, **STUDENT_NET_OPTIONS).double()
    with torch.no_grad():
        network.blocks[0].w2.weight.normal_(generator=torch.Generator().manual_seed(4))
    x, zero = normal(3, *STUDENT_NET_IMAGE), torch.zeros(1, *STUDENT_NET_IMAGE, dtype=torch.float64)
    assert torch.allclose(network(2 * x) - network(zero), 2 * (network(x) - network(zero)), rtol=1e-9) == linear
