"""Interface of an executor, which runs many jobs and reports their events.

A job is data, and its function is defined at module level, so both can be sent to another process or machine. Another package can
provide an executor with an entry point in the group `fa_registry.executors`.
"""

from __future__ import annotations

import importlib.util
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fa_registry.errors import Interrupted, RegistryError
from fa_registry.option_table import option

StopCheck = Callable[[], bool]
JobFunction = Callable[[Any, StopCheck, Callable[[Any], None]], Generator[None, None, Any]]

ENDS = ("done", "failed", "stopped")
SHARE = 1 / 8  # share of a GPU per job
SILENCE = 86_400  # seconds: a day, far more than an epoch of a built-in study takes


@dataclass(frozen=True)
class JobEvent:
    """Event of a job.

    Attributes:
        index: index of the job in the executor's sequence.
        kind: progress, done, failed, stopped or again (the job restarts).
        value: progress report, result, error message, reason for the stop, or reason for the restart.
        lost: whether the result of a failed job is unknown, because its process was killed, sent no heartbeat or never began.
        refused: exit code of the RegistryError whose message is `value`; 0 if `value` is a traceback.
    """

    index: int
    kind: str
    value: Any = None
    lost: bool = False
    refused: int = 0


EventSink = Callable[[JobEvent], None]


@dataclass(frozen=True)
class ClusterOptions:
    """Resources that the executors `ray` and `submitit` request from a cluster, as the user typed them."""

    address: str = option(
        "",
        "Address of the cluster. ray: HOST:PORT, auto or local [RAY_ADDRESS, else auto]; submitit: slurm or local [slurm].",
        metavar="HOST:PORT",
    )
    cpus_per_run: float | str = option(1, "Number of CPUs to reserve per run on the cluster.", metavar="N")
    gpus_per_run: float | str = option(
        "", "Fraction of one GPU to reserve per run [0.125 if runs train on a GPU, else 0].", metavar="F"
    )
    memory: str = option("", "Memory to reserve per run on the cluster, e.g. 4GiB [no reservation].", metavar="SIZE")


@dataclass(frozen=True)
class JobResources:
    """Resources that jobs may use.

    Attributes:
        at_once: number of simultaneous jobs.
        device: cpu or cuda, for all jobs.
        threads: number of CPU threads per job; 0 means that the jobs do not set it.
        silence: seconds without a message after which a job counts as hung and its process is ended; 0 means never.
        address: address of the cluster. This field and the following fields are only for cluster executors.
        cpus: number of CPUs per job.
        gpus: share of one GPU per job; 0 means one eighth if the device is a GPU.
        memory: memory per job in bytes.
        jobs_per_process: number of jobs that one process runs in turns on a CPU.
    """

    at_once: int = 1
    device: str = "cpu"
    threads: int = 1
    silence: float = SILENCE
    address: str = ""
    cpus: float = 1
    gpus: float = 0
    memory: int = 0
    jobs_per_process: int = 1

    @property
    def on_cards(self) -> bool:
        return self.gpus > 0 or self.device.startswith("cuda")

    @property
    def in_turns(self) -> int:
        """Number of jobs that one process runs in turns.

        On a GPU, one process runs all jobs that share the GPU. See docs/decisions/20.
        """
        return int(1 / (self.gpus or SHARE) + 1e-9) if self.on_cards else self.jobs_per_process


@dataclass(frozen=True)
class Capacity:
    """Capacity of an executor.

    Attributes:
        at_once: number of simultaneous jobs; 0 means the number of local cores.
        machines: names of the machines on which processes are started; None means only this machine.
    """

    at_once: int = 0
    machines: frozenset[str] | None = None


class Executor(ABC):
    """One way to run jobs.

    A module with an executor assigns an instance of its class to `PLUGIN`.
    """

    def problems(self, resources: JobResources) -> list[str]:
        """Return the reasons why jobs cannot run with these resources; empty if jobs can run.

        Only fast checks are made.
        """
        defaults = JobResources()
        cluster_options = {"address": resources.address, "memory": resources.memory, "gpus_per_run": resources.gpus}
        option_names = [name for name, value in cluster_options.items() if value]
        option_names += ["cpus_per_run"] if resources.cpus not in (0, defaults.cpus) else []
        return [
            f"{name}: this option applies only to cluster executors; choose --executor ray or submitit"
            for name in option_names
        ]

    @contextmanager
    def opened(self, resources: JobResources) -> Iterator[Capacity]:
        """Prepare the executor for calls of `run` and yield its capacity.

        Raises:
            UsageError: the resources do not suffice for one job.
        """
        yield Capacity()

    @abstractmethod
    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, report: EventSink
    ) -> None:
        """Run all jobs and return after all have ended.

        An exception of a job is reported as an event and not raised. Jobs in the same process run in turns: only one of them
        uses threads, random numbers and device at a time.

        Args:
            jobs: data of each job, picklable.
            work: `work(job, stop, report)` is a generator that runs one job and returns its result. The generator yields
                while the job waits for the device, so other jobs can continue.
            stop: function that returns whether a stop was requested. Executor and jobs call this function. After a request,
                jobs that have not begun are reported as stopped, and running jobs end at their next safe point.
            report: function that receives the events in this process, one call at a time. Each job has any number of events
                `progress` and `again`, and exactly one event `done`, `failed` or `stopped`.
        """


def of_a_cluster(package: str, resources: JobResources) -> list[str]:
    """Return the reasons why a cluster executor that needs `package` cannot run jobs with these resources."""
    problems = []
    if not importlib.util.find_spec(package):
        problems.append(f"executor: {package} is not installed; pip install 'fa_registry[{package}]'")
    if ":" in resources.device:
        problems.append(
            f"device: {resources.device} is a GPU of this machine; with the executor {package} use the device cuda"
        )
    return problems


def report_progress(send: EventSink, index: int, value: Any) -> None:
    send(JobEvent(index, "progress", value))


def ended(index: int, ending: Callable[[], Any]) -> JobEvent:
    """Call `ending`, which completes a job, and return the job's end event: done, stopped or failed.

    The event contains the result of the call or its exception.
    """
    try:
        return JobEvent(index, "done", ending())
    except Interrupted as interruption:
        return JobEvent(index, "stopped", str(interruption))
    except RegistryError as error:
        return JobEvent(index, "failed", str(error), refused=error.exit_code)
    except Exception:
        return JobEvent(index, "failed", traceback.format_exc())
    except SystemExit as system_exit:  # sys.exit() in a method would otherwise silently end all jobs
        text = f"the code of the job called sys.exit({system_exit.code!r}), which would end the process"
        return JobEvent(index, "failed", f"{traceback.format_exc()}{text}")
