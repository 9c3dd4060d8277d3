"""token_prediction: one token per position of a sequence.

ℓ_i is the sum of the cross entropies of sample i's counted positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from fa_registry.errors import UsageError
from fa_registry.metrics import TOKEN_LOSS
from fa_registry.network_mode import eval_mode
from fa_registry.records import BIGRAM, CLASSES, Reading, Scalar
from fa_registry.tasks.base import Task, TaskCard

IGNORED = -100  # target of a position that does not count, as in torch
TEST_BATCH = 64  # sequences per forward pass of an evaluation
COUNTED = "counted_positions"


class TokenPrediction(Task):
    card = TaskCard(
        name="token_prediction",
        line="one token per position of a sequence, loss per token as the main metric",
        targets=f"tokens (N, T), or {IGNORED} for a position that does not count",
        loss="ℓ_i = Σ_t −log softmax(z_it)[y_it]",
        source="the cross entropy of a language model; positions as in docs/decisions/14",
        headline=TOKEN_LOSS.name,
        positions="sequence",
    )

    def takes(self, targets: Tensor) -> bool:
        return not targets.is_floating_point() and targets.dim() == 2

    def problems(self, train: Tensor, test: Tensor, outputs: int, eval_samples: int) -> list[str]:
        """Return one sentence per problem: wrong shapes, tokens outside the vocabulary, no counted position."""
        named = {"train_labels": train, "test_labels": test}
        problems = [
            f"{name}: expected tokens (samples, positions), one target per position, found {targets.dtype} {tuple(targets.shape)}"
            for name, targets in named.items()
            if not self.takes(targets)
        ]
        if problems:
            return problems
        named["test_labels of the eval batch"] = test[:eval_samples]
        for name, targets in named.items():
            tokens = targets[targets != IGNORED]
            if not len(tokens):
                problems.append(f"{name}: expected at least one position that counts; all targets are {IGNORED}")
            elif tokens.min() < 0 or tokens.max() >= outputs:
                low, high = tokens.min().item(), tokens.max().item()
                problems.append(
                    f"{name}: expected tokens 0 to {outputs - 1}, because the vocabulary has {outputs}, found {low} to {high}"
                )
        return problems

    def target_shape(self, outputs: Tensor) -> torch.Size:
        return outputs.shape[:2]

    def check_shapes(self, outputs: Tensor, targets: Tensor) -> None:
        if outputs.dim() != 3 or targets.shape != self.target_shape(outputs):
            raise UsageError(
                f"expected outputs (N, T, V) with one target per position, {self.card.targets}; "
                f"found outputs {tuple(outputs.shape)} "
                f"with {targets.dtype} targets {tuple(targets.shape)}"
            )

    def target_rows(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return one-hot rows (N, T, V). The row of a position that does not count is zero."""
        self.check_shapes(outputs, targets)
        counts = (targets != IGNORED).to(outputs.dtype).unsqueeze(2)
        return torch.zeros_like(outputs).scatter_(2, targets.clamp(min=0).unsqueeze(2), counts)

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.check_shapes(outputs, targets)
        losses = nn.functional.cross_entropy(
            outputs.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED
        )
        return losses.view(targets.shape).sum(dim=1)

    def output_error(self, outputs: Tensor, targets: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return e = softmax(z) − onehot(y), (N, T, V). e is zero at a position that does not count."""
        rows = self.target_rows(outputs, targets) if rows is None else rows
        return (outputs.softmax(dim=2) - rows).masked_fill((targets == IGNORED).unsqueeze(2), 0.0)

    def batch_score(self, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        return losses.new_zeros(())

    def train_metrics(self, mean: float) -> Mapping[str, Reading]:
        return {}

    def evaluate(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Mapping[str, Reading]:
        """Return the loss per token in nats, the perplexity, and the bits per token."""
        total = torch.zeros((), dtype=torch.float64, device=inputs.device)
        for losses in self._losses(network, inputs, targets):
            total += losses.sum(dtype=torch.float64)
        loss = total.item() / self.counted(targets)
        perplexity = math.exp(loss) if loss < math.log(1e300) else math.inf
        return {
            TOKEN_LOSS.name: Reading.of(loss),
            "perplexity": Reading.of(perplexity),
            "bits_per_token": Reading.of(loss / math.log(2)),
        }

    def scores(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return ℓ_i·N/Σcounted, (N,): the share of each sequence in the loss per token."""
        losses = torch.cat(list(self._losses(network, inputs, targets))).double()
        return losses * (len(losses) / self.counted(targets))

    def _losses(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Iterator[Tensor]:
        """Yield the losses ℓ_i of each batch of sequences."""
        with torch.inference_mode(), eval_mode(network):
            for start in range(0, len(inputs), TEST_BATCH):
                part = slice(start, start + TEST_BATCH)
                yield self.sample_losses(network(inputs[part]), targets[part])

    def conventions(self, outputs: int) -> Mapping[str, Scalar]:
        return {CLASSES: outputs, "task": self.card.name, "rows": "counted positions of a sequence"}

    def chance(self, train: Tensor, test: Tensor) -> float:
        """Return the entropy of the single tokens of the training text, in nats per token."""
        counts = train[train != IGNORED].bincount().tolist()
        total = sum(counts)
        return math.fsum(-count / total * math.log(count / total) for count in counts if count)

    def baselines(self, inputs: Tensor, targets: Tensor) -> Mapping[str, Scalar]:
        """Return the entropy of a token given the token before it, in nats per token, in the training text.

        This is the loss of a bigram model on the text that it counts. Source: Shannon 1951, Bell Syst. Tech. J. 30, 50–64, F_2.
        """
        counted = targets != IGNORED
        if inputs.shape != targets.shape or inputs.is_floating_point() or not counted.any():
            return {}
        pairs = torch.stack([inputs[counted], targets[counted]], dim=1)
        joint = pairs.unique(dim=0, return_counts=True)[1].double()
        before = pairs[:, 0].unique(return_counts=True)[1].double()
        total = joint.sum()
        entropies = [-(counts / total * (counts / total).log()).sum() for counts in (joint, before)]
        return {BIGRAM: (entropies[0] - entropies[1]).item()}

    def counted(self, targets: Tensor) -> int:
        """Return the number of positions that count."""
        return int((targets != IGNORED).sum())

    def state_rows(self, state: Tensor, targets: Tensor) -> Tensor:
        """Return the rows (rows, D) of a state (N, T, D) at the counted positions."""
        if state.dim() != 3 or state.shape[:2] != targets.shape:
            raise UsageError(
                f"task {self.card.name}: expected a state (N, T, D) with one position per target {tuple(targets.shape)}, "
                f"found a state {tuple(state.shape)}"
            )
        counts = targets != IGNORED
        return state.flatten(0, 1) if counts.all() else state[counts]

    def gradient_rows(self, gradient: Tensor, targets: Tensor) -> Tensor:
        """Return the rows (rows, D) of a gradient or credit (N, T, D) at the counted positions."""
        return self.state_rows(gradient, targets)

    def error_rows(self, error: Tensor, targets: Tensor) -> Tensor:
        return self.state_rows(error, targets)


PLUGIN = TokenPrediction()
