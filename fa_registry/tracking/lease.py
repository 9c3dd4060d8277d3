"""Lease on a specification: only one process on any machine trains it at a time.

The store is the only means of coordination between the processes. Each attempt to train a specification is a run, and the state of
its lease is a tag of that run:

1. A new run has the state `choosing`. Its process searches the store for other attempts.
2. The process gives up if another attempt has the state `asks` or `held`.
3. If no other attempt is `choosing`, the process acquires the lease and writes `held`.
4. Otherwise the process writes `asks` and waits until no other attempt is `choosing`. The process gives up if another attempt has
   the state `held`, or if an attempt with a smaller run id has the state `asks`. Otherwise it acquires the lease.

This is Lamport's bakery algorithm (1974) with equal tickets. Only one process writes each tag, so the algorithm needs no
compare-and-swap and works with every store. docs/decisions/20 shows why two attempts cannot both acquire the lease.

A run with a lease writes heartbeats: its process changes a tag at least three times per lease duration. A waiting process measures
with its own clock how long the tag has not changed, so clock differences have no effect. A dead process of the same machine is
detected at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from fa_registry.errors import RegistryError
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.run_state import HeartbeatMonitor, RunState

LOG = logging.getLogger(__name__)
CHOOSING, ASKS, HELD = "choosing", "asks", "held"
INTERVAL = 0.1  # seconds between two searches while another attempt is choosing


class LeaseLost(RegistryError):
    """Error: another worker took over because this run's heartbeat was too late."""


def heartbeat_tag(number: int, lease: int) -> dict[str, str]:
    """Return the heartbeat tag: number of the heartbeat and lease duration in seconds."""
    return {schema.TAG_HEARTBEAT: f"{number} of {lease} s"}


def initial_tags(lease: int) -> dict[str, str]:
    """Return the tags of a new run: state `choosing`, and the first heartbeat with the lease in seconds."""
    return {schema.TAG_LEASE: CHOOSING, **heartbeat_tag(0, lease)}


def lease_owner(attempts: Sequence[StoredRun], monitor: HeartbeatMonitor) -> StoredRun | None:
    """Return the first run of a specification whose process has or requests the lease, or None."""
    return next(_alive(attempts, monitor, ASKS, HELD), None)


def _alive(attempts: Sequence[StoredRun], monitor: HeartbeatMonitor, *states: str) -> Iterator[StoredRun]:
    """Yield the runs in one of the lease states whose process may be alive."""
    running = (run for run in attempts if RunState(run).is_running and run.tags.get(schema.TAG_LEASE) in states)
    return (run for run in running if not monitor.is_dead(run))


def set_lease_state(tracker: Tracker, run_id: str, params: Mapping[str, str], state: str = HELD) -> None:
    """Write the lease state and the parameters of a run to the store."""
    tracker.log(run_id, tags={schema.TAG_LEASE: state}, params=params)


def acquire(
    tracker: Tracker,
    run_id: str,
    attempts: Callable[[], Sequence[StoredRun]],
    finished: Callable[[Sequence[StoredRun]], StoredRun | None] = lambda runs: None,
    monitor: HeartbeatMonitor | None = None,
    params: Mapping[str, str] = MappingProxyType({}),
) -> StoredRun | None:
    """Try to acquire the lease for a run.

    Args:
        run_id: id of a run that was created with `initial_tags` and without parameters.
        attempts: function that queries the store for all runs of the specification.
        finished: function that returns another attempt that makes this run unnecessary, or None if there is no such attempt.
        monitor: observed heartbeats.
        params: parameters of the run, logged together with the lease state.

    Returns:
        None if the lease was acquired, otherwise the run that has priority.
    """
    monitor = monitor or HeartbeatMonitor()
    first_others = _others(run_id, attempts())
    if priority_run := finished(first_others) or lease_owner(first_others, monitor):
        return priority_run
    is_contended = any(_alive(first_others, monitor, CHOOSING))
    set_lease_state(tracker, run_id, params, ASKS if is_contended else HELD)
    while is_contended:
        others = _others(run_id, attempts())
        smaller = [run for run in others if run.run_id < run_id]
        first = (
            finished(others) or next(_alive(others, monitor, HELD), None) or next(_alive(smaller, monitor, ASKS), None)
        )
        if first or not any(_alive(others, monitor, CHOOSING)):
            return first
        time.sleep(INTERVAL)
    return None


def _others(run_id: str, attempts: Sequence[StoredRun]) -> list[StoredRun]:
    return [run for run in attempts if run.run_id != run_id]


class LeaseHolder:
    """Lease of this process on the specification of a run, for `lease` seconds.

    Used as a context manager, a LeaseHolder writes heartbeats in a thread.
    """

    def __init__(self, tracker: Tracker, run_id: str, lease: int, clock: Callable[[], float] | None = None):
        self._tracker, self.run_id, self._lease = tracker, run_id, lease
        self._clock = clock or _clock
        self._number, self._given = 0, self._clock()
        self._late = False
        self._lock, self._ended = threading.Lock(), threading.Event()

    def next_heartbeat(self) -> Mapping[str, str]:
        """Return the tag of the next heartbeat.

        The caller must write this tag to the run and then call `mark_heartbeat_sent`.
        """
        with self._lock:
            self._number += 1
            return heartbeat_tag(self._number, self._lease)

    def mark_heartbeat_sent(self) -> None:
        """Record that the store has received a heartbeat."""
        with self._lock:
            now = self._clock()
            self._late |= now - self._given > self._lease
            self._given = now

    def check(self) -> None:
        """Raise LeaseLost if another worker closed the run because of a late heartbeat."""
        run = self._tracker.get(self.run_id)
        self._late = False
        if not RunState(run).is_running or run.deleted:
            raise LeaseLost(
                f"run {self.run_id} sent no heartbeat for more than {self._lease} seconds, so another worker has taken over its "
                "specification. This run stops, and its results are discarded"
            )

    def check_if_late(self) -> None:
        """Call `check` if a heartbeat was too late, for example because the machine was suspended."""
        if self._late:
            self.check()

    def __enter__(self) -> LeaseHolder:
        threading.Thread(target=self._give_signs, name=f"signs of {self.run_id}", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def _give_signs(self) -> None:
        while not self._ended.wait(self._lease / 12):
            if self._clock() - self._given > self._lease / 3:
                with suppress(RegistryError):  # the store does not respond; the next attempt follows soon
                    self._tracker.without_retry().log(self.run_id, tags=dict(self.next_heartbeat()))
                    self.mark_heartbeat_sent()


def _clock() -> float:
    """Return the time in seconds, including suspended time if the system counts it."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
