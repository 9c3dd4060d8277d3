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

# name → (whether AdamW is fused, whether the linear layers are those of the package)
VARIANTS = {
    "fair loop, foreach AdamW, nn.Linear": (False, False),
    "fair loop, fused AdamW, nn.Linear": (True, False),
    "fair loop, foreach AdamW, our layer": (False, True),
    "fair loop, fused AdamW, our layer": (True, True),
}


class FairLoop:
    """Trains a copy of the network of a dfa `task`. The task is not changed.

    Args:
        fused: whether AdamW is fused; otherwise it is torch's default on a CPU with foreach=True.
        our_layer: whether to keep the package's linear layers; otherwise they become nn.Linear.
    """

    def __init__(self, task: RunSetup, fused: bool, our_layer: bool):
        self.network = copy.deepcopy(task.network).train()
        if not our_layer:
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
