"""MemoryTracker: a tracker without a database, for tests and experiments."""

from __future__ import annotations

import dataclasses
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fa_registry.errors import StoreError
from fa_registry.safe_files import existing_file_in, folder_size, join_safely
from fa_registry.tracking.base import DatasetReference, Point, StoredRun, Tracker
from fa_registry.tracking.mlflow_views import View
from fa_registry.tracking.schema import EXPERIMENT, NUMBERED


class MemoryTracker(Tracker):
    """Tracker with runs in dictionaries and artifacts in the directory `folder`."""

    def __init__(self, folder: Path):
        self.uri = "memory"
        self.folder = folder
        self.runs: dict[str, StoredRun] = {}
        self.points: dict[str, list[Point]] = defaultdict(list)
        self.datasets: dict[str, list[DatasetReference]] = defaultdict(list)

    def with_experiment(self, experiment: str) -> Tracker:
        return self  # there are no experiments in memory

    def without_retry(self) -> Tracker:
        return self

    def create(self, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        run_id = f"{len(self.runs) + 1:032x}"
        self.runs[run_id] = StoredRun(
            run_id, name, EXPERIMENT, "RUNNING", len(self.runs), {**tags, **NUMBERED}, params=dict(params)
        )
        return run_id

    def adopt(self, run_id: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        self.runs[run_id] = dataclasses.replace(self.get(run_id), name=name)
        self.log(run_id, tags={**tags, **NUMBERED}, params=params)
        return run_id

    def log(
        self,
        run_id: str,
        points: Iterable[Point] = (),
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        """Log as Tracker.log does. The value of a metric is its value at the last step."""
        run = self.get(run_id)
        self.points[run_id].extend(points)
        newest = {point.key: point.value for point in sorted(self.points[run_id], key=lambda point: point.step)}
        self.runs[run_id] = dataclasses.replace(
            run, tags={**run.tags, **(tags or {})}, metrics=newest, params={**run.params, **(params or {})}
        )

    def remove_tags(self, run_id: str, names: Iterable[str]) -> None:
        run, removed_names = self.get(run_id), set(names)
        remaining_tags = {name: value for name, value in run.tags.items() if name not in removed_names}
        self.runs[run_id] = dataclasses.replace(run, tags=remaining_tags)

    def log_dataset(self, run_id: str, dataset: DatasetReference) -> None:
        self.datasets[run_id].append(dataset)

    def upload(self, run_id: str, folder: Path) -> None:
        shutil.copytree(folder, self.folder / run_id, dirs_exist_ok=True)

    def add_model_entry(self, run_id: str, name: str, points: Iterable[Point], note: str) -> None:
        pass  # there is no web interface

    def remove(self, run_id: str, path: str) -> None:
        shutil.rmtree(join_safely(self.folder / run_id, path), ignore_errors=True)

    def finish(self, run_id: str, state: str) -> None:
        self.runs[run_id] = dataclasses.replace(self.get(run_id), state=state)

    def discard(self, run_id: str) -> None:
        self.runs[run_id] = dataclasses.replace(self.get(run_id), deleted=True)

    def get(self, run_id: str) -> StoredRun:
        if run_id not in self.runs:
            raise StoreError(f"no run {run_id!r} in the store {self.uri}")
        return self.runs[run_id]

    def search(
        self, tags: Mapping[str, str], experiment: str = "", start: str = "", most: int = 0, state: str = ""
    ) -> list[StoredRun]:
        """Return the matching runs, newest first; see Tracker.search."""
        matching = [
            run
            for run in self.runs.values()
            if tags.items() <= run.tags.items() and experiment in ("", run.experiment) and run.run_id.startswith(start)
            if state in ("", run.state)
        ]
        return sorted(matching, key=lambda run: -run.started)[: most or None]

    def history(self, run_id: str, keys: Iterable[str]) -> list[Point]:
        selected_keys = set(keys)
        return [point for point in self.points[run_id] if point.key in selected_keys]

    def search_everywhere(self, params: Mapping[str, str], tags: Mapping[str, str]) -> Iterator[StoredRun]:
        return (run for run in self.search(tags) if params.items() <= run.params.items())

    def link(self, run_id: str, path: str) -> str:
        return ""

    def experiment_deleted_message(self) -> str:
        return ""

    def comparison(self, run_ids: Sequence[str]) -> str:
        return ""

    def publish_views(self, views: Sequence[View]) -> str:
        return ""

    def size(self, run_id: str) -> int:
        return folder_size(self.folder / run_id)

    def describe_location(self, run_id: str) -> str:
        return str(self.folder / run_id)

    def artifact(self, run_id: str, path: str) -> Path | None:
        self.get(run_id)
        return existing_file_in(self.folder / run_id, path)
