"""Process marks, which identify the process that owns a temporary file, a folder or a run.

With these marks, the package can recognise and remove stale files of dead processes. The tag of a run identifies its
process as `host:pid:start:namespace`, because each container starts its pids at 1. The name of a temporary file or folder
contains host, pid and start, so the owner is known from the moment of creation. A pid alone does not identify a process,
because pids are reused.
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

from fa_registry.errors import UsageError

MARK = re.compile(r"\.([0-9a-f]{6})\.([0-9a-f]+)\.([0-9a-f]+)\.")  # host, pid, start
PID, START = re.compile("[0-9]{1,10}"), re.compile("[0-9]{1,18}")  # no system has process numbers with more digits
PREFIX = "fa_registry-"  # start of the names of the package's temporary folders
VARIABLE = "FA_REGISTRY_OWNER"  # environment variable that names the owner of a process server and of its workers
DAMAGED = ".damaged"  # suffix of a damaged file that was renamed
LEASE = 120  # seconds without a heartbeat after which another machine's run counts as abandoned: see tracking.lease
SERVERS = "pymp-*"  # temporary folders of multiprocessing; this package marks its folders with a file


def process_tag() -> str:
    """Return the tag that identifies this process in the runs that it writes."""
    return ":".join((platform.node(), str(os.getpid()), str(_started(os.getpid())), _namespace()))


def is_here(tag: str) -> bool:
    """Return whether a tag belongs to a process on this machine and in this container."""
    host, _, _, namespace = (*tag.split(":"), "", "", "")[:4]
    return (host, namespace) == (platform.node(), _namespace())


def is_dead(tag: str) -> bool:
    """Return whether the process of a tag has certainly ended; false for a process on another machine."""
    _, pid, start = (*tag.split(":"), "", "")[:3]
    has_local_pid = is_here(tag) and bool(PID.fullmatch(pid))
    return has_local_pid and not _lives(int(pid), int(start) if START.fullmatch(start) else 0)


def owner_suffix() -> str:
    """Return the mark of this process for use in a file name."""
    return f".{_host()}.{os.getpid():x}.{_started(os.getpid()):x}."


def is_abandoned(name: str) -> bool:
    """Return whether a file name has the mark of a process that ended on this machine."""
    mark = MARK.search(name)
    return bool(mark) and mark[1] == _host() and not _lives(int(mark[2], 16), int(mark[3], 16))


def create_temp_dir(prefix: str, parent: Path | None = None) -> Path:
    """Create a temporary folder whose name contains the mark of this process.

    `parent` is the parent folder, by default the temporary folder of the system.
    """
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{owner_suffix()}", dir=parent))


@contextmanager
def temp_dir(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Create a folder in the same way as `create_temp_dir` does; remove the folder after the `with` block."""
    folder = create_temp_dir(prefix, parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def abandoned(parent: Path, pattern: str) -> list[Path]:
    """Return the files in `parent` that match `pattern` and belong to ended processes."""
    return sorted(path for path in parent.glob(pattern) if is_abandoned(path.name))


def abandoned_folders() -> list[Path]:
    """Return the temporary folders of ended processes and of their process servers."""
    temp_folder = Path(tempfile.gettempdir())
    servers = {path.parent for path in abandoned(temp_folder, f"{SERVERS}/{PREFIX}*")}
    return [path for path in (*abandoned(temp_folder, f"{PREFIX}*"), *sorted(servers)) if not path.is_symlink()]


def abandoned_processes() -> list[int]:
    """Return the pids of process servers and workers whose owner process has ended.

    The result is empty on systems other than Linux.
    """
    pids = []
    for environ_file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # the process belongs to another user or has just ended
            variables = dict(entry.partition(b"=")[::2] for entry in environ_file.read_bytes().split(b"\0"))
            if is_dead(variables.get(VARIABLE.encode(), b"").decode(errors="replace")):
                pids.append(int(environ_file.parent.name))
    return sorted(pids)


def remove_quietly(path: Path) -> None:
    """Remove a file or folder as far as possible, and ignore errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):  # a file of another user is listed again next time
        path.unlink(missing_ok=True)


@functools.cache
def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]


@functools.cache
def _namespace() -> str:
    """Return the pid namespace of this process; empty if the system has no /proc."""
    with suppress(OSError):  # not every system has /proc
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return ""


def _lives(pid: int, start: int) -> bool:
    """Return whether the process with this pid and start time still runs."""
    state, started = _status(pid)
    return state not in "ZX" and (start == started or 0 in (start, started))


def _started(pid: int) -> int:
    return _status(pid)[1]


def _status(pid: int) -> tuple[str, int]:
    """Return the state letter of a process and its start time in ticks after boot.

    The state is X if there is no such process. The start time is 0 if it is unknown.
    """
    with suppress(OSError):  # no such process, a process of another user, or a system without /proc
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    try:
        with suppress(PermissionError):  # the process exists and belongs to another user
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return "X", 0
    return "R", 0


def try_writing(out: Path) -> None:
    """Create and delete a temporary folder to test `out`; raise UsageError if `out` is not writable.

    Access rights are not checked, because root has all rights but cannot write to a read-only disk.
    """
    existing_folder = next((folder for folder in (out, *out.parents) if os.path.lexists(folder)), Path())
    try:
        with temp_dir(".fa_registry-", existing_folder) as trial:
            (trial / out.relative_to(existing_folder)).mkdir(parents=True, exist_ok=True)
    except NotADirectoryError as error:
        raise UsageError(f"expected a folder, found the file {existing_folder}; name another folder") from error
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}; name another folder") from error
