"""Who trains a specification: one process at a time, wherever it runs, settled by what the store holds alone.

The claim is the attempt's own run. Its tag says `choosing` from its first moment. Then it looks for others: it gives way to who
asks for the specification or holds it, and where it sees nobody at all it has it, and says `held`. Where it sees others that
choose, it says `asks`, waits until nobody is choosing any more, and gives way to who holds it and to the smallest run id that
asks. That is Lamport's bakery (1974) with equal tickets, over a register that a single process writes: no compare-and-swap is
needed, so every store will do. Of two attempts the one made later sees the other at its first look: the argument is
docs/decisions/0043.

A held run gives signs of life: a tag that changes at least three times a lease. Whoever waits judges by its *own* clock how long
that tag has not changed, so clocks that differ do not matter; of a process of this machine it is known at once that it is gone.
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
)  # seconds that a lease may be; what a stranger's run claims of itself is no longer either
CHOOSING, ASKS, HELD = "choosing", "asks", "held"
GAP = 15  # seconds between two looks at a run that count, at most
LOOKS = 0.1  # seconds between two looks at somebody who is choosing
SIGN = re.compile(r"(\d{1,12}) of (\d{1,6}) s")


class LeaseLost(RegistryError):
    """This attempt gave no sign of life for longer than its lease, and somebody else trains the specification by now."""


def sign(number: int, lease: int) -> dict[str, str]:
    """A sign of life: the tag changes with each, and says after how long without one this run may be taken over."""
    return {schema.TAG_SIGN: f"{number} of {lease} s"}


def initial_tags(lease: int) -> dict[str, str]:
    """The tags that a run is made with, before its process has looked for others."""
    return {schema.TAG_CLAIM: CHOOSING, **sign(0, lease)}


class HeartbeatMonitor:
    """What this process has seen of others' signs of life, by its own clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen: dict[str, tuple[str, float, float]] = {}
        self._moving: set[str] = set()

    def seconds_since_heartbeat(self, run: StoredRun) -> float:
        """Seconds since which this process has seen no new sign of the run; 0 at the first look.

        A long time between two looks counts as little: the store was away, for the run's process too.
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
        """Whether this process has seen a new sign: the run's process is at work, and not only recorded as if it were."""
        self.seconds_since_heartbeat(run)
        return run.run_id in self._moving

    def is_dead(self, run: StoredRun) -> bool:
        """Whether the run's process is known to be gone. Of runs of older releases, which give no signs, only this machine's."""
        written = SIGN.fullmatch(run.tags.get(schema.TAG_SIGN, ""))
        lease = min(max(int(written[2]), SHORTEST), LONGEST) if written else float("inf")
        return self.seconds_since_heartbeat(run) > lease or process_ownership.is_dead(
            run.tags.get(schema.TAG_PROCESS, "")
        )


def lease_owner(attempts: Sequence[StoredRun], signs: HeartbeatMonitor) -> StoredRun | None:
    """Of a specification's runs the one whose process trains it now, or is about to."""
    return next(_alive(attempts, signs, ASKS, HELD), None)


def _alive(attempts: Sequence[StoredRun], signs: HeartbeatMonitor, *states: str) -> Iterator[StoredRun]:
    """Those whose tag says one of `states`, and whose process is not known to be gone."""
    running = (run for run in attempts if run.state == "RUNNING" and run.tags.get(schema.TAG_CLAIM) in states)
    return (run for run in running if not signs.is_dead(run))


def set_lease_state(tracker: Tracker, run_id: str, params: Mapping[str, str], state: str = HELD) -> None:
    """Say that the run has the specification, whose `params` wait until then: of most runs that is one request."""
    tracker.log(run_id, tags={schema.TAG_CLAIM: state}, params=params)


def acquire(
    tracker: Tracker,
    run_id: str,
    attempts: Callable[[], Sequence[StoredRun]],
    finished: Callable[[Sequence[StoredRun]], StoredRun | None] = lambda runs: None,
    signs: HeartbeatMonitor | None = None,
    params: Mapping[str, str] = MappingProxyType({}),
) -> StoredRun | None:
    """Have the run, made with `opening` and without its `params`, hold its specification; or the run to which it has to give way.

    attempts: asks the store for all runs of the specification. finished: the one of others that makes this one needless: it may
    have ended, and hold nothing any more, between two looks.
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
    """This process' hold of the specification of a run. Inside (a context) signs of life are given, also in a long epoch."""

    def __init__(self, tracker: Tracker, run_id: str, lease: int, clock: Callable[[], float] | None = None):
        self._tracker, self.run_id, self._lease = tracker, run_id, lease
        self._clock = clock or _clock
        self._number, self._given = 0, self._clock()
        self._late = False
        self._lock, self._ended = threading.Lock(), threading.Event()

    def sign(self) -> Mapping[str, str]:
        """The next sign of life, for whoever writes to the run anyway, and says afterwards that it was `given`."""
        with self._lock:
            self._number += 1
            return sign(self._number, self._lease)

    def mark_heartbeat_sent(self) -> None:
        """The store has a sign of life."""
        with self._lock:
            now = self._clock()
            self._late |= now - self._given > self._lease
            self._given = now

    def check(self) -> None:
        """TakenOver where somebody closed the run, which its process had left alone for longer than its lease."""
        run = self._tracker.get(self.run_id)
        self._late = False
        if run.state != "RUNNING" or run.deleted:
            raise LeaseLost(
                f"run {self.run_id} gave no sign of life for more than {self._lease} seconds and was closed by somebody who trains "
                "its specification now; this attempt gives up, and nothing of it counts"
            )

    def check_if_late(self) -> None:
        """`check`, where the last signs came further apart than the lease: this machine had slept, or was stopped."""
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
                with suppress(RegistryError):  # a store that does not answer now: the next try is soon
                    self._tracker.without_retry().log(self.run_id, tags=dict(self.sign()))
                    self.mark_heartbeat_sent()


def _clock() -> float:
    """Seconds, those that the machine slept too where the system counts them."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
