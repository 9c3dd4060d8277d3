"""State of the runs of a store for the command `watch`: epoch, speed and fired rules.

The state of all runs is read with one query.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fa_registry.metrics import ACCURACY, HEADLINES, Headline
from fa_registry.studies.study_files import name_in_store
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.run_state import HeartbeatMonitor, RunState
from fa_registry.workflows.stores import open_tracker

EPOCH = re.compile(r"(\d{1,6}) of (\d{1,6}|\?)")
DIGITS = re.compile(r"[0-9]{1,6}")
FIRST_FIRE = schema.first_fire_tag("")


@dataclass(frozen=True)
class RunStatus:
    """State of one run according to the tags and metrics in the store.

    Attributes:
        h_L, g_L, accuracy: last logged values; None if no value was logged.
        headline: name of the main metric that the run logs, or `accuracy` if the run has not logged a main metric.
        value: last logged value of the main metric; None if no value was logged.
        epoch: last measured epoch, or None if no epoch was logged.
        epochs: requested number of epochs, or None if unknown.
        fired: rule code → first epoch at which the rule fired.
        rate: epochs per second, or None if unknown.
        left: estimated remaining seconds, or None if unknown.
        silent: seconds since this process last observed a new heartbeat; 0 at the first poll, and for a run that is not running.
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
        study: study whose runs are read, by name or by the path of its study.toml; an empty string for all runs.
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
        epoch_match = EPOCH.fullmatch(run.tags.get(schema.TAG_EPOCH, ""))
        epoch = int(epoch_match[1]) if epoch_match else None
        epochs = int(epoch_match[2]) if epoch_match and epoch_match[2] != "?" else None
        headline = logged_headline(run).name
        is_running = RunState(run).is_running
        rate = self._rate(run, epoch) if is_running and epoch is not None else None
        return RunStatus(
            run_id=run.run_id,
            name=run.name,
            study=run.tags.get(schema.TAG_STUDY, ""),
            status="running" if is_running else run.tags.get(schema.TAG_STATUS, run.state.lower()),
            epoch=epoch,
            epochs=epochs,
            h_L=run.metrics.get("h_L"),
            g_L=run.metrics.get("g_L"),
            accuracy=run.metrics.get(schema.SCALAR_METRICS[ACCURACY.name]),
            headline=headline,
            value=run.metrics.get(schema.SCALAR_METRICS[headline]),
            fired={
                tag.removeprefix(FIRST_FIRE): value
                for tag, value in sorted(run.tags.items())
                if tag.startswith(FIRST_FIRE)
            },
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


def logged_headline(run: StoredRun) -> Headline:
    """Return the main metric that a run has logged, or ACCURACY if the run has logged no main metric."""
    logged = (item for item in HEADLINES.values() if schema.SCALAR_METRICS[item.name] in run.metrics)
    return next(logged, ACCURACY)


def watcher(store: str = "", study: str = "", limit: int = 50) -> StatusPoller:
    """Return a StatusPoller for a store.

    Args:
        store: MLflow tracking URI of an existing store.
        study: study whose runs are read, or an empty string for all runs.
        limit: maximum number of runs.
    """
    return StatusPoller(open_tracker(store, create=False), study and name_in_store(study), limit)


def is_anybody_at_work(rows: Sequence[RunStatus]) -> bool:
    return any(row.status == "running" for row in rows)
