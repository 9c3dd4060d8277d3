"""The forget command: move runs to MLflow's bin if nothing depends on them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fa_registry.errors import InvalidFields, RegistryError, UsageError
from fa_registry.reporting.results import Result
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import ModelRegistry
from fa_registry.tracking.reader import expand_run_id
from fa_registry.tracking.run_state import RunState
from fa_registry.tracking.store import command_on, resolve_uri
from fa_registry.tracking.stores import open_tracker


@dataclass(frozen=True, repr=False)
class ForgettableRun(Result):
    """Description of a run that can be moved to MLflow's bin.

    Attributes:
        size: Size of the run's files in bytes, or None if the files cannot be read.
        restore: Command that restores the run from the bin.
    """

    run_id: str
    name: str
    kind: str
    method: str
    setting: str
    seed: str
    status: str
    verdict: str
    proof: str
    size: int | None
    restore: str

    def row(self) -> dict[str, str]:
        return {"run": self.run_id, "name": self.name, "status": self.status, "restore": self.restore}

    def lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.status}"
        yield f"to restore the run: {self.restore}"


def forgettable(run_ids: Sequence[str], store: str) -> list[ForgettableRun]:
    """Return a description of each run that `run_forget` would move to MLflow's bin, without moving it.

    The first characters of a run id are enough.

    Raises:
        InvalidFields: Some runs must be kept; the error lists all of them with the reasons.
        UsageError: No id was given, or an id is unknown or ambiguous.
    """
    if not run_ids:
        listing = command_on("list runs", resolve_uri(store))
        raise UsageError(f"forget: expected the id of at least one run, found none; `{listing}` lists the ids")
    tracker = open_tracker(store, create=False, write=True)  # write=True also closes the runs of killed processes
    ids = dict.fromkeys(expand_run_id(tracker, run_id) for run_id in run_ids)
    runs = [tracker.get(run_id) for run_id in ids]
    models = ModelRegistry(tracker.uri)
    problems = [f"run {run.run_id}: {reason}" for run in runs for reason in _reasons_to_stay(tracker, models, run)]
    if problems:
        raise InvalidFields("forget", problems)
    return [_described(tracker, run) for run in runs]


def run_forget(run_ids: Sequence[str], store: str) -> list[ForgettableRun]:
    """Move the runs to MLflow's bin and return their descriptions; see `forgettable`."""
    runs = forgettable(run_ids, store)
    tracker = MlflowTracker(store, make=False)
    for run in runs:
        tracker.discard(run.run_id)
    return runs


def _reasons_to_stay(tracker: Tracker, models: ModelRegistry, run: StoredRun) -> Iterator[str]:
    kind = run.tags.get(schema.TAG_KIND, "")
    if run.deleted:
        yield "expected an active run, found a run that is already in MLflow's bin"
    elif kind == "audit":
        yield "expected a training run, found an audit, to which verdicts, bundles and promoted models refer"
    elif not kind:
        yield (
            "expected a run of fa_registry, found a run without the tag fa.kind; "
            f"`mlflow runs delete --run-id {run.run_id}` moves this run to the bin"
        )
    elif RunState(run).is_marked_running:
        yield (
            f"the run is still running on {RunState(run).host or 'an unknown machine'}: stop the run first. "
            "If its process no longer exists, `fa-registry doctor --repair` closes the run"
        )
    elif kind == "study" and (trained := tracker.search({schema.TAG_STUDY_RUN: run.run_id})):
        yield f"{len(trained)} training runs belong to this study run; forget the training runs first"
    else:
        for version in models.versions_of(run.run_id):
            reference = f"models:/{version.name}/{version.version}"
            yield f"the weights are registered as {reference}; delete this version on MLflow's page first"


def _described(tracker: MlflowTracker, run: StoredRun) -> ForgettableRun:
    tags, size = run.tags, None
    with suppress(RegistryError, OSError):  # a run whose files are missing can still be forgotten
        size = tracker.size(run.run_id)
    return ForgettableRun(
        run.run_id,
        run.name,
        tags[schema.TAG_KIND],
        tags.get(schema.TAG_METHOD, ""),
        tags.get(schema.TAG_SETTING, ""),
        run.params.get(f"{schema.PARAM}seed", ""),
        tags.get(schema.TAG_STATUS, ""),
        tags.get(schema.TAG_VERDICT, ""),
        tags.get(schema.TAG_PROOF, ""),
        size,
        f"MLFLOW_TRACKING_URI={shlex.quote(tracker.uri)} mlflow runs restore --run-id {run.run_id}",
    )
