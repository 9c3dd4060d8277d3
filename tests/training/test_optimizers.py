"""Learning rates by group, and layers that no step moves: frozen ones, and those without credit in a step."""

from __future__ import annotations

import pytest
import torch

from fa_registry.architectures.base import part_of
from fa_registry.errors import InvalidFields
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import tiny_spec, tiny_task

SGD = {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.2}
ADAMW = {"learning_rate": 0.1, "weight_decay": 0.2}
SITE = {"embed": 0, "blocks.0": 1, "blocks.1": 2}


def step(trainer, first=0):
    splits = trainer.setup.splits
    trainer.step(splits.test_images[first:][:16], splits.test_labels[first:][:16])


def copies(trainer):
    """The weights of each part of the network, and the optimiser's values of these weights."""
    parts = {}
    for name, parameter in trainer.setup.network.named_parameters():
        tensors = {
            name: parameter,
            **{f"{name}.{one}": held for one, held in trainer.optimizer.values(parameter).items()},
        }
        parts.setdefault(part_of(name), {}).update({key: held.detach().clone() for key, held in tensors.items()})
    return parts


def moved(before, after):
    """The parts of which any weight differs, or any value of the optimiser that both have."""
    return {
        part
        for part, tensors in after.items()
        if any(not torch.equal(before[part].get(name, tensor), tensor) for name, tensor in tensors.items())
    }


def without_credit(monkeypatch, trainer, sites):
    """Make the credit at some sites zero, for every sample."""
    rule = type(trainer.setup.method).credits
    blank = [SITE[part] for part in sites]

    def credits(self, feedback, inputs):
        return [0.0 * one if site in blank else one for site, one in enumerate(rule(self, feedback, inputs))]

    monkeypatch.setattr(type(trainer.setup.method), "credits", credits)


@pytest.mark.parametrize("recipe", [SGD, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize("parts", [("embed",), ("blocks.0",), ("blocks.1", "embed")], ids=" ".join)
def test_a_layer_without_credit_in_a_step_is_not_moved_by_momentum_or_decay(monkeypatch, recipe, parts):
    trainer = Trainer(tiny_task(method="dfa", **recipe))
    step(trainer)
    before = copies(trainer)
    with monkeypatch.context() as context:
        without_credit(context, trainer, parts)
        step(trainer, 16)
    between = copies(trainer)
    assert moved(before, between) == {*SITE, "readout"} - set(parts)
    step(trainer, 32)
    assert moved(between, copies(trainer)) == {*SITE, "readout"}


@pytest.mark.parametrize("recipe", [SGD, ADAMW], ids=["sgd", "adamw"])
def test_a_step_without_credit_leaves_no_trace(monkeypatch, recipe):
    """The next step moves a layer as if that step had not been; also where it was the first."""
    skipped, plain = (Trainer(tiny_task(method="dfa", **recipe)) for _ in range(2))
    with monkeypatch.context() as context:
        without_credit(context, skipped, {"blocks.1"})
        step(skipped)
    block = dict(plain.setup.network.blocks[1].named_parameters())
    for name, parameter in skipped.setup.network.blocks[1].named_parameters():
        assert torch.equal(parameter, block[name])
    for trainer in (skipped, plain):
        for parameter in trainer.setup.network.parameters():
            parameter.grad = torch.full_like(parameter, 0.25)
        trainer.optimizer.step(torch.ones(3, dtype=torch.bool))
    for name, parameter in skipped.setup.network.blocks[1].named_parameters():
        assert torch.equal(parameter, block[name])
    assert skipped.training_state().keys() == plain.training_state().keys()


def test_a_penalty_moves_a_block_without_credit(monkeypatch):
    trainer = Trainer(tiny_task(method="dfa", penalty=0.1))
    without_credit(monkeypatch, trainer, {"embed", "blocks.0"})
    before = copies(trainer)
    step(trainer)
    assert moved(before, copies(trainer)) == {"blocks.0", "blocks.1", "readout"}


def test_a_credit_that_replaced_weights_do_not_hand_down_moves_nothing(monkeypatch):
    """With zeros in place of the head's weight, no site has a credit; with zeros in block 1, sites 0 and 1 keep the skip's."""
    trainer = Trainer(tiny_task(method="weight_fa"))
    before = copies(trainer)
    with torch.no_grad():
        for matrix in trainer.setup.feedback.buffers():
            matrix.zero_()
    step(trainer)
    assert moved(before, copies(trainer)) == {"readout"}


@pytest.mark.parametrize("recipe", [SGD, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize(
    ("control", "method", "kept"), [("frozen", "bp", {"blocks.0", "blocks.1"}), ("ladder_1", "dfa", {"blocks.0"})]
)
def test_a_frozen_block_is_not_moved(recipe, control, method, kept):
    trainer = Trainer(tiny_task(method=method, control=control, **recipe))
    before = copies(trainer)
    for first in (0, 16):
        step(trainer, first)
    after = copies(trainer)
    assert moved(before, after) == {*SITE, "readout"} - kept
    assert all(set(after[part]) == set(before[part]) for part in kept)  # no moments


@pytest.mark.parametrize("method", ["bp", "dfa"])
def test_a_group_moves_at_its_own_rate(method):
    rates = {"rate_embedding": 3.0, "rate_blocks": 0.5, "rate_head": 2.0}
    recipe = {**SGD, "momentum": 0.0, "schedule": "constant"}
    plain, grouped = Trainer(tiny_task(method=method, **recipe)), Trainer(tiny_task(method=method, **recipe, **rates))
    before = copies(plain)
    for trainer in (plain, grouped):
        trainer.train_batch([torch.arange(16)])
    ends = copies(plain), copies(grouped)
    for part, factor in {"embed": 3.0, "blocks.0": 0.5, "blocks.1": 0.5, "readout": 2.0}.items():
        for name, start in before[part].items():
            usual, other = (end[part][name] - start for end in ends)
            torch.testing.assert_close(other, factor * usual, rtol=1e-3, atol=1e-6)


def test_the_rates_of_all_groups_follow_the_schedule():
    trainer = Trainer(tiny_task(method="kolen_pollack", epochs=2, rate_blocks=0.5, learning_rate=0.01))
    seen = []
    for _ in range(2):
        trainer.run_epoch()
        seen.append(sorted({group["lr"] for group in trainer.optimizer.param_groups}))
    assert seen == [pytest.approx([0.005, 0.01]), pytest.approx([0.0025, 0.005])]


def test_an_embedding_without_weights_has_no_rate():
    options = {"architecture": "mlp", "architecture_options": {"d_hidden": 16}, "rate_embedding": 2.0}
    with pytest.raises(InvalidFields) as caught:
        tiny_task(**options)
    assert caught.value.problems[0].startswith("rate_embedding: ")
    with pytest.raises(InvalidFields) as caught:
        tiny_spec(rate_head=0.0)
    assert caught.value.problems[0].startswith("rate_head: ")
