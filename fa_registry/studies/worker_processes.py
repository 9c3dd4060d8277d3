"""Workers: processes that do jobs, and who looks after them.

What ends a worker (a method that calls `os._exit`, a segmentation fault, the kernel when memory runs out) costs its job one
attempt, and the other jobs nothing. Workers end with the process that they work for, however that one ends.

On Linux they are forked from a server that has imported what this process has of ours (`multiprocessing`'s own): the first
takes as long as those imports, the next 0.1 s instead of 5. Elsewhere each imports for itself. The server computes nothing, so
that no thread pool and no card is in use where it forks.
"""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from types import ModuleType
from typing import Any

from fa_registry import process_ownership
from fa_registry.output_streams import outlive_readers
from fa_registry.studies.executors.base import EventSink, JobEvent, StopCheck, ended

LOG = logging.getLogger(__name__)
NO_ROOM = "no further process can be started (%s): jobs go on, %d at a time"

Task = Callable[[Any, StopCheck, Callable[[Any], None]], Any]
Message = tuple[int, str, bytes, int]  # index, kind, pickled value and exit code of an event

LOGGED = "logged"  # what a worker tells that is no event of its job: a message of its log
POLL_SECONDS = 0.1
GRACE_SECONDS = 10.0  # for a worker that is interrupted to write down that it was, and to leave
# What jobs import only when they get there, at 1 to 2 s of a core → by which sign they will.
IMPORTED_LATE = {
    "torch._dynamo": "torch",  # by the first optimiser
    "mlflow.store.tracking.sqlalchemy_store": "mlflow.store.tracking.sqlalchemy_store",
    "sklearn.datasets": "sklearn.datasets",
}
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # what a process cannot refuse
UNKNOWN = 255  # exit code of a worker whose server died before it
LONGEST_FOLDER = 70  # bytes; the server is reached by a file in the temporary folder, whose whole path may have 107


def supervise(
    jobs: Sequence[Any], task: Task, processes: int, stop: StopCheck, report: EventSink, silence: float = 0.0
) -> None:
    """Call task(job, stop, report) for every job, each in one of so many processes; `tell` hears every event, here.

    task, jobs: picklable. stop: once true, those at work end at their next safe point. silence: seconds without a report after
    which a job's process is ended, 0: never. Returns, or raises what `tell` raised, when no worker is left.
    """
    supervisor = _Supervisor(processes, stop, report, silence)
    for index, job in enumerate(jobs):
        try:
            supervisor.waiting.append((index, pickle.dumps((task, job))))
        except Exception:
            report(JobEvent(index, "failed", traceback.format_exc()))
    supervisor.run()


def run_in_subprocess(call: Callable[[], Any], seconds: float = 0.0) -> JobEvent:
    """How `call()` ended in a process of its own, done or failed: for code of others that may end the process it runs in.

    seconds: after which it is ended, 0: never.
    """
    events: list[JobEvent] = []
    supervise([call], _called, 1, lambda: False, events.append, seconds)
    return events[-1]


def _called(call: Callable[[], Any], stop: StopCheck, report: Callable[[Any], None]) -> Any:
    return call()


class _Supervisor:
    """Gives what waits to workers, hears them, and says of every job how it ended."""

    def __init__(self, processes: int, stop: StopCheck, report: EventSink, silence: float):
        self.waiting: deque[tuple[int, bytes]] = deque()
        self._processes, self._stop, self._tell, self._silence = processes, stop, report, silence
        self._deaths: dict[int, str] = {}  # of a job whose first worker died: how that one ended
        self._workers: list[Worker] = []

    def run(self) -> None:
        """Until nothing waits and nobody is left; what `tell` raises ends them all."""
        try:
            while self.waiting or self._workers:
                if self._stop():
                    self._drop_what_waits()
                self._employ()
                wait([worker.connection for worker in self._workers], POLL_SECONDS)
                for worker in list(self._workers):
                    self._attend(worker)
        finally:
            _end_all(self._workers)

    def _drop_what_waits(self) -> None:
        while self.waiting:
            self._tell(JobEvent(self.waiting.popleft()[0], "stopped"))
        for worker in self._workers:
            worker.ask_to_stop()

    def _employ(self) -> None:
        """See that everybody has a job; those for whom none is left may leave."""
        for worker in self._workers:
            if self.waiting and worker.is_free:
                worker.give(self.waiting.popleft())
            elif not worker.job:
                worker.ask_to_stop()
        while self.waiting and len(self._workers) < self._processes and self._begin(self.waiting.popleft()):
            pass

    def _begin(self, job: tuple[int, bytes]) -> bool:
        """Give the job to a new worker; false where none can be started (the server was killed, or there is no room for one).

        While others live that is no death of the job: it waits for one of them.
        """
        try:
            worker = Worker(job[1])
        except (EOFError, OSError) as error:
            why = f"{type(error).__name__}: {error}"
            if self._workers:
                self.waiting.appendleft(job)
                self._processes = len(self._workers)
                LOG.warning(NO_ROOM, why, self._processes)
            else:
                self._count_death(job, f"did not begin ({why})", lost=True)
            return False
        self._workers.append(worker)
        worker.give(job)
        return True

    def _attend(self, worker: Worker) -> None:
        """Tell what a worker has told; where it is gone, or silent for too long, see to its job; one that stays is ended."""
        gone = worker.is_gone  # asked first: who leaves in between may have told of its end
        for event in worker.reported():
            self._tell(event)
        job, silent = worker.job, worker.silent_for
        if gone:
            self._workers.remove(worker)
            worker.end()
            if job:
                code = worker.process.exitcode
                self._count_death(job, f"ended with {_text(code)}", lost=code in (-KILL, UNKNOWN))
        elif job and self._silence and silent > self._silence:
            self._workers.remove(worker)
            worker.interrupt()
            worker.end()
            why = f"its process gave no sign of life for {silent:.0f} s and was ended"
            self._tell(JobEvent(job[0], "failed", why, lost=True))
        elif worker.exceeds_timeout and silent > GRACE_SECONDS:  # a thread that a job has left holds it
            self._workers.remove(worker)
            worker.end(0.0)

    def _count_death(self, job: tuple[int, bytes], how: str, lost: bool) -> None:
        """Have the job begin again, or say that it failed."""
        index = job[0]
        if index in self._deaths:
            why = f"its process {self._deaths[index]}; begun again, it {how}"
            self._tell(JobEvent(index, "failed", why, lost))
        else:
            self._deaths[index] = how
            self._tell(JobEvent(index, "again", f"its process {how}; it begins again in a new one"))
            self.waiting.appendleft(job)


