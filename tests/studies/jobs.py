"""Jobs for executors, in a module that a worker process imports in no time: the tests' own takes seconds each."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from fa_registry.errors import Interrupted, StoreError


def three_steps(job, stop, report):
    """A job that reports its threads, can be stopped and may break."""
    import torch

    for _ in range(3):
        if stop():
            raise Interrupted("as asked")
        if job == "breaks":
            raise ValueError("this one breaks")
        report(torch.get_num_threads())
        yield
    return f"{job} done"


ALONE = threading.Lock()


def alone(job, stop, report):
    """A job that says how it found its process: another one's step of the same process may not be at work with its own."""
    for _ in range(3):
        report("alone" if ALONE.acquire(blocking=False) else "beside another")
        time.sleep(0.02)
        if ALONE.locked():
            ALONE.release()
        yield
    return job


def wait_until(true, otherwise):
    deadline = time.monotonic() + 300
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.01)


def dies_once(job, stop, report):
    """A generator whose process dies at its first attempt. job: a file, for its number; returns both processes'."""
    yield
    if not Path(job).exists():
        Path(job).write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return int(Path(job).read_text()), os.getpid()


def asked_to_end_once(job, stop, report):
    """A generator that the machine stops at its first attempt. job: a folder."""
    if not (Path(job) / "tried").exists():
        (Path(job) / "tried").touch()
        raise Interrupted("stopped after epoch 3")
    yield
    return "done"


def at_work_until_stopped(job, stop, report):
    """The same as a generator."""
    report("started")
    wait_until(stop, "no request to stop")
    raise Interrupted("stopped as asked")
    yield


def until_stopped(job, stop, report):
    report("started")
    wait_until(stop, "no request to stop")
    raise Interrupted("stopped as asked")


def sleep_in_foreign_code() -> None:
    """Where no signal handler and no other thread of Python gets a turn: PyDLL keeps the interpreter to itself."""
    ctypes.PyDLL(None).sleep(600)


ENDINGS = {
    "exits": lambda: os._exit(3),
    "exits as if well": lambda: os._exit(0),
    "faults": lambda: ctypes.string_at(0),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "asks": lambda: sys.exit(0),
}


def may_end_its_process(job, stop, report):
    """For every name of the job; leaves a temporary file behind."""
    tempfile.mkstemp()
    ENDINGS.get(job, lambda: None)()
    return f"{job} done in {os.getpid()}"


def dies_the_first_time(job, stop, report):
    """job: (file of the one who dies, file of who waits for its second attempt), or either."""
    dies, name = job
    mark = Path(name)
    if not dies:
        report(os.getpid())
        wait_until(mark.exists, "no second attempt was made")
        return os.getpid()
    if not mark.with_name("tried").exists():
        mark.with_name("tried").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    mark.touch()
    return os.getpid()


def hangs(job, stop, report):
    report(os.getpid())
    if job == "hangs":
        sleep_in_foreign_code()
    return job


def says_how_it_ends(job, stop, report):
    """job: a file. One called `deaf` is deep in third-party code."""
    if Path(job).name == "deaf":
        report("started")
        sleep_in_foreign_code()
    try:
        until_stopped(job, stop, report)
    except KeyboardInterrupt:
        Path(job).write_text("interrupted")
        raise


def variable(job, stop, report):
    return os.environ.get(job), os.getcwd()


def not_sent(job, stop, report):
    return lambda: job


class NotRead(Exception):
    """It can be pickled, and not be made again of its one argument, like many an error that has two."""

    def __init__(self, text, code):
        super().__init__(text)


def not_read(job, stop, report):
    if job == "reports":
        report(NotRead("a", 1))
        until_stopped(job, stop, report)
    return NotRead("a", 1) if job == "returns" else job


def leaves_a_thread(job, stop, report):
    """One that keeps its process from ending until it has written `job`, a file."""

    def write_late():
        time.sleep(60)
        Path(job).touch()

    threading.Thread(target=write_late).start()
    return job


def says_and_is_refused(job, stop, report):
    """A job that warns, and that a store refuses."""
    logging.getLogger("fa_registry.store").warning("the store of %s", job)
    raise StoreError("is full")


LOOKUPS = (
    "plugin_registry:entry_points",
    "tracking.client:newest_revision",
    "provenance:commit",
    "provenance:versions",
)


def training_with_imports(job, stop, report):
    """A training job that writes which modules it imports and which lookups it repeats."""
    from fa_registry.studies.training_job import training_steps

    def misses():
        places = (lookup.split(":") for lookup in LOOKUPS)
        return [getattr(sys.modules[f"fa_registry.{module}"], name).cache_info().misses for module, name in places]

    modules, before = set(sys.modules), misses()
    result = yield from training_steps(job, stop, report)
    repeated = [name for name, old, new in zip(LOOKUPS, before, misses(), strict=True) if new != old]
    lines = {"imported": sorted(set(sys.modules) - modules), "repeated": repeated}
    Path("job.json").write_text(json.dumps(lines), encoding="utf-8")
    return result
