"""Interface of a tracker: runs with parameters, tags, metrics and files."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fa_registry import process_ownership
from fa_registry.option_table import option
from fa_registry.training.kept_states import AUTO

if TYPE_CHECKING:
    from fa_registry.tracking.mlflow_views import View

CLOCKS_APART = 3600.0  # largest accepted difference in seconds between the clocks of two machines


@dataclass(frozen=True)
class RetentionOptions:
    """Options that select which optional data of a run are stored.

    The module training.state_sizes chooses the epochs of the stored training states.
    """

    checkpoint_every: int = option(
        0,
        "Also store the initial weights and the weights of every Nth epoch [0: only the final weights].",
        bounds=(0, None),
        metavar="N",
    )
    keep_states: int | str = option(
        AUTO,
        "Also store K training states per run, or those of all epochs. An audit can then replay K epochs. auto: the study's "
        "keep_states, or else 3 states if these need at most 5 % of the disk space of the run.",
        metavar="K|auto|all",
    )
    points: int = option(
        0,
        "Largest number of points per metric in MLflow's tables and charts [0: one per epoch]. series.parquet has every epoch.",
        "--max-chart-points",
        bounds=(0, None),
        metavar="N",
    )


@dataclass(frozen=True)
class Point:
    """One metric value at one step.

    Attributes:
        key: metric key in the store.
        step: epoch.
        time: time of the measurement in ms since 1970; 0 means the time of logging.
    """

    key: str
    value: float
    step: int
    time: int = field(default=0, compare=False)


@dataclass(frozen=True)
class DatasetReference:
    """Data set that a run used.

    Attributes:
        digest: SHA-256 of the data.
        source: where the data come from.
        context: use of the data, such as training.
        profile: further facts for the store's web page, such as sizes.
    """

    name: str
    digest: str
    source: str
    context: str
    profile: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredRun:
    """Run as the store records it.

    Attributes:
        state: RUNNING, FINISHED, FAILED or KILLED.
        started: start time in ms since 1970.
        ended: end time in ms since 1970; 0 if the run has not ended.
        metrics: mapping from metric key to the value at the last step.
        params: mapping from parameter name to value as text.
        deleted: whether the run was deleted but can still be restored.
    """

    run_id: str
    name: str
    experiment: str
    state: str
    started: int
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    deleted: bool = False
    ended: int = 0


@dataclass(frozen=True)
class RunUpdate:
    """Change of one run in the store.

    Attributes:
        tags: tags to set, name → value.
        points: metric points to add.
        outdated: names of tags to remove.
    """

    run_id: str
    tags: Mapping[str, str]
    points: Sequence[Point] = ()
    outdated: Sequence[str] = ()


def is_ahead(run: StoredRun) -> bool:
    """Return whether the start time of a run is more than an hour in the future.

    Such a start time shows that the clock of the run's machine was wrong.
    """
    return run.started > (time.time() + CLOCKS_APART) * 1000


def newest_first(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Sort runs by start time, newest first. Runs with a start time in the future come last."""
    return sorted(runs, key=lambda run: (not is_ahead(run), run.started), reverse=True)


