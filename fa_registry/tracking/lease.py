"""Lease on a specification: at any time only one process, on any machine, trains it.

The store alone coordinates the processes. The lease is recorded in the attempt's own run. Its tag is `choosing` from the start.
Then the process searches for other attempts. It gives up if another attempt asks for the lease or has it. If there is no other
attempt, it acquires the lease and writes `held`. If others are choosing, it writes `asks`, waits until no attempt is choosing, and
gives up if another one has the lease or if a smaller run id asks for it. This is Lamport's bakery algorithm (1974) with equal
tickets, over a register that a single process writes: it needs no compare-and-swap, so it works with every store. Of two attempts,
the later one sees the earlier one in its first search: the argument is in docs/decisions/0043.

A run with the lease writes heartbeats: a tag that changes at least three times per lease duration. A waiting process measures with
its *own* clock how long that tag has not changed, so clock differences do not matter. A dead process of the same machine is
detected at once.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from fa_registry import process_ownership
from fa_registry.errors import RegistryError
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker

LOG = logging.getLogger(__name__)
SHORTEST, LONGEST = (
    10,
    86_400,
)  # seconds that a lease may last; limits for the untrusted value in another run's tag too
CHOOSING, ASKS, HELD = "choosing", "asks", "held"
GAP = 15  # seconds that count at most between two readings of a run's heartbeat
LOOKS = 0.1  # seconds between two searches while another attempt is choosing
SIGN = re.compile(r"(\d{1,12}) of (\d{1,6}) s")


class LeaseLost(RegistryError):
    """This attempt missed its heartbeat for longer than its lease, and another worker has taken over."""


def sign(number: int, lease: int) -> dict[str, str]:
    """Return the tag of a heartbeat, which contains its number and the lease in seconds."""
    return {schema.TAG_SIGN: f"{number} of {lease} s"}


def initial_tags(lease: int) -> dict[str, str]:
    """Return the tags that a run is created with, before its process has searched for other attempts."""
    return {schema.TAG_CLAIM: CHOOSING, **sign(0, lease)}


class HeartbeatMonitor:
    """Heartbeats of other runs as this process has observed them, by its own clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen: dict[str, tuple[str, float, float]] = {}
        self._moving: set[str] = set()

    def seconds_since_heartbeat(self, run: StoredRun) -> float:
        """Return the seconds in which this process saw no new heartbeat of the run; 0 on the first call.

        A long time between two calls counts only as GAP: the store was unreachable, also for the run's process.
        """
        now, text = self._clock(), run.tags.get(schema.TAG_SIGN, "")
        seen, silent, looked = self._seen.get(run.run_id, (text, 0.0, now))
        silent += min(now - looked, GAP)
        if seen != text:
            self._moving.add(run.run_id)
            silent = 0.0
        self._seen[run.run_id] = (text, silent, now)
        return silent

    def has_moved(self, run: StoredRun) -> bool:
        """Return whether this process saw a new heartbeat, which proves that the run is at work."""
        self.seconds_since_heartbeat(run)
        return run.run_id in self._moving

    def is_dead(self, run: StoredRun) -> bool:
        """Return whether the run's process is known to be dead; without heartbeats only on this machine."""
        written = SIGN.fullmatch(run.tags.get(schema.TAG_SIGN, ""))
        lease = min(max(int(written[2]), SHORTEST), LONGEST) if written else float("inf")
        return self.seconds_since_heartbeat(run) > lease or process_ownership.is_dead(
            run.tags.get(schema.TAG_PROCESS, "")
        )


def lease_owner(attempts: Sequence[StoredRun], signs: HeartbeatMonitor) -> StoredRun | None:
    """Return the one of a specification's runs whose process trains it now, or is about to."""
    return next(_alive(attempts, signs, ASKS, HELD), None)


def _alive(attempts: Sequence[StoredRun], signs: HeartbeatMonitor, *states: str) -> Iterator[StoredRun]:
    """Yield the runs whose tag is one of `states`, and whose process is not known to be dead."""
    running = (run for run in attempts if run.state == "RUNNING" and run.tags.get(schema.TAG_CLAIM) in states)
    return (run for run in running if not signs.is_dead(run))


def set_lease_state(tracker: Tracker, run_id: str, params: Mapping[str, str], state: str = HELD) -> None:
    """Record the lease state of a run, and with it the `params`, which were delayed; usually one request."""
    tracker.log(run_id, tags={schema.TAG_CLAIM: state}, params=params)


def acquire(
    tracker: Tracker,
    run_id: str,
    attempts: Callable[[], Sequence[StoredRun]],
    finished: Callable[[Sequence[StoredRun]], StoredRun | None] = lambda runs: None,
    signs: HeartbeatMonitor | None = None,
    params: Mapping[str, str] = MappingProxyType({}),
) -> StoredRun | None:
    """Acquire the lease for a run; return None, or the run that has priority.

    Args:
        tracker: the store.
        run_id: a run that was created with `initial_tags` and without its `params`.
        attempts: queries the store for all runs of the specification.
        finished: returns the one of the others that makes this run unnecessary; it may have ended between two queries.
        signs: observed heartbeats.
        params: of the run, logged with the lease state.
    """
    signs = signs or HeartbeatMonitor()
    before = _others(run_id, attempts())
    if needless := finished(before) or lease_owner(before, signs):
        return needless
    contended = any(_alive(before, signs, CHOOSING))
    set_lease_state(tracker, run_id, params, ASKS if contended else HELD)
    while contended:
        others = _others(run_id, attempts())
        smaller = [run for run in others if run.run_id < run_id]
        first = finished(others) or next(_alive(others, signs, HELD), None) or next(_alive(smaller, signs, ASKS), None)
        if first or not any(_alive(others, signs, CHOOSING)):
            return first
        time.sleep(LOOKS)
    return None


def _others(run_id: str, attempts: Sequence[StoredRun]) -> list[StoredRun]:
    return [run for run in attempts if run.run_id != run_id]


class LeaseHolder:
    """The lease of this process on a run's specification; as a context it writes heartbeats."""

    def __init__(self, tracker: Tracker, run_id: str, lease: int, clock: Callable[[], float] | None = None):
        self._tracker, self.run_id, self._lease = tracker, run_id, lease
        self._clock = clock or _clock
        self._number, self._given = 0, self._clock()
        self._late = False
        self._lock, self._ended = threading.Lock(), threading.Event()

    def sign(self) -> Mapping[str, str]:
        """Return the next heartbeat for a caller that writes to the run; then call `mark_heartbeat_sent`."""
        with self._lock:
            self._number += 1
            return sign(self._number, self._lease)

    def mark_heartbeat_sent(self) -> None:
        """Record that the store has received a heartbeat."""
        with self._lock:
            now = self._clock()
            self._late |= now - self._given > self._lease
            self._given = now

    def check(self) -> None:
        """Raise LeaseLost if another worker closed the run because its heartbeat was missing for too long."""
        run = self._tracker.get(self.run_id)
        self._late = False
        if run.state != "RUNNING" or run.deleted:
            raise LeaseLost(
                f"run {self.run_id} missed its heartbeat for more than {self._lease} seconds; another worker has taken over its "
                "specification. This attempt stops, and its results are discarded"
            )

    def check_if_late(self) -> None:
        """Run `check` if heartbeats were further apart than the lease, as after the machine's sleep."""
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
                with suppress(RegistryError):  # the store does not answer now: the next attempt is soon
                    self._tracker.without_retry().log(self.run_id, tags=dict(self.sign()))
                    self.mark_heartbeat_sent()


def _clock() -> float:
    """Return seconds, including those in which the machine slept if the system counts them."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
