"""Network: where the skip is, and what forward returns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fa_registry import architectures
from fa_registry.architectures._layers import ACTIVATIONS
from fa_registry.architectures.base import ExactCostate, Network, noisy, stream_of
from fa_registry.architectures.linear_lq import PLUGIN as LINEAR_LQ
from fa_registry.architectures.mlp import PLUGIN as MLP
from fa_registry.architectures.resmlp import PLUGIN as BASE
from fa_registry.errors import InvalidFields
from fa_registry.records import NORMALISED, REPLACED, RESIDUAL
from fa_registry.tasks import sample_losses
from tests.helpers.nets import hooks_of
from tests.helpers.tiny_tasks import scaling_network, tiny_spec

HEAD = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], dtype=torch.float64)
X = torch.tensor([[1.0, 2.0]], dtype=torch.float64)


def test_the_network_adds_the_skip():
    logits, hidden = scaling_network([2.0, 3.0], HEAD)(X, return_hidden=True)
    assert [state.tolist() for state in hidden] == [[[1.0, 2.0]], [[3.0, 6.0]], [[12.0, 24.0]]]
    assert logits.tolist() == [[12.0, 48.0, 36.0]]


def test_without_skip_the_state_is_the_branch():
    _, hidden = scaling_network([2.0, 3.0], HEAD, residual=False)(X, return_hidden=True)
    assert [state.tolist() for state in hidden] == [[[1.0, 2.0]], [[2.0, 4.0]], [[6.0, 12.0]]]


def test_readout_pools_then_normalises_then_reads():
    network = Network(nn.Identity(), [], nn.LayerNorm(2), nn.Linear(2, 3), pool=lambda tokens: tokens[:, 0])
    tokens = torch.rand(4, 5, 2, generator=torch.Generator().manual_seed(0))
    expected = network.out_head(network.out_ln(tokens[:, 0]))
    assert torch.equal(network(tokens), expected)


@pytest.mark.parametrize("residual", [True, False])
def test_logits_from_a_site_go_on_from_its_state(residual):
    network = scaling_network([2.0, 3.0, 0.5], HEAD, residual)
    logits, hidden = network(X, return_hidden=True)
    for site, state in enumerate(hidden):
        assert torch.equal(network.logits_from(site, state), logits), f"site {site}"
    above = 4.0 * 1.5 if residual else 3.0 * 0.5
    assert network.logits_from(1, X).tolist() == [[above * 1.0, above * 4.0, above * 3.0]]


def test_logits_from_the_last_site_are_the_readout_of_any_shape_of_state():
    network = Network(nn.Identity(), [], nn.LayerNorm(2), nn.Linear(2, 3), pool=lambda tokens: tokens[:, 0])
    tokens = torch.rand(4, 5, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(network.logits_from(0, tokens), network(tokens))


def test_an_exact_costate_must_be_given():
    class Promising(Network, ExactCostate):
        pass

    with pytest.raises(TypeError, match="costates"):
        Promising(nn.Identity(), [], None, nn.Identity())


LATER = {"activation": "gelu", "init": "torch"}


def test_resolve_fills_in_defaults():
    resolved = BASE.resolve({"d_hidden": 8})
    form = {"norm": "layer", "norm_place": "pre", "branch_scale": "one", "dropout": 0.0}
    own = {"d_hidden": 8, "num_blocks": 4, "terminal_ln": True, "residual": True, "w2_std": 0.01}
    assert resolved == own | form | LATER


SHAPE, CLASSES = (1, 28, 28), 10


def build(**options):
    return MLP.build(MLP.resolve(options), SHAPE, CLASSES, torch.Generator().manual_seed(0))


def test_784_500_10():
    network = build(d_hidden=500, num_blocks=1)
    logits, hidden = network(torch.zeros(3, *SHAPE), return_hidden=True)
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert shapes == {
        "blocks.0.w.weight": (500, 784),
        "blocks.0.w.bias": (500,),
        "out_head.weight": (10, 500),
        "out_head.bias": (10,),
    }
    assert [tuple(state.shape) for state in hidden] == [(3, 784), (3, 500)]
    assert logits.shape == (3, CLASSES)


def elu(values):
    return torch.where(values > 0, values, values.clamp(max=0).exp() - 1)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_it_is_layers_one_after_the_other(name):
    network = build(d_hidden=7, num_blocks=2, activation=name)
    images = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(1))
    phi = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": nn.functional.gelu}.get(name, elu)
    state = images.flatten(1)
    for layer in (network.blocks[0].w, network.blocks[1].w):
        state = phi(state @ layer.weight.T + layer.bias)
    expected = state @ network.out_head.weight.T + network.out_head.bias
    torch.testing.assert_close(network(images), expected, rtol=1e-5, atol=1e-6)


def test_an_unknown_activation_is_refused():
    with pytest.raises(
        InvalidFields, match="activation: expected one of relu, tanh, sigmoid, gelu, elu, found 'swish'"
    ):
        tiny_spec(architecture="mlp", architecture_options={"activation": "swish"})


SHAPE_LINEAR_LQ, OUTPUTS = (1, 8, 8), 10
DRAW = torch.Generator().manual_seed(4)
STATES = torch.randn(20, *SHAPE_LINEAR_LQ, generator=DRAW, dtype=torch.float64)
TARGETS = torch.randn(20, OUTPUTS, generator=DRAW, dtype=torch.float64)


def build_linear_lq(**options):
    return LINEAR_LQ.build(
        LINEAR_LQ.resolve(options), SHAPE_LINEAR_LQ, OUTPUTS, torch.Generator().manual_seed(0)
    ).double()


@pytest.mark.parametrize("labels", [TARGETS, torch.arange(20) % OUTPUTS], ids=["values", "classes"])
def test_the_costate_is_the_gradient(labels):
    network = build_linear_lq(num_blocks=5, spread=2.0)
    logits, hidden = network(STATES.clone().requires_grad_(), return_hidden=True)
    gradients = torch.autograd.grad(sample_losses(logits, labels).sum(), hidden)
    with torch.no_grad():
        costates = network.costates(STATES, labels)
    assert len(costates) == 6
    for found, expected in zip(costates, gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_noise_is_there_while_it_is_lent_and_no_longer():
    network = build_linear_lq(num_blocks=1, spread=0.0, sigma=0.5)
    with noisy(network, torch.Generator().manual_seed(1)):
        first, second = network.hidden(STATES)[1], network.hidden(STATES)[1]
    assert not torch.equal(first, second)
    drawn = torch.randn(20, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(first, STATES.flatten(1) + 0.5 * drawn)
    assert torch.equal(network.hidden(STATES)[1], STATES.flatten(1))


def test_the_spread_is_shared_out_over_the_steps():
    network = build_linear_lq(num_blocks=12, spread=0.5)
    weights = torch.cat([block.a.weight.flatten() for block in network.blocks])
    assert weights.var().item() == pytest.approx(0.25 / (64 * 12), rel=0.03)  # 49,152 entries: the std of this is 0.6 %
    assert network.out_head.weight.var().item() == pytest.approx(1 / 64, rel=0.2)  # 640 entries: 6 %
    assert not network.out_head.bias.any() and not any(block.a.bias.any() for block in network.blocks)


def test_only_a_learning_system_has_weights_to_train():
    assert not any(weight.requires_grad for weight in build_linear_lq().parameters())
    assert all(weight.requires_grad for weight in build_linear_lq(learn=True).parameters())


@pytest.mark.parametrize("name", architectures.CATALOG.names())
@pytest.mark.parametrize("count", [None, 0, 1])
def test_the_weights_are_counted_without_being_drawn(name, count):
    architecture = architectures.CATALOG.get(name)
    options = architecture.resolve({} if count is None else {"num_blocks": count})
    network = architecture.build(options, (3, 8, 8), 7, torch.Generator().manual_seed(0))
    drawn = sum(weight.numel() for weight in network.parameters())
    assert architecture.parameters(options, (3, 8, 8), 7) == drawn


class Branch(nn.Module):
    """The branch of a block: pre-LN, post-LN (as a difference), or a norm of the branch alone."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.norm, self.layer = kind, nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        if self.kind == "post":
            return self.norm(state + self.layer(state)) - state
        return self.layer(self.norm(state)) if self.kind == "pre" else self.norm(self.layer(state))