class Tracker(abc.ABC):
    """Abstract store of runs."""

    uri: str

    @abc.abstractmethod
    def with_experiment(self, experiment: str) -> Tracker:
        """Return a tracker for this store that creates new runs in `experiment`."""

    @abc.abstractmethod
    def without_retry(self) -> Tracker:
        """Return a tracker that raises at once if its server is unreachable."""

    @abc.abstractmethod
    def create(self, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """Create and start a run. Return its id."""

    @abc.abstractmethod
    def adopt(self, run_id: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """Set name, tags and parameters of a run that `mlflow run` started. Return the id of the run."""

    @abc.abstractmethod
    def log(
        self,
        run_id: str,
        points: Iterable[Point] = (),
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        """Add metric points to a run, and set its tags and parameters. Parameters cannot be changed later."""

    def log_all(self, changes: Iterable[RunUpdate]) -> None:
        """Change several runs, in their order. A store may change many runs at once."""
        for change in changes:
            self.log(change.run_id, change.points, change.tags)
            self.remove_tags(change.run_id, change.outdated)

    @abc.abstractmethod
    def remove_tags(self, run_id: str, names: Iterable[str]) -> None:
        """Remove the tags `names` from a run. Ignore tags that the run does not have."""

    @abc.abstractmethod
    def log_dataset(self, run_id: str, dataset: DatasetReference) -> None:
        """Record a data set as input of the run."""

    @abc.abstractmethod
    def upload(self, run_id: str, folder: Path) -> None:
        """Store all files below `folder` as artifacts of the run."""

    def attach(self, run_id: str, path: str, data: bytes) -> None:
        """Store one artifact with the content `data`.

        A store may skip an artifact that already has this content.
        """
        with process_ownership.temp_dir("fa_registry-file-") as folder:
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(data)
            self.upload(run_id, folder)

    @abc.abstractmethod
    def add_model_entry(self, run_id: str, name: str, points: Iterable[Point], note: str) -> None:
        """List the final weights of a run, with points that the run has, as a model of the web interface.

        The entry has no files, and no function reads it. If the store refuses it, log a warning.
        """

    @abc.abstractmethod
    def remove(self, run_id: str, path: str) -> None:
        """Remove an artifact, or a folder of artifacts, from a run. Ignore a missing artifact."""

    @abc.abstractmethod
    def finish(self, run_id: str, state: str) -> None:
        """End the run with the state FINISHED, FAILED or KILLED."""

    @abc.abstractmethod
    def discard(self, run_id: str) -> None:
        """Mark a run and its model entry as deleted.

        The user can restore the run in MLflow, without the entry.
        """

    @abc.abstractmethod
    def get(self, run_id: str) -> StoredRun:
        """Return the run with this id. Raise StoreError if the run does not exist."""

    @abc.abstractmethod
    def search(
        self, tags: Mapping[str, str], experiment: str = "", start: str = "", most: int = 0, state: str = ""
    ) -> list[StoredRun]:
        """Return the runs that have all `tags` (name → value), newest first.

        Args:
            experiment: name of the experiment to search; empty means all experiments.
            start: first characters of the run ids.
            most: maximum number of runs to return; 0 means no limit. Reading ten thousand runs takes minutes.
            state: required state of the run, such as RUNNING; empty means any state.
        """

    def everywhere(self, table: str, name: str) -> Mapping[str, str] | None:
        """Return one tag or parameter of all runs that have it, as run id → value, deleted runs included.

        Return None if the store would have to read whole runs for it.

        Args:
            table: "tags" or "params".
        """
        return None

    @abc.abstractmethod
    def history(self, run_id: str, keys: Iterable[str]) -> list[Point]:
        """Return all points of the metrics `keys` of a run, from the store's tables."""

    @abc.abstractmethod
    def search_everywhere(self, params: Mapping[str, str], tags: Mapping[str, str]) -> Iterator[StoredRun]:
        """Yield runs of all experiments that have all `params` and `tags`, newest first.

        Deleted runs are included.
        """

    @abc.abstractmethod
    def link(self, run_id: str, path: str) -> str:
        """Return the address of an artifact in the web interface; empty if there is none."""

    @abc.abstractmethod
    def experiment_deleted_message(self) -> str:
        """Return how to restore a deleted experiment, or an empty string if it was not deleted."""

    @abc.abstractmethod
    def comparison(self, run_ids: Sequence[str]) -> str:
        """Return the address of the web page that compares these runs; empty if there is none."""

    @abc.abstractmethod
    def publish_views(self, views: Sequence[View]) -> str:
        """Publish views of the experiment in the web interface, and return the address of the first view.

        Do not overwrite a view that a user created or changed. Return an empty string and log the reason if the store does not
        support views.
        """

    @abc.abstractmethod
    def artifact(self, run_id: str, path: str) -> Path | None:
        """Return a local copy of an artifact, or None if the artifact does not exist."""

    @abc.abstractmethod
    def size(self, run_id: str) -> int:
        """Return the total size of a run's files in bytes."""

    @abc.abstractmethod
    def describe_location(self, run_id: str) -> str:
        """Return the part of an error message that explains where a run's files belong."""
