"""One step: one forward, one backward; nothing leaks from block to block; norms and sums."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from fa_registry.methods.dfa import PLUGIN as DFA
from fa_registry.training.controls import trainable_parameters
from fa_registry.training.step import OutputError, exact_step, local_step
from tests.helpers.nets import of
from tests.helpers.small import double, tiny_task

LAMBDA = 0.05


class Counting(nn.Module):
    """A block that counts how often it runs forward and how often a gradient comes back through it."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.block, self.forwards, self.backwards = block, 0, 0

    def forward(self, state):
        self.forwards += 1
        branch = self.block(state)
        branch.register_hook(self._came_back)
        return branch

    def _came_back(self, gradient):
        self.backwards += 1


def step(task, penalty: float = 0.0, credit_norm: str = "none", count: int = 32):
    images, labels = (rows[:count] for rows in task.eval_batch)
    task.network.zero_grad(set_to_none=True)
    if task.method.end_to_end:
        return exact_step(task.network, images, labels, penalty)
    return local_step(task.network, task.method, task.feedback, images, labels, penalty, credit_norm)


def gradients(network) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("method", ["bp", "fa", "dfa"])
@pytest.mark.parametrize("penalty", [0.0, LAMBDA])
def test_one_forward_and_one_backward_a_block(method, penalty):
    task = tiny_task(method=method)
    task.network.blocks = nn.ModuleList(Counting(block) for block in task.network.blocks)
    step(task, penalty)
    assert [(block.forwards, block.backwards) for block in task.network.blocks] == [(1, 1), (1, 1)]


@pytest.mark.parametrize("penalty", [0.0, LAMBDA])
def test_exact_step_is_autograd_of_the_written_loss(penalty):
    task = double(tiny_task(method="bp"))
    images, labels = (rows[:32] for rows in task.eval_batch)
    step(task, penalty)
    found = gradients(task.network)
    logits, hidden = task.network(images, return_hidden=True)
    branches = [above - below for below, above in zip(hidden[:-1], hidden[1:], strict=True)]
    loss = nn.functional.cross_entropy(logits, labels) + penalty * sum(f.square().sum(1).mean() for f in branches)
    expected = torch.autograd.grad(loss, list(task.network.parameters()))
    for (name, gradient), true in zip(found.items(), expected, strict=True):
        torch.testing.assert_close(gradient, true, rtol=1e-10, atol=1e-15, msg=name)


@pytest.mark.parametrize("method", ["fa", "dfa"])
def test_a_local_rule_leaks_no_gradient_between_blocks(method):
    """Block 1's update must not notice block 2's branch weights: h_1 is fed to block 2 detached."""
    task = tiny_task(method=method, penalty=LAMBDA)
    step(task, LAMBDA)
    before = gradients(task.network)

    class Silent(type(task.method)):
        """Credits of zero above block 1, so that anything reaching block 1 came from its own credit."""

        def credits(self, feedback, inputs):
            own = super().credits(feedback, inputs)
            return [*own[:2], torch.zeros_like(own[2])]

    silent = dataclasses.replace(task, method=Silent())
    step(silent, LAMBDA)
    after = gradients(task.network)
    for name, gradient in before.items():
        if name.startswith("blocks.1."):
            assert not torch.equal(gradient, after[name]) or gradient.abs().max() == 0, name
        else:
            assert torch.equal(gradient, after[name]), name


def test_a_local_rule_differs_from_bp_in_the_blocks_and_not_in_the_head():
    local, exact = tiny_task(method="dfa"), tiny_task(method="bp")
    step(local)
    step(exact)
    mine, true = gradients(local.network), gradients(exact.network)
    for name, gradient in mine.items():
        assert torch.allclose(gradient, true[name], rtol=1e-4, atol=1e-7) == name.startswith("out_"), name


def test_the_penalty_alone_shrinks_each_branch_and_touches_neither_embedding_nor_head():
    task = double(tiny_task(method="dfa"))
    images, _ = (rows[:32] for rows in task.eval_batch)
    step(task)
    without = gradients(task.network)
    step(task, LAMBDA)
    added = {name: gradient - without[name] for name, gradient in gradients(task.network).items()}
    hidden = task.network(images, return_hidden=True)[1]
    for index, block in enumerate(task.network.blocks):
        penalty = LAMBDA * block(hidden[index].detach()).square().sum(1).mean()
        for (name, _), true in zip(
            block.named_parameters(), torch.autograd.grad(penalty, list(block.parameters())), strict=True
        ):
            torch.testing.assert_close(added.pop(f"blocks.{index}.{name}"), true, rtol=1e-9, atol=1e-14)
    assert added
    assert all(rest.abs().max() == 0 for rest in added.values())


def test_sums_are_over_the_batch():
    task = double(tiny_task(method="dfa"))
    images, labels = (rows[:32] for rows in task.eval_batch)
    sums = step(task, LAMBDA)
    logits, hidden = task.network(images, return_hidden=True)
    branches = [above - below for below, above in zip(hidden[:-1], hidden[1:], strict=True)]
    assert sums.loss.item() == pytest.approx(nn.functional.cross_entropy(logits, labels, reduction="sum").item())
    assert sums.correct.item() == (logits.argmax(1) == labels).sum().item()
    assert sums.penalty.item() == pytest.approx(LAMBDA * sum(f.square().sum().item() for f in branches))
    assert step(task).penalty.item() == 0.0


