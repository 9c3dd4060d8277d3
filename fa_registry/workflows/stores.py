"""Opening the tracker a verb works on."""

from __future__ import annotations

import os
from pathlib import Path

from fa_registry.errors import StoreError
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.schema import EXPERIMENT
from fa_registry.tracking.store import resolve_uri, sqlite_path


def open_tracker(store: str = "", experiment: str = "", create: bool = True) -> MlflowTracker:
    """The tracker of `store`; without `create` a database that is not there is an error, not made.

    Inside `mlflow run`, new runs go to the experiment of the run that it started.
    """
    experiment_id = os.environ.get("MLFLOW_EXPERIMENT_ID", "") if launched_run() else ""
    path = sqlite_path(resolve_uri(store))
    if not create and path is not None and not path.exists():
        raise StoreError(
            f"store {resolve_uri(store)}: there is none yet; `fa-registry study` makes one with its first run"
        )
    return MlflowTracker(store, experiment or EXPERIMENT, experiment_id)


def launched_run() -> str:
    """The id of the run that `mlflow run` already started for this process; empty outside of it."""
    return os.environ.get("MLFLOW_RUN_ID", "")


def registry_folder(store: str) -> Path:
    """What may be lost without harm: beside a sqlite store, else in the current folder."""
    database = sqlite_path(store)
    return (database.parent if database else Path.cwd()) / ".fa_registry"
