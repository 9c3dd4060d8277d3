"""Credits of one row a sample beside states with positions: what is spread, averaged and summed fits together."""

from __future__ import annotations

import pytest
import torch

from fa_registry.positions import averaged, features, spread, summed

N, D = 3, 5
SHAPES = [(N, D), (N, 7, D), (N, D, 4, 2)]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_features_average_and_sum_have_one_row_a_sample(shape):
    state = draw(*shape)
    positions = state.numel() // (N * D)
    assert features(state) == D
    assert averaged(state).shape == summed(state).shape == (N, D)
    torch.testing.assert_close(summed(state), averaged(state) * positions, rtol=1e-12, atol=1e-12)


def test_tokens_and_maps_of_the_same_features_give_the_same_rows():
    maps = draw(N, D, 4, 2)
    tokens = maps.flatten(2).transpose(1, 2)
    torch.testing.assert_close(averaged(maps), averaged(tokens), rtol=1e-12, atol=1e-12)
    row = draw(N, D, seed=1)
    assert torch.equal(spread(row, maps).flatten(2).transpose(1, 2), spread(row, tokens))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_spread_credit_has_the_inner_product_of_the_average(shape):
    """credit.md §2: <spread(c), h> = <c, averaged(h)>, sample by sample."""
    state, credit = draw(*shape), draw(N, D, seed=1)
    found = (spread(credit, state) * state).flatten(1).sum(dim=1)
    torch.testing.assert_close(found, (credit * averaged(state)).sum(dim=1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_spread_is_the_same_everywhere_and_sums_to_the_credit(shape):
    state, credit = draw(*shape), draw(N, D, seed=1)
    laid = spread(credit, state)
    assert laid.shape == state.shape
    torch.testing.assert_close(summed(laid), credit, rtol=1e-12, atol=1e-12)
    everywhere = laid.flatten(2).movedim(1, -1) if len(shape) == 4 else laid.reshape(N, -1, D)
    assert torch.equal(everywhere, everywhere[:, :1].expand_as(everywhere))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_credit_with_positions_is_left_alone(shape):
    state, credit = draw(*shape), draw(*shape, seed=1)
    assert spread(credit, state) is credit


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sum_of_a_gradient_is_the_slope_when_every_position_moves_alike(shape):
    state, weights = draw(*shape), draw(*shape, seed=1)

    def loss(moved: torch.Tensor) -> torch.Tensor:
        return (weights * moved.tanh()).sum()

    gradient = torch.autograd.grad(loss(state.requires_grad_()), state)[0]
    move = torch.zeros(N, D, dtype=torch.float64, requires_grad=True)
    lifted = move if len(shape) == 2 else move[:, None] if len(shape) == 3 else move[:, :, None, None]
    expected = torch.autograd.grad(loss(state.detach() + lifted), move)[0]
    torch.testing.assert_close(summed(gradient), expected, rtol=1e-12, atol=1e-12)
