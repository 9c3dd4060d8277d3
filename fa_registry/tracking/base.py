"""The contract of a tracker: runs with params, tags, metrics and files. What they mean is schema's and writer's business."""

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
    30  # of a metric in a store's tables: its chart looks the same, and a run on 33 metrics sends them in one call
)


@dataclass(frozen=True)
class Point:
    """One metric value at one step (= epoch). time: ms since 1970, when it was measured; 0: when it is logged."""

    key: str
    value: float
    step: int
    time: int = field(default=0, compare=False)


@dataclass(frozen=True)
class DatasetReference:
    """profile: what else a page should say of the data, as its sizes."""

    name: str
    digest: str
    source: str
    context: str
    profile: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredRun(SpilledFields):
    """A run as the store knows it. state: the store's own word (RUNNING, FINISHED, FAILED, KILLED). started: ms since 1970.

    metrics: the value of each at its last step. params: as text. deleted: whether it is in the store's bin.
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
    """Return whether a run says that it began in the future: the clock of its machine was wrong."""
    return run.started > (time.time() + CLOCKS_APART) * 1000


def newest_first(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Sort runs by start time, the newest first; those that say they began in the future come last."""
    return sorted(runs, key=lambda run: (not is_ahead(run), run.started), reverse=True)


class Tracker(abc.ABC):
    """A store of runs."""

    uri: str

    @abc.abstractmethod
    def with_experiment(self, experiment: str) -> Tracker:
        """This store, with new runs going to `experiment`."""

    @abc.abstractmethod
    def without_retry(self) -> Tracker:
        """This store, which refuses at once where its server is away, instead of waiting for it."""

    @abc.abstractmethod
    def create(self, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """Start a run; returns its id."""

    @abc.abstractmethod
    def adopt(self, run_id: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """Take over a run that `mlflow run` already started; returns its id."""

    @abc.abstractmethod
    def log(
        self,
        run_id: str,
        points: Iterable[Point] = (),
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        """Add metric points, set tags, and give parameters their values, which stay."""

    @abc.abstractmethod
    def remove_tags(self, run_id: str, names: Iterable[str]) -> None:
        """Take these tags off a run that has them."""

    @abc.abstractmethod
    def log_dataset(self, run_id: str, dataset: DatasetReference) -> None:
        """Record a data set as input of the run."""

    @abc.abstractmethod
    def upload(self, run_id: str, folder: Path) -> None:
        """Store every file below `folder` under its relative path."""

    @abc.abstractmethod
    def remove(self, run_id: str, path: str) -> None:
        """Take an artifact, or a folder of them, away from a run; nothing where it is not there."""

    @abc.abstractmethod
    def finish(self, run_id: str, state: str) -> None:
        """End the run: FINISHED, FAILED or KILLED."""

    @abc.abstractmethod
    def discard(self, run_id: str) -> None:
        """Put a run into the store's bin."""

    @abc.abstractmethod
    def get(self, run_id: str) -> StoredRun:
        """One run; StoreError when there is none."""

    @abc.abstractmethod
    def search(
        self, tags: Mapping[str, str], experiment: str = "", start: str = "", most: int = 0, state: str = ""
    ) -> list[StoredRun]:
        """Runs that carry all `tags`, newest first; in one experiment if named. start: the first characters of their ids.

        state: the store's own word, RUNNING for example.
        most: no more than so many are read, 0: all. Ten thousand runs take a store minutes.
        """

    @abc.abstractmethod
    def history(self, run_id: str, keys: Iterable[str]) -> list[Point]:
        """Every point of these metrics of a run, as the store's tables have them."""

    @abc.abstractmethod
    def search_everywhere(self, params: Mapping[str, str], tags: Mapping[str, str]) -> Iterator[StoredRun]:
        """Runs of every experiment, deleted ones too, that carry all `params` and all `tags`, newest first, as they are read."""

    @abc.abstractmethod
    def link(self, run_id: str, path: str) -> str:
        """Address of one artifact's page within the store's own pages, for a link in a note; empty where it has none."""

    @abc.abstractmethod
    def experiment_deleted_message(self) -> str:
        """That the experiment of new runs was deleted with all its runs, and how it comes back; empty where it was not."""

    @abc.abstractmethod
    def comparison(self, run_ids: Sequence[str]) -> str:
        """Address of the page that has these runs side by side, in this order, as that of `link`; empty where there is none."""

    @abc.abstractmethod
    def publish_views(self, views: Sequence[View]) -> str:
        """Keep these views of new runs' experiment with the store's own pages; the address of the first, as that of `link`.

        A view that a person has made or changed stays as it is. Empty where the store has no pages that know views, or takes
        none: why is said in the log, and nothing else is lost by it.
        """

    @abc.abstractmethod
    def artifact(self, run_id: str, path: str) -> Path | None:
        """A local copy of one artifact, or None where the run has none of that path."""

    @abc.abstractmethod
    def size(self, run_id: str) -> int:
        """The size of a run's files together, in bytes."""

    @abc.abstractmethod
    def describe_location(self, run_id: str) -> str:
        """Where a run's files are looked for, and what to do where they are not there: words for a sentence."""
