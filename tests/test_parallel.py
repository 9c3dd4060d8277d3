"""Work that all cores take part in: everything is done, errors are raised here, and no process is copied that may not be."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from fa_registry import parallel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no process is copied elsewhere")

ITEMS = list(range(7))
HERE = os.getpid()


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert parallel.usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert parallel.usable_cores() == 64


@pytest.fixture
def done(tmp_path, monkeypatch):
    """done(work, items): which process did each item last. As on two cores, regardless of the threads of the tests' runner."""
    monkeypatch.setattr(parallel, "usable_cores", lambda: 2)
    monkeypatch.setattr(parallel, "_may_be_copied", lambda: True)

    def each(work=lambda item: None, items=ITEMS):
        def noted(item):
            work(item)
            (tmp_path / str(item)).write_text(str(os.getpid()))

        parallel.parallel_for(noted, items)
        return [int((tmp_path / str(item)).read_text()) for item in items]

    return each


@pytest.fixture
def unheard():
    """As some supervisors begin a process: the system reports no child's end to it."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


def elsewhere(what):
    """Do it in a copy alone."""
    return lambda item: what() if os.getpid() != HERE else None


def test_every_item_is_done_once_by_one_of_the_processes(done):
    processes = done()
    assert processes[::2] == [HERE] * 4 and len(set(processes[1::2])) == 1 and processes[1] != HERE


def test_few_items_are_done_here(done):
    assert done(items=ITEMS[: 2 * parallel.LEAST - 1]) == [HERE] * (2 * parallel.LEAST - 1)


@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0, lambda: os._exit(3)])
def test_what_a_copy_did_not_end_is_done_here(done, end):
    assert done(elsewhere(end)) == [HERE] * len(ITEMS)


@pytest.mark.parametrize("item", [0, 1], ids=["here", "in a copy"])
def test_an_error_is_raised_as_it_is(done, item):
    def fails(given):
        if given == item:
            raise OSError(f"no room for {item}")

    with pytest.raises(OSError, match=f"no room for {item}"):
        done(fails)


def test_a_copy_whose_end_is_unknown_has_done_nothing(done, unheard):
    assert done(elsewhere(lambda: os._exit(1))) == [HERE] * len(ITEMS)


def test_where_the_system_allows_no_copy_everything_is_done_here_and_logged(done, monkeypatch, caplog):
    def refused(self):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.context.ForkProcess, "start", refused)
    with caplog.at_level("INFO", "fa_registry"):
        assert done() == [HERE] * len(ITEMS)
    assert "1 parallel processes" in caplog.text


def test_an_error_here_ends_the_copies_before_anybody_clears_up(done, tmp_path):
    def fails_here(item):
        if os.getpid() == HERE:
            raise ValueError("here")
        time.sleep(60)  # else it ends after all, and leaves its files

    before = multiprocessing.active_children()
    with pytest.raises(ValueError, match="here"):
        done(fails_here)
    assert multiprocessing.active_children() == before and not list(tmp_path.iterdir())


ANOTHER = """
begun = _thread.allocate_lock()
begun.acquire()
_thread.start_new_thread(lambda: (begun.release(), time.sleep(600)), ())
begun.acquire()
"""


@pytest.mark.parametrize(("before", "may"), [("", "True"), (ANOTHER, "False")], ids=["alone", "beside another"])
def test_who_has_another_thread_is_not_copied(before, may):
    """Also one that threading does not know."""
    code = f"import _thread, time\nfrom fa_registry import parallel\n{before}\nprint(parallel._may_be_copied())"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert process.stdout.strip() == may
