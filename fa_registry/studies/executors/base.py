"""Interface of an executor: runs many jobs with one function, and reports how each job goes.

A job is data and the function is at module level, so that both can be sent to another process or another machine. A package can
provide an executor by an entry point in the group `fa_registry.executors`.
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
SHARE = 1 / 8  # of a card, for one job
SILENCE = 86_400  # seconds: a day, far more than an epoch of a built-in study takes


@dataclass(frozen=True)
class JobEvent:
    """One event of a job.

    kind: progress (value: the job's report), done (its result), failed (the error's text), stopped, or again (why it restarts).
    index: of the job in the executor's sequence. refused: exit code of a RegistryError, whose message is value; 0: value is a
    traceback. lost: a failed job's process was killed, sent no heartbeat or never began, so the job's own result is unknown.
    """

    index: int
    kind: str
    value: Any = None
    lost: bool = False
    refused: int = 0


EventSink = Callable[[JobEvent], None]


@dataclass(frozen=True)
class JobResources:
    """The resources that jobs may use.

    at_once: number of simultaneous jobs. device: cpu or cuda, of all. threads: of one job, on the CPU. silence: seconds without a
    report after which a job counts as hung and its process, if it has one, is ended; 0: never.

    Only for executors that start processes on other machines: address: of the cluster. cpus, gpus, memory (bytes): of one job; gpus
    is a share of one card; 0: an eighth if the device is a card.
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
        """The number of jobs in one process: those that share a card (docs/decisions/0028), one on a CPU."""
        return int(1 / (self.gpus or SHARE) + 1e-9) if self.on_cards else 1


@dataclass(frozen=True)
class Capacity:
    """The capacity that an executor has found.

    at_once: number of simultaneous jobs; 0: number of local cores. machines: names of those
    on which it starts processes; None: it starts them on this machine only.
    """

    at_once: int = 0
    machines: frozenset[str] | None = None


class Executor(ABC):
    """One way to run jobs. A subclass is bound as `PLUGIN` of its module."""

    def problems(self, resources: JobResources) -> list[str]:
        """Return why jobs cannot run with these resources, as far as known at once; empty if they can."""
        usual = JobResources()
        taken = {"address": resources.address, "memory": resources.memory, "gpus_per_run": resources.gpus}
        given = [name for name, value in taken.items() if value]
        given += ["cpus_per_run"] if resources.cpus not in (0, usual.cpus) else []
        return [f"{name}: only applies to executors of a cluster; choose --executor ray or submitit" for name in given]

    @contextmanager
    def opened(self, resources: JobResources) -> Iterator[Capacity]:
        """Allow calls of `run` in this context. Raises UsageError if not even one job can run."""
        yield Capacity()

    @abstractmethod
    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, tell: EventSink
    ) -> None:
        """Run every job; return when all have ended. An exception of a job is reported, not raised.

        Jobs in the same process never run at the same moment: threads, random numbers and the device belong to the running job.

        Args:
            jobs: the data of each job, picklable.
            work: `work(job, stop, report)` is a generator that does one job: it yields while it waits for a device, so that other
                jobs may continue, and returns the job's result; see `ended`.
            resources: of all jobs together.
            stop: called between steps; when it returns true, jobs that have not begun are reported as stopped, and running ones end
                at their next safe point (they call it too).
            `tell`: called in this process, one call at a time, with each report of a job (progress), each restart (again), and
                exactly one end (done, failed or stopped).
        """


def of_a_cluster(package: str, resources: JobResources) -> list[str]:
    """Return problems of a cluster executor: missing package, or a device that is a local card."""
    found = []
    if not importlib.util.find_spec(package):
        found.append(f"executor: {package} is not installed; pip install 'fa_registry[{package}]'")
    if ":" in resources.device:
        found.append(f"device: {resources.device} is a card of this machine; with executor {package} use cuda")
    return found


def ended(index: int, ending: Callable[[], Any]) -> JobEvent:
    """Return the end event of a job whose last part is `ending`: done, stopped, or failed."""
    try:
        return JobEvent(index, "done", ending())
    except Interrupted as interruption:
        return JobEvent(index, "stopped", str(interruption))
    except RegistryError as error:
        return JobEvent(index, "failed", str(error), refused=error.exit_code)
    except Exception:
        return JobEvent(index, "failed", traceback.format_exc())
    except SystemExit as exit:  # sys.exit() in a method would otherwise silently end all jobs
        return JobEvent(
            index, "failed", f"{traceback.format_exc()}its code asked to end the process (sys.exit({exit.code!r}))"
        )


__getattr__ = aliases(__name__)
