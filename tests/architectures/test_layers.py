"""Conv: torch's convolution; with another kernel for the error only what passes back changes."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import nn

from fa_registry.architectures._layers import Conv, conv, linear
from fa_registry.training.specs import setting_label
from tests.architectures.drawing import normal
from tests.helpers.tiny_tasks import tiny_spec, tiny_task


def layer(bias: bool = True, back: torch.Tensor | None = None) -> Conv:
    made = conv(3, 4, torch.Generator().manual_seed(0), bias=bias).double()
    made.backward_weight = back
    return made


def gradients(value: torch.Tensor, wanted: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Of <value, fixed numbers>."""
    return torch.autograd.grad((value * normal(*value.shape, seed=9)).sum(), wanted)


@pytest.mark.parametrize("bias", [True, False])
def test_forward_and_weight_gradients_stay_and_the_error_goes_back_through_b(bias):
    x, back = normal(2, 3, 5, 6).requires_grad_(), normal(4, 3, 3, 3, seed=2)
    exact, mine = layer(bias), layer(bias, back)
    assert torch.equal(mine(x), exact(x))
    found, true = (gradients(one(x), [x, *one.parameters()]) for one in (mine, exact))
    for own, expected in zip(found[1:], true[1:], strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-12)
    through = nn.functional.conv2d(x, back, padding=1)
    torch.testing.assert_close(found[0], gradients(through, [x])[0], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(found[0], true[0], rtol=0.1, atol=0.1)


def test_the_weight_itself_as_b_gives_backpropagation():
    x, exact = normal(2, 3, 5, 6).requires_grad_(), layer()
    mine = layer(back=exact.weight.detach().clone())
    for found, true in zip(*(gradients(one(x), [x, *one.parameters()]) for one in (mine, exact)), strict=True):
        torch.testing.assert_close(found, true, rtol=1e-12, atol=1e-12)


def test_weights_that_are_held_and_inputs_that_ask_for_nothing_get_nothing():
    x, mine = normal(2, 3, 5, 6), layer(back=normal(4, 3, 3, 3))
    mine(x).sum().backward()
    assert x.grad is None and mine.weight.grad is not None
    mine.requires_grad_(False).weight.grad = None
    (gradient,) = torch.autograd.grad(mine(x.requires_grad_()).sum(), x)
    assert gradient.shape == x.shape and mine.weight.grad is None


def test_maps_keep_their_size():
    assert layer()(normal(2, 3, 5, 6)).shape == (2, 4, 5, 6)


def test_it_is_drawn_as_torch_draws_its_own():
    made = conv(16, 64, torch.Generator().manual_seed(0))
    for values in (made.weight, made.bias):
        assert values.abs().max().item() == pytest.approx(1 / 12, rel=0.05)
    assert made.weight.std().item() == pytest.approx(1 / 12 / 3**0.5, rel=0.02)
    assert abs(made.weight.mean().item()) < 0.003


def test_weights_and_biases_are_uniform_within_one_over_root_of_the_inputs():
    layer = linear(100, 400, torch.Generator().manual_seed(0))
    for values in (layer.weight, layer.bias):
        assert stats.kstest(values.detach().flatten().numpy(), stats.uniform(-0.1, 0.2).cdf).pvalue > 0.001
        assert values.abs().max().item() == pytest.approx(0.1, rel=0.02)


def test_the_generator_alone_decides():
    first, second = (linear(5, 3, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.bias, second.bias)


VARIANCES = {"xavier": 2 / (300 + 500), "xavier_normal": 2 / (300 + 500), "he": 2 / 300, "torch": 1 / (3 * 300)}


@pytest.mark.parametrize(("init", "variance"), VARIANCES.items())
def test_initial_weights_have_the_variance_of_their_source(init, variance):
    layer = linear(300, 500, torch.Generator().manual_seed(3), init=init)
    assert layer.weight.var().item() == pytest.approx(variance, rel=0.02)
    assert layer.weight.mean().item() == pytest.approx(0.0, abs=4 * (variance / layer.weight.numel()) ** 0.5)
    assert layer.bias.any().item() == (init == "torch")
    largest = layer.weight.abs().max().item() / (3 * variance) ** 0.5  # 1 is the bound of a uniform distribution
    assert 0.99 < largest <= 1 if init in ("xavier", "torch") else 2 < largest < 4


@pytest.mark.parametrize("architecture", ["mlp", "resmlp"])
def test_an_initialisation_applies_to_every_linear_layer_but_the_small_second_one_of_a_branch(architecture):
    options = {"d_hidden": 64, "num_blocks": 2}
    changes = {"architecture": architecture, "architecture_options": {**options, "init": "he"}}
    network = tiny_task(**changes).network
    layers = {name: layer for name, layer in network.named_modules() if isinstance(layer, nn.Linear)}
    for name, layer in layers.items():
        expected = 0.01**2 if name.endswith("w2") else 2 / layer.in_features
        assert layer.weight.var().item() == pytest.approx(expected, rel=0.25), name
        assert not layer.bias.any()
    spec = tiny_spec(**changes)
    assert "init=he" in setting_label(spec)
    plain = tiny_spec(architecture=architecture, architecture_options={**options, "init": "torch"})
    assert plain.identity == tiny_spec(architecture=architecture, architecture_options=options).identity
    assert "init" not in plain.architecture_options


def test_a_branch_of_resmlp_has_the_activation_of_its_option():
    options = {"d_hidden": 16, "num_blocks": 1, "activation": "elu"}
    block = tiny_task(architecture_options=options).network.blocks[0]
    state = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    inner = block.w1(block.ln(state))
    expected = torch.where(inner > 0, inner, inner.clamp(max=0).exp() - 1) @ block.w2.weight.T + block.w2.bias
    torch.testing.assert_close(block(state), expected)
    assert "activation=elu" in setting_label(tiny_spec(architecture_options=options))
