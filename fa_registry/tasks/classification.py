"""classification: one class number per sample; ℓ_i is the cross entropy of the softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.network_mode import eval_mode
from fa_registry.records import CLASSES, Reading, Scalar
from fa_registry.tasks.base import NO_TOKENS, Task, TaskCard

TEST_BATCH = 512  # activations of 2048 samples would exceed the cache, which doubles the time


class Classification(Task):
    card = TaskCard(
        name="classification",
        line="one class number per sample, accuracy as the main metric",
        targets="class numbers (N,)",
        loss="ℓ_i = −log softmax(z_i)[y_i]",
        source="the cross entropy of the published protocol, arXiv 2606.21126",
        headline="accuracy",
    )

    def takes(self, targets: Tensor) -> bool:
        return not targets.is_floating_point() and targets.dim() < 2

    def problems(self, train: Tensor, test: Tensor, outputs: int, eval_samples: int) -> list[str]:
        """Return one sentence per problem: wrong shapes, classes out of range, an eval batch of one class."""
        named = {"train_labels": train, "test_labels": test}
        expected = f"class numbers (samples,) or target values (samples, {outputs})"
        problems = [
            f"{name}: expected {expected}, found {labels.dtype} {tuple(labels.shape)}; {NO_TOKENS}"
            for name, labels in named.items()
            if labels.is_floating_point() or labels.dim() != 1
        ]
        if problems:
            return problems
        for name, labels in named.items():
            low, high = labels.min().item(), labels.max().item()
            if low < 0 or high >= outputs:
                problems.append(f"{name}: expected classes 0 to {outputs - 1}, found {low} to {high}")
        if len(test[:eval_samples].unique()) < 2:
            problems.append(
                f"test_labels: expected at least two classes in the first {eval_samples} samples, "
                "which every measurement uses; found one"
            )
        return problems

    def target_rows(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.check_shapes(outputs, targets)
        return torch.zeros_like(outputs).scatter_(1, targets.unsqueeze(1), 1.0)

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.check_shapes(outputs, targets)
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def output_error(self, outputs: Tensor, targets: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return e = softmax(z) − onehot(y), (N, C)."""
        return outputs.softmax(dim=1) - (self.target_rows(outputs, targets) if rows is None else rows)

    def batch_score(self, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        """Return the number of correct predictions as a scalar tensor.

        A sample whose loss is not finite counts as wrong.
        """
        # argmax of nan is class 0; nan < ∞ is false
        return ((outputs.argmax(dim=1) == targets) & (losses < math.inf)).sum(dtype=losses.dtype)

    def train_metrics(self, mean: float) -> Mapping[str, Reading]:
        return {"accuracy_train": Reading.of(mean)}

    def evaluate(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Mapping[str, Reading]:
        return {self.card.headline: Reading(accuracy(network, inputs, targets))}

    def scores(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return whether each answer is right, (N,)."""
        return correct(network, inputs, targets)

    def conventions(self, outputs: int) -> Mapping[str, Scalar]:
        return {CLASSES: outputs}

    def chance(self, train: Tensor, test: Tensor) -> float:
        """Return the share of the largest class in the test set."""
        return test.bincount().max().item() / len(test)


def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the fraction of correct samples."""
    return correct(network, images, labels).sum().item() / len(images)


def correct(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return whether each answer is right, (N,). A sample with non-finite logits counts as wrong."""
    parts = []
    with torch.inference_mode(), eval_mode(network):
        for start in range(0, len(images), TEST_BATCH):
            logits = network(images[start : start + TEST_BATCH])
            is_right = logits.argmax(dim=1) == labels[start : start + TEST_BATCH]
            parts.append(is_right & logits.isfinite().all(dim=1))
    return torch.cat(parts)


PLUGIN = Classification()
