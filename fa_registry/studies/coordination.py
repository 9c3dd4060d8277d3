"""Coordination of workers of one study: their resources, their store, and the tag that stops a study."""

from __future__ import annotations

import logging
import math
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar
from urllib.parse import parse_qs, urlsplit

from fa_registry import jsonio, process_ownership
from fa_registry.errors import StoreError, UnknownName
from fa_registry.field_types import Converted, Limits
from fa_registry.jsonio import parse_fields
from fa_registry.parallel import usable_cores
from fa_registry.records import RunSpec
from fa_registry.studies import executors
from fa_registry.studies.executors.base import Capacity, ClusterOptions, JobResources
from fa_registry.studies.options import TrainingOptions
from fa_registry.text_safety import escape_control
from fa_registry.tracking import schema
from fa_registry.tracking.base import RetentionOptions, StoredRun, Tracker
from fa_registry.tracking.cleanup import run_text
from fa_registry.tracking.run_state import GAP, LONGEST, SHORTEST, HeartbeatMonitor, RunState
from fa_registry.tracking.store import sqlite_path
from fa_registry.tracking.store_errors import WAITED_FOR, StoreRefusal
from fa_registry.training.kept_states import AUTO, asked_states

CPUS = "a whole number from 1 to 1024, or a fraction such as 0.5"
GPUS = "a fraction of one GPU such as 0.125, or 1 for one GPU"


def _whole_or_less_than_one(cpus: float) -> float:
    if cpus > 1 and not cpus.is_integer():
        raise ValueError(f"expected {CPUS}, found {cpus:g}")
    return cpus


RESOURCES = {  # option of a cluster → its type
    "cpus_per_run": Annotated[float, Limits(CPUS, gt=0, le=1024), Converted(_whole_or_less_than_one)],
    "gpus_per_run": Annotated[float, Limits(GPUS, gt=0, le=1)],
    "memory": Annotated[str, Converted(jsonio.byte_count)],
}
TIMES = {  # option in seconds → its type
    "silence (--hang-timeout)": Annotated[int, Limits(ge=0, le=1_000_000)],
    "lease (--heartbeat-timeout)": Annotated[int, Limits(ge=SHORTEST, le=LONGEST)],
}
KEPT = {"keep_states": Annotated[int | str, Converted(asked_states)]}
SIDE_BY_SIDE = 8  # runs on one GPU at a time
ONE_MACHINE = (
    "A sqlite file is only for one machine: two machines that write to the file damage it. On all machines, use --store with "
    "the address of one MLflow server or one PostgreSQL database (docs/many-machines.md)"
)


def asked_resources(executor: str, cluster: ClusterOptions, device: str, problems: list[str]) -> JobResources:
    """Return the resources that each job requests; append errors to `problems`."""
    given = {name: value for name in RESOURCES if (value := getattr(cluster, name))}
    values, wrong = parse_fields(RESOURCES, given)
    problems += wrong
    resources = JobResources(
        device=device,
        address=str(cluster.address),
        cpus=values.get("cpus_per_run", 1.0),
        gpus=values.get("gpus_per_run", 0.0),
        memory=values.get("memory", 0),
    )
    try:
        problems += executors.CATALOG.get(executor or "local").problems(resources)
    except UnknownName as error:
        problems.append(f"executor: {error}")
    return resources


def parse_times(training: TrainingOptions, problems: list[str]) -> int:
    """Return the seconds of `silence`; append errors in `silence` and `lease` to `problems`."""
    silence, lease = TIMES
    values, wrong = parse_fields(TIMES, {silence: training.silence, lease: training.lease})
    problems += (f"{problem} (seconds)" for problem in wrong)
    return values.get(silence, 0)


def asked_keep(keep: RetentionOptions, problems: list[str], by_study: str | int = AUTO) -> RetentionOptions:
    """Return the options with the number of states to keep.

    It is the number of the call, or `by_study` if the call has none. Errors are appended to `problems`.
    """
    values, wrong = parse_fields(KEPT, {"keep_states": keep.keep_states})
    problems += wrong
    states = values.get("keep_states", AUTO)
    return replace(keep, keep_states=by_study if states == AUTO else states)


def on_gpu(specs: Iterable[RunSpec]) -> bool:
    return any(spec.device_class == "cuda" for spec in specs)


def default_processes(specs: Sequence[RunSpec]) -> int:
    """Return the default number of simultaneous runs: one per core, or SIDE_BY_SIDE on a GPU."""
    return SIDE_BY_SIDE if on_gpu(specs) else usable_cores()


def check_reach(store: str, capacity: Capacity) -> None:
    """Raise StoreError if jobs on the executor's machines cannot use the store safely.

    A sqlite file is not safe. A store whose address contains a password is not safe either.
    """
    if capacity.machines is None:
        return
    other_machines = sorted(capacity.machines - {platform.node()})
    if other_machines and sqlite_path(store):
        raise StoreError(
            f"store {store}: the executor starts jobs on other machines ({', '.join(other_machines[:3])}). {ONE_MACHINE}"
        )
    address = urlsplit(store)
    if address.password or "password" in parse_qs(address.query):
        displayed = escape_control(store).partition("?")[0]
        raise StoreError(
            f"store {displayed}: the address contains a password. Every job would contain this address, and other users could read "
            "the password on disks and web pages. Remove the password from the address and set these variables on every machine: "
            "PGPASSFILE or PGPASSWORD for PostgreSQL, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD for an MLflow server "
            "(docs/many-machines.md)"
        )