@pytest.mark.parametrize(
    ("kind", "residual", "expected"),
    [
        ("pre", True, RESIDUAL),
        ("of the branch", True, RESIDUAL),
        ("post", True, NORMALISED),
        ("pre", False, REPLACED),
        ("of the branch", False, REPLACED),
    ],
)
def test_a_stream_is_residual_unless_a_norm_ends_a_block_or_the_state_is_replaced(kind, residual, expected):
    torch.manual_seed(5)
    blocks = [Branch(kind), Branch(kind)]
    network = Network(nn.Linear(3, 4), blocks, nn.LayerNorm(4), nn.Linear(4, 2), residual=residual)
    network.train()
    assert stream_of(network, torch.randn(2, 3)) == expected
    assert network.training and not any(hooks_of(network))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resmlp", RESIDUAL),
        ("mlp", REPLACED),
        ("vit_mini", RESIDUAL),
        ("small_resnet", RESIDUAL),
        ("small_cnn", REPLACED),
    ],
)
def test_the_builtin_networks_have_the_stream_of_their_equations(name, expected):
    architecture = architectures.CATALOG.get(name)
    generator = torch.Generator().manual_seed(1)
    network = architecture.build(architecture.resolve({}), (1, 12, 12), 10, generator)
    assert stream_of(network, torch.randn(2, 1, 12, 12, generator=generator)) == expected
