"""The hidden folder in which pages are written before they are moved to their place; what a killed rendering left is removed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX = ".rendering-"
LOCK = ".lock"  # held as long as somebody writes into the folder


@contextmanager
def unfinished(out: Path) -> Iterator[Path]:
    """A new folder inside of `out`, so that a page is moved and not copied; gone afterwards, with those of the killed."""
    out.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(out)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=out) as name, FileLock(Path(name) / LOCK):
        yield Path(name)


def _remove_abandoned(out: Path) -> None:
    for lock in sorted(out.glob(f"{PREFIX}*/{LOCK}")):  # a folder without one is too young, or nobody's of ours
        try:
            with FileLock(lock, blocking=False):
                pass
        except Timeout:
            continue  # another rendering is at work in it
        shutil.rmtree(lock.parent)
