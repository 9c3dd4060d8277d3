"""Tasks: the same spec gives the same task; shapes are read off, not trusted."""

from __future__ import annotations

import dataclasses

import torch

from fa_registry.methods.base import NetworkShape
from fa_registry.seeding import generator
from fa_registry.training.task import build_network, eval_digest, network_shape
from tests.helpers.small import SEED, tiny_spec, tiny_task, weights_equal


def test_the_same_spec_gives_the_same_weights_and_feedback():
    first = tiny_task()
    torch.manual_seed(5)
    second = tiny_task()
    assert weights_equal(first.network, second.network)
    assert weights_equal(first.feedback, second.feedback)
    assert first.feedback.state_dict()


def test_preparing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    tiny_task()
    assert torch.equal(before, torch.get_rng_state())


def test_weights_and_feedback_come_from_two_streams_of_the_seed():
    task = tiny_task()
    shape = network_shape(task.network, task.splits.test_images[:1], 10)
    again = task.method.feedback(shape, {}, generator(SEED, "feedback"))
    assert weights_equal(task.feedback, again)
    assert not weights_equal(task.network, tiny_task(seed=SEED + 1).network)
    assert not weights_equal(task.feedback, tiny_task(seed=SEED + 1).feedback)


def test_shape_is_read_off_the_network():
    task = tiny_task()
    assert network_shape(task.network, task.splits.test_images[:1], 10) == NetworkShape((16, 16, 16), 10)


def test_controls_share_the_initial_weights():
    full = tiny_task().network.state_dict()
    assert weights_equal(tiny_task(method="bp", control="frozen").network, tiny_task().network)
    shallow = build_network(tiny_spec(method="bp", control="shallow"), tiny_task().card).state_dict()
    assert torch.equal(shallow["embed.weight"], full["embed.weight"])
    assert not any(name.startswith("blocks") for name in shallow)


def test_the_eval_batch_is_the_first_128_test_samples():
    task = tiny_task()
    images, labels = task.eval_batch
    assert len(labels) == 128
    assert torch.equal(images, task.splits.test_images[:128])
    changed = dataclasses.replace(task.splits, test_images=task.splits.test_images + 1e-6)
    assert eval_digest(task) == eval_digest(tiny_task(method="bp"))
    assert eval_digest(task) != eval_digest(dataclasses.replace(task, splits=changed))


def test_exact_sites_follow_the_card():
    assert tiny_task(method="bp").exact_sites == (True, True, True)
    assert tiny_task(method="fa").exact_sites == (False, False, True)
    assert tiny_task(method="dfa").exact_sites == (False, False, False)
