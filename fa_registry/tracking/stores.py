"""Functions that open the store of a command, and that write views for MLflow's web pages."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from fa_registry.errors import StoreError
from fa_registry.tracking.active_run import chosen_experiment
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.cleanup import clear
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.mlflow_views import views_of
from fa_registry.tracking.run_state import RunState
from fa_registry.tracking.schema import EXPERIMENT, LAUNCH, TAG_KIND, TAG_STUDY
from fa_registry.tracking.store import check_writable, command_on, resolve_uri, sqlite_path

LOG = logging.getLogger(__name__)
UI = "http://127.0.0.1:5000"  # address at which `fa-registry ui` serves a store that has no server
DEFAULT = "0"  # id of the experiment Default, which MLflow uses if no experiment is named


def open_tracker(
    store: str = "", experiment: str = "", create: bool = True, write: bool = False, waits: bool = False
) -> MlflowTracker:
    """Return the tracker of a store.

    If `create` or `write` is True, stale items of killed processes are removed first.

    Args:
        store: MLflow tracking URI. If empty, the default store is used.
        experiment: experiment for new runs. If empty, the option `mlflow run --experiment-name`, a call of
            mlflow.set_experiment or MLFLOW_EXPERIMENT_NAME determines the experiment. The default is `fa_registry`.
        create: whether to create a missing database. If False, a missing database is an error.
        write: whether the command writes to the store. If `create` and `write` are False, the store may be read-only.
        waits: whether to wait for an unreachable server.

    Raises:
        StoreError: the store cannot be used.
    """
    experiment_id = os.environ["MLFLOW_EXPERIMENT_ID"] if mlflow_run_in_progress() and not experiment else ""
    chosen = "" if experiment or experiment_id else chosen_experiment(resolve_uri(store))
    experiment = experiment or chosen or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    tracker = MlflowTracker(store, experiment, experiment_id, make=create, waits=waits)
    if write:
        check_writable(tracker.uri)
    if create or write:
        clear(tracker, registry_folder(tracker.uri))
    return tracker


def is_missing(store: str) -> bool:
    """Return whether the store is a sqlite database that does not exist or is empty.

    A check must not create a missing database, because the user may have mistyped the name.
    """
    path = sqlite_path(resolve_uri(store))
    return path is not None and not (path.exists() and path.stat().st_size)


def page_lines(address: str, store: str) -> Iterator[str]:
    """Yield a line with the address of the page that compares runs, if it is not empty."""
    if address:
        yield f"side by side: {served(store, address)}"


def mlflow_page(tracker: Tracker, study: str = "", experiment: str = "", about: Collection[str] = ()) -> str:
    """Write views (charts and a table) of a study for MLflow's web pages, and return the page's address.

    If the views cannot be written, log a warning and return an empty string.

    Args:
        study: study whose runs are shown. If empty, it is the study of a run in `about`, or else the newest study of the
            experiment. If the experiment has no study, all its runs are shown.
        experiment: experiment that contains the runs. If empty, it is the experiment of the newest run.
        about: ids of the runs that were just trained or audited. The settings of these runs are shown first.
    """
    tags = {TAG_KIND: "run"} | ({TAG_STUDY: study} if study else {})
    try:
        runs = tracker.search(tags, experiment)
        visible_runs = [run for run in runs if run.experiment == runs[0].experiment]
        other_experiments = list(dict.fromkeys(run.experiment for run in runs))[1:]
        if study and other_experiments:
            LOG.warning(
                "study %s has %d runs. MLflow's page shows only the %d runs in experiment %s. The other runs are in %s. "
                "To log new runs in one experiment, use --experiment",
                *(study, len(runs), len(visible_runs), runs[0].experiment, ", ".join(other_experiments)),
            )
        if not study:
            about_first = sorted(visible_runs, key=lambda run: run.run_id not in about)
            study = next((name for run in about_first if (name := run.tags.get(TAG_STUDY))), "")
            visible_runs = [run for run in visible_runs if run.tags.get(TAG_STUDY, "") == study]
        views = views_of(study, visible_runs, about)
        return tracker.with_experiment(runs[0].experiment).publish_views(views) if runs else ""
    except StoreError as error:
        LOG.warning("the view for MLflow's pages could not be written: %s", error)
        return ""


def in_browser(uri: str, page: str) -> str:
    """Return the complete address of an MLflow page; without a server, the address of `fa-registry ui`."""
    return page and f"{uri.rstrip('/') if uri.startswith('http') else UI}/{page}"


def served(uri: str, address: str) -> str:
    """Return the address of an MLflow page, with the command that serves it if necessary."""
    return address if uri.startswith("http") else f"{address} (after `{command_on('ui', uri)}`)"


def mlflow_run_in_progress() -> str:
    """Return the id of the run that `mlflow run` created for this process; empty if there is no such run."""
    # a run in the experiment Default is ignored, because the user did not name this experiment
    return os.environ.get("MLFLOW_RUN_ID", "") if os.environ.get("MLFLOW_EXPERIMENT_ID", DEFAULT) != DEFAULT else ""


def trash_launcher_run(command: str) -> None:
    """Delete runs that earlier calls of `mlflow run` created and that no command used.

    If no command used the run of the present call, only rename this run. The next call of `mlflow run` deletes this run.
    """
    run_id = os.environ.get("MLFLOW_RUN_ID", "")
    if not run_id:
        return
    tracker = MlflowTracker(make=False)
    if TAG_KIND in tracker.get(run_id).tags:
        return
    for earlier in tracker.search({TAG_KIND: LAUNCH}):
        if not RunState(earlier).is_running:
            tracker.discard(earlier.run_id)
    # The current run is not discarded: MLflow 3.17 ends it again after this process, which fails for a deleted run.
    tracker.adopt(run_id, f"mlflow run: {command}", {TAG_KIND: LAUNCH}, {})


def registry_folder(store: str) -> Path:
    """Return the folder `.fa_registry` for files that are not part of the store, e.g. resume files.

    The folder is next to the database of a sqlite store; for other stores, it is in the current folder.
    """
    database = sqlite_path(store)
    return (database.parent if database else Path.cwd()) / ".fa_registry"
