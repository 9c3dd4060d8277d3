"""The commands show, list runs, watch and optimize-store."""

from __future__ import annotations

import contextlib
import datetime
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fa_registry.audits.recorded_verdicts import RecordedVerdict, recorded_verdicts
from fa_registry.errors import RegistryError, StoreError, UnknownName, UsageError
from fa_registry.records import RunRecord
from fa_registry.studies.study_files import name_in_store
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.run_state import HeartbeatMonitor, RunState
from fa_registry.tracking.store import sqlite_path
from fa_registry.tracking.stores import in_browser, open_tracker

SHOWN = 50  # default number of runs in a list
OPTIONS = f"{schema.PARAM}method_options/"


def shown_run(run_id: str, store: str) -> tuple[RunRecord, RecordedVerdict, str]:
    """Return the record of an ended run, its verdict, and the address of its form.

    The verdict is that in the report of the newest audit. The address is empty if no audit wrote a form for the run.

    Args:
        run_id: Id of the run, or the first characters of the id. The id that an imported run had in its bundle is also valid.

    Raises:
        RegistryError: The run failed or still runs; the error contains the recorded failure.
        UsageError: The run is no training run.
    """
    from fa_registry.tracking.reader import failure_text, read_record, training_run  # imports pyarrow

    tracker = open_tracker(store, create=False)
    run = training_run(tracker, run_id)
    if not RunState(run).has_results:
        text = failure_text(tracker, run.run_id) or "no failure was recorded"
        raise RegistryError(f"run {run.run_id} ({run.name}) is {RunState(run).status or 'without a status'}: {text}")
    form = tracker.link(run.run_id, schema.FORM) if tracker.artifact(run.run_id, schema.FORM) else ""
    address = in_browser(tracker.uri, form)
    return read_record(tracker, run), recorded_verdicts(tracker, [run])[run.run_id], address


@dataclass(frozen=True)
class Listing:
    """A list of runs.

    Attributes:
        runs: One mapping per run, newest first.
        more: Whether the limit excluded older runs.
        none: Reason why no run is listed; empty if runs are listed.
    """

    runs: list[dict[str, Any]]
    more: bool
    none: str = ""


def listed_runs(store: str = "", study: str = "", method: str = "", status: str = "", limit: int = SHOWN) -> Listing:
    """Return the newest runs of a store, filtered by study, method label and status.

    The verdicts come from the reports of audits. All other values come from the tables of the store, which an audit does not trust.

    Args:
        study: Name of the study, or path of its study.toml; if empty, all studies.
        method: Label of the method; if empty, all methods.
        status: Status of the runs; if empty, every status.
        limit: Maximum number of runs; 0: no limit.
    """
    study = study and name_in_store(study)
    filters = {schema.TAG_STUDY: study, schema.TAG_METHOD: method, schema.TAG_STATUS: status}
    tags = {schema.TAG_KIND: "run", **{name: value for name, value in filters.items() if value}}
    tracker = open_tracker(store, create=False)
    runs = tracker.search(tags, most=limit + 1 if limit else 0)
    displayed = runs[:limit] if limit else runs
    reason = "" if runs else _why_none(tracker, study, method, status)
    verdicts = recorded_verdicts(tracker, displayed)
    return Listing([_listed(run, verdicts[run.run_id]) for run in displayed], len(runs) > len(displayed), reason)


def _why_none(tracker: Tracker, study: str, method: str, status: str) -> str:
    """Return the reason why no run matches.

    Raises:
        UnknownName: The study, method or status occurs neither in the store nor in fa_registry.
    """
    from fa_registry import methods  # imports torch, which a list of runs does not need
    from fa_registry.studies import study as studies

    runs = tracker.search({schema.TAG_KIND: "run"})
    filters = {
        "study": (schema.TAG_STUDY, study, studies.names()),
        "method": (schema.TAG_METHOD, method, methods.CATALOG.names()),
        "status": (schema.TAG_STATUS, status, ("running", *schema.ENDED_STATUSES)),
    }
    missing = []
    for kind, (tag, name, built_in) in filters.items():
        stored_names = {run.tags[tag] for run in runs if run.tags.get(tag)}
        if name and name not in {*stored_names, *built_in}:
            raise UnknownName(kind, name, built_in if kind == "status" else stored_names or built_in)
        missing += [f"of {kind} {name}"] if name and name not in stored_names else []
    if not runs:
        return "the store has no runs yet; `fa-registry study` and `fa-registry train` create runs"
    if missing:
        return f"no run {' or '.join(missing)} in {tracker.uri}"
    return f"no such run in {tracker.uri}: each given value occurs, but no run has all these values"


def _listed(run: StoredRun, verdict: RecordedVerdict) -> dict[str, Any]:
    headline = schema.headline(run.tags, run.metrics).name
    started = datetime.datetime.fromtimestamp(run.started / 1000, datetime.UTC)
    return {
        "run_id": run.run_id,
        "name": run.name,
        "study": run.tags.get(schema.TAG_STUDY, ""),
        "method": run.tags.get(schema.TAG_METHOD, ""),
        "options": {name[len(OPTIONS) :]: value for name, value in run.params.items() if name.startswith(OPTIONS)},
        "setting": run.tags.get(schema.TAG_SETTING, ""),
        "seed": schema.seed_of(run.params),
        "status": run.tags.get(schema.TAG_STATUS, ""),
        "verdict": verdict.label,
        "proof": verdict.proof,
        "accuracy": run.metrics.get(schema.SCALAR_METRICS["accuracy"]),
        "headline": headline,
        "value": run.metrics.get(schema.SCALAR_METRICS.get(headline, headline)),
        "started": started.isoformat(timespec="seconds"),
    }


