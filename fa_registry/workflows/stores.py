"""Open the tracker for a command: which store, which experiment, and which run `mlflow run` has begun."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

from fa_registry.errors import StoreError
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.mlflow_views import views_of
from fa_registry.tracking.schema import EXPERIMENT, LAUNCH, TAG_KIND, TAG_STUDY
from fa_registry.tracking.store import check_writable, sqlite_path
from fa_registry.workflows.cleanup import clear

LOG = logging.getLogger(__name__)
UI = "http://127.0.0.1:5000"  # where `make ui` serves a store without a server
DEFAULT = "0"  # the id of the experiment Default, which MLflow uses if no experiment is named


def open_tracker(store: str = "", experiment: str = "", create: bool = True, write: bool = False) -> MlflowTracker:
    """Return the tracker of `store`; without `create` a missing database is an error.

    A read-only store is opened for reading, unless `create` or `write` is set. New runs go to `experiment`, else to the
    one that MLFLOW_EXPERIMENT_NAME or `mlflow run --experiment-name` names, else to `fa_registry`.
    """
    experiment_id = os.environ["MLFLOW_EXPERIMENT_ID"] if mlflow_run_in_progress() and not experiment else ""
    experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    tracker = MlflowTracker(store, experiment, experiment_id, make=create)
    if write:
        check_writable(tracker.uri)
    if create or write:
        clear(tracker, registry_folder(tracker.uri))
    return tracker


def mlflow_page(tracker: Tracker, study: str = "", experiment: str = "", about: Collection[str] = ()) -> str:
    """Return the address of the runs side by side in MLflow's pages; empty if there are no pages.

    The view that the address opens is written at the same time (tracking.mlflow_views). This is called after the work
    is done: if the store does not respond, a warning is logged and only the address is missing.

    Args:
        study: only the runs of this study [all runs of the experiment].
        experiment: where the runs are [that of the newest run].
        about: see views_of.
    """
    wanted = {TAG_KIND: "run"} | ({TAG_STUDY: study} if study else {})
    try:
        runs = tracker.search(wanted, experiment)
        shown = [run for run in runs if run.experiment == runs[0].experiment]
        others = ", ".join(dict.fromkeys(run.experiment for run in runs if run.experiment != runs[0].experiment))
        if study and others:
            LOG.warning(
                "MLflow's page shows only the %d of %d runs of study %s in experiment %s; the others are in %s: "
                "--experiment adds new runs to a given experiment",
                *(len(shown), len(runs), study, runs[0].experiment, others),
            )
        return tracker.with_experiment(runs[0].experiment).publish_views(views_of(study, shown, about)) if runs else ""
    except StoreError as error:
        LOG.warning("no view for MLflow's pages: %s", error)
        return ""


def in_browser(uri: str, page: str) -> str:
    """Return the whole address of a page of the store; empty for none.

    It is on the store's server, or on the one that `make ui` starts.
    """
    return page and f"{uri.rstrip('/') if uri.startswith('http') else UI}/{page}"


def mlflow_run_in_progress() -> str:
    """Return the id of the run that `mlflow run` began for this process in a named experiment; else empty.

    A run in MLflow's Default experiment, which the user did not name, is not used: see trash_launcher_run.
    """
    return os.environ.get("MLFLOW_RUN_ID", "") if os.environ.get("MLFLOW_EXPERIMENT_ID", DEFAULT) != DEFAULT else ""


def trash_launcher_run(command: str) -> None:
    """Give the run that `mlflow run` began, and that no command used, a name and a kind.

    Such runs of earlier calls are moved to the bin. The current one cannot be: MLflow 3.17 ends it once more after this
    process has ended, and fails for a deleted run.
    """
    run_id = os.environ.get("MLFLOW_RUN_ID", "")
    if not run_id:
        return
    tracker = MlflowTracker(make=False)
    if TAG_KIND in tracker.get(run_id).tags:
        return
    for earlier in tracker.search({TAG_KIND: LAUNCH}):
        if earlier.state != "RUNNING":
            tracker.discard(earlier.run_id)
    tracker.adopt(run_id, f"mlflow run: {command}", {TAG_KIND: LAUNCH}, {})


def registry_folder(store: str) -> Path:
    """Return the folder for files that may be lost without harm.

    It is next to a sqlite store, else in the current folder.
    """
    database = sqlite_path(store)
    return (database.parent if database else Path.cwd()) / ".fa_registry"
