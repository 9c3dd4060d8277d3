"""Whose it is: what a killed process leaves behind is known by the process that it names, and that this one is gone.

A run's tag names its process as `host:pid:start:namespace`, a temporary file or folder by a mark in its name, so that there is
no moment in which it has no owner. A pid alone says nothing: it is given again, and another container counts from 1 too.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = re.compile(r"\.([0-9a-f]{6})\.([0-9a-f]+)\.([0-9a-f]+)\.")  # host, pid, start
PID, START = re.compile("[0-9]{1,10}"), re.compile("[0-9]{1,18}")  # more digits are no process of any system
PREFIX = "fa_registry-"  # of our folders in the temporary folder
VARIABLE = "FA_REGISTRY_OWNER"  # in the environment of a process server of ours and of its workers: whose they are
DAMAGED = ".damaged"  # after the name of a file that was set aside
LEASE = (
    120  # seconds without a sign of life after which a run of a process elsewhere counts as left: see tracking.lease
)
SERVERS = "pymp-*"  # folders of multiprocessing there; those of ours hold a file with our mark


def process_tag() -> str:
    """This process, for the tag of a run that it writes."""
    return ":".join((platform.node(), str(os.getpid()), str(_started(os.getpid())), _namespace()))


def is_here(tag: str) -> bool:
    """Whether this process could see the process of a tag: same machine, same container. Older releases' tags end on the pid."""
    host, _, _, namespace = (*tag.split(":"), "", "", "")[:4]
    return host == platform.node() and namespace in ("", _namespace())


def is_dead(tag: str) -> bool:
    """Whether the process of a tag is known to be gone; of one elsewhere that is not known."""
    _, pid, start = (*tag.split(":"), "", "")[:3]
    known = is_here(tag) and bool(PID.fullmatch(pid))
    return known and not _lives(int(pid), int(start) if START.fullmatch(start) else 0)


def owner_suffix() -> str:
    """This process, for a name of a file."""
    return f".{_host()}.{os.getpid():x}.{_started(os.getpid()):x}."


def is_abandoned(name: str) -> bool:
    """Whether a name holds the mark of a process that is known to be gone."""
    marked = MARK.search(name)
    return bool(marked) and marked[1] == _host() and not _lives(int(marked[2], 16), int(marked[3], 16))


def create_temp_dir(prefix: str, parent: Path | None = None) -> Path:
    """A new folder of this process, among the temporary ones or in `parent`."""
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{owner_suffix()}", dir=parent))


@contextmanager
def temp_dir(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """As `new_folder`, gone afterwards."""
    made = create_temp_dir(prefix, parent)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def abandoned(parent: Path, pattern: str) -> list[Path]:
    """What ended processes have left in `parent`, of the names that match."""
    return sorted(path for path in parent.glob(pattern) if is_abandoned(path.name))


def abandoned_folders() -> list[Path]:
    """What ended processes have left in the temporary folder: their own folders, and those of their process servers."""
    place = Path(tempfile.gettempdir())
    servers = {path.parent for path in abandoned(place, f"{SERVERS}/{PREFIX}*")}
    return [path for path in (*abandoned(place, f"{PREFIX}*"), *sorted(servers)) if not path.is_symlink()]


def abandoned_processes() -> list[int]:
    """Process servers and workers of ours whose process is gone; only Linux tells."""
    pids = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's, or it has just ended
            whose = dict(entry.partition(b"=")[::2] for entry in environment.read_bytes().split(b"\0"))
            if is_dead(whose.get(VARIABLE.encode(), b"").decode(errors="replace")):
                pids.append(int(environment.parent.name))
    return sorted(pids)


def remove_quietly(path: Path) -> None:
    """Take away a file or folder, as far as it is ours to take: another may be doing the same, or it is another user's."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):  # another user's: the next look shows it again
        path.unlink(missing_ok=True)


@functools.cache
def _host() -> str:
    return hashlib.sha256(f"{platform.node()} {_namespace()}".encode()).hexdigest()[:6]


@functools.cache
def _namespace() -> str:
    """Which processes this one can see: in another container the same pid is another process."""
    with suppress(OSError):  # not on every system
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return ""


def _lives(pid: int, start: int) -> bool:
    """Whether this process, and none that was given its pid later, is at work; one that waits to be buried is not."""
    state, started = _status(pid)
    return state not in "ZX" and (start == started or 0 in (start, started))


def _started(pid: int) -> int:
    return _status(pid)[1]


def _status(pid: int) -> tuple[str, int]:
    """State and start (ticks since the machine began) of a process; X of one that is not there, 0 where nobody tells."""
    with suppress(OSError):  # there is none, or it is another user's, or this system has no such files
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    try:
        with suppress(PermissionError):  # it is there, and somebody else's
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return "X", 0
    return "R", 0