def _text(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"signal {next((known.name for known in signal.Signals if known == -code), -code)}"


class Worker:
    """A process that does one job after another. job: its index and message while it is at one.

    While it is at work it is sent nothing but the request to stop: no lock is shared, for who is killed holding one keeps it.
    """

    def __init__(self, message: bytes):
        self.job: tuple[int, bytes] | None = None
        self._asked = self._hung_up = False
        self._last = time.monotonic()
        self._folder = process_ownership.create_temp_dir("fa_registry-worker-")
        context = _context()
        self.connection, there = context.Pipe()
        self.process = context.Process(target=_work, args=(there, dict(os.environ), str(self._folder)))
        try:
            _ensure_forkserver(context)
            with _main_hidden(unless=b"__main__" in message), _variables(PYTHONSAFEPATH="1"):
                self.process.start()
        except BaseException:
            self.connection.close()
            process_ownership.remove_quietly(self._folder)
            raise
        finally:
            there.close()

    @property
    def is_free(self) -> bool:
        return not (self.job or self._asked or self._hung_up)

    @property
    def exceeds_timeout(self) -> bool:
        """It has nothing to do, was asked to leave and is here."""
        return self._asked and not self.job

    @property
    def is_gone(self) -> bool:
        """By now, or as its last `told` found out: a process that it has started may hold its end of the connection."""
        return self._hung_up or not self._lives

    @property
    def _lives(self) -> bool:
        """A killed server tells no more how its workers end: the exit code is 255 from then on, and they go on."""
        if self.process.exitcode != UNKNOWN:
            return self.process.exitcode is None
        try:
            os.kill(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def silent_for(self) -> float:
        """Seconds since it told something or was sent something."""
        return time.monotonic() - self._last

    def give(self, job: tuple[int, bytes]) -> None:
        self.job = job
        self._send(job)

    def ask_to_stop(self) -> None:
        """At work: to end at the next safe point; then, or idle: to leave."""
        if not self._asked:
            self._asked = True
            self._send(None)

    def _send(self, message: Any) -> None:
        self._last = time.monotonic()
        with suppress(OSError):  # it has died: the next `told` finds out
            self.connection.send(message)

    def reported(self) -> Iterator[JobEvent]:
        """What it has told since."""
        try:
            while not self._hung_up and self.connection.poll():
                message = self.connection.recv()
                self._last = time.monotonic()
                event = unpacked(message)
                if event is None:
                    continue
                if event.kind != "progress":
                    self.job = None
                if message[1] == "progress" != event.kind:  # it goes on with a job that has failed here
                    self.interrupt()
                    self._hung_up = True
                yield event
        except (EOFError, OSError):
            self._hung_up = True

    def interrupt(self) -> None:
        """Have its job raise KeyboardInterrupt where it is; one that is deep in foreign code does not hear it."""
        if hasattr(signal, "SIGUSR1"):
            self._signal(signal.SIGUSR1)

    def end(self, seconds: float | None = None) -> None:
        """Wait for it to leave, after so many seconds (GRACE_SECONDS) make it; take away what it left behind."""
        seconds = GRACE_SECONDS if seconds is None else seconds
        deadline = time.monotonic() + seconds
        try:
            self.process.join(seconds)
            while self.process.exitcode == UNKNOWN and self._lives and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        finally:
            if self._lives:
                self._signal(KILL)
            self.process.join()
            self.connection.close()
            process_ownership.remove_quietly(self._folder)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)


# What a process that does jobs sends to the one that it does them for.


def packed(event: JobEvent) -> Message:
    """The value apart: whoever reads it may fail to, and knows whose it is."""
    return event.index, event.kind, pickle.dumps(event.value), event.refused


def send_end(send: Callable[[Message], None], end: JobEvent) -> None:
    """Send how a job ended; as failed where its result cannot be sent."""
    try:
        message = packed(end)
    except Exception:
        message = packed(JobEvent(end.index, "failed", traceback.format_exc()))
    send(message)


def unpacked(message: Message) -> JobEvent | None:
    """The event; None for a message of the process's log, which is logged here.

    A job may tell what its own process alone can make: that fails the job, and ends nobody else.
    """
    index, kind, value, refused = message
    try:
        reported = pickle.loads(value)
    except Exception:
        return JobEvent(index, "failed", traceback.format_exc())
    if kind != LOGGED:
        return JobEvent(index, kind, reported, refused=refused)
    name, level, text = reported
    logging.getLogger(name).log(level, "%s", text)
    return None


class _Relay(logging.Handler):
    """What is logged here is told there, where names of others are made fit for a terminal."""

    def __init__(self, send: Callable[[Message], None]):
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._send((0, LOGGED, pickle.dumps((record.name, record.levelno, record.getMessage())), 0))


def log_to(send: Callable[[Message], None]) -> None:
    """From now on what this process logs of ours is sent, and printed nowhere."""
    log = logging.getLogger("fa_registry")
    log.addHandler(_Relay(send))
    log.setLevel(logging.INFO)
    log.propagate = False


def _end_all(workers: Sequence[Worker]) -> None:
    """However this process came here, by another Ctrl-C too: nobody goes on working."""
    for worker in workers:
        worker.interrupt()
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        for worker in workers:
            worker.end(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in workers:
            worker.end(0.0)


def _context() -> BaseContext:
    short = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_FOLDER
    return multiprocessing.get_context("forkserver" if sys.platform == "linux" and short else "spawn")


def _ensure_forkserver(context: BaseContext) -> None:
    """Start the server unless it runs: it imports from where this process does, and nothing from the working folder."""
    if context.get_start_method() != "forkserver":
        return
    ours = [name for name in sys.modules if name.startswith("fa_registry.") and not name.endswith("__main__")]
    context.set_forkserver_preload([*ours, *(name for name, sign in IMPORTED_LATE.items() if sign in sys.modules)])
    (
        Path(util.get_temp_dir()) / f"{process_ownership.PREFIX}server{process_ownership.owner_suffix()}"
    ).touch()  # its folder outlives a kill
    path = os.pathsep.join(str(entry) or os.getcwd() for entry in sys.path)
    with _variables(
        PYTHONPATH=path, PYTHONSAFEPATH="1", **{process_ownership.VARIABLE: process_ownership.process_tag()}
    ):
        forkserver.ensure_running()


@contextmanager
def _variables(**changed: str) -> Iterator[None]:
    """Inside, the environment has these; no other of its variables is touched, for this process's other threads use them."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _main_hidden(unless: bool) -> Iterator[None]:
    """A new process imports the script that was started once more, which runs it again where it lacks a guard."""
    main = sys.modules["__main__"]
    if not unless:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# In the worker.


def _work(connection: Connection, environment: Mapping[str, str], folder: str) -> None:
    """Do what is given until nothing more is. folder: for temporary files."""
    _end_with_parent()
    outlive_readers()  # a method may print
    if sys.stderr:
        faulthandler.enable()  # where a segmentation fault happened
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the whole group: the parent decides what they mean
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.default_int_handler)
    os.environ.clear()  # the server's is that of its first day
    os.environ.update({**environment, "TMPDIR": folder})
    tempfile.tempdir = folder
    alone = threading.Lock()  # of those who send

    def send(message: Message) -> None:
        with alone:
            connection.send(message)

    log_to(send)
    with suppress(EOFError, KeyboardInterrupt):
        while (given := connection.recv()) is not None:
            _do(connection.poll, send, *given)


def _do(stop: StopCheck, send: Callable[[Message], None], index: int, message: bytes) -> None:
    def attempt() -> Any:
        task, job = pickle.loads(message)
        return task(job, stop, lambda value: send(packed(JobEvent(index, "progress", value))))

    send_end(send, ended(index, attempt))


def _end_with_parent() -> None:
    """Have the kernel end this process (SIGIO) when the pipe to its parent breaks.

    A thread that waits for that would get no turn while foreign code keeps the interpreter to itself.
    """
    if not hasattr(os, "O_ASYNC"):
        return
    import fcntl  # not on every system

    sentinel = multiprocessing.parent_process().sentinel
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if wait([sentinel], 0):  # it was gone before
        os._exit(1)