def test_credits_are_of_the_summed_loss_whatever_the_batch_size():
    """A method is told g_L without 1/N: the same sample's row in a batch of 1 and of 32."""
    task = double(tiny_task(method="fa"))
    told = []

    class Listening(type(task.method)):
        def credits(self, feedback, inputs):
            told.append(inputs)
            return super().credits(feedback, inputs)

    listening = dataclasses.replace(task, method=Listening())
    step(listening, count=32)
    step(listening, count=1)
    torch.testing.assert_close(told[0].output_gradient[:1], told[1].output_gradient, rtol=1e-12, atol=1e-15)
    assert all(inputs.gradients is None for inputs in told)


def test_output_error_needs_no_second_softmax():
    logits, labels = torch.tensor([[0.0, 0.0], [1000.0, 0.0]], requires_grad=True), torch.tensor([0, 1])
    output = OutputError.of(logits, labels)
    assert output.error.tolist() == [[-0.5, 0.5], [1.0, -1.0]]
    assert not output.error.requires_grad
    assert output.sums(labels, torch.zeros(())).loss.item() == pytest.approx(1000 + 0.6931472)


def test_dfa_without_graph_state_is_the_catalogs():
    assert tiny_task(method="dfa").method is DFA


def test_a_sample_whose_logits_are_nan_is_not_counted_as_right():
    """argmax of nan is class 0: a diverged run would score a tenth of ten classes."""
    logits = torch.tensor([[float("nan")] * 3, [3.0, 1.0, 0.0]])
    labels = torch.tensor([0, 0])
    assert OutputError.of(logits, labels).sums(labels, torch.zeros(())).correct.item() == 1


@pytest.mark.parametrize("method", ["bp", "fa", "dfa"])
@pytest.mark.parametrize("penalty", [0.0, LAMBDA])
def test_frozen_blocks_get_no_gradient_and_the_others_the_one_they_always_get(method, penalty):
    whole, ladder = tiny_task(method=method), tiny_task(method=method)
    everything = step(whole, penalty)
    trainable_parameters(ladder.network, "ladder_1")
    sums = step(ladder, penalty)
    for (name, mine), theirs in zip(ladder.network.named_parameters(), whole.network.parameters(), strict=True):
        if name.startswith("blocks.0."):
            assert mine.grad is None, name
        elif not (method == "bp" and penalty and name.startswith("embed.")):  # bp passes a branch's penalty on below it
            assert torch.equal(mine.grad, theirs.grad), name
    assert torch.equal(sums.loss, everything.loss)


@pytest.mark.parametrize("method", ["bp", "dfa"])
def test_what_a_control_keeps_is_not_penalised(method):
    """λ||f||² of the trained block alone, in the figure and, by bp, in what reaches the embedding."""
    task = double(tiny_task(method=method))
    trainable_parameters(task.network, "ladder_1")
    images, labels = (rows[:32] for rows in task.eval_batch)
    sums = step(task, LAMBDA)
    found = task.network.embed.weight.grad.clone()
    logits, hidden = task.network(images, return_hidden=True)
    kept = LAMBDA * (hidden[2] - hidden[1]).square().sum()
    assert sums.penalty.item() == pytest.approx(kept.item())
    if method == "bp":
        loss = nn.functional.cross_entropy(logits, labels) + kept / 32
        expected = torch.autograd.grad(loss, task.network.embed.weight)[0]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-15)


def test_a_frozen_block_costs_a_local_method_no_backward_pass():
    task = tiny_task(method="dfa")
    trainable_parameters(task.network, "ladder_1")
    seen = []
    task.network.blocks[0].register_forward_hook(lambda block, inputs, branch: seen.append(branch.requires_grad))
    step(task)
    assert seen == [False]


@pytest.mark.parametrize("credit_norm", ["none", "rms"])
@pytest.mark.parametrize(
    ("architecture", "extra"), [("vit_mini", {}), ("vit_mini", {"broadcast": "class"}), ("small_resnet", {})]
)
def test_a_row_of_credit_teaches_what_the_objective_says(architecture, extra, credit_norm):
    """J_l = mean_i <averaged f_l(h), norm(c_l)> over all positions, or that of the class token alone; norm before spreading."""
    changes = of(architecture, method="dfa")
    changes["architecture_options"] = {**changes["architecture_options"], **extra}
    task = double(tiny_task(**changes))
    task.network.eval()
    images, labels = (rows[:32] for rows in task.eval_batch)
    step(task, 0.0, credit_norm)
    found = gradients(task.network)
    logits, hidden = task.network(images, return_hidden=True)
    rows = [OutputError.of(logits, labels).error @ task.feedback.matrix(max(site, 1)).T for site in range(len(hidden))]
    if credit_norm == "rms":
        rows = [row / (row.square().mean(dim=1, keepdim=True).sqrt() + 1e-6) for row in rows]
    outputs = [task.network.embed(images)]
    outputs += [block(state.detach()) for block, state in zip(task.network.blocks, hidden[:-1], strict=True)]
    read = [output[:, 0] if extra else output.mean(dim=(2, 3) if output.dim() == 4 else 1) for output in outputs]
    loss = sum((value * row.detach()).sum(dim=1).mean() for value, row in zip(read, rows, strict=True))
    learned = {
        name: one for name, one in task.network.named_parameters() if not name.startswith(("out_ln", "out_head"))
    }
    for name, true in zip(learned, torch.autograd.grad(loss, list(learned.values())), strict=True):
        torch.testing.assert_close(found[name], true, rtol=1e-9, atol=1e-9 * true.abs().max().item(), msg=name)
