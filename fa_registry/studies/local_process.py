"""Processes of this machine that run jobs.

They always end together with the process that started them. On Linux, they are forked from a server process that has imported the
fa_registry modules of this process and the modules that each job would import late (a `multiprocessing` forkserver). The first
process waits for these imports, and each further one starts in 0.1 s instead of 5 s. On other systems each process imports the
modules. The server computes nothing, because no thread pool and no GPU may be in use during a fork.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from types import ModuleType
from typing import cast

from fa_registry import process_ownership
from fa_registry.output_streams import outlive_readers
from fa_registry.studies.scheduler import GRACE_SECONDS, Message, Process, ProcessLost, do_batch, log_to

POLL_SECONDS = 0.1
# Loaded module → modules that each job would import late.
IMPORTED_LATE = {
    "torch": ("torch._dynamo",),  # imported by the first optimiser
    "mlflow.store.tracking.sqlalchemy_store": (
        "mlflow.store.tracking.sqlalchemy_store",
        "mlflow.store.tracking.sqlalchemy_workspace_store",
        "sqlalchemy.dialects.sqlite",
    ),
    "fa_registry.studies.training_job": (
        "fa_registry.studies.executors.side_by_side",
        "pyarrow.pandas_compat",
        "fa_registry.studies.repeated_lookups",
    ),
}
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # a signal that a process cannot ignore
UNKNOWN = 255  # exit code of a process whose server died before the process
LONGEST_FOLDER = 70  # bytes; the temporary folder contains the server's socket, whose path is limited to 107 bytes


class LocalProcess(Process):
    """Process of this machine that runs one batch.

    While it runs, it receives only a stop request. It shares no lock with other processes, because a killed process never releases
    its lock.

    Args:
        message: the batch, as `do_batch` expects it.
    """

    is_shared = False

    def __init__(self, message: bytes):
        self._hung_up = False
        self._folder = process_ownership.create_temp_dir("fa_registry-worker-")
        context = _context()
        self.connection, far_end = context.Pipe()
        arguments = (far_end, dict(os.environ), str(self._folder))
        self.process = context.Process(target=_work, args=arguments)
        try:
            _ensure_forkserver(context)
            with _main_hidden(unless=b"__main__" in message), _variables(PYTHONSAFEPATH="1"):
                self.process.start()
        except BaseException:
            self.connection.close()
            process_ownership.remove_quietly(self._folder)
            raise
        finally:
            far_end.close()
        self._send(message)

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

    def has_ended(self) -> bool:
        return not self._lives

    def ask_to_stop(self) -> None:
        self._send(None)

    def _send(self, message: bytes | None) -> None:
        with suppress(OSError):  # the process has died; `reported` notices this later
            self.connection.send(message)

    def reported(self) -> list[Message]:
        """Return the new messages.

        Raises:
            ProcessLost: the process has ended and has no more messages; the text has its exit code or signal.
        """
        has_ended = self._hung_up or not self._lives  # checked first: a process may send its last messages meanwhile
        messages: list[Message] = []
        try:
            while not self._hung_up and self.connection.poll():
                messages.append(self.connection.recv())
        except (EOFError, OSError):
            self._hung_up = True
        if has_ended and not messages:
            self.end(GRACE_SECONDS)
            code = self.process.exitcode
            raise ProcessLost(f"ended with {_text(code)}", is_unknown=code in (-KILL, UNKNOWN))
        return messages

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the job; this has no effect while the job runs third-party native code."""
        if hasattr(signal, "SIGUSR1"):
            self._signal(signal.SIGUSR1)

    def end(self, seconds: float = 0.0) -> None:
        """Wait at most `seconds` for the exit, then kill the process, and remove its temporary files."""
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


def pause(processes: Sequence[Process]) -> None:
    """Wait until one of the processes has sent a message, at most POLL_SECONDS."""
    wait([cast(LocalProcess, process).connection for process in processes], POLL_SECONDS)


def _text(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"signal {next((candidate.name for candidate in signal.Signals if candidate == -code), -code)}"


def _context() -> BaseContext:
    has_short_path = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_FOLDER
    return multiprocessing.get_context("forkserver" if sys.platform == "linux" and has_short_path else "spawn")


def _ensure_forkserver(context: BaseContext) -> None:
    """Start the fork server if it is not running."""
    if context.get_start_method() != "forkserver":
        return
    context.set_forkserver_preload(_preloaded())
    mark = f"{process_ownership.PREFIX}server{process_ownership.owner_suffix()}"
    (Path(util.get_temp_dir()) / mark).touch()  # names the owner, since the server's folder remains after a kill
    path = os.pathsep.join(str(entry) or os.getcwd() for entry in sys.path)
    owner = {process_ownership.VARIABLE: process_ownership.process_tag()}
    with _variables(PYTHONPATH=path, PYTHONSAFEPATH="1", **owner):
        forkserver.ensure_running()


def _preloaded() -> list[str]:
    """Return the modules that the fork server imports: this process has them, or jobs import them late."""
    names = [name for name in sys.modules if _is_preloaded(name)]
    late = [name for loaded, names_late in IMPORTED_LATE.items() if loaded in sys.modules for name in names_late]
    return ["fa_registry.studies.fork_server", *names, *late]


def _is_preloaded(module: str) -> bool:
    """Return whether the fork server imports a module in advance.

    Adapters are left out, because the import of an adapter's framework may raise an exception, which would end the server.
    """
    is_left_out = module.startswith("fa_registry.external.callbacks.") or module.endswith("__main__")
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


# Functions in the process of the batch.


def _work(connection: Connection, environment: Mapping[str, str], folder: str) -> None:
    """Run one batch, with temporary files in `folder`."""
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
        do_batch(connection.recv(), connection.poll, send)


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
