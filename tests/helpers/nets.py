"""Tiny options for every architecture of the catalog, and tasks on them that train in a blink."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from fa_registry import architectures
from fa_registry.architectures.base import TOKENS
from fa_registry.records import Scalar
from fa_registry.training.run_setup import RunSetup
from tests.helpers.tiny_tasks import tiny_task

TINY: dict[str, dict[str, Scalar]] = {
    "causal_transformer": {"d_hidden": 8, "num_blocks": 2, "heads": 2},
    "linear_lq": {"num_blocks": 2, "learn": True},
    "mlp": {"d_hidden": 8, "num_blocks": 2},
    "resmlp": {"d_hidden": 8, "num_blocks": 2},
    "small_cnn": {"width": 2, "num_blocks": 3},
    "small_resnet": {"width": 4, "num_blocks": 2},
    "student_net": {"d_hidden": 8, "num_blocks": 2},
    "vit_mini": {"d_hidden": 8, "num_blocks": 2, "heads": 2},
}


def of(architecture: str, **changes: Any) -> dict[str, Any]:
    """`changes` for tiny_spec that put it on this architecture, tiny."""
    dataset = "markov_text" if architectures.CATALOG.get(architecture).card.inputs == TOKENS else "digits"
    return {"architecture": architecture, "architecture_options": TINY[architecture], "dataset": dataset, **changes}


def short_task(architecture: str, samples: int = 128, **changes: Any) -> RunSetup:
    """A task on digits, or Markov text for a network of tokens, that trains on the first `samples` alone."""
    task = tiny_task(**of(architecture, **changes))
    splits = dataclasses.replace(
        task.splits, train_images=task.splits.train_images[:samples], train_labels=task.splits.train_labels[:samples]
    )
    return dataclasses.replace(task, splits=splits)


def hooks_of(model: nn.Module) -> list[int]:
    """The number of forward hooks of each module."""
    return [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
