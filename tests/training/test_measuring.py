"""measure: every diagnostic, the whole test set, and no change to the task."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fa_registry import diagnostics
from fa_registry.errors import PluginError
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.training import measuring
from fa_registry.training.measuring import accuracy, measure, with_conventions
from fa_registry.training.task import Task
from tests.helpers.small import CPU, scaling_network, tiny_task


def test_every_quantity_of_the_catalog_and_the_accuracy_are_there():
    measured = measure(tiny_task())
    cards = [diagnostics.CATALOG.get(name).card for name in diagnostics.CATALOG.names()]
    assert {*measured.sites, *measured.scalars} == {"accuracy", *(name for card in cards for name in card.quantities)}
    assert all(len(readings) == 3 for readings in measured.sites.values())


def test_accuracy_is_of_the_whole_test_set(monkeypatch):
    task = tiny_task()
    with torch.no_grad():
        right = task.network(task.splits.test_images).argmax(1) == task.splits.test_labels
    assert accuracy(task.network, task.splits.test_images, task.splits.test_labels) == right.sum().item() / 360
    assert measure(task).scalars["accuracy"].value == right.sum().item() / 360
    monkeypatch.setattr(measuring, "TEST_BATCH", 7)
    assert accuracy(task.network, task.splits.test_images, task.splits.test_labels) == right.sum().item() / 360


def test_a_sample_whose_logits_are_not_finite_is_wrong():
    network = scaling_network([], torch.eye(2, dtype=torch.float64))
    images = torch.tensor([[float("nan"), 0.0], [1.0, 0.0], [float("inf"), 0.0]], dtype=torch.float64)
    assert accuracy(network, images, torch.tensor([0, 0, 0])) == pytest.approx(1 / 3)


def test_accuracy_is_measured_in_eval_mode():
    network = nn.Sequential(nn.Dropout(0.999), nn.Identity())
    images = torch.eye(4)
    assert accuracy(network, images, torch.arange(4)) == 1.0
    assert network[0].training


def test_measuring_changes_nothing_and_repeats_bit_by_bit():
    task = tiny_task()
    before = {name: value.clone() for name, value in task.network.state_dict().items()}
    random = torch.get_rng_state()
    first, second = measure(task), measure(task)
    assert first == second
    assert all(torch.equal(value, before[name]) for name, value in task.network.state_dict().items())
    assert all(parameter.grad is None for parameter in task.network.parameters())
    assert torch.equal(random, torch.get_rng_state())


def test_conventions_say_how_it_was_measured():
    task = tiny_task()
    conventions = with_conventions(measure(task), task).conventions
    assert conventions["eval_samples"] == 128
    assert conventions["test_samples"] == 360
    assert conventions["gradient_reduction"] == "sum"
    assert conventions["threads"] == 1
    assert len(conventions["eval_digest"]) == 64


def test_a_credit_that_fits_no_state_is_refused_while_measuring():
    class Misfit(DirectFeedbackAlignment):
        def credits(self, feedback, inputs):
            return [credit[:, :3] for credit in super().credits(feedback, inputs)]

    task = tiny_task()
    misfit = Task(task.spec, CPU, task.card, task.splits, task.network, Misfit(), task.feedback)
    with pytest.raises(PluginError, match=r"site 0: credit of shape \(128, 3\), expected \(128, 16\)"):
        measure(misfit)
