"""Weight feedback's step with a BatchNorm in the blocks: rows are coupled, and the gradients are still the definition's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fa_registry.methods._replaced import backward_through
from fa_registry.terminal_loss import output_error
from fa_registry.training import step
from fa_registry.training.step import couples_samples, local_step, scales
from fa_registry.training.task import Task
from tests.helpers.nets import short_task
from tests.helpers.small import double

SAMPLES, PENALTY = 12, 0.05


def task_on(architecture: str) -> Task:
    """Norms moved off their initial values; training mode."""
    task, stream = double(short_task(architecture, method="weight_fa")), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in task.network.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=stream, dtype=torch.float64) * 0.3)
    task.network.train()
    return task


def batch(task: Task) -> tuple[Tensor, Tensor]:
    return task.splits.test_images[:SAMPLES], task.splits.test_labels[:SAMPLES]


def stepped(task: Task, penalty: float, credit_norm: str) -> dict[str, Tensor]:
    task.network.zero_grad(set_to_none=True)
    local_step(task.network, task.method, task.feedback, *batch(task), penalty, credit_norm)
    return {
        name: one.grad.clone()
        for name, one in task.network.named_parameters()
        if not name.startswith(("out_ln", "out_head"))
    }


def defined(task: Task, penalty: float, credit_norm: str) -> dict[str, Tensor]:
    """c_{l−1} = c_l (skip) + what c_l leaves at block l's input, whole; then every J_l by autograd, one after the other."""
    network, (images, labels) = task.network, batch(task)
    matrices = task.method.backward_weights(task.feedback, network)
    learned = {name: one for name, one in network.named_parameters() if not name.startswith(("out_ln", "out_head"))}
    with backward_through(network, matrices):
        embedded = network.embed(images)
        states, branches = [embedded.detach()], []
        for block in network.blocks:
            branches.append(block(states[-1]))
            states.append(network.step(states[-1], branches[-1]).detach())
        top = states[-1].clone().requires_grad_()
        logits = network.readout(top)
        credits = [torch.autograd.grad(logits, top, output_error(logits.detach(), labels))[0]]
        for block, state in zip(reversed(network.blocks), reversed(states[:-1]), strict=True):
            leaf = state.clone().requires_grad_()
            through = torch.autograd.grad(block(leaf), leaf, credits[0])[0]
            credits.insert(0, credits[0] + through if network.residual else through)
        objective = torch.zeros((), dtype=torch.float64)
        for value, credit in zip([embedded, *branches], credits, strict=True):
            objective = objective + (value * (credit / scales(credit, credit_norm)).detach()).sum() / SAMPLES
        objective = objective + penalty * sum(branch.square().sum() / SAMPLES for branch in branches)
        return dict(zip(learned, torch.autograd.grad(objective, list(learned.values())), strict=True))


def equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return all(
        torch.allclose(found[name], expected[name], rtol=1e-9, atol=1e-9 * expected[name].abs().max().item())
        for name in expected
    )


@pytest.mark.parametrize("architecture", ["small_resnet", "small_cnn", "vit_mini", "resmlp"])
@pytest.mark.parametrize("penalty", [0.0, PENALTY])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_the_gradients_are_those_of_the_definition(architecture, penalty, credit_norm):
    task = task_on(architecture)
    assert equal(stepped(task, penalty, credit_norm), defined(task, penalty, credit_norm))


def test_without_the_second_pass_coupled_rows_would_be_scaled_wrongly(monkeypatch):
    """Why couples_samples exists: what a row's credit leaves below is not a multiple of what its normed credit leaves."""
    task = task_on("small_resnet")
    monkeypatch.setattr(step, "couples_samples", lambda block: False)
    assert not equal(stepped(task, 0.0, "rms"), defined(task, 0.0, "rms"))
    assert equal(stepped(task, 0.0, "none"), defined(task, 0.0, "none"))  # one scale for all: nothing to undo


def test_blocks_that_couple_samples():
    norm = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    assert couples_samples(norm)
    assert not couples_samples(norm.eval())
    assert not couples_samples(nn.Sequential(nn.LayerNorm(3), nn.Dropout()))
