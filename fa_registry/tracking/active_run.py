"""The active run and the chosen experiment of MLflow's fluent API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import mlflow
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import fluent

from fa_registry.errors import StoreError
from fa_registry.tracking.store import resolve_uri


@contextmanager
def active_run(uri: str, run: Run) -> Iterator[None]:
    """Make `run` the active run of this thread inside the context.

    mlflow.start_run is not used, because it refuses a run of another experiment than that of mlflow.set_experiment, and because
    mlflow.end_run would end the run. Runs that the caller starts inside the context and leaves open end with the context.

    Args:
        uri: tracking URI of the store that contains the run. It is MLflow's tracking URI inside the context.
    """
    stack = fluent._active_run_stack.get()  # of this thread; the context may end in another thread
    earlier = [id(entry) for entry in stack]
    active = mlflow.ActiveRun(run)
    with _tracking_uri(uri):
        stack.append(active)
        try:
            yield
        finally:
            for entry in [entry for entry in stack if id(entry) not in earlier]:
                stack.remove(entry)
                if entry is not active:
                    with suppress(MlflowException):  # the run was deleted
                        mlflow.MlflowClient(uri).set_terminated(entry.info.run_id)


def chosen_experiment(uri: str) -> str:
    """Return the name of the experiment that mlflow.set_experiment chose.

    Without such a call, the name is empty.

    Args:
        uri: tracking URI of a store. If MLflow uses another store, the choice does not apply to this store.
    """
    experiment_id = fluent._active_experiment_id
    if experiment_id is None or not _is_used_by_mlflow(uri):
        return ""
    with suppress(MlflowException):  # the choice was made in another store
        return mlflow.get_experiment(experiment_id).name
    return ""


@contextmanager
def _tracking_uri(uri: str) -> Iterator[None]:
    """Make `uri` MLflow's tracking URI inside the context, unless MLflow uses this store already."""
    if _is_used_by_mlflow(uri):
        yield
        return
    previous = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        if mlflow.get_tracking_uri() == uri:  # the caller may have chosen another one
            mlflow.set_tracking_uri(previous)


def _is_used_by_mlflow(uri: str) -> bool:
    with suppress(StoreError):  # MLflow's file store, which is not supported
        return resolve_uri(mlflow.get_tracking_uri()) == uri
    return False
