"""observe: gradients per sample, against finite differences; eval mode; conventions for tokens and maps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fa_registry.architectures.base import Network
from fa_registry.diagnostics import eval_mode, observe, run_forward_backward
from tests.helpers.tiny_tasks import double, scaling_network, tiny_task

SEED = 5


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)


def loss_from(network: Network, site: int, state: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Each sample's cross entropy when the stream is `state` at `site`."""
    for block in network.blocks[site:]:
        state = network.step(state, block(state))
    return nn.functional.cross_entropy(network.readout(state), labels, reduction="none")


@pytest.mark.parametrize("options", [{}, {"terminal_ln": False}, {"residual": False}], ids=str)
def test_gradients_at_every_site_are_central_differences(options):
    task = double(tiny_task(architecture_options={"d_hidden": 16, "num_blocks": 3, "w2_std": 0.5, **options}))
    images, labels = (rows[:9] for rows in task.eval_batch)
    seen = observe(task.network, images, labels)
    direction, step = draw(9, 16), 1e-5
    assert seen.sites == 4
    for site in range(4):
        with torch.no_grad():
            moved = [seen.hidden[site] + sign * step * direction for sign in (1, -1)]
            ahead, behind = (loss_from(task.network, site, state, labels) for state in moved)
        slopes = (ahead - behind) / (2 * step)
        expected = (seen.gradients[site] * direction).sum(dim=1)
        torch.testing.assert_close(slopes, expected, rtol=1e-6, atol=1e-9, msg=f"site {site}, seed {SEED}")


def test_rows_are_each_samples_own_gradient_whatever_the_batch():
    task = double(tiny_task())
    images, labels = task.eval_batch
    whole = observe(task.network, images, labels)
    for count in (1, 37):
        part = observe(task.network, images[:count], labels[:count])
        for site in range(whole.sites):
            torch.testing.assert_close(part.gradients[site], whole.gradients[site][:count], rtol=1e-12, atol=1e-15)


def test_error_is_softmax_minus_onehot():
    network = scaling_network([1.0], torch.eye(2, dtype=torch.float64))
    seen = observe(network, torch.tensor([[0.5, 0.5]], dtype=torch.float64), torch.tensor([1]))
    assert seen.error.tolist() == [[0.5, -0.5]]


def test_the_credit_rule_receives_states_gradients_error_and_onehot():
    network = scaling_network([1.0], torch.eye(2, dtype=torch.float64))
    images = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    received = []

    def rule(hidden, gradients, error, onehot):
        received.extend([hidden, gradients, error, onehot])
        return [2 * gradient for gradient in gradients]

    seen = observe(network, images, torch.tensor([1, 0]), rule, exact=(False, True))
    hidden, gradients, error, onehot = received
    assert not any(tensor.requires_grad for tensor in (*hidden, *gradients, error, onehot))
    assert onehot.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert torch.equal(hidden[1], 2 * images)
    assert torch.equal(seen.credits[0], 2 * seen.gradients[0])
    assert seen.exact == (False, True)


def test_measuring_is_in_eval_mode_and_restores_each_modules_own():
    network = Network(nn.BatchNorm1d(2), [nn.Dropout(0.9)], None, nn.Linear(2, 3))
    network.train()
    network.embed.eval()
    before = network.embed.running_mean.clone()
    images, labels = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(8, dtype=torch.int64)
    first, second = (observe(network, images, labels) for _ in range(2))
    assert torch.equal(first.hidden[1], second.hidden[1])
    assert torch.equal(first.hidden[1], 2 * first.hidden[0])  # dropout off: h + f(h) = 2h
    assert torch.equal(network.embed.running_mean, before)
    assert (network.training, network.embed.training, network.blocks[0].training) == (True, False, True)


def test_modes_come_back_after_an_error():
    network = nn.Dropout()
    with pytest.raises(ZeroDivisionError), eval_mode(network):
        assert not network.training
        _ = 1 / 0
    assert network.training


def test_the_double_pass_is_a_float64_pass_of_the_same_weights():
    task = tiny_task()
    images, labels = task.eval_batch
    seen = observe(task.network, images, labels)
    expected = observe(double(task).network, images.double(), labels, double=False)
    for found, exact in zip(seen.gradients_double, expected.gradients, strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-18)
    assert expected.gradients_double is None


