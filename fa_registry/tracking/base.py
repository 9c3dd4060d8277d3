"""Interface of a tracker: runs with params, tags, metrics and files."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fa_registry.disk_spill import SpilledFields

if TYPE_CHECKING:
    from fa_registry.tracking.mlflow_views import View

CLOCKS_APART = 3600.0  # seconds by which the clocks of two machines may differ before one counts as wrong
MOST_POINTS = (
    30  # of a metric in a store's tables: its chart looks the same, and 33 metrics of a run need only one request
)


@dataclass(frozen=True)
class Point:
    """One metric value at one step (= epoch). time: when measured, ms since 1970; 0: when logged."""

    key: str
    value: float
    step: int
    time: int = field(default=0, compare=False)


@dataclass(frozen=True)
class DatasetReference:
    """A data set of a run. profile: further facts for the store's page, such as sizes."""

    name: str
    digest: str
    source: str
    context: str
    profile: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredRun(SpilledFields):
    """A run as the store records it.

    state: of the store (RUNNING, FINISHED, FAILED, KILLED). started: ms since 1970. metrics: each one's value at its last step.
    params: as text. deleted: whether the run is in the store's bin.
    """

    SPILLED_FIELDS = ("tags", "metrics", "params")

    run_id: str
    name: str
    experiment: str
    state: str
    started: int
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    deleted: bool = False


def is_ahead(run: StoredRun) -> bool:
    """Return whether a run's start time is in the future: the clock of its machine was wrong."""
    return run.started > (time.time() + CLOCKS_APART) * 1000


def newest_first(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Sort runs by start time, the newest first; runs with a start time in the future come last."""
    return sorted(runs, key=lambda run: (not is_ahead(run), run.started), reverse=True)


class Tracker(abc.ABC):
    """A store of runs."""

    uri: str

    @abc.abstractmethod
    def with_experiment(self, experiment: str) -> Tracker:
        """Return this store with `experiment` as the target of new runs."""

    @abc.abstractmethod
    def without_retry(self) -> Tracker:
        """Return this store without retries: it raises at once if its server is unreachable."""

    @abc.abstractmethod
    def create(self, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """Start a run; return its id."""

    @abc.abstractmethod
    def adopt(self, run_id: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """Take over a run that `mlflow run` already started; return its id."""

    @abc.abstractmethod
    def log(
        self,
        run_id: str,
        points: Iterable[Point] = (),
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        """Add metric points, set tags, and set parameters, which cannot be changed later."""

    @abc.abstractmethod
    def remove_tags(self, run_id: str, names: Iterable[str]) -> None:
        """Remove these tags from a run, if present."""

    @abc.abstractmethod
    def log_dataset(self, run_id: str, dataset: DatasetReference) -> None:
        """Record a data set as input of the run."""

    @abc.abstractmethod
    def upload(self, run_id: str, folder: Path) -> None:
        """Store every file below `folder` under its relative path."""

    @abc.abstractmethod
    def remove(self, run_id: str, path: str) -> None:
        """Remove an artifact, or a folder of artifacts, from a run; do nothing if it does not exist."""

    @abc.abstractmethod
    def finish(self, run_id: str, state: str) -> None:
        """End the run with the state FINISHED, FAILED or KILLED."""

    @abc.abstractmethod
    def discard(self, run_id: str) -> None:
        """Move a run to the store's bin."""

    @abc.abstractmethod
    def get(self, run_id: str) -> StoredRun:
        """Return one run; raise StoreError if it does not exist."""

    @abc.abstractmethod
    def search(
        self, tags: Mapping[str, str], experiment: str = "", start: str = "", most: int = 0, state: str = ""
    ) -> list[StoredRun]:
        """Return the runs that carry all `tags`, newest first.

        Args:
            tags: name → value.
            experiment: only runs of this experiment; empty: of all.
            start: the first characters of the run ids.
            most: return at most this many runs; 0: all. Ten thousand runs take minutes.
            state: of the store, such as RUNNING; empty: any.
        """

    @abc.abstractmethod
    def history(self, run_id: str, keys: Iterable[str]) -> list[Point]:
        """Return every point of these metrics of a run, from the store's tables."""

    @abc.abstractmethod
    def search_everywhere(self, params: Mapping[str, str], tags: Mapping[str, str]) -> Iterator[StoredRun]:
        """Yield the runs of every experiment, also deleted ones, with all `params` and `tags`, newest first."""

    @abc.abstractmethod
    def link(self, run_id: str, path: str) -> str:
        """Return the address of an artifact's page in the store's web interface; empty without one."""

    @abc.abstractmethod
    def experiment_deleted_message(self) -> str:
        """Return how to restore the experiment of new runs if it was deleted; otherwise empty."""

    @abc.abstractmethod
    def comparison(self, run_ids: Sequence[str]) -> str:
        """Return the address of the store's page for comparing these runs; empty without one."""

    @abc.abstractmethod
    def publish_views(self, views: Sequence[View]) -> str:
        """Publish views of the experiment in the store's web interface; return the first one's address.

        A view that a user created or changed is not overwritten. Returns "" if the store does not support views (the reason is
        logged; nothing else is affected).
        """

    @abc.abstractmethod
    def artifact(self, run_id: str, path: str) -> Path | None:
        """Return a local copy of one artifact; None if the run has no artifact of that path."""

    @abc.abstractmethod
    def size(self, run_id: str) -> int:
        """Return the total size of a run's files in bytes."""

    @abc.abstractmethod
    def describe_location(self, run_id: str) -> str:
        """Return a phrase for a message: where a run's files are expected, and what to do if they are missing."""
