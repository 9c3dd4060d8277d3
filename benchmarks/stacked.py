"""R replicas as one network of stacked weights: the form that "eight graphs in turns" has to beat, for dfa on resmlp alone.

Every weight is (R, …), every product a torch.bmm, AdamW one step over all. It is the price of this form that it has to be
written anew for every architecture and method; `python -m benchmarks.gpu` says what it would buy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fa_registry.training.cuda_graph import CapturedStep, cuda_capture
from fa_registry.training.step import normalised_credits
from fa_registry.training.trainer import Trainer


class StackedDfa:
    """Trains copies of these trainers' networks; the trainers stay as they are. Same spec but for the seed: resmlp, dfa.

    weights: name → (R, …); totals: loss and right answers of every replica, (R, 2).
    """

    def __init__(self, trainers: Sequence[Trainer]):
        tasks = [trainer.setup for trainer in trainers]
        first = tasks[0]
        self.splits, self.replicas, self.blocks = first.splits, len(tasks), first.blocks
        self.size, self.credit_norm = first.spec.recipe.batch_size, first.spec.recipe.credit_norm
        named = [dict(task.network.named_parameters()) for task in tasks]
        self.weights = {name: torch.stack([one[name].detach() for one in named]).requires_grad_() for name in named[0]}
        matrices = [torch.stack([task.feedback.matrix(site) for task in tasks]) for site in range(1, self.blocks + 1)]
        self.feedback = [matrices[0], *matrices]  # each (R, D, C); the embedding shares B_1
        self.generator = torch.Generator(first.device).manual_seed(first.spec.seed)
        self.totals = torch.zeros(self.replicas, 2, dtype=torch.float64, device=first.device)
        on_gpu, recipe = first.device.type == "cuda", first.spec.recipe
        self.optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=torch.tensor(recipe.learning_rate, device=first.device) if on_gpu else recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            fused=True,
            capturable=on_gpu,
        )
        self._stream = torch.cuda.Stream(first.device) if on_gpu else None
        self.captured = CapturedStep(first.device, cuda_capture([self.generator])) if on_gpu else None

    def take(self, orders: Sequence[Tensor]) -> None:
        """A step for each of these rows of indices, (R · batch,), replica after replica."""
        if self._stream:  # weights, data and indices are the other stream's work
            self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):  # None: where it is
            for rows in orders:
                if self.captured:
                    self.captured(self.advance, rows)
                else:
                    self.advance(rows)

    def advance(self, rows: Tensor) -> None:
        """One step of all replicas, each on its own (batch,) of the indices (R · batch,)."""
        images = self.splits.augment(self.splits.train_images[rows], self.generator)
        shape = (self.replicas, -1)
        loss, right = self.step(images.unflatten(0, shape), self.splits.train_labels[rows].unflatten(0, shape))
        self.totals += torch.stack([loss, right], dim=1)

    def step(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """images (R, N, …), labels (R, N) → sums of losses and right answers, (R,) each."""
        self.optimizer.zero_grad(set_to_none=True)
        count = labels.shape[1]
        embedded = self._linear("embed", images.flatten(2))
        state, branches = embedded.detach(), []
        for block in range(self.blocks):
            name = f"blocks.{block}"
            inner = nn.functional.gelu(self._linear(f"{name}.w1", self._norm(f"{name}.ln", state)))
            branches.append(self._linear(f"{name}.w2", inner))
            state = state + branches[-1].detach()
        logits = self._linear("out_head", self._norm("out_ln", state))
        with torch.no_grad():
            targets = torch.zeros_like(logits).scatter_(2, labels[:, :, None], 1.0)
            error = logits.softmax(dim=2) - targets  # (replicas, batch, classes)
            credits = [torch.bmm(error, matrix.mT).flatten(0, 1) for matrix in self.feedback]
            roots = [root.view_as(embedded) for root in normalised_credits(credits, self.credit_norm, count)]
        torch.autograd.backward([logits, embedded, *branches], [error / count, *roots])
        self.optimizer.step()
        logits = logits.detach()
        losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        return losses.sum(dim=1), (logits.argmax(dim=2) == labels).sum(dim=1, dtype=losses.dtype)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self.weights[f"{name}.bias"][:, None], x, self.weights[f"{name}.weight"].mT)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        scale, shift = (self.weights[f"{name}.{part}"][:, None] for part in ("weight", "bias"))
        return nn.functional.layer_norm(x, x.shape[-1:]) * scale + shift
