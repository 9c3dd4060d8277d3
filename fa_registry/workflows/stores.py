"""Opening the tracker a verb works on: which store, which experiment, and what `mlflow run` has begun there."""

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
UI = "http://127.0.0.1:5000"  # where `make ui` serves a store that no server serves
DEFAULT = "0"  # the id of the experiment Default, where MLflow puts what nobody named a place for


def open_tracker(store: str = "", experiment: str = "", create: bool = True, write: bool = False) -> MlflowTracker:
    """The tracker of `store`; without `create` a database that is not there is an error, not made.

    One that cannot be written is opened to be read, unless it is to be made or to `write`. New runs go to `experiment`, else to
    the one that MLFLOW_EXPERIMENT_NAME or `mlflow run --experiment-name` names, else to `fa_registry`.
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
    """Address of the runs side by side in MLflow's pages, a study's or all of the experiment; empty where there are no pages.

    experiment: where the runs are; else that of the newest. about: see views_of. The view that the address opens is written with
    it (tracking.mlflow_views). This is called after the work is done: if the store does not answer, a warning is logged and only
    the address is missing.
    """
    wanted = {TAG_KIND: "run"} | ({TAG_STUDY: study} if study else {})
    try:
        runs = tracker.search(wanted, experiment)
        shown = [run for run in runs if run.experiment == runs[0].experiment]
        others = ", ".join(dict.fromkeys(run.experiment for run in runs if run.experiment != runs[0].experiment))
        if study and others:
            LOG.warning(
                "MLflow's page shows the %d of %d runs of study %s that lie in the experiment %s; the others lie in %s: "
                "--experiment puts new ones beside them",
                *(len(shown), len(runs), study, runs[0].experiment, others),
            )
        return tracker.with_experiment(runs[0].experiment).publish_views(views_of(study, shown, about)) if runs else ""
    except StoreError as error:
        LOG.warning("no view for MLflow's pages: %s", error)
        return ""


def in_browser(uri: str, page: str) -> str:
    """The whole address of a page of the store: of its server, or of the one that `make ui` starts over it; empty for none."""
    return page and f"{uri.rstrip('/') if uri.startswith('http') else UI}/{page}"


def mlflow_run_in_progress() -> str:
    """The id of the run that `mlflow run` began for this process in an experiment that somebody named; else empty.

    A run that it began in MLflow's Default, which nobody named, becomes none of ours: see trash_launcher_run.
    """
    return os.environ.get("MLFLOW_RUN_ID", "") if os.environ.get("MLFLOW_EXPERIMENT_ID", DEFAULT) != DEFAULT else ""


def trash_launcher_run(command: str) -> None:
    """Give the run that `mlflow run` began, and that no verb took over, a name and a kind; those of earlier calls go into the bin.

    It cannot go there itself: MLflow 3.17 ends it once more after this process has ended, and fails at a deleted one.
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
    """What may be lost without harm: beside a sqlite store, else in the current folder."""
    database = sqlite_path(store)
    return (database.parent if database else Path.cwd()) / ".fa_registry"
