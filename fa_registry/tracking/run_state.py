"""State of a stored run: MLflow's state, status tag, process and heartbeats."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from fa_registry import process_ownership
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun

# limits on the duration of a lease in seconds, also for the untrusted tag of another run
SHORTEST, LONGEST = 10, 86_400
GAP = 15  # maximum number of seconds that is counted between two readings of a run's heartbeat
SIGN = re.compile(r"(\d{1,12}) of (\d{1,6}) s")


class HeartbeatMonitor:
    """Heartbeats of other runs, each with the time at which this process observed the heartbeat."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen: dict[str, tuple[str, float, float]] = {}
        self._moving: set[str] = set()

    def seconds_since_heartbeat(self, run: StoredRun) -> float:
        """Return the seconds without a new heartbeat of the run, which are 0 on the first call.

        If two calls are more than 15 seconds apart, only 15 seconds are added, because the store may have been unreachable.
        """
        now, text = self._clock(), run.tags.get(schema.TAG_HEARTBEAT, "")
        previous_text, silent_seconds, previous_time = self._seen.get(run.run_id, (text, 0.0, now))
        silent_seconds += min(now - previous_time, GAP)
        if previous_text != text:
            self._moving.add(run.run_id)
            silent_seconds = 0.0
        self._seen[run.run_id] = (text, silent_seconds, now)
        return silent_seconds

    def has_moved(self, run: StoredRun) -> bool:
        """Return whether this process has observed a new heartbeat of the run."""
        self.seconds_since_heartbeat(run)
        return run.run_id in self._moving

    def is_dead(self, run: StoredRun) -> bool:
        """Return whether the process of the run is known to be dead.

        A process is dead if its heartbeat is older than its lease, or if it ran on this machine and no longer exists.
        """
        is_silent = self.seconds_since_heartbeat(run) > RunState(run).lease
        return is_silent or process_ownership.is_dead(run.tags.get(schema.TAG_PROCESS, ""))


@dataclass(frozen=True)
class RunState:
    """State of a stored run. MLflow and the status tag can differ if a process was killed."""

    run: StoredRun

    @property
    def status(self) -> str:
        """The status tag. The text is empty if the run has no status tag."""
        return self.run.tags.get(schema.TAG_STATUS, "")

    @property
    def host(self) -> str:
        """The machine whose process writes the run. The text is empty if the machine is unknown."""
        return self.run.tags.get(schema.TAG_PROCESS, "").partition(":")[0]

    @property
    def lease(self) -> float:
        """Duration of the run's lease in seconds; infinite if the run has no valid heartbeat."""
        match = SIGN.fullmatch(self.run.tags.get(schema.TAG_HEARTBEAT, ""))
        return min(max(int(match[2]), SHORTEST), LONGEST) if match else float("inf")

    @property
    def is_running(self) -> bool:
        """Whether the run is running according to MLflow. Its process may have been killed."""
        return self.run.state == "RUNNING"

    @property
    def is_marked_running(self) -> bool:
        """Whether the run is running according to MLflow or to the status tag."""
        return self.is_running or self.status == "running"

    @property
    def is_finished(self) -> bool:
        """Whether the run was trained to its end: the status is complete or diverged."""
        return self.status in schema.FINISHED_STATUSES

    @property
    def has_results(self) -> bool:
        """Whether all files of the run are in the store: the run is finished, or a rule ended the run early."""
        return self.is_finished or self.status == schema.STOPPED_EARLY

    def is_abandoned(self, heartbeats: HeartbeatMonitor) -> bool:
        """Return whether the run is marked as running although its process has ended."""
        return self.is_marked_running and heartbeats.is_dead(self.run)