COUNTED = ("runs", "metrics", "latest_metrics", "params", "tags")


def run_optimize(store: str) -> dict[str, Any]:
    """Run ANALYZE on a sqlite store to make queries faster.

    Return the address of the store, and the number of rows of each large table.

    Raises:
        UsageError: The store is not a sqlite database.
        StoreError: The database cannot be analysed now.
    """
    # MLflow does not run ANALYZE. Without the statistics from ANALYZE, sqlite scans the metrics of all runs for one chart.
    uri = open_tracker(store, create=False, write=True).uri
    path = sqlite_path(uri)
    if path is None:
        raise UsageError(
            f"optimize: expected a sqlite store, found {uri}; a database server updates its statistics itself"
        )
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
            connection.execute("ANALYZE")
            connection.commit()
            rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in COUNTED}
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"store {uri}: cannot be analysed now: {error}; check whether a study is writing to the store"
        ) from error
    return {"store": uri, "rows": rows}


EPOCH = re.compile(r"(\d{1,6}) of (\d{1,6}|\?)")
DIGITS = re.compile(r"[0-9]{1,6}")
FIRST_FIRE = schema.first_fire_tag("")


@dataclass(frozen=True)
class RunStatus:
    """State of one run according to the tags and metrics in the store; None for unknown values.

    Attributes:
        h_L, g_L, accuracy: last logged values.
        headline: name of the main metric that the run logs, or `accuracy` if the run has not logged a main metric.
        value: last logged value of the main metric.
        epoch: last measured epoch.
        epochs: requested number of epochs.
        fired: rule code → first epoch at which the rule fired.
        rate: epochs per second.
        left: estimated remaining seconds.
        silent: seconds since this process last observed a new heartbeat; 0 at the first poll, and for a run that is not
            running.
    """

    run_id: str
    name: str
    study: str
    status: str
    epoch: int | None
    epochs: int | None
    h_L: float | None
    g_L: float | None
    accuracy: float | None
    headline: str
    value: float | None
    fired: dict[str, str]
    rate: float | None
    left: float | None
    silent: float


@dataclass
class StatusPoller:
    """Reader of the newest runs in a store; each call of `poll` returns their present states.

    Attributes:
        study: study whose runs are read; an empty string for all runs.
        most: maximum number of runs.
        clock: function that returns the time in seconds.
        signs: monitor of the runs' heartbeats.
    """

    tracker: Tracker
    study: str = ""
    most: int = 50
    clock: Callable[[], float] = time.time
    signs: HeartbeatMonitor = field(default_factory=HeartbeatMonitor)
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def poll(self) -> list[RunStatus]:
        """Return the states of the runs, running runs first, and newer runs before older runs."""
        tags = {schema.TAG_KIND: "run"} | ({schema.TAG_STUDY: self.study} if self.study else {})
        runs = self.tracker.search(tags, most=self.most)
        return sorted(map(self._row, runs), key=lambda row: row.status != "running")

    def _row(self, run: StoredRun) -> RunStatus:
        tags = run.tags
        epoch_match = EPOCH.fullmatch(tags.get(schema.TAG_EPOCH, ""))
        epoch = int(epoch_match[1]) if epoch_match else None
        epochs = int(epoch_match[2]) if epoch_match and epoch_match[2] != "?" else None
        headline = schema.headline(run.tags, run.metrics).name
        is_running = RunState(run).is_running
        rate = self._rate(run, epoch) if is_running and epoch is not None else None
        return RunStatus(
            run_id=run.run_id,
            name=run.name,
            study=tags.get(schema.TAG_STUDY, ""),
            status="running" if is_running else tags.get(schema.TAG_STATUS, run.state.lower()),
            epoch=epoch,
            epochs=epochs,
            h_L=run.metrics.get("h_L"),
            g_L=run.metrics.get("g_L"),
            accuracy=run.metrics.get(schema.SCALAR_METRICS["accuracy"]),
            headline=headline,
            value=run.metrics.get(schema.SCALAR_METRICS.get(headline, headline)),
            fired={tag[len(FIRST_FIRE) :]: tags[tag] for tag in sorted(tags) if tag.startswith(FIRST_FIRE)},
            rate=rate,
            left=(epochs - epoch) / rate if rate and epochs is not None and epochs >= epoch else None,
            silent=self.signs.seconds_since_heartbeat(run) if is_running else 0.0,
        )

    def _rate(self, run: StoredRun, epoch: int) -> float | None:
        """Return the epochs per second since the first poll, or None if unknown.

        If no epoch has ended since the first poll, return the epochs per second since the run was started or resumed.
        """
        first_epoch, start_time = self._seen.setdefault(run.run_id, (epoch, self.clock()))
        if epoch == first_epoch:
            resumed = run.tags.get(schema.TAG_RESUMED, "")
            first_epoch, start_time = int(resumed) if DIGITS.fullmatch(resumed) else 0, run.started / 1000
        elapsed = self.clock() - start_time
        return (epoch - first_epoch) / elapsed if elapsed > 0 and epoch > first_epoch else None


def watcher(store: str, study: str, limit: int) -> StatusPoller:
    """Return a StatusPoller for an existing store, or for the runs of a study, by name or path."""
    return StatusPoller(open_tracker(store, create=False), study and name_in_store(study), limit)


def is_anybody_at_work(rows: Sequence[RunStatus]) -> bool:
    return any(row.status == "running" for row in rows)
