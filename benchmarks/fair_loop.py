"""The loop that a careful engineer would write by hand for direct feedback alignment: the baseline of a step.

Per batch: one forward pass whose graph is cut between the blocks, the credits, one backward pass for all blocks, and one AdamW over
all parameters. All tensors are in memory, and no value goes to the host. The mathematics, the network and the feedback are those of
the package (tests/benchmarks/test_published.py compares the parameters after a step).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from benchmarks.published_loop import EPS, use_torch_linear
from fa_registry.training.run_setup import RunSetup

VARIANTS = {"fair loop, foreach AdamW": False, "fair loop, fused AdamW": True}  # name → whether AdamW is fused


class FairLoop:
    """Trains a copy of the network of a dfa `task`. The task is not changed.

    Args:
        fused: whether AdamW is fused; otherwise it is torch's default on a CPU with foreach=True.
    """

    def __init__(self, task: RunSetup, fused: bool):
        self.network = copy.deepcopy(task.network).train()
        use_torch_linear(self.network)
        matrices = [task.feedback.matrix(block) for block in range(1, task.blocks + 1)]
        self.feedback = [matrices[0], *matrices]  # the embedding learns from the credit of the first block
        recipe = task.spec.recipe
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            **({"fused": True} if fused else {"foreach": True}),
        )
        self.total = torch.zeros(())

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """Run one step, and return the batch's mean cross entropy as a tensor."""
        network = self.network
        self.optimizer.zero_grad()
        outputs = [network.embed(images)]
        state = outputs[0].detach()
        for block in network.blocks:
            outputs.append(block(state))
            state = network.step(state, outputs[-1].detach())
        logits = network.readout(state)
        loss = nn.functional.cross_entropy(logits, labels)
        with torch.no_grad():
            error = logits.softmax(dim=1) - nn.functional.one_hot(labels, logits.shape[1])  # (batch, classes)
            directions = [_direction(error @ matrix.T) for matrix in self.feedback]
        torch.autograd.backward([loss, *outputs], [None, *directions])
        self.optimizer.step()
        self.total += loss.detach()
        return loss.detach()


def _direction(credit: Tensor) -> Tensor:
    """Return norm(c) / N, the gradient of the local loss at the block's output; both (batch, hidden)."""
    return credit / ((credit.pow(2).mean(dim=1, keepdim=True).sqrt() + EPS) * len(credit))
