"""One step: one forward, one backward; nothing leaks from block to block; norms and sums."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from fa_registry.methods._backward_weights import backward_through
from fa_registry.tasks import output_error
from fa_registry.training import step as step_chained
from fa_registry.training.controls import trainable_parameters
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.step import (
    OutputError,
    backprop_step,
    couples_samples,
    credit_divisor,
    local_credit_step,
    norm_eps,
    normalised_credits,
)
from tests.helpers.nets import of, short_task
from tests.helpers.tiny_tasks import double, tiny_task

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
        return backprop_step(task.network, images, labels, penalty)
    return local_credit_step(task.network, task.method, task.feedback, images, labels, penalty, credit_norm)


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
    assert sums.score.item() == (logits.argmax(1) == labels).sum().item()
    assert sums.penalty.item() == pytest.approx(LAMBDA * sum(f.square().sum().item() for f in branches))
    assert step(task).penalty.item() == 0.0


def test_credits_are_of_the_summed_loss_whatever_the_batch_size():
    """A method receives g_L without 1/N: the same sample's row in a batch of 1 and of 32."""
    task = double(tiny_task(method="fa"))
    received = []

    class Listening(type(task.method)):
        def credits(self, feedback, inputs):
            received.append(inputs)
            return super().credits(feedback, inputs)

    listening = dataclasses.replace(task, method=Listening())
    step(listening, count=32)
    step(listening, count=1)
    torch.testing.assert_close(received[0].output_gradient[:1], received[1].output_gradient, rtol=1e-12, atol=1e-15)
    assert all(inputs.gradients is None for inputs in received)


def test_output_error_needs_no_second_softmax():
    logits, labels = torch.tensor([[0.0, 0.0], [1000.0, 0.0]], requires_grad=True), torch.tensor([0, 1])
    output = OutputError.of(logits, labels)
    assert output.error.tolist() == [[-0.5, 0.5], [1.0, -1.0]]
    assert not output.error.requires_grad
    assert output.sums(labels, torch.zeros(())).loss.item() == pytest.approx(1000 + 0.6931472)


def test_a_sample_whose_logits_are_nan_is_not_counted_as_right():
    """argmax of nan is class 0: a diverged run would score a tenth of ten classes."""
    logits = torch.tensor([[float("nan")] * 3, [3.0, 1.0, 0.0]])
    labels = torch.tensor([0, 0])
    assert OutputError.of(logits, labels).sums(labels, torch.zeros(())).score.item() == 1


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


SAMPLES, PENALTY, CLIP = 12, 0.05, 0.3


def task_on(architecture: str) -> RunSetup:
    """Norms moved off their initial values; training mode."""
    task, stream = double(short_task(architecture, method="weight_fa")), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in task.network.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=stream, dtype=torch.float64) * 0.3)
    task.network.train()
    return task


def batch(task: RunSetup) -> tuple[Tensor, Tensor]:
    return task.splits.test_images[:SAMPLES], task.splits.test_labels[:SAMPLES]


def stepped(task: RunSetup, penalty: float, credit_norm: str, clip: float = 0.0) -> dict[str, Tensor]:
    task.network.zero_grad(set_to_none=True)
    local_credit_step(task.network, task.method, task.feedback, *batch(task), penalty, credit_norm, clip=clip)
    return {
        name: one.grad.clone()
        for name, one in task.network.named_parameters()
        if not name.startswith(("out_ln", "out_head"))
    }


def clipped(credit: Tensor, clip: float) -> Tensor:
    """Return every sample's credit with a norm of at most `clip`: c_i min(1, clip/‖c_i‖)."""
    norms = [row.square().sum().sqrt() for row in credit]
    return torch.stack([row * min(1.0, clip / norm) for row, norm in zip(credit, norms, strict=True)])


def defined(task: RunSetup, penalty: float, credit_norm: str, clip: float = 0.0) -> dict[str, Tensor]:
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
            used = clipped(credit, clip) if clip else credit / credit_divisor(credit, credit_norm)
            objective = objective + (value * used.detach()).sum() / SAMPLES
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


@pytest.mark.parametrize("architecture", ["small_resnet", "small_cnn", "vit_mini", "resmlp"])
@pytest.mark.parametrize("penalty", [0.0, PENALTY])
def test_a_clipped_credit_drives_its_block_and_is_handed_down_whole(architecture, penalty):
    task = task_on(architecture)
    expected = defined(task, penalty, "none", CLIP)
    assert equal(stepped(task, penalty, "none", CLIP), expected)
    assert not equal(defined(task, penalty, "none"), expected)


