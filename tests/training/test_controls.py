"""Controls decide which parameters train."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fa_registry import methods
from fa_registry.token_axes import mean_over_positions
from fa_registry.training.controls import (
    control_name,
    depth,
    ladder,
    learns,
    train_mode,
    trainable_parameters,
    trains_blocks,
)
from fa_registry.training.loop import train
from fa_registry.training.step import backprop_step
from fa_registry.training.trainer import Trainer
from tests.helpers.covering import every_method
from tests.helpers.nets import short_task
from tests.helpers.tiny_tasks import Recorder, tiny_task, trained, weights_equal

pytestmark = pytest.mark.long

METHODS = ("bp", "fa", "dfa")
ON_MAPS = [name for name in methods.CATALOG.names() if methods.CATALOG.get(name).card.supports("small_resnet")]
OPTIONS = {"d_hidden": 8, "num_blocks": 3, "w2_std": 0.5}


def changed(task) -> set[str]:
    """Names of the parameters that are no longer what they started as."""
    before = tiny_task(architecture_options=OPTIONS).network.state_dict()
    return {name for name, value in task.network.state_dict().items() if not torch.equal(value, before[name])}


def test_without_control_everything_trains():
    network = tiny_task().network
    assert len(trainable_parameters(network, "none")) == len(list(network.parameters()))


def test_frozen_switches_the_blocks_off_and_nothing_else():
    network = tiny_task().network
    kept = {id(parameter) for parameter in trainable_parameters(network, "frozen")}
    for name, parameter in network.named_parameters():
        assert (id(parameter) in kept) == parameter.requires_grad == (not name.startswith("blocks.")), name


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", range(4))
def test_a_ladder_control_trains_the_last_blocks_and_everything_else(method, count):
    trainer, _, outcome = trained(method=method, control=f"ladder_{count}", epochs=1, architecture_options=OPTIONS)
    names = {name for name, _ in trainer.setup.network.named_parameters()}
    kept = tuple(f"blocks.{block}." for block in range(3 - count))
    assert changed(trainer.setup) == {name for name in names if not name.startswith(kept or "none of them")}
    assert outcome.status == "complete"


def test_ladder_0_by_bp_is_frozen_bit_by_bit():
    ladder = [trained(method="bp", control=control, epochs=2)[0] for control in ("ladder_0", "frozen")]
    assert weights_equal(ladder[0].setup.network, ladder[1].setup.network)


@pytest.mark.parametrize("method", METHODS)
def test_a_ladder_of_all_blocks_is_the_method_itself_bit_by_bit(method):
    ladder = [trained(method=method, control=control, epochs=2, penalty=0.1)[0] for control in ("ladder_2", "none")]
    assert weights_equal(ladder[0].setup.network, ladder[1].setup.network)


def test_ladder_0_by_a_local_method_is_not_frozen():
    """Its embedding learns from the method's c_0, frozen's from backpropagation."""
    ladder = [trained(**spec, epochs=1)[0] for spec in ({"control": "ladder_0"}, {"control": "frozen", "method": "bp"})]
    assert not weights_equal(ladder[0].setup.network, ladder[1].setup.network)


def test_names():
    assert [
        depth(name) for name in ("ladder_0", "ladder_12", "none", "frozen", "ladder_", "ladder_01", "ladder_1x")
    ] == [
        0,
        12,
        *[None] * 5,
    ]
    assert ladder(3) == ["ladder_0", "ladder_1", "ladder_2"] and ladder(0) == []
    assert [control_name(name) for name in ("none", "shallow", "ladder_3")] == ["none", "shallow", "ladder_3"]
    with pytest.raises(ValueError, match="ladder_K to train the last K blocks, found 'ladder_K'"):
        control_name("ladder_K")
    assert trains_blocks("deep_supervision") and control_name("deep_supervision") == "deep_supervision"
    assert [trains_blocks(name) for name in ("none", "frozen", "frozen_long", "shallow", "ladder_0", "ladder_1")] == [
        True,
        *[False] * 4,
        True,
    ]


SHARED = {"method": "bp", "control": "deep_supervision", "architecture_options": OPTIONS}


def test_deep_supervision_starts_with_the_heads_of_a_method_with_heads_and_trains_everything():
    heads, control = (
        tiny_task(**one).feedback for one in ({**SHARED, "method": "mono_forward", "control": "none"}, SHARED)
    )
    assert weights_equal(heads, control)
    trainer, _, outcome = trained(**SHARED, epochs=1)
    assert changed(trainer.setup) == {name for name, _ in trainer.setup.network.named_parameters()}
    assert not any(
        torch.equal(*pair) for pair in zip(heads.parameters(), trainer.setup.feedback.parameters(), strict=True)
    )
    assert outcome.status == "complete"


@pytest.mark.parametrize("architecture", ["resmlp", "mlp", "small_resnet", "vit_mini", "causal_transformer"])
def test_the_gradient_of_deep_supervision_is_autograds_of_the_sum_of_all_losses(architecture):
    setup = short_task(architecture, method="bp", control="deep_supervision")
    network, heads, images, labels = (
        setup.network.double().train(),
        setup.feedback.double(),
        setup.splits.test_images[:9],
        setup.splits.test_labels[:9],
    )
    images = images.double() if images.is_floating_point() else images
    logits, hidden = network(images, return_hidden=True)
    losses = [setup.task.sample_losses(logits, labels)]
    for site, state in enumerate(hidden):
        state = state if setup.task.by_position else mean_over_positions(state)
        losses.append(setup.task.sample_losses(state @ getattr(heads, f"M_{site:02d}").T, labels))
    parameters = [*network.parameters(), *heads.parameters()]
    expected = torch.autograd.grad(sum(loss.mean() for loss in losses), parameters)
    sums = backprop_step(network, images, labels, 0.0, task=setup.task, heads=heads)
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-10, atol=1e-14)
    assert sums.loss.item() == pytest.approx(losses[0].sum().item(), rel=1e-12)


def test_a_block_without_parameters_has_nothing_to_keep():
    assert learns(nn.GELU()) and learns(nn.Linear(2, 2))
    assert not learns(nn.Linear(2, 2).requires_grad_(False))


def batch_norms(module: nn.Module) -> list[nn.BatchNorm2d]:
    return [one for one in module.modules() if isinstance(one, nn.BatchNorm2d)]


def untouched(norm: nn.BatchNorm2d) -> bool:
    return norm.running_mean.eq(0).all() and norm.running_var.eq(1).all() and norm.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("method", "control", "kept"), [("bp", "frozen", 2), ("bp", "ladder_1", 1), ("fa", "ladder_1", 1)]
)
def test_a_kept_blocks_batch_norm_stays_as_it_was_built_and_a_learning_ones_follows(method, control, kept):
    """128 samples in batches of 64: two steps, and a measurement before and after each epoch that must not count."""
    trainer = Trainer(short_task("small_resnet", method=method, control=control, epochs=2, batch_size=64))
    train(trainer, Recorder())
    network = trainer.setup.network
    for index, block in enumerate(network.blocks):
        for norm in batch_norms(block):
            assert untouched(norm) == (index < kept)
            assert norm.training == (index >= kept)
            assert norm.num_batches_tracked == (0 if index < kept else 4)
    assert [norm.num_batches_tracked for norm in batch_norms(network.stem_bn)] == [4]


@pytest.mark.parametrize("method", every_method(ON_MAPS))
def test_a_step_shows_a_batch_norm_its_batch_once(method):
    """Credits, feedback losses and measurements must not move the running statistics a second time."""
    trainer = Trainer(short_task("small_resnet", method=method, epochs=1, batch_size=64))
    train(trainer, Recorder())
    assert {int(norm.num_batches_tracked) for norm in batch_norms(trainer.setup.network)} == {2}


def test_train_mode_reaches_all_but_the_kept_blocks():
    network = short_task("small_resnet", method="bp").network.eval()
    trainable_parameters(network, "ladder_1")
    train_mode(network)
    assert [block.training for block in network.blocks] == [False, True]
    assert network.training and network.stem_bn.training and network.out_head.training
    assert not any(module.training for module in network.blocks[0].modules())