LOG = logging.getLogger(__name__)
PAUSE = 1.0  # seconds between two queries for the heartbeats of other workers
STOP_INTERVAL = 30.0  # seconds between two queries for the tag that stops a study
STOP = "yes"
MISSES = 5  # if other workers trained this number of specifications in a row, one query reads all runs of the study


class StudySnapshot:
    """Copy of a study's runs in memory, which avoids one store query per specification.

    Attributes:
        alone: True until this process finds a run of another worker in the study.
    """

    def __init__(self, tracker: Tracker, study: str):
        self._tracker, self._study = tracker, study
        self._attempts: dict[str, list[StoredRun]] = {}
        self._missed = 0
        self.alone = True

    def attempts(self, identity: str) -> list[StoredRun]:
        """Return the runs of a specification, without metrics and parameters, and forget these runs."""
        return self._attempts.pop(identity, [])

    def record_outcome(self, free: bool) -> None:
        """Record whether no other worker trains or has trained a specification (`free`).

        If other workers trained the last MISSES specifications, the snapshot is read from the store again.
        """
        self._missed, self.alone = (0, self.alone) if free else (self._missed + 1, False)
        if self._study and self._missed >= MISSES:
            self._missed, self._attempts = 0, {}
            for run in self._tracker.search({schema.TAG_KIND: "run", schema.TAG_STUDY: self._study}):
                run_summary = replace(run, metrics={}, params={})
                self._attempts.setdefault(run.tags.get(schema.TAG_SPEC, ""), []).append(run_summary)


class StopTagPoller:
    """Stop function: whether `stop` returns True, or a user set TAG_STOP on a run of the study.

    The store is queried at most once per STOP_INTERVAL seconds.
    """

    looked: ClassVar[dict[tuple[str, str], float]] = {}  # (store, study) → time of this process's last query

    def __init__(self, tracker: Tracker, study: str, stop: Callable[[], bool]):
        self._tracker, self._study, self._stop = tracker.without_retry(), study, stop
        self._asked = False

    def _is_due(self) -> bool:
        last = self.looked.get((self._tracker.uri, self._study), -STOP_INTERVAL)
        return bool(self._study) and time.monotonic() - last >= STOP_INTERVAL

    def _text(self) -> str:
        """Return the stop message, or "" if there is none or the server does not respond."""
        try:
            return stopped_by_tag(self._tracker, self._study)
        except StoreRefusal as refusal:
            if refusal.kind not in WAITED_FOR:
                raise
            return ""

    def __call__(self) -> bool:
        if not self._asked and self._is_due():
            self.looked[self._tracker.uri, self._study] = time.monotonic()
            text = self._text()
            self._asked = bool(text)
            if text:
                LOG.warning("%s", text)
        return self._asked or self._stop()


def stopped_by_tag(tracker: Tracker, study: str) -> str:
    """Return a message if a run of the study has TAG_STOP, otherwise an empty string."""
    tagged_runs = tracker.search({schema.TAG_STUDY: study, schema.TAG_STOP: STOP}, most=1)
    return (
        f"study {study} was stopped by a user: run {tagged_runs[0].run_id} ({tagged_runs[0].name}) has the tag "
        f"{schema.TAG_STOP}={STOP}. To resume, remove the tag on the run's page in MLflow and repeat the command"
        if tagged_runs
        else ""
    )


def at_work_elsewhere(tracker: Tracker, heartbeats: HeartbeatMonitor) -> list[StoredRun]:
    """Return the running runs on other machines, except those whose heartbeats have stopped."""
    return [
        run for run in _running_elsewhere(tracker) if RunState(run).lease < math.inf and not heartbeats.is_dead(run)
    ]


def without_heartbeat(tracker: Tracker) -> list[StoredRun]:
    """Return the running runs on other machines without a valid heartbeat."""
    return [run for run in _running_elsewhere(tracker) if RunState(run).lease == math.inf]


def _running_elsewhere(tracker: Tracker) -> list[StoredRun]:
    """Return the running runs on another machine or in another container."""
    running = tracker.search({}, state="RUNNING")
    return [
        run for run in running if RunState(run).host and not process_ownership.is_here(run.tags[schema.TAG_PROCESS])
    ]


def observe_heartbeats(tracker: Tracker) -> HeartbeatMonitor:
    """Wait for a heartbeat of each running run on another machine, at most as long as the longest lease.

    Runs that start during the wait are not waited for, because their start shows that their machine works.
    """
    heartbeats = HeartbeatMonitor()
    waited_for = {run.run_id: run for run in at_work_elsewhere(tracker, heartbeats)}
    longest = max((RunState(run).lease for run in waited_for.values()), default=0.0)
    if waited_for:
        names = ", ".join(f"{run_text(run)} on {RunState(run).host}" for run in waited_for.values())
        LOG.info("waiting at most %.0f seconds for the heartbeats of %s", longest, names)
    end = time.monotonic() + longest + GAP  # the monitor counts no more than GAP seconds between two queries
    while time.monotonic() < end and any(
        run.run_id in waited_for and not heartbeats.has_moved(run) for run in at_work_elsewhere(tracker, heartbeats)
    ):
        time.sleep(PAUSE)
    return heartbeats


def check_machines(tracker: Tracker, leased: Iterable[StoredRun], heartbeats: HeartbeatMonitor) -> None:
    """Raise StoreError if the store is a sqlite file and another machine writes to it."""
    # the locks of a network disk do not protect a sqlite file
    if not sqlite_path(tracker.uri):
        return
    for run in leased:
        if RunState(run).host not in ("", platform.node()) and heartbeats.has_moved(run):
            raise StoreError(
                f"store {tracker.uri}: run {run.run_id} is being trained on another machine, {RunState(run).host}. "
                f"{ONE_MACHINE}"
            )