def test_tokens_are_seen_at_the_class_token():
    network = Network(nn.Identity(), [], None, nn.Linear(3, 2, dtype=torch.float64), pool=lambda tokens: tokens[:, 0])
    tokens, labels = draw(4, 5, 3).requires_grad_(), torch.tensor([0, 1, 0, 1])
    seen = observe(network, tokens, labels)
    assert torch.equal(seen.hidden[0], tokens[:, 0])
    torch.testing.assert_close(seen.gradients[0], seen.error @ network.out_head.weight.detach())


def test_maps_are_seen_as_their_mean_and_its_gradient():
    """z = W mean(map): the gradient for the pooled vector is e W, so a map's gradient is summed over positions, not averaged."""
    network = Network(
        nn.Identity(), [], None, nn.Linear(3, 2, dtype=torch.float64), pool=lambda maps: maps.mean(dim=(2, 3))
    )
    maps, labels = draw(4, 3, 2, 5).requires_grad_(), torch.tensor([0, 1, 0, 1])
    seen = observe(network, maps, labels)
    torch.testing.assert_close(seen.hidden[0], maps.detach().mean(dim=(2, 3)))
    torch.testing.assert_close(seen.gradients[0], seen.error @ network.out_head.weight.detach())


class Reader(nn.Module):
    """Token ids → embeddings → one residual step → the class token's logits, every weight frozen."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(5))
        self.head = nn.Linear(4, 3)
        self.requires_grad_(False)

    def forward(self, ids: torch.Tensor, return_hidden: bool = False):
        first = self.embed(ids)
        last = first + self.block(first)
        return self.head(last[:, 0]), [first, last]


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_token_ids_are_no_place_for_a_gradient_but_states_have_one(precision):
    torch.manual_seed(SEED)
    network = Reader().to(precision)
    ids, labels = torch.randint(9, (6, 5)), torch.arange(6) % 3
    seen = observe(network, ids, labels)
    assert seen.hidden[0].dtype == seen.error.dtype == precision
    assert seen.gradients_double[0].dtype == torch.float64
    torch.testing.assert_close(seen.gradients[1], seen.error @ network.head.weight, rtol=1e-5, atol=1e-7)
    assert not any(tensor.requires_grad for tensor in (*seen.hidden, *seen.gradients, seen.error))
    assert not any(weight.requires_grad or weight.grad is not None for weight in network.parameters())


def test_a_look_keeps_whole_states_and_their_gradients_in_both_precisions():
    network = Network(nn.Identity(), [], None, nn.Linear(3, 2), pool=lambda maps: maps.mean(dim=(2, 3)))
    maps, labels = draw(4, 3, 2, 5).float(), torch.tensor([0, 1, 0, 1])
    seen = run_forward_backward(network, maps, labels)
    for one, precision in ((seen.single, torch.float32), (seen.double, torch.float64)):
        assert torch.equal(one.hidden[0], maps.to(precision)) and one.hidden[0].dtype == precision
        pooled = (one.logits.softmax(1) - seen.onehot.to(precision)) @ network.out_head.weight.detach().to(precision)
        torch.testing.assert_close(one.gradients[0], (pooled / 10)[:, :, None, None].expand(4, 3, 2, 5))
        assert not any(tensor.requires_grad for tensor in (one.logits, *one.hidden, *one.gradients))
    assert run_forward_backward(network, maps, labels, double=False).double is None


def test_an_observation_of_a_look_is_what_observe_gives():
    task = tiny_task()
    seen = run_forward_backward(task.network, *task.eval_batch)
    first = seen.observation(seen.single.gradients, exact=(True,) * 3, no_gamma="why")
    second = observe(
        task.network, *task.eval_batch, lambda hidden, gradients, error, onehot: gradients, exact=(True,) * 3
    )
    for name in ("hidden", "gradients", "gradients_double", "credits"):
        assert all(torch.equal(*pair) for pair in zip(getattr(first, name), getattr(second, name), strict=True)), name
    assert (first.exact, first.no_gamma, second.no_gamma, first.bench) == (second.exact, "why", "", None)
