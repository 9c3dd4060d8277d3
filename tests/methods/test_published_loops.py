"""What the registry trains is what the published loop trains: every parameter after twenty epochs, in float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from fa_registry import methods
from fa_registry.methods.base import Method
from fa_registry.training.task import Task
from fa_registry.training.trainer import Trainer
from tests.helpers import published_loops
from tests.helpers.nets import short_task
from tests.helpers.published_loops import Batch, Net, train_published
from tests.helpers.small import double

EPOCHS, SAMPLES, BATCH = 20, 100, 64  # the last batch of an epoch holds 36: ε in units of a mean follows the batch
IMAGE, CLASSES = (1, 12, 12), 10
NETWORKS = {
    "resmlp": lambda: published_loops.ResMLP(144, 8, 2, CLASSES),
    "vit_mini": lambda: published_loops.ViT(IMAGE, 4, 8, 2, 2, CLASSES),
    "small_resnet": lambda: published_loops.ResNet(1, 4, 2, CLASSES),
}
TRAINED = {"bp": ("bp", "none"), "fa": ("fa", "none"), "dfa": ("dfa", "none"), "frozen": ("bp", "frozen")}
TOLERANCE = 1e-12  # of a parameter's largest entry


class Watched(Trainer):
    """Keeps every batch that it trains on, augmented as it was."""

    def __init__(self, task: Task):
        super().__init__(task)
        self.batches: list[Batch] = []

    def step(self, images: Tensor, labels: Tensor):
        self.batches.append((images.clone(), labels.clone()))
        return super().step(images, labels)


def drawn(architecture: str, trained: str) -> Task:
    method, control = TRAINED[trained]
    recipe = {"epochs": EPOCHS, "batch_size": BATCH}
    return double(short_task(architecture, SAMPLES, method=method, control=control, **recipe))


def both(task: Task, architecture: str, trained: str) -> tuple[dict[str, Tensor], Net]:
    """Our parameters after training, by name, and the published network trained from the same start on the same batches."""
    theirs = NETWORKS[architecture]().double()
    theirs.load_state_dict(task.network.state_dict())
    feedback = {name: matrix.clone() for name, matrix in task.feedback.state_dict().items()}
    trainer, epochs = Watched(task), []
    for _ in range(EPOCHS):
        trainer.batches = []
        trainer.run_epoch()
        epochs.append(trainer.batches)
    assert [len(labels) for _, labels in epochs[0]] == [BATCH, SAMPLES - BATCH]
    train_published(theirs, trained, feedback, epochs, EPOCHS)
    return dict(task.network.named_parameters()), theirs


def furthest(ours: dict[str, Tensor], theirs: Net) -> float:
    """The largest distance of a parameter from its twin, in units of the twin's largest entry.

    Not of the keys' biases: a softmax does not see them, so their gradient is 0 but for rounding, which AdamW magnifies.
    """
    gaps = []
    for name, other in theirs.named_parameters():
        gap = (ours[name] - other).abs()
        if name.endswith("in_proj_bias"):
            gap = gap.unflatten(0, (3, -1))[[0, 2]]  # queries, keys, values
        gaps.append((gap.max() / other.abs().max()).item())
    return max(gaps)


@pytest.mark.parametrize("trained", TRAINED)
@pytest.mark.parametrize("architecture", NETWORKS)
def test_every_parameter_equals_the_published_one(architecture, trained):
    task = drawn(architecture, trained)
    start = {name: one.detach().clone() for name, one in task.network.named_parameters()}
    ours, theirs = both(task, architecture, trained)
    assert ours.keys() == dict(theirs.named_parameters()).keys()
    assert furthest(ours, theirs) <= TOLERANCE
    assert all(
        (ours[name] - one).abs().max() <= 1e-10 for name, one in theirs.named_parameters()
    )  # the keys' biases too
    kept = {name for name, one in theirs.named_parameters() if torch.equal(one, start[name])}
    assert kept == ({name for name in ours if name.startswith("blocks.")} if trained == "frozen" else set())


@pytest.mark.parametrize("trained", ["fa", "dfa"])
def test_in_the_other_scale_of_epsilon_it_would_not(trained):
    task, other = drawn("resmlp", trained), {"fa": "sum", "dfa": "mean"}[trained]
    ours, theirs = both(dataclasses.replace(task, method=rescaled(task.method, other)), "resmlp", trained)
    assert furthest(ours, theirs) > 1e-6


def rescaled(method: Method, credit_scale: str) -> Method:
    """The method with another scale on its card."""
    copied = type(method)()
    copied.card = dataclasses.replace(method.card, credit_scale=credit_scale)
    return copied


def test_every_method_of_ours_says_where_its_scale_is_known_from():
    cards = {name: methods.CATALOG.get(name).card for name in methods.CATALOG.names()}
    own = {
        name: card for name, card in cards.items() if methods.CATALOG.location(name).module.startswith("fa_registry.")
    }
    assert len(own) == 18 and all(card.credit_scale_source for card in own.values())
    assert [name for name, card in own.items() if card.credit_scale == "mean"] == ["fa"]
