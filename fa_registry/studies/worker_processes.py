"""Worker processes that run jobs, and the supervisor of the workers.

A worker may end unexpectedly: a method calls `os._exit`, a segmentation fault occurs, or the kernel kills the worker because the
memory is full. The current job of the worker then restarts once in a new process, and no other job is affected. Workers always end
together with their parent process.

On Linux, workers are forked from a server process that has imported the fa_registry modules of this process (a `multiprocessing`
forkserver). The first worker waits for these imports, and each further worker starts in 0.1 s instead of 5 s. On other systems each
worker imports the modules. The server computes nothing, because no thread pool and no GPU may be in use during a fork.
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
NO_ROOM = "cannot start another process (%s); the jobs continue, %d at a time"

Task = Callable[[Any, StopCheck, Callable[[Any], None]], Any]
Message = tuple[int, str, bytes, int]  # index, kind, pickled value and exit code of an event

LOGGED = "logged"  # kind of a message that contains a log line instead of an event
POLL_SECONDS = 0.1
GRACE_SECONDS = 10.0  # time in which an interrupted worker records the end of its run and exits
# Modules that jobs would import late, in 1 to 2 s each → the loaded module that shows that jobs will import them.
IMPORTED_LATE = {
    "torch._dynamo": "torch",  # imported by the first optimiser
    "mlflow.store.tracking.sqlalchemy_store": "mlflow.store.tracking.sqlalchemy_store",
    "sklearn.datasets": "sklearn.datasets",
}
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # a signal that a process cannot ignore
UNKNOWN = 255  # exit code of a worker whose server died before the worker
LONGEST_FOLDER = 70  # bytes; the temporary folder contains the server's socket, whose path is limited to 107 bytes


def supervise(
    jobs: Sequence[Any], task: Task, processes: int, stop: StopCheck, report: EventSink, silence: float = 0.0
) -> None:
    """Call `task(job, stop, report)` for every job in worker processes.

    Args:
        jobs: data of each job, picklable.
        task: function that runs one job, picklable.
        processes: maximum number of simultaneous worker processes.
        stop: function that returns whether a stop was requested. After a request, jobs end at their next safe point.
        report: function that receives every event in this process. If the function raises an exception, all workers are ended,
            and the exception is raised.
        silence: seconds without a message after which the process of a job is ended; 0 means never.
    """
    supervisor = _Supervisor(processes, stop, report, silence)
    for index, job in enumerate(jobs):
        try:
            supervisor.waiting.append((index, pickle.dumps((task, job))))
        except Exception:
            report(JobEvent(index, "failed", traceback.format_exc()))
    supervisor.run()


def run_in_subprocess(call: Callable[[], Any], seconds: float = 0.0) -> JobEvent:
    """Call a function in a separate process and return an event with its result.

    Use this for code that may end its process.

    Args:
        call: picklable function without arguments.
        seconds: time limit; 0 means no limit.

    Returns:
        An event of the kind done or failed.
    """
    events: list[JobEvent] = []
    supervise([call], _called, 1, lambda: False, events.append, seconds)
    return events[-1]


def _called(call: Callable[[], Any], stop: StopCheck, report: Callable[[Any], None]) -> Any:
    return call()


class _Supervisor:
    """Scheduler that distributes jobs to workers and reports one end for each job."""

    def __init__(self, processes: int, stop: StopCheck, report: EventSink, silence: float):
        self.waiting: deque[tuple[int, bytes]] = deque()
        self._processes, self._stop, self._tell, self._silence = processes, stop, report, silence
        self._deaths: dict[int, str] = {}  # index of a job whose first worker died → how that worker ended
        self._workers: list[Worker] = []

    def run(self) -> None:
        """Run until all jobs have ended; end all workers if `report` raises."""
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
        """Assign waiting jobs to workers; request workers without a job to exit."""
        for worker in self._workers:
            if self.waiting and worker.is_free:
                worker.give(self.waiting.popleft())
            elif not worker.job:
                worker.ask_to_stop()
        while self.waiting and len(self._workers) < self._processes and self._begin(self.waiting.popleft()):
            pass

    def _begin(self, job: tuple[int, bytes]) -> bool:
        """Start a worker for the job. Return False if no process can be started.

        If another worker exists, the job then waits for that worker and loses no attempt.
        """
        try:
            worker = Worker(job[1])
        except (EOFError, OSError) as error:
            error_text = f"{type(error).__name__}: {error}"
            if self._workers:
                self.waiting.appendleft(job)
                self._processes = len(self._workers)
                LOG.warning(NO_ROOM, error_text, self._processes)
            else:
                self._count_death(job, f"did not begin ({error_text})", lost=True)
            return False
        self._workers.append(worker)
        worker.give(job)
        return True

    def _attend(self, worker: Worker) -> None:
        """Report the events of a worker. If the worker has ended or hangs, handle its job."""
        has_ended = worker.is_gone  # checked first: a worker may send its last event meanwhile
        for event in worker.reported():
            self._tell(event)
        job, silent_seconds = worker.job, worker.silent_for
        if has_ended:
            self._workers.remove(worker)
            worker.end()
            if job:
                code = worker.process.exitcode
                self._count_death(job, f"ended with {_text(code)}", lost=code in (-KILL, UNKNOWN))
        elif job and self._silence and silent_seconds > self._silence:
            self._workers.remove(worker)
            worker.interrupt()
            worker.end()
            reason = f"its process sent no heartbeat for {silent_seconds:.0f} s and was ended"
            self._tell(JobEvent(job[0], "failed", reason, lost=True))
        elif worker.exceeds_timeout and silent_seconds > GRACE_SECONDS:  # a thread of a job prevents its exit
            self._workers.remove(worker)
            worker.end(0.0)

    def _count_death(self, job: tuple[int, bytes], cause: str, lost: bool) -> None:
        index = job[0]
        if index in self._deaths:
            reason = f"its process {self._deaths[index]}; after the restart, the new process {cause}"
            self._tell(JobEvent(index, "failed", reason, lost))
        else:
            self._deaths[index] = cause
            self._tell(JobEvent(index, "again", f"its process {cause}; the job restarts in a new process"))
            self.waiting.appendleft(job)


def _text(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"signal {next((candidate.name for candidate in signal.Signals if candidate == -code), -code)}"


class Worker:
    """Process that runs one job after another; `message` is the first job, pickled.

    While the worker runs a job, it receives only stop requests. The worker shares no lock with other processes, because a
    killed process never releases its lock.
    """

    def __init__(self, message: bytes):
        self.job: tuple[int, bytes] | None = None
        self._asked = self._hung_up = False
        self._last = time.monotonic()
        self._folder = process_ownership.create_temp_dir("fa_registry-worker-")
        context = _context()
        self.connection, worker_connection = context.Pipe()
        self.process = context.Process(target=_work, args=(worker_connection, dict(os.environ), str(self._folder)))
        try:
            _ensure_forkserver(context)
            with _main_hidden(unless=b"__main__" in message), _variables(PYTHONSAFEPATH="1"):
                self.process.start()
        except BaseException:
            self.connection.close()
            process_ownership.remove_quietly(self._folder)
            raise
        finally:
            worker_connection.close()

    @property
    def is_free(self) -> bool:
        return not (self.job or self._asked or self._hung_up)

    @property
    def exceeds_timeout(self) -> bool:
        """Whether the worker was requested to exit and has no job, so it may run only GRACE_SECONDS longer."""
        return self._asked and not self.job

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended or its connection is closed."""
        return self._hung_up or not self._lives

    @property
    def _lives(self) -> bool:
        """Whether the process is running. The result is correct even if the fork server has died."""
        if self.process.exitcode != UNKNOWN:
            return self.process.exitcode is None
        try:
            os.kill(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def silent_for(self) -> float:
        """Seconds since the last message from or to the worker."""
        return time.monotonic() - self._last

    def give(self, job: tuple[int, bytes]) -> None:
        self.job = job
        self._send(job)

    def ask_to_stop(self) -> None:
        """Request the worker to end its job at the next safe point, and then to exit."""
        if not self._asked:
            self._asked = True
            self._send(None)

    def _send(self, message: Any) -> None:
        self._last = time.monotonic()
        with suppress(OSError):  # the worker has died; the supervisor notices this later
            self.connection.send(message)

    def reported(self) -> Iterator[JobEvent]:
        """Yield the new events of the worker."""
        try:
            while not self._hung_up and self.connection.poll():
                message = self.connection.recv()
                self._last = time.monotonic()
                event = unpacked(message)
                if event is None:
                    continue
                if event.kind != "progress":
                    self.job = None
                if message[1] == "progress" != event.kind:  # failed here; its process continues
                    self.interrupt()
                    self._hung_up = True
                yield event
        except (EOFError, OSError):
            self._hung_up = True

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the worker's job.

        The exception has no effect while the job runs third-party native code.
        """
        if hasattr(signal, "SIGUSR1"):
            self._signal(signal.SIGUSR1)

    def end(self, seconds: float | None = None) -> None:
        """Wait until the process exits, then remove its temporary files.

        The process is killed after the time limit `seconds`, by default GRACE_SECONDS.
        """
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


# Messages from a process that runs jobs to its supervisor.


def packed(event: JobEvent) -> Message:
    """Convert an event to a message that contains its value in pickled form."""
    return event.index, event.kind, pickle.dumps(event.value), event.refused


def send_end(send: Callable[[Message], None], end: JobEvent) -> None:
    """Send the end event of a job; if its result cannot be pickled, send a failure."""
    try:
        message = packed(end)
    except Exception:
        message = packed(JobEvent(end.index, "failed", traceback.format_exc()))
    send(message)


def unpacked(message: Message) -> JobEvent | None:
    """Return the event that a message contains.

    If this process cannot unpickle the value of the event, the event reports the job as failed. A log line is logged, and the
    result is None.
    """
    index, kind, value, exit_code = message
    try:
        unpickled = pickle.loads(value)
    except Exception:
        return JobEvent(index, "failed", traceback.format_exc())
    if kind != LOGGED:
        return JobEvent(index, kind, unpickled, refused=exit_code)
    name, level, text = unpickled
    logging.getLogger(name).log(level, "%s", text)
    return None


class _Relay(logging.Handler):
    def __init__(self, send: Callable[[Message], None]):
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._send((0, LOGGED, pickle.dumps((record.name, record.levelno, record.getMessage())), 0))


def log_to(send: Callable[[Message], None]) -> None:
    """Send log messages of fa_registry to another process instead of printing them."""
    log = logging.getLogger("fa_registry")
    log.addHandler(_Relay(send))
    log.setLevel(logging.INFO)
    log.propagate = False


def _end_all(workers: Sequence[Worker]) -> None:
    """End all workers, even if the user presses Ctrl-C again."""
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
    has_short_path = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_FOLDER
    return multiprocessing.get_context("forkserver" if sys.platform == "linux" and has_short_path else "spawn")


def _ensure_forkserver(context: BaseContext) -> None:
    """Start the fork server if it is not running."""
    if context.get_start_method() != "forkserver":
        return
    imported = [name for name in sys.modules if _is_preloaded(name)]
    imported += [name for name, trigger in IMPORTED_LATE.items() if trigger in sys.modules]
    context.set_forkserver_preload(imported)
    mark = f"{process_ownership.PREFIX}server{process_ownership.owner_suffix()}"
    (Path(util.get_temp_dir()) / mark).touch()  # names the owner, since the server's folder remains after a kill
    path = os.pathsep.join(str(entry) or os.getcwd() for entry in sys.path)
    owner = {process_ownership.VARIABLE: process_ownership.process_tag()}
    with _variables(PYTHONPATH=path, PYTHONSAFEPATH="1", **owner):
        forkserver.ensure_running()


def _is_preloaded(module: str) -> bool:
    """Return whether the fork server imports a module in advance.

    Adapters are left out, because the import of an adapter's framework may raise an exception, which would end the server.
    """
    is_left_out = module.startswith("fa_registry.adapters.") or module.endswith("__main__")
    return module.startswith("fa_registry.") and not is_left_out


@contextmanager
def _variables(**changes: str) -> Iterator[None]:
    previous = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _main_hidden(unless: bool) -> Iterator[None]:
    """Prevent new processes from importing the main script, which may lack `if __name__ == "__main__"`."""
    main = sys.modules["__main__"]
    if not unless:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# Functions in the worker.


def _work(connection: Connection, environment: Mapping[str, str], folder: str) -> None:
    """Run jobs until None is received, with temporary files in `folder`."""
    _end_with_parent()
    outlive_readers()  # a method may print
    if sys.stderr:
        faulthandler.enable()  # prints where a segmentation fault happened
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole process group; only the parent handles them
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.default_int_handler)
    os.environ.clear()  # the environment of the server may be out of date
    os.environ.update({**environment, "TMPDIR": folder})
    tempfile.tempdir = folder
    lock = threading.Lock()  # only one thread sends at a time

    def send(message: Message) -> None:
        with lock:
            connection.send(message)

    log_to(send)
    with suppress(EOFError, KeyboardInterrupt):
        while (numbered_job := connection.recv()) is not None:
            _do(connection.poll, send, *numbered_job)


def _do(stop: StopCheck, send: Callable[[Message], None], index: int, message: bytes) -> None:
    def attempt() -> Any:
        task, job = pickle.loads(message)
        return task(job, stop, lambda value: send(packed(JobEvent(index, "progress", value))))

    send_end(send, ended(index, attempt))


def _end_with_parent() -> None:
    """Make the kernel end this process with SIGIO when its parent has ended.

    A Python thread cannot do this while third-party native code holds the interpreter lock.
    """
    if not hasattr(os, "O_ASYNC"):
        return
    import fcntl  # does not exist on every system

    sentinel = multiprocessing.parent_process().sentinel
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if wait([sentinel], 0):  # the parent has already ended
        os._exit(1)