def test_credits_of_a_direct_method_are_clipped_sample_by_sample():
    credits = [torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), torch.tensor([[[0.0, 30.0]], [[0.0, 1.0]]])]
    found = [normalised_credits([credit], "none", 2, clip=1.0)[0] for credit in credits]
    assert found[0].tolist() == [pytest.approx(row) for row in ([0.3, 0.4], [0.15, 0.2], [0.0, 0.0])]
    assert found[1].tolist() == [[[0.0, 0.5]], [[0.0, 0.5]]]


def test_without_the_second_pass_coupled_rows_would_be_scaled_wrongly(monkeypatch):
    """Why couples_samples exists: what a row's credit leaves below is not a multiple of what its normed credit leaves."""
    task = task_on("small_resnet")
    monkeypatch.setattr(step_chained, "couples_samples", lambda block: False)
    assert not equal(stepped(task, 0.0, "rms"), defined(task, 0.0, "rms"))
    assert equal(stepped(task, 0.0, "none"), defined(task, 0.0, "none"))  # one scale for all: nothing to undo


def test_blocks_that_couple_samples():
    norm = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    assert couples_samples(norm)
    assert not couples_samples(norm.eval())
    assert not couples_samples(nn.Sequential(nn.LayerNorm(3), nn.Dropout()))


def test_rms_norm_is_per_sample_and_over_features():
    credit = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-30.0, 40.0]], dtype=torch.float64)
    rms = 12.5**0.5
    assert credit_divisor(credit, "rms").flatten().tolist() == pytest.approx(
        [rms + 1e-6, 1e-6, 10 * rms + 1e-6], rel=1e-12
    )
    assert (credit / credit_divisor(credit, "rms"))[1].tolist() == [0.0, 0.0]
    assert credit_divisor(credit, "none") == 1


def test_rms_norm_by_position_is_over_the_features_of_one_position():
    """r_nt = sqrt(mean_d c_ntd²) + eps: no position changes the scale of another."""
    credit = torch.tensor([[[3.0, 4.0, 0.0], [0.0, 0.0, 6.0]]], dtype=torch.float64)
    expected = [(25 / 3) ** 0.5 + 1e-6, 12**0.5 + 1e-6]
    found = credit_divisor(credit, "rms", by_position=True)
    assert found.shape == (1, 2, 1) and found.flatten().tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [1, 6, 128])
@pytest.mark.parametrize(("credit_scale", "held"), [("sum", lambda count: 1), ("mean", lambda count: count)])
def test_eps_acts_where_the_source_holds_its_credit(credit_scale, held, count):
    """norm(c) here is norm(c/N) there, ε = 1e-6 in both: of credits about as small as ε, where it decides."""
    credit = torch.randn(count, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1e-5
    published = credit / held(count)
    expected = published / (published.square().mean(dim=1, keepdim=True).sqrt() + 1e-6) / count
    (found,) = normalised_credits([credit], "rms", count, norm_eps(credit_scale, count))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_without_a_norm_there_is_no_eps():
    credit = torch.tensor([[3e-6, 4e-6]])
    assert torch.equal(normalised_credits([credit], "none", 1, norm_eps("mean", 128))[0], credit)


def test_rms_norm_of_a_map_is_over_all_its_entries():
    credit = torch.full((2, 3, 4, 5), 7.0)
    torch.testing.assert_close(credit / credit_divisor(credit, "rms"), torch.ones(2, 3, 4, 5))


@pytest.mark.parametrize("kind", ["rms", "none"])
@pytest.mark.parametrize("shapes", [[(6, 5)] * 3, [(6, 5), (6, 4)], [(6, 2, 3, 3)] * 2, [(6, 5), (6, 2, 5)], [(6, 5)]])
def test_sites_together_are_bit_equal_to_one_by_one(kind, shapes):
    draw = torch.Generator().manual_seed(0)
    credits = [torch.randn(shape, generator=draw) for shape in shapes]
    found = normalised_credits(credits, kind, 6)
    assert len(found) == len(credits)
    for one, credit in zip(found, credits, strict=True):
        assert torch.equal(one, credit / (credit_divisor(credit, kind) * 6))


@pytest.mark.parametrize("width", [10, 16, 33, 256])
def test_a_credit_that_lies_transposed_is_summed_as_it_lies(width):
    draw = torch.Generator().manual_seed(0)
    credits = [torch.randn(width, 6, generator=draw).T, torch.randn(6, width, generator=draw)]
    credits.append(
        torch.randn(6, width + 3, generator=draw)[:, :width]
    )  # as the rows of a narrower site of a bridge are stored
    for one, credit in zip(normalised_credits(credits, "rms", 6), credits, strict=True):
        assert torch.equal(one, credit / (credit_divisor(credit, "rms") * 6))
