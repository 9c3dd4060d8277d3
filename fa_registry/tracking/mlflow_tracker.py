"""MlflowTracker: a tracker for MLflow stores.

MlflowTracker uses MLflow's client API, because the fluent API has global state.
"""

from __future__ import annotations

import atexit
import copy
import gc
import json
import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import mlflow
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LifecycleStage,
    LoggedModelStatus,
    Metric,
    Param,
    Run,
    RunInfo,
    RunTag,
    ViewType,
)
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    BAD_REQUEST,
    INVALID_PARAMETER_VALUE,
    RESOURCE_ALREADY_EXISTS,
    RESOURCE_DOES_NOT_EXIST,
    ErrorCode,
)
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request

from fa_registry import jsonio, process_ownership
from fa_registry.errors import StoreError
from fa_registry.provenance import login_name
from fa_registry.safe_files import copy_into, existing_file_in, folder_size, join_safely, write_into
from fa_registry.text_safety import LONGEST, name_problem
from fa_registry.tracking.active_run import active_run
from fa_registry.tracking.artifact_location import check_inside_store, check_location, local_folder, resolve_artifact
from fa_registry.tracking.base import DatasetReference, Point, RunUpdate, StoredRun, Tracker
from fa_registry.tracking.client import Client, answering
from fa_registry.tracking.mlflow_views import (
    MACHINE_LEARNING,
    RELEASE,
    View,
    compared_address,
    is_our_note,
    is_ours,
    note_of,
    pattern,
    term,
)
from fa_registry.tracking.schema import (
    EXPERIMENT,
    NUMBERED,
    TAG_DATA_USE,
    TAG_EXPERIMENT_KIND,
    TAG_NOTE,
    TAG_SOURCE,
    TAG_USER,
    TAG_VIEW,
    check_run,
)
from fa_registry.tracking.store import ARTIFACTS, check_writable, resolve_uri, sqlite_path
from fa_registry.tracking.store_errors import StoreRefusal

LOG = logging.getLogger(__name__)
VERSION_SECONDS = 10  # maximum time to wait for the server's version, which only views need
BATCH = 1000  # MLflow's limit for one log_batch call: points, tags and parameters together
BATCH_NAMES = 100  # MLflow's limit for the tags of one log_batch call, and also for the parameters
RUNS_AT_ONCE = 100  # runs in one transaction of an sqlite store, which locks the database for about 50 ms
LATEST = 9_000_000_000_000  # ms since 1970 (the year 2255): pandas' timestamps end a few years later
PAGE = 250  # runs per response: MLflow needs 100 KiB per run, and queries its tables again for every page
# with this tag, MLflow's pages open on training runs instead of chats
EXPERIMENT_TAGS = {TAG_EXPERIMENT_KIND: "custom_model_development"}
MODEL_NAME = str.maketrans("./:%\"'", ",_____")  # MLflow allows none of these in a model's name
NO_SUCH_RUN = (ErrorCode.Name(RESOURCE_DOES_NOT_EXIST), ErrorCode.Name(INVALID_PARAMETER_VALUE))  # second: no id
DIGEST_LENGTH = 16  # the store allows 36 characters; the full digest is in the profile and in provenance.json


