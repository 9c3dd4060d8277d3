"""Executor for submitit: runs jobs in a batch system, mainly Slurm.

The store determines what is trained; Slurm determines only the machine and the time. All machines share the folder
`.fa_registry` in the current folder. Each process of the batch system writes the messages of its jobs to a file in that folder,
and checks the folder for a stop request. When the process of the user's command ends, running jobs continue. If the user repeats
the command, the complete runs are not trained again.
"""

from __future__ import annotations

import math
import os
import pickle
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from fa_registry import process_ownership
from fa_registry.errors import UsageError
from fa_registry.parallel import usable_cores
from fa_registry.studies.executors.base import (
    Capacity,
    EventSink,
    Executor,
    JobFunction,
    JobResources,
    StopCheck,
    of_a_cluster,
)
from fa_registry.studies.executors.local import stop_on_signal
from fa_registry.studies.scheduler import BEGINS, Message, Process, ProcessLost, Scheduler, do_batch, log_to

SLURM, HERE = "slurm", "local"  # submitit's names of clusters
MOST = 256  # largest number of processes in Slurm's queue, waiting or running
MINUTES = 1440  # time limit of a process; SBATCH variables such as SBATCH_TIMELIMIT override the request
LENGTH = 8  # bytes of the length before each message
INTERVAL = 1.0  # seconds between two checks for a stop request
ENDING = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")  # causes: scancel, the time limit, or other users need the machine


class Submitit(Executor):
    """Executor for Slurm, or for processes that submitit starts on this machine (docs/many-machines.md)."""

    def problems(self, resources: JobResources) -> list[str]:
        """Return the reasons why submitit cannot run the jobs: no package, or no such batch system here."""
        problems = of_a_cluster("submitit", resources)
        if _cluster(resources) not in (SLURM, HERE):
            problem = f"address: expected {SLURM} or {HERE} with the executor submitit; found {resources.address!r}"
            return [*problems, problem]
        if _cluster(resources) == SLURM and not shutil.which("sbatch"):
            problem = "address: Slurm is not installed here (no command sbatch)"
            problems.append(f"{problem}; --address {HERE} uses only this machine")
        return problems

    @contextmanager
    def opened(self, resources: JobResources) -> Iterator[Capacity]:
        if _cluster(resources) == HERE:
            processes = max(1, int(usable_cores() / resources.cpus))
            yield Capacity(processes * resources.in_turns, frozenset([os.uname().nodename]))
        else:
            yield Capacity(MOST * resources.in_turns, frozenset(["Slurm's machines"]))

    def run(
        self, jobs: Sequence[Any], work: JobFunction, resources: JobResources, stop: StopCheck, report: EventSink
    ) -> None:
        """Run each batch as one job of the batch system."""
        import submitit

        submitit.core.logger.get_logger().handlers.clear()  # the handlers print on standard output
        shared = Path.cwd() / ".fa_registry"
        shared.mkdir(exist_ok=True)
        with process_ownership.temp_dir("submitit-", shared) as folder:
            start_process = partial(_Submitted, resources, folder, count())
            Scheduler(jobs, work, resources, stop, report, start_process).run()


def _cluster(resources: JobResources) -> str:
    return resources.address or SLURM


class _Submitted(Process):
    def __init__(self, resources: JobResources, folder: Path, numbers: Iterator[int], message: bytes):
        import submitit

        self._folder, self._read = folder / str(next(numbers)), 0
        self._folder.mkdir()
        executor = submitit.AutoExecutor(self._folder, cluster=_cluster(resources))
        parameters = {"timeout_min": MINUTES, "cpus_per_task": math.ceil(resources.cpus)}
        parameters |= {"gpus_per_node": 1} if resources.on_cards else {}
        if resources.memory:
            parameters["slurm_mem"] = f"{math.ceil(resources.memory * resources.in_turns / 2**20)}M"
        executor.update_parameters(name="fa_registry", **parameters)
        try:
            self._job = executor.submit(_work, str(self._folder), message)
        except Exception as error:
            raise UsageError(f"executor submitit: {_cluster(resources)} did not accept the job: {error}") from error

    def reported(self) -> list[Message]:
        is_done = self._job.done()  # checked first: a process may write its last messages meanwhile
        messages = self._messages()
        if is_done and not messages:
            raise ProcessLost(f"ended ({self._job.state}); its messages are in {self._job.paths.stderr}")
        return messages

    def _messages(self) -> list[Message]:
        messages, path = [], self._folder / "messages"
        if not path.exists():
            return messages
        with path.open("rb") as stream:
            stream.seek(self._read)
            while len(length := stream.read(LENGTH)) == LENGTH:
                body = stream.read(int.from_bytes(length))
                if len(body) < int.from_bytes(length):
                    break
                messages.append(pickle.loads(body))
                self._read = stream.tell()
        return messages

    def ask_to_stop(self) -> None:
        (self._folder / "stop").touch()

    def has_ended(self) -> bool:
        return self._job.done()  # until its end, the job writes to the folder

    def end(self, seconds: float = 0.0) -> None:
        self._job.cancel(check=False)


# Functions in the process of the batch.


def _work(folder: str, message: bytes) -> None:
    message_file, lock = (Path(folder) / "messages").open("ab"), threading.Lock()

    def send(message: Message) -> None:
        body = pickle.dumps(message)
        with lock:
            message_file.write(len(body).to_bytes(LENGTH) + body)
            message_file.flush()

    log_to(send)
    signal_numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    is_found, next_check = False, 0.0

    def must_stop() -> bool:
        """Return whether a signal was received, or the stop file exists."""
        nonlocal is_found, next_check
        if not is_found and time.monotonic() >= next_check:
            next_check = time.monotonic() + INTERVAL
            with suppress(OSError):  # the shared disk may not respond
                is_found = (Path(folder) / "stop").exists()
        return is_found or stop_requested()

    send(BEGINS)
    with message_file, stop_on_signal(signal_numbers) as stop_requested:
        do_batch(message, must_stop, send)


PLUGIN = Submitit()
