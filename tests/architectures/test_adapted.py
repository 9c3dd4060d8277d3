"""adapt: states and gradients at every site equal autograd through an untouched twin."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fa_registry.architectures import adapt
from fa_registry.diagnostics import observe
from fa_registry.errors import UsageError
from tests.architectures.adapted_models import SEED, STEPS, WIDTH, Branch, Model, batch, build, twin


def assert_figures(model: Model, skip: str, x: Tensor, y: Tensor, readout: str = "norm") -> None:
    seen = observe(adapt(model, skip=skip, readout=readout), x, y, double=False)
    states, gradients = twin(model, x, y)
    for site in range(len(model.blocks) + 1):
        for found, expected in ((seen.hidden, states), (seen.gradients, gradients)):
            torch.testing.assert_close(
                found[site], expected[site].detach(), rtol=1e-12, atol=1e-12, msg=lambda text, at=site: f"{at}: {text}"
            )


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_states_and_gradients_are_those_of_an_untouched_twin(skip, depth):
    assert_figures(build(skip, depth), skip, *batch(5, 4))


@pytest.mark.parametrize("depth", [1, 3])
def test_blocks_that_write_into_their_input_give_exact_figures(depth):
    assert_figures(build("inside", depth, in_place=True), "inside", *batch(5, 4))


def add_into_branch(block: nn.Module, h: Tensor) -> Tensor:
    out = block(h)
    out += h
    return out


@pytest.mark.parametrize("depth", [1, 3])
def test_a_skip_added_into_the_branch_gives_exact_figures(depth):
    assert_figures(build("outside", depth, step=add_into_branch), "outside", *batch(5, 4))


@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_an_activation_in_place_after_the_last_state_changes_no_figure(skip):
    model = build(skip, 2)
    model.norm = nn.ReLU(inplace=True)
    x, y = batch(5, 4)
    seen = observe(adapt(model, skip=skip, readout="norm"), x, y, double=False)
    model.norm = nn.ReLU()
    states, gradients = twin(model, x, y)
    assert (states[-1] < 0).any()
    for site in range(3):
        torch.testing.assert_close(seen.hidden[site], states[site].detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(seen.gradients[site], gradients[site], rtol=1e-12, atol=1e-12)


def overwrite_after_use(block: nn.Module, h: Tensor) -> Tensor:
    out = block(h)
    h.zero_()
    return out


def test_a_stream_overwritten_behind_the_block_gives_exact_figures():
    assert_figures(build("inside", 2, step=overwrite_after_use), "inside", *batch(5, 4))


@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_a_model_that_writes_into_its_input_leaves_the_batch_alone(skip):
    """Without a copy torch would refuse: the input requires grad, and such a leaf cannot be written into."""
    model = build(skip, 2)
    model.embed = nn.ReLU(inplace=True)
    x, y = batch(5, WIDTH)
    before = x.clone()
    seen = observe(adapt(model, skip=skip, readout="norm"), x, y, double=False)
    assert torch.equal(x, before)
    assert torch.equal(seen.hidden[0], before.relu())


@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_dropout_and_batch_norm_keep_their_modes_and_statistics(skip):
    model = build(skip, 2)
    model.norm = nn.BatchNorm1d(WIDTH).double()
    model.train()
    model.blocks[0].drop.eval()
    modes = [module.training for module in model.modules()]
    x, y = batch(5, 4)
    wrapped = adapt(model, skip=skip, readout="norm")
    first, second = (observe(wrapped, x, y, double=False) for _ in range(2))
    assert torch.equal(first.gradients[0], second.gradients[0])
    assert [module.training for module in model.modules()] == modes
    assert model.norm.running_mean.eq(0).all()
    assert_figures(model, skip, x, y)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("readout", ["norm", "out_head"])
@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_token_states_are_seen_at_the_class_token(skip, readout, depth):
    model = build(skip, depth, norm=readout == "norm", finish=lambda tokens: tokens[:, 0])
    x, y = batch(5, 7, 4)
    seen = observe(adapt(model, skip=skip, readout=readout), x, y, double=False)
    states, gradients = twin(model, x, y)
    for site in range(depth + 1):
        torch.testing.assert_close(seen.hidden[site], states[site][:, 0].detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(seen.gradients[site], gradients[site][:, 0], rtol=1e-12, atol=1e-12)


class Convolution(Branch):
    def __init__(self, add: bool):
        super().__init__(add)
        self.linear = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_map_states_are_seen_as_their_mean(skip, depth):
    torch.manual_seed(SEED)
    blocks = [Convolution(skip == "inside") for _ in range(depth)]
    model = Model(blocks, STEPS[skip], norm=False, finish=lambda maps: maps.mean(dim=(2, 3)))
    model.embed = nn.Conv2d(2, WIDTH, 1)
    x, y = batch(5, 2, 4, 3)
    seen = observe(adapt(model.double(), skip=skip), x, y, double=False)
    states, gradients = twin(model, x, y)
    for site in range(depth + 1):
        torch.testing.assert_close(seen.hidden[site], states[site].mean((2, 3)).detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(seen.gradients[site], gradients[site].sum((2, 3)), rtol=1e-12, atol=1e-12)
    with pytest.raises(UsageError, match="declare skip"):
        adapt(model, skip={"outside": "inside", "inside": "outside"}[skip])(x, return_hidden=True)
