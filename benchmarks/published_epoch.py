"""What the published pipeline does in an epoch, written afresh from its description: train, evaluate, look at every layer.

Training and evaluation come through DataLoaders of PIL images, two workers each, which stay alive from one epoch to the next, in
its favour. The diagnostics are of one batch, layer by layer in plain Python, one number to the host at a time. It tracks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.pil_images import PilImages
from benchmarks.published_loop import PublishedLoop
from fa_registry.datasets.cifar_shaped import PER_TEST
from fa_registry.training.run_setup import RunSetup

WORKERS = 2


@dataclass(frozen=True)
class Layer:
    """‖h_l‖ and ‖g_l‖ of the mean cross entropy, medians over the batch; Γ_l, a mean over it (None at the embedding)."""

    hidden_norm: float
    gradient_norm: float
    gamma: float | None


class PublishedEpoch:
    """Whole epochs of the network of a dfa `task`, which stays as it is. images: of an epoch; a fifth as many test it."""

    def __init__(self, task: RunSetup, images: int):
        size = task.spec.recipe.batch_size
        self.loop, self.eval_batch = PublishedLoop(task), task.eval_batch
        self.train = _loader(PilImages(images), size, shuffle=True)
        self.test = _loader(PilImages(images // PER_TEST, augmented=False), size)

    def train_epoch(self) -> None:
        for images, labels in self.train:
            self.loop.step(images, labels)

    def run(self) -> tuple[float, list[Layer]]:
        """Train an epoch; returns the test accuracy and every layer's figures."""
        self.train_epoch()
        self.loop.network.eval()
        found = accuracy(self.loop.network, self.test), layers(self.loop.network, self.loop.feedback, *self.eval_batch)
        self.loop.network.train()
        return found


def _loader(images: PilImages, size: int, shuffle: bool = False) -> DataLoader:
    return DataLoader(images, size, shuffle=shuffle, num_workers=WORKERS, persistent_workers=True)


def accuracy(network: nn.Module, loader: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Share of the test images classified rightly, counted batch by batch on the host."""
    right = seen = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (network(images).argmax(dim=1) == labels).sum().item()
            seen += len(labels)
    return right / seen


def layers(network: nn.Module, feedback: Sequence[Tensor], images: Tensor, labels: Tensor) -> list[Layer]:
    """The diagnostics of one batch by a backward pass through the whole net; feedback: B_l, (hidden, classes) a block."""
    logits, hidden = network(images, return_hidden=True)
    gradients = torch.autograd.grad(nn.functional.cross_entropy(logits, labels), hidden)
    error = (logits.softmax(dim=1) - nn.functional.one_hot(labels, logits.shape[1])).detach()  # (batch, classes)
    found = []
    for layer, (state, gradient) in enumerate(zip(hidden, gradients, strict=True)):
        gamma = None
        if layer:
            credit = error @ feedback[layer - 1].T
            gamma = nn.functional.cosine_similarity(credit, gradient).mean().item()  # fa: ok FA002 as published
        length = gradient.norm(dim=1).median().item()  # fa: ok FA008 as published
        found.append(Layer(state.norm(dim=1).median().item(), length, gamma))
    return found
