"""Opening the tracker a verb works on."""

from __future__ import annotations

import os

from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.schema import EXPERIMENT


def open_tracker(store: str = "", experiment: str = "") -> MlflowTracker:
    """The tracker of `store`. Inside `mlflow run`, new runs go to the experiment of the run that it started."""
    experiment_id = os.environ.get("MLFLOW_EXPERIMENT_ID", "") if launched_run() else ""
    return MlflowTracker(store, experiment or EXPERIMENT, experiment_id)


def launched_run() -> str:
    """The id of the run that `mlflow run` already started for this process; empty outside of it."""
    return os.environ.get("MLFLOW_RUN_ID", "")
