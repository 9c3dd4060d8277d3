"""A loop that is written by hand has the values of the built-in loop."""

from __future__ import annotations

import torch
from torch import nn

import fa_registry
from fa_registry.seeding import generator
from fa_registry.training.measuring import measure
from fa_registry.training.trainer import Trainer
from tests.commands.test_track import record_of
from tests.helpers.tiny_tasks import tiny_task


class Branch(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln, self.gelu = nn.LayerNorm(width), nn.GELU()
        self.w1, self.w2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h):
        return self.w2(self.gelu(self.w1(self.ln(h))))


class ByHand(nn.Module):
    """The residual MLP as any author would write it, by the names that its checkpoint has."""

    def __init__(self, inputs, width, depth):
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(Branch(width) for _ in range(depth))
        self.out_ln, self.out_head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        h = self.embed(x.flatten(1))
        for block in self.blocks:
            h = h + block(h)
        return self.out_head(self.out_ln(h))


def dfa_step(model, matrices, x, y):
    """Direct feedback alignment by hand: every block learns from e B at states that no gradient leaves, the head from e."""
    embedded = model.embed(x.flatten(1))
    h, branches = embedded.detach(), []
    for block in model.blocks:
        branches.append(block(h))
        h = (h + branches[-1]).detach()
    z = model.out_head(model.out_ln(h))
    e = z.detach().softmax(1) - nn.functional.one_hot(y, 10)
    z.backward(e / len(x))
    for branch, matrix in zip((embedded, *branches), (matrices[0], *matrices), strict=True):
        branch.backward(e @ matrix.T / len(x))


def test_a_loop_written_by_hand_has_the_figures_of_the_same_training_by_our_loop_bit_for_bit(workplace):
    """The package does not train in it, and supplies only where it starts: weights, matrices, images and their order."""
    task, ours = tiny_task(method="dfa", credit_norm="none", schedule="constant"), []
    trainer, spec = Trainer(task), task.spec
    splits = task.splits
    model = ByHand(task.network.embed.in_features, task.network.out_head.in_features, len(task.network.blocks))
    model.load_state_dict(task.network.state_dict())
    matrices = [matrix.clone() for matrix in task.feedback.state_dict().values()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.recipe.learning_rate, weight_decay=0.01, fused=True)
    order, draw = generator(spec.seed, "data_order"), generator(spec.seed, "augmentation")

    def credit(model, x, y):
        e = (model(x).softmax(1) - nn.functional.one_hot(y, 10)).detach()
        return [e @ matrix.T for matrix in (matrices[0], *matrices)]

    known = {"eval": task.eval_batch, "method": "by hand", "seed": spec.seed, "credit": credit}
    with fa_registry.track(model, **known) as run:
        for _ in range(spec.epochs):
            ours.append(trainer.run_epoch() and measure(task))
            for batch in torch.randperm(len(splits.train_labels), generator=order).split(spec.recipe.batch_size):
                optimizer.zero_grad()
                dfa_step(model, matrices, splits.augment(splits.train_images[batch], draw), splits.train_labels[batch])
                optimizer.step()
            run.epoch()
    assert all(torch.equal(weight, task.network.state_dict()[name]) for name, weight in model.state_dict().items())
    record = record_of(run)
    for name in ("h_L", "g_L", "growth_max", "gamma_deep_mean"):
        assert list(record.trajectory[name])[1:] == [row.scalars[name] for row in ours], name
    for name in ("h_norm", "g_norm", "growth", "gain", "gamma", "fidelity"):
        assert record.measurements.sites[name] == ours[-1].sites[name], name
