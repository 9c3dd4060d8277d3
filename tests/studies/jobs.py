"""Jobs for executors, in a module that a worker process imports in no time: the tests' own takes seconds each."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from fa_registry.errors import Interrupted


def three_steps(job, stop, report):
    """A job that tells its threads, can be stopped and may break."""
    for _ in range(3):
        if stop():
            raise Interrupted("as asked")
        if job == "breaks":
            raise ValueError("this one breaks")
        report(torch.get_num_threads())
        yield
    return f"{job} done"


def until_stopped(job, stop, report):
    report("started")
    deadline = time.monotonic() + 60
    while not stop():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody asked to stop")
        time.sleep(0.01)
    raise Interrupted("stopped as asked")


def write_how_it_ends(job, stop, report):
    report("started")
    deadline = time.monotonic() + 60
    while not stop() and time.monotonic() < deadline:
        time.sleep(0.01)
    Path(job).write_text("stopped" if stop() else "nobody asked to stop")


def die_beside_one_that_waits(job, stop, report):
    report(os.getpid())
    waits = Path(job).with_name("somebody waits")
    if Path(job).name != "dies":
        waits.touch()
        return write_how_it_ends(job, stop, report)
    while not waits.exists():
        time.sleep(0.01)
    os._exit(9)
