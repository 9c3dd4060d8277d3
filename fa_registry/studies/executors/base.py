"""What an executor is: many jobs, one piece of work, and everyone who wants to hear is told how each job goes.

A job is data and the work is a module-level function, so that both can be sent to another process or another machine. A
package brings an executor of its own by an entry point in the group `fa_registry.executors`.
"""

from __future__ import annotations

import importlib.util
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fa_registry.deprecated_names import aliases
from fa_registry.errors import Interrupted, RegistryError

StopCheck = Callable[[], bool]
JobFunction = Callable[[Any, StopCheck, Callable[[Any], None]], Generator[None, None, Any]]

ENDS = ("done", "failed", "stopped")
SHARE = 1 / 8  # of a card that a job has
SILENCE = 86_400  # seconds: a day, far more than an epoch of a shipped study takes


@dataclass(frozen=True)
class JobEvent:
    """kind: progress (value is what the job told), done (its result), failed (text of the error), stopped; again (why it had to
    begin once more).

    index: of the job in the sequence that the executor was given. refused: of one failed, value is the sentence of a RegistryError,
    no traceback, and this its exit code. lost: of one failed, its process was killed, gave no sign of life
    or never began: nobody knows what the job itself would have come to.
    """

    index: int
    kind: str
    value: Any = None
    lost: bool = False
    refused: int = 0


EventSink = Callable[[JobEvent], None]


@dataclass(frozen=True)
class JobResources:
    """What the jobs may take. at_once: how many run at a time. device: cpu or cuda, of all. threads: of one job, on the CPU.

    silence: seconds without a report after which a job counts as hung and its process, where it has one, is ended; 0: never.

    Of executors that place processes on other machines: address: of the cluster. cpus, gpus, memory (bytes): of one job; gpus is
    a share of one card; 0: an eighth where the device is a card. Executors of this machine take none of them.
    """

    at_once: int = 1
    device: str = "cpu"
    threads: int = 1
    silence: float = SILENCE
    address: str = ""
    cpus: float = 1
    gpus: float = 0
    memory: int = 0

    @property
    def on_cards(self) -> bool:
        return self.gpus > 0 or self.device.startswith("cuda")

    @property
    def in_turns(self) -> int:
        """How many jobs one process takes together: those that share a card (docs/decisions/0028), one on a CPU."""
        return int(1 / (self.gpus or SHARE) + 1e-9) if self.on_cards else 1


@dataclass(frozen=True)
class Capacity:
    """What an executor has found. at_once: how many jobs it can run at a time; 0: as many as this machine has cores.

    machines: names of those on which it places processes; None: it starts them itself, here, and carries nothing to others.
    """

    at_once: int = 0
    machines: frozenset[str] | None = None


class Executor(ABC):
    """One way to run jobs. A subclass is bound as `PLUGIN` of its module."""

    def problems(self, resources: JobResources) -> list[str]:
        """Why it cannot run jobs with these, as far as that is known at once; empty where it can."""
        usual = JobResources()
        taken = {"address": resources.address, "memory": resources.memory, "gpus_per_run": resources.gpus}
        given = [name for name, value in taken.items() if value]
        given += ["cpus_per_run"] if resources.cpus not in (0, usual.cpus) else []
        return [
            f"{name}: for executors of a cluster, ray or submitit, and none of them was asked for" for name in given
        ]

    @contextmanager
    def opened(self, resources: JobResources) -> Iterator[Capacity]:
        """Inside, `run` may be called, any number of times. Raises UsageError where there is no room for even one job."""
        yield Capacity()

    @abstractmethod
    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, tell: EventSink
    ) -> None:
        """Run every job to its end; returns when all have ended, raises nothing that a job raised.

        jobs: what is to be done, picklable. work: `work(job, stop, report)` is a generator that does one of them: it yields
        where it waits for a device and others may go on, and returns the job's result; `ended` goes through it. resources: what
        they may take together. stop: asked between steps; once true, jobs that have not begun are told as stopped, and those
        at work end at their next safe point (they ask too). tell: called in this process, one call at a time, for every report of a
        job (progress), where it has to begin once more (again), and exactly once for its end (done, failed or stopped).
        Two jobs are never at work in the same process at the same moment: threads, random numbers and the device are its own.
        """


def of_a_cluster(package: str, resources: JobResources) -> list[str]:
    """The problems that our executors of clusters have in common: package is not installed, or the card is one of this machine."""
    found = []
    if not importlib.util.find_spec(package):
        found.append(f"executor: {package} is not installed; pip install 'fa_registry[{package}]'")
    if ":" in resources.device:
        found.append(f"device: {resources.device} is a card of this machine; with executor {package} say cuda")
    return found


def ended(index: int, ending: Callable[[], Any]) -> JobEvent:
    """The event of a job whose last part is `ending`: done, stopped, or failed, with a sentence or a traceback."""
    try:
        return JobEvent(index, "done", ending())
    except Interrupted as interruption:
        return JobEvent(index, "stopped", str(interruption))
    except RegistryError as error:
        return JobEvent(index, "failed", str(error), refused=error.exit_code)
    except Exception:
        return JobEvent(index, "failed", traceback.format_exc())
    except SystemExit as exit:  # sys.exit() in a method would end all jobs with it, as if nothing were wrong
        return JobEvent(
            index, "failed", f"{traceback.format_exc()}its code asked to end the process (sys.exit({exit.code!r}))"
        )


__getattr__ = aliases(__name__)
