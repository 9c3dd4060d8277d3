"""Trackers of both kinds, and one small finished run in each."""

from __future__ import annotations

import shutil

import pytest
import torch

from fa_registry.tracking.base import RetentionOptions
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.writer import RunWriter
from fa_registry.training.loop import train
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer

TINY = {
    "method": "dfa",
    "architecture": "resmlp",
    "dataset": "digits",
    "seed": 7,
    "epochs": 2,
    "architecture_options": {"d_hidden": 16, "num_blocks": 2},
}


@pytest.fixture(params=["memory", "mlflow"])
def tracker(request, tmp_path, empty_store):
    if request.param == "memory":
        return MemoryTracker(tmp_path / "runs")
    database = tmp_path / "mlflow.db"
    shutil.copy(empty_store, database)
    return MlflowTracker(f"sqlite:///{database}")


def write_run(tracker, study="", keep=RetentionOptions(), **changes):
    """Train the tiny spec into `tracker`; returns (writer, trainer, outcome)."""
    task = build_setup(parse_spec(TINY | changes), torch.device("cpu"))
    writer = RunWriter(tracker, task, study, keep=keep)
    writer.start(task.network)
    trainer = Trainer(task)
    outcome = train(trainer, writer)
    writer.record_training(trainer)
    writer.complete(outcome)
    return writer, trainer, outcome
