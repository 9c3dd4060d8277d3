"""Nothing inside a step reads a number on the host: on a GPU that waits for the card, and inside a CUDA graph it cannot be."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fa_registry import architectures, methods
from fa_registry.training.controls import train_mode
from fa_registry.training.specs import parse_spec
from fa_registry.training.task import prepare
from fa_registry.training.trainer import Trainer
from tests.helpers.small import tiny_task

READS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero", "bincount")
SMALL = {
    "resmlp": {"d_hidden": 16, "num_blocks": 2},
    "mlp": {"d_hidden": 16, "num_blocks": 2},
    "vit_mini": {"d_hidden": 16, "num_blocks": 1, "heads": 2},
    "linear_lq": {"num_blocks": 2},
    "student_net": {"d_hidden": 16, "num_blocks": 1},
}


class Unread(TorchDispatchMode):
    """Fails at the first operation whose result, or its size, has to be known on the host. seen: the operations before."""

    seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in READS:
            raise AssertionError(f"{func} reads its result on the host")
        self.seen += 1
        return func(*args, **(kwargs or {}))


def pairs():
    for architecture in architectures.CATALOG.names():
        for method in methods.CATALOG.names():
            if methods.CATALOG.get(method).card.supports(architecture):
                yield architecture, method


@pytest.mark.parametrize(("architecture", "method"), list(pairs()))
def test_a_step_of_every_pair_leaves_its_numbers_where_they_are(architecture, method):
    dataset = "lq" if architecture == "linear_lq" else "digits"
    options = SMALL.get(architecture, {})
    spec = {"method": method, "architecture": architecture, "dataset": dataset, "seed": 1, "epochs": 1}
    task = prepare(parse_spec({**spec, "architecture_options": options, "penalty": 0.01}), torch.device("cpu"))
    trainer = Trainer(task)
    train_mode(task.network)
    with Unread() as watch:
        trainer._advance(torch.arange(4))
    assert watch.seen > 20  # a step's operations did come by


def test_a_read_is_noticed(monkeypatch):
    trainer = Trainer(tiny_task())
    plain = Trainer.step
    monkeypatch.setattr(
        Trainer, "step", lambda self, images, labels: plain(self, images[: int(labels.sum() > 0)], labels)
    )
    with Unread(), pytest.raises(AssertionError, match="reads its result on the host"):
        trainer._advance(torch.arange(4))
