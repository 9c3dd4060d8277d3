"""The bench of a task: float64, eval mode, whole states; seeded by name; and it leaves the task alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from fa_registry import diagnostics
from fa_registry.architectures.base import Network
from fa_registry.datasets.base import Splits
from fa_registry.diagnostics import Unavailable
from fa_registry.seeding import generator
from fa_registry.training.probe_context import (
    bench_conventions,
    bench_of,
    credits_under,
    disjoint_batches,
    in_precision,
    stability_split,
    stream,
)
from tests.helpers.closed_form_tasks import KINDS, gradients, hand_task, sharp_task, states
from tests.helpers.probes import bench_for, first
from tests.helpers.tiny_tasks import tiny_task


@pytest.mark.parametrize("kind", KINDS)
def test_states_gradients_and_credits_are_whole_and_in_float64(kind):
    bench = bench_for(sharp_task(kind, 6))
    for site in range(3):
        assert bench.states[site].numpy() == pytest.approx(states(kind, 6)[site], abs=1e-12)
        assert bench.gradients[site].numpy() == pytest.approx(gradients(kind, 6)[site], abs=1e-12)
        assert bench.credits[site].shape == bench.states[site].shape
    assert bench.losses.tolist() == pytest.approx([300.0] * 6)
    assert bench_for(tiny_task()).states[0].dtype == bench_for(tiny_task()).credits[0].dtype == torch.float64


def test_losses_from_a_site_go_through_the_blocks_above_it():
    task = tiny_task()
    bench = bench_for(task)
    network, (images, labels) = in_precision(task.network, torch.float64), task.eval_batch
    logits, hidden = network(images.double(), return_hidden=True)
    whole = nn.functional.cross_entropy(logits, labels, reduction="none")
    assert torch.allclose(bench.losses, whole, rtol=1e-12)
    for site in range(3):
        variants = torch.stack([hidden[site], 2 * hidden[site]], dim=1)
        found = bench.losses_from(site, variants)
        assert found.shape == (128, 2) and torch.allclose(found[:, 0], whole, rtol=1e-12)
        state = 2 * hidden[site]
        for block in network.blocks[site:]:
            state = state + block(state)
        doubled = nn.functional.cross_entropy(network.readout(state), labels, reduction="none")
        assert torch.allclose(found[:, 1], doubled, rtol=1e-12)
        assert torch.allclose(bench.losses_from(site, variants[40:50], 40), found[40:50], rtol=1e-12)


def test_trials_are_in_eval_mode_and_leave_the_network_as_it_was():
    network = Network(nn.BatchNorm1d(2), [nn.Dropout(0.9)], None, nn.Linear(2, 3)).double().train()
    images = torch.randn(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    task = hand_task(network, images, torch.zeros(8, dtype=torch.int64))
    network(images).sum().backward()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    bench = bench_for(task)
    once, again = (bench.losses_from(0, bench.states[0].unsqueeze(1)) for _ in range(2))
    assert torch.equal(once, again) and torch.allclose(once.squeeze(1), bench.losses)
    assert network.training and network.out_head.weight.requires_grad and network.out_head.weight.grad is not None
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_stream_is_known_by_its_name_and_the_runs_seed():
    task, other = tiny_task(), tiny_task(seed=tiny_task().spec.seed + 1)
    draws = [torch.rand(3, generator=stream(*place)).tolist() for place in ((task, "a"), (task, "b"), (other, "a"))]
    assert draws[0] == torch.rand(3, generator=stream(task, "a")).tolist()
    assert draws[0] != draws[1] and draws[0] != draws[2]


def test_fresh_credits_follow_their_index_and_are_not_the_runs_own():
    task = tiny_task(method="dfa")
    bench = bench_for(task)
    first_draw, second_draw, again = (bench.fresh_credits(index) for index in (0, 1, 0))
    assert all(torch.equal(*pair) for pair in zip(first_draw, again, strict=True))
    look = diagnostics.run_forward_backward(task.network, *task.eval_batch)
    own = credits_under(task, task.feedback, look)
    for left, right in ((first_draw, second_draw), (first_draw, own)):
        assert not any(torch.allclose(*pair) for pair in zip(left, right, strict=True))


def test_the_batches_mean_gradients_are_of_the_training_split_under_one_fixed_draw():
    task = tiny_task()
    draw = generator(task.spec.seed, "evaluation")
    images, labels = task.splits.augment(task.splits.train_images[:1024], draw), task.splits.train_labels[:1024]
    found = bench_for(task).batch_gradients()
    for batch in (0, 5):
        part = slice(128 * batch, 128 * (batch + 1))
        seen = diagnostics.observe(task.network, images[part], labels[part])
        for site in range(3):
            assert found[site].shape == (8, 16)
            assert torch.allclose(found[site][batch], seen.gradients[site].double().mean(0), rtol=1e-12, atol=1e-15)
    assert all(torch.equal(*pair) for pair in zip(found, bench_for(task).batch_gradients(), strict=True))


def test_of_a_large_test_split_the_first_samples_are_taken():
    task = sharp_task("vectors", 1100)
    found = bench_for(task).batch_gradients()
    assert found[0].numpy() == pytest.approx(gradients("vectors", 1024)[0].reshape(8, 128, 3).mean(axis=1))
    assert bench_conventions(task)["stability_split"] == "test"


def test_too_few_samples_are_absent_with_both_numbers():
    task = first(tiny_task(), 100)
    cut = dataclasses.replace(
        task.splits, train_images=task.splits.train_images[:1023], train_labels=task.splits.train_labels[:1023]
    )
    task = dataclasses.replace(task, splits=cut)
    reason = "needs 8 disjoint batches of 128: the test split has 100 samples, the training split 1023"
    assert bench_for(task).batch_gradients == stability_split(cut) == Unavailable(reason)
    conventions = bench_conventions(task)
    assert (conventions["stability_split"], conventions["gamma_null_draws"]) == (f"none: {reason}", 99)


def test_nothing_is_computed_before_it_is_asked_for():
    task = tiny_task()
    look = diagnostics.run_forward_backward(task.network, *task.eval_batch)
    broken = dataclasses.replace(task, network=Unwilling(task.network))
    bench = bench_of(broken, look, look.single.gradients, "", None)
    with pytest.raises(ArithmeticError):
        bench.losses_from(0, bench.states[0].unsqueeze(1))


class Unwilling(Network):
    """Its weights can be listed; a pass raises."""

    def __init__(self, network):
        super().__init__(network.embed, list(network.blocks), network.out_ln, network.out_head)

    def readout(self, state):
        raise ArithmeticError


def test_without_the_feedback_nothing_that_needs_it_is_on_the_bench():
    task = tiny_task(method="dfa")
    bench = bench_of(
        task, diagnostics.run_forward_backward(task.network, *task.eval_batch), None, "the file is gone", None
    )
    for part in (bench.credits, bench.fresh_credits, bench.bridge_residuals):
        assert part == Unavailable("the file is gone")
    assert isinstance(bench.initial_weights, Unavailable)


def splits(test: int, train: int) -> Splits:
    numbers = [torch.arange(count, dtype=torch.float32) for count in (train, test)]
    labels = [rows.long() % 10 for rows in numbers]

    def shift(batch, draw):
        return batch + torch.rand((), generator=draw)

    return Splits(numbers[0], labels[0], numbers[1], labels[1], augment=shift, digest="")


@pytest.mark.parametrize(
    ("test", "train", "expected"),
    [(1024, 0, "test"), (5000, 5000, "test"), (1023, 1024, "train"), (360, 1437, "train")],
)
def test_the_test_split_where_it_is_large_enough(test, train, expected):
    assert stability_split(splits(test, train)) == expected


def test_neither_is_large_enough():
    assert isinstance(stability_split(splits(1023, 1023)), Unavailable)


def test_batches_are_disjoint_in_order_and_unaugmented_where_they_are_of_the_test_split():
    images, labels = zip(*disjoint_batches(splits(2000, 0), "test", torch.Generator()), strict=True)
    assert torch.cat(images).tolist() == list(range(1024))
    assert [len(batch) for batch in labels] == [128] * 8
    assert torch.equal(torch.cat(labels), torch.arange(1024) % 10)


def test_the_training_split_is_seen_as_in_training_by_the_generator_given():
    data = splits(0, 2000)
    seen = [
        torch.cat([batch for batch, _ in disjoint_batches(data, "train", torch.Generator().manual_seed(seed))])
        for seed in (0, 0, 1)
    ]
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])
    offset = (seen[0] - torch.arange(1024)).unique()
    assert 0 < offset[0] < 1 and offset.max() - offset.min() < 1e-3  # one draw for all of them
