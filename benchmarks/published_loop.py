"""The baseline: direct feedback alignment trained the way the published loop goes, written afresh from its description.

Per batch: the whole net once without a graph, for the hidden states and the error; then every block once more, on its
detached input, for a local loss, a backward pass and a step of its own AdamW. Embedding and head have an optimizer each
and a second forward too, and the loss goes to the host on every step. The mathematics is ours, network and feedback
too; only the order of the work differs (tests/benchmarks/test_published.py compares the parameters after a step).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from fa_registry.training.run_setup import RunSetup

EPS = 1e-6  # of norm(c) = c / (rms over features + eps), as in the recipe


class PublishedLoop:
    """Trains a copy of the network of a dfa `task`; the task stays as it is.

    As published it multiplies with torch's own nn.Linear and steps an unfused AdamW.
    """

    def __init__(self, task: RunSetup):
        self.network = copy.deepcopy(task.network).train()
        use_torch_linear(self.network)
        self.feedback = [task.feedback.matrix(block) for block in range(1, task.blocks + 1)]
        self.recipe = task.spec.recipe
        readout = nn.ModuleList(module for module in (self.network.out_ln, self.network.out_head) if module is not None)
        self.embed_optimizer = self._adamw(self.network.embed.parameters())
        self.block_optimizers = [self._adamw(block.parameters()) for block in self.network.blocks]
        self.head_optimizer = self._adamw(readout.parameters())

    def step(self, images: Tensor, labels: Tensor) -> float:
        """One step of every optimizer; returns the batch's mean cross entropy."""
        with torch.no_grad():
            logits, hidden = self.network(images, return_hidden=True)
            error = logits.softmax(dim=1) - nn.functional.one_hot(labels, logits.shape[1])  # (batch, classes)
        for block, feedback, optimizer, state in zip(
            self.network.blocks, self.feedback, self.block_optimizers, hidden[:-1], strict=True
        ):
            _descend(optimizer, local_loss(block(state.detach()), error @ feedback.T))
        _descend(self.embed_optimizer, local_loss(self.network.embed(images), error @ self.feedback[0].T))
        loss = nn.functional.cross_entropy(self.network.readout(hidden[-1].detach()), labels)
        _descend(self.head_optimizer, loss)
        return loss.item()

    def _adamw(self, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
        recipe = self.recipe
        return torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)


class _FlatLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


def use_torch_linear(network: nn.Module) -> None:
    """Turn every linear layer of the copy into torch's own; names, weights and values stay."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            module.__class__ = _FlatLinear if module is network.embed else nn.Linear


def local_loss(output: Tensor, credit: Tensor) -> Tensor:
    """mean_i <output_i, norm(credit)_i>; both (batch, hidden)."""
    direction = credit / (credit.pow(2).mean(dim=1, keepdim=True).sqrt() + EPS)
    return (output * direction).sum(dim=1).mean()


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