class MlflowTracker(Tracker):
    """Tracker for an MLflow store.

    Args:
        uri: URI of the store; see store.resolve_uri for the default.
        experiment: name of the experiment of new runs, which is created with the first new run.
        experiment_id: id of an existing experiment; replaces `experiment`.
        make: whether to create a missing database. If False, a database without write access is opened for reading.
        waits: whether the constructor waits for an unreachable server.
    """

    def __init__(
        self,
        uri: str = "",
        experiment: str = EXPERIMENT,
        experiment_id: str = "",
        make: bool = True,
        waits: bool = False,
    ):
        self.uri = resolve_uri(uri)
        self._client = Client(self.uri, make, waits)
        self._experiment = experiment
        self._experiment_id = experiment_id
        self._experiment_names: dict[str, str] = {}
        self._places: dict[str, _Place] = {}
        self._database = sqlite_path(self.uri)
        self._root: tuple[str, Path | None] = ("", None)

    @property
    def _writer(self) -> Client:
        """Client for changes of the store. Raises StoreError if the store is read-only."""
        if self._client.address != self.uri:
            check_writable(self.uri)
        return self._client

    def with_experiment(self, experiment: str) -> MlflowTracker:
        """Return a tracker for new runs in `experiment`, with the connection and cache of this tracker."""
        tracker = copy.copy(self)
        tracker._experiment, tracker._experiment_id = experiment, ""
        vars(tracker).pop("experiment_id", None)
        return tracker

    def without_retry(self) -> MlflowTracker:
        tracker = copy.copy(self)
        tracker._client = self._client.at_once()
        return tracker

    @cached_property
    def experiment_id(self) -> str:
        """Id of the experiment of new runs. A missing experiment is created."""
        if self._experiment_id:
            return self._experiment_id
        existing = next(
            (experiment for experiment in self._client.experiments() if experiment.name == self._experiment), None
        )
        if existing is None:  # the experiment may be deleted, or newer than the list
            existing = self._client.get_experiment_by_name(self._experiment)
        if existing is None:
            if problem := name_problem(self._experiment):
                raise StoreError(f"experiment: {problem}")
            try:
                return self._writer.create_experiment(self._experiment, self._location(), EXPERIMENT_TAGS)
            except StoreRefusal as refusal:
                if refusal.code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
                    raise
            existing = self._client.get_experiment_by_name(self._experiment)  # created by another process
        if existing.lifecycle_stage == LifecycleStage.DELETED:
            raise StoreError(f"{self.experiment_deleted_message()}, or choose another experiment with --experiment")
        return existing.experiment_id

    def check_place(self) -> None:
        """Raise OutsideStore if files of new runs would be outside the store (docs/decisions/18)."""
        if self._database:
            locations = {
                experiment.experiment_id: experiment.artifact_location for experiment in self._client.experiments()
            }
            check_location(locations.get(self.experiment_id, ""), self.uri)

    def _location(self) -> str | None:
        """Return the URI of a new experiment's folder; None if a server chooses the folder."""
        if self.uri.startswith("http"):
            return None
        folder = (self._database.parent if self._database else Path.cwd()) / ARTIFACTS / _folder(self._experiment)
        if self._database:
            check_inside_store(folder, self.uri)
        else:
            LOG.warning(
                "experiment %s: the files of its runs are stored in %s, which other machines cannot read. "
                "To share the files, use a tracking server (docs/team-server.md)",
                self._experiment,
                folder,
            )
        return folder.as_uri()

    @cached_property
    def _downloads(self) -> Path:
        """Folder for copies of remote artifacts, removed when the process ends."""
        folder = process_ownership.create_temp_dir("fa_registry-downloads-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def create(self, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """Create a run as Tracker.create does, with MLflow's tags for user and source."""
        self.check_place()
        run = self._writer.create_run(
            self.experiment_id,
            run_name=name,
            tags={**tags, **NUMBERED, TAG_USER: login_name(), TAG_SOURCE: "fa_registry"},
        )
        self._places[run.info.run_id] = _Place.of(run.info)
        self.log(run.info.run_id, params=params)
        return run.info.run_id

    def adopt(self, run_id: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        self.get(run_id)
        self._writer.update_run(run_id, name=name)
        self.log(run_id, tags={**tags, **NUMBERED}, params=params)
        return run_id

    def log(
        self,
        run_id: str,
        points: Iterable[Point] = (),
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        """Log as Tracker.log does, and set the tags in the same call as the last points.

        The tags may contain the status `complete`, so they must not be set before all points.
        """
        now = int(time.time() * 1000)
        # MLflow stores equal points of the same time once, so points can be sent again if the response was lost.
        timed = (Metric(point.key, point.value, point.time or now, point.step) for point in points)
        other_items = sum(min(len(names or ()), BATCH_NAMES) for names in (tags, params))
        metric_batches = list(_batches(timed, BATCH - other_items))
        tag_batches = list(_batches((RunTag(name, value) for name, value in (tags or {}).items()), BATCH_NAMES))
        tag_batches = [[]] * (len(metric_batches) - len(tag_batches)) + tag_batches
        param_batches = _batches((Param(name, value) for name, value in (params or {}).items()), BATCH_NAMES)
        # A call itself costs about as much as its content, so metrics, tags and parameters are sent in the same calls.
        for metric_batch, tag_batch, param_batch in zip_longest(
            metric_batches, tag_batches, param_batches, fillvalue=()
        ):
            self._writer.log_batch(run_id, metrics=metric_batch, tags=tag_batch, params=param_batch)

    def log_all(self, changes: Iterable[RunUpdate]) -> None:
        """Change several runs as Tracker.log_all does; an sqlite store changes a batch in one transaction."""
        if self._database:
            for batch in _batches(changes, RUNS_AT_ONCE):
                self._writer.change_runs(batch)
        else:
            super().log_all(changes)

    def remove_tags(self, run_id: str, names: Iterable[str]) -> None:
        for name in names:
            self._writer.delete_tag(run_id, name)

    def log_dataset(self, run_id: str, dataset: DatasetReference) -> None:
        """Record a data set. If another process records it at the same time, repeat the request."""
        profile = json.dumps({"sha256": dataset.digest, **dataset.profile})
        entity = Dataset(dataset.name, dataset.digest[:DIGEST_LENGTH], "code", dataset.source, profile=profile)
        inputs = [DatasetInput(entity, [InputTag(TAG_DATA_USE, dataset.context)])]
        try:
            self._writer.log_inputs(run_id, inputs)
        except StoreRefusal as refusal:
            # MLflow searches for the data set before creating it; meanwhile another process may create it
            if refusal.code != ErrorCode.Name(BAD_REQUEST):
                raise
            self._writer.log_inputs(run_id, inputs)

    def upload(self, run_id: str, folder: Path) -> None:
        """Store files as Tracker.upload does. Files of an sqlite store are copied next to its database."""
        local = self._database_folder(run_id)
        if local is None:  # MLflow's client would request the address from the server once more
            self._writer.ask(lambda: self._files(run_id).log_artifacts(str(folder)))
        else:  # MLflow's client does the same, after it has queried the database for the folder once more
            with answering(self.uri):
                copy_into(local, folder)

    def attach(self, run_id: str, path: str, data: bytes) -> None:
        local = self._database_folder(run_id)
        if local is None:
            super().attach(run_id, path, data)
        else:
            with answering(self.uri):
                write_into(local, path, data)

    def _database_folder(self, run_id: str) -> Path | None:
        """Return the folder to which a run's files in an sqlite store may be written; None for another store."""
        local = self._local_root(run_id) if self._database else None
        if local is not None:
            check_writable(self.uri)
            check_inside_store(local, self.uri)
        return local

    def add_model_entry(self, run_id: str, name: str, points: Iterable[Point], note: str) -> None:
        """List a run's weights as Tracker.add_model_entry does, as a logged model of MLflow."""
        with _optional(f"the weights of run {run_id} are not among MLflow's models"):
            client, experiment_id = self._writer, self._place(run_id).experiment_id
            named = name.translate(MODEL_NAME)
            model_id = client.create_logged_model(experiment_id, named, run_id, {TAG_NOTE: note}).model_id
            # MLflow logs the metric of a model as one of the run too, but a point that the run has is stored once
            metrics = [Metric(point.key, point.value, point.time, point.step, model_id) for point in points]
            client.log_batch(run_id, metrics=metrics)
            client.finalize_logged_model(model_id, LoggedModelStatus.READY)

    def remove(self, run_id: str, path: str) -> None:
        local = self._local_root(run_id)
        if local is not None:
            process_ownership.remove_quietly(join_safely(local, path))
        else:
            self._writer.ask(lambda: self._files(run_id).delete_artifacts(path))

    def _files(self, run_id: str) -> ArtifactRepository:
        return get_artifact_repository(self._place(run_id).artifact_uri, tracking_uri=self.uri)

    def finish(self, run_id: str, state: str) -> None:
        self._writer.set_terminated(run_id, state)

    def active(self, run_id: str) -> AbstractContextManager[None]:
        """Return a context manager that makes the run the active run of MLflow's fluent API in this thread."""
        return active_run(self.uri, self._client.get_run(run_id))

    def discard(self, run_id: str) -> None:
        client = self._writer
        client.delete_run(run_id)
        with _optional(f"run {run_id} was deleted, but not its entry among MLflow's models"):
            query = term("source_run_id", run_id)
            for model in client.search_logged_models([self._place(run_id).experiment_id], query):
                client.delete_logged_model(model.model_id)

    def get(self, run_id: str) -> StoredRun:
        try:
            return self._stored(self._client.get_run(run_id))
        except StoreRefusal as refusal:
            if refusal.code not in NO_SUCH_RUN:
                raise
            raise StoreError(f"no run {run_id!r} in the store {self.uri}") from refusal

    def search(
        self, tags: Mapping[str, str], experiment: str = "", start: str = "", most: int = 0, state: str = ""
    ) -> list[StoredRun]:
        """Return the matching runs, newest first; see Tracker.search."""
        terms = [term(f"tags.`{name}`", value) for name, value in tags.items()]
        if start:
            terms.append(f"attributes.run_id LIKE '{pattern(start)}%'")
        if state:
            terms.append(term("attributes.status", state))
        candidates = self._pages(self._experiment_ids(experiment), " and ".join(terms), most=most)
        # LIKE has wildcards and ignores case, so a pattern may match further runs
        matching = (run for run in candidates if tags.items() <= run.tags.items() and run.run_id.startswith(start))
        return list(islice(matching, most or None))

    def everywhere(self, table: str, name: str) -> Mapping[str, str] | None:
        return self._client.values_everywhere(table, name) if self._database else None

    def history(self, run_id: str, keys: Iterable[str]) -> list[Point]:
        """Return points as Tracker.history does, with one query per metric."""
        histories = ((key, self._client.get_metric_history(run_id, key)) for key in keys)
        return [Point(key, metric.value, metric.step) for key, metrics in histories for metric in metrics]

    def search_everywhere(self, params: Mapping[str, str], tags: Mapping[str, str]) -> Iterator[StoredRun]:
        terms = [term(f"params.`{name}`", value) for name, value in params.items()]
        terms += [term(f"tags.`{name}`", value) for name, value in tags.items()]
        ids = [experiment.experiment_id for experiment in self._client.search_experiments(view_type=ViewType.ALL)]
        candidates = self._pages(ids, " and ".join(terms), ViewType.ALL)
        return (run for run in candidates if params.items() <= run.params.items() and tags.items() <= run.tags.items())

    def link(self, run_id: str, path: str) -> str:
        """Return a link as Tracker.link does, relative to the address of the server."""
        return f"{self._run_path(run_id)}/artifacts/{quote(path)}{MACHINE_LEARNING}"

    def run_page(self, run_id: str) -> str:
        """Return a link to the page of a run, relative to the address of the server."""
        return f"{self._run_path(run_id)}{MACHINE_LEARNING}"

    def _run_path(self, run_id: str) -> str:
        return f"#/experiments/{self._place(run_id).experiment_id}/runs/{run_id}"

    def experiment_deleted_message(self) -> str:
        existing = self._client.get_experiment_by_name(self._experiment)
        if existing is None or existing.lifecycle_stage != LifecycleStage.DELETED:
            return ""
        restore = f"MLFLOW_TRACKING_URI={shlex.quote(self.uri)} mlflow experiments restore --experiment-id {existing.experiment_id}"
        return f"experiment {self._experiment!r} was deleted in MLflow. To restore the experiment and its runs, run `{restore}`"

    def comparison(self, run_ids: Sequence[str]) -> str:
        return compared_address(run_ids, [self._place(run_id).experiment_id for run_id in run_ids])

    def publish_views(self, views: Sequence[View]) -> str:
        """Publish views as Tracker.publish_views does, and a note with links. All are tags of the experiment."""
        reason = self.why_no_views() if views else ""
        if reason:
            LOG.warning("cannot publish views for MLflow's pages: %s", reason)
        if not views or reason:
            return ""
        pages = {view.key: f"#/experiments/{self.experiment_id}{view.address}" for view in views[:2]}  # charts, table
        try:
            tags = self._client.get_experiment(self.experiment_id).tags
            view_tags = [(TAG_VIEW + view.key, view.text, is_ours) for view in views]
            for tag, text, is_unchanged in (*view_tags, (TAG_NOTE, note_of(pages), is_our_note)):
                stored_text = tags.get(tag)  # a tag that a user has emptied stays empty
                if stored_text != text and (stored_text is None or is_unchanged(stored_text)):
                    self._writer.set_experiment_tag(self.experiment_id, tag, text)
        except StoreRefusal as error:
            LOG.warning(
                "cannot publish views for MLflow's pages: the store does not accept tags of experiment %s: %s",
                self.experiment_id,
                error,
            )
            return ""
        return pages[views[0].key]

    def why_no_views(self) -> str:
        """Return the reason why no views can be published, or an empty string.

        Views need a supported MLflow release of the server or, without a server, of the installed package.
        """
        release = mlflow.__version__
        if self.uri.startswith("http"):
            credentials = get_default_host_creds(self.uri)  # a server with users requires a login for this request
            try:
                response = http_request(credentials, "/version", "GET", max_retries=0, timeout=VERSION_SECONDS)
                response.raise_for_status()
                release = response.text[:100].strip()
            except (MlflowException, OSError) as error:
                return f"{self.uri} does not report its version: {error}"
        return "" if release.startswith(RELEASE) else f"found MLflow {release}, but views need MLflow {RELEASE}*"

    def artifact(self, run_id: str, path: str) -> Path | None:
        """Return a local copy of an artifact as Tracker.artifact does.

        If the artifact is already on this machine, return its path without a copy. A copy is removed when the process ends.

        Raises:
            StoreError: the store does not respond.
            UnreadableFile: the artifact is not a regular file in the run's artifact folder.
        """
        local = self._local_root(run_id)
        # A file on this machine needs no copy. MLflow would use the recorded address, which may be another store's folder.
        if local is not None and (self._database or os.path.isdir(local)):
            return existing_file_in(local, path)
        try:  # None means that the artifact does not exist; a store that does not answer must raise
            files = self._files(run_id)  # MLflow's client would ask for the run and for its models at every file
            siblings = self._client.ask(lambda: files.list_artifacts(str(Path(path).parent) if "/" in path else None))
            if path not in {entry.path for entry in siblings}:
                return None
            join_safely(self._downloads, f"{run_id}/{path}")
            folder = self._downloads / run_id
            folder.mkdir(exist_ok=True)
            return Path(self._client.ask(lambda: files.download_artifacts(path, str(folder))))
        except (StoreError, OSError) as error:
            raise StoreError(f"artifact {path} of run {run_id} in {self.uri}: {error}") from error

    def size(self, run_id: str) -> int:
        local = self._local_root(run_id)
        return self._remote_size(run_id) if local is None else folder_size(local)

    def _remote_size(self, run_id: str, folder: str | None = None) -> int:
        entries = self._client.ask(lambda: self._files(run_id).list_artifacts(folder))
        return sum(self._remote_size(run_id, entry.path) if entry.is_dir else entry.file_size or 0 for entry in entries)

    def describe_location(self, run_id: str) -> str:
        recorded, local = self._place(run_id).artifact_uri, self._local_root(run_id)
        return resolve_artifact(local, recorded) if local else f"{recorded} of {self.uri}"

    def _place(self, run_id: str) -> _Place:
        if run_id not in self._places:
            self._places[run_id] = _Place.of(self._client.get_run(run_id).info)
        return self._places[run_id]

    def _local_root(self, run_id: str) -> Path | None:
        """Return the run's artifact folder; None if a remote service stores the files."""
        if self._root[0] != run_id:  # cached: a run is read file by file, and checking the folder's links is slow
            self._root = run_id, local_folder(self._place(run_id).artifact_uri, self.uri, run_id)
        return self._root[1]

    def experiment_name(self, experiment_id: str) -> str:
        if experiment_id not in self._experiment_names:
            self._experiment_names |= {
                experiment.experiment_id: experiment.name for experiment in self._client.experiments()
            }
        if experiment_id not in self._experiment_names:
            self._experiment_names[experiment_id] = self._client.get_experiment(experiment_id).name
        return self._experiment_names[experiment_id]

    def _experiment_ids(self, name: str) -> list[str]:
        for refresh in (False, True):
            experiments = self._client.experiments(refresh)
            names_by_id = {entry.experiment_id: entry.name for entry in experiments}
            selected_ids = [key for key, entry in names_by_id.items() if name in ("", entry)]
            if selected_ids and (
                self._experiment_id in names_by_id
                or (not self._experiment_id and self._experiment in names_by_id.values())
            ):
                break
        if not selected_ids:
            raise StoreError(
                self.with_experiment(name).experiment_deleted_message()
                or f"no experiment {name!r} in the store {self.uri}; known experiments: {', '.join(names_by_id.values())}"
            )
        return selected_ids

    def _pages(
        self, experiment_ids: list[str], query: str, view: int = ViewType.ACTIVE_ONLY, most: int = 0
    ) -> Iterator[StoredRun]:
        token, size = None, min(most or PAGE, PAGE)
        while True:
            with _apart():
                page = self._client.search_runs(
                    experiment_ids,
                    query,
                    view,
                    max_results=size,
                    order_by=["attributes.start_time DESC"],
                    page_token=token,
                )
                stored, token = [self._stored(run) for run in page], page.token
                del page
            yield from stored
            if not token:
                return

    def _stored(self, run: Run) -> StoredRun:
        info = run.info
        self._places[info.run_id] = _Place.of(info)
        if info.lifecycle_stage != LifecycleStage.DELETED:  # so deleting such a run makes the store usable
            check_run(info.run_id, run.data.tags)
        return StoredRun(
            info.run_id,
            info.run_name,
            self.experiment_name(info.experiment_id),
            info.status,
            min(max(info.start_time or 0, 0), LATEST),
            _held(run.data.tags),
            _held(run.data.metrics),
            _held(run.data.params),
            info.lifecycle_stage == LifecycleStage.DELETED,
            info.end_time or 0,
        )


class _Place(NamedTuple):
    experiment_id: str
    artifact_uri: str

    @classmethod
    def of(cls, info: RunInfo) -> _Place:
        return cls(jsonio.intern_values(info.experiment_id), info.artifact_uri)


@contextmanager
def _optional(consequence: str) -> Iterator[None]:
    """Log an error of the store, with its consequence, instead of raising it."""
    try:
        yield
    except StoreError as error:
        LOG.warning("%s: %s", consequence, error)


@contextmanager
def _apart() -> Iterator[None]:
    """Disable garbage collection within the context, and collect once at its end.

    MLflow creates reference cycles of about 100 KiB per run. With collection enabled, reading a page of runs takes three times as
    long.
    """
    was_enabled, frozen_count = gc.isenabled(), gc.get_freeze_count()
    gc.disable()
    if not frozen_count:  # objects that other code froze must stay frozen
        gc.freeze()
    try:
        yield
    finally:
        if not frozen_count:
            gc.collect()
            gc.unfreeze()
        if was_enabled:
            gc.enable()


def _held(table: Mapping[str, Any]) -> dict[str, Any]:
    return {jsonio.intern_values(name): jsonio.intern_values(value) for name, value in table.items()}


def _batches(items: Iterable, size: int) -> Iterator[list]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def _folder(name: str) -> str:
    folder_name = re.sub(r"[^\w .+=-]", "_", name).encode()[:LONGEST].decode(errors="ignore")
    return folder_name if folder_name.strip(". ") else "_"
