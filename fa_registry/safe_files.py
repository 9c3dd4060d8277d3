"""Files that somebody else wrote: only regular files, only inside their own folder, never larger than they may be.

A store that a reviewer was sent may hold a link to a private file, a pipe on which nobody writes, or a file without an end.
Nothing of a store is opened but through here.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fa_registry import process_ownership
from fa_registry.errors import IntegrityError

RECORD = 64 * 2**20  # bytes of one text file of a run or a study; the largest honest one measured had 7 MB
TENSORS = 64 * 2**30  # bytes of one file of tensors
ONE_READ = 2**25  # bytes that `zipfile` may read at once: its list of files is one read, 200,000 entries have 25 MB


class UnreadableFile(IntegrityError):
    """A file that is there and must not or cannot be read. reason: a phrase without the path, as "is a link"."""

    def __init__(self, path: Path, reason: str):
        self.path = path
        self.reason = reason
        super().__init__(f"{path} {reason}")


def read_file(path: Path, limit: int = RECORD) -> bytes:
    """The bytes of a regular file. Never waits, never follows a link in the last place, never reads more than `limit`.

    Raises UnreadableFile, also where there is no file: FileNotFoundError is its cause then.
    """
    with open_file(path, limit) as stream:
        data = stream.read(limit + 1)  # files of /proc say that they are empty, and others grow while they are read
    if len(data) > limit:
        raise UnreadableFile(path, f"has more than {limit:,} bytes")
    return data


def open_file(path: Path, limit: int = TENSORS) -> BinaryIO:
    """The stream of a regular file, for one that is too large to be held at once. Raises as `regular_bytes`."""
    return open(_opened(path, limit), "rb")


def check_file(path: Path, limit: int = TENSORS) -> Path:
    """The same path, for a library that opens it by its name, once it is known to be a regular file of at most `limit` bytes."""
    os.close(_opened(path, limit))
    return path


class _ShortReads(io.BufferedReader):
    """A file of which nobody reads more than ONE_READ bytes at once."""

    def read(self, size: int | None = -1) -> bytes:
        """Read `size` bytes, or up to ONE_READ; raise BadZipFile if `size` is more than that."""
        if size is not None and size > ONE_READ:
            raise zipfile.BadZipFile(f"its list of files has more than {ONE_READ:,} bytes")
        return super().read(ONE_READ if size is None or size < 0 else size)


@contextmanager
def open_zip(path: Path, limit: int = TENSORS) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose list of files is short enough to be held in memory.

    Args:
        path: of a regular file, not of a link.
        limit: the most bytes that the archive itself may have.

    Raises:
        UnreadableFile: as `regular_bytes`.
        zipfile.BadZipFile: the file is no zip archive, or its list of files has more than ONE_READ bytes.
    """
    with _ShortReads(io.FileIO(_opened(path, limit))) as stream, zipfile.ZipFile(stream) as archive:
        yield archive


def resolve_user_path(path: Path) -> Path:
    """Where a path leads that somebody typed here: unlike those of a store, it may be a link."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # no name of a file: opening it says why
        return path


def join_safely(folder: Path, name: str) -> Path:
    """`folder`/`name`, a relative name with /. Raises UnreadableFile where a link or `..` leads out of the folder.

    The file itself may be missing. A link inside is refused wherever it leads: what it points to can be exchanged later.
    """
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise UnreadableFile(path, "lies outside its folder")
    step = folder
    for part in Path(name).parts:
        step = step / part
        if os.path.islink(step):  # not Path.is_symlink, which raises for a name that is too long
            raise UnreadableFile(step, "is a link, which no store of ours holds")
    return path


def existing_file_in(folder: Path, name: str) -> Path | None:
    """`folder`/`name` where that is a regular file, None where there is nothing. Raises UnreadableFile for anything else."""
    path = join_safely(folder, name)
    return check_file(path) if os.path.lexists(path) else None


def folder_size(folder: Path) -> int:
    """Return the size of all files below a folder, in bytes; links are not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def copy_into(folder: Path, source: Path) -> None:
    """Every file below `source` at its place below `folder`. What lies there is replaced, never written through.

    Raises UnreadableFile where a folder on the way is a link.
    """
    for path in sorted(source.rglob("*")):
        if path.is_dir():
            continue
        name = path.relative_to(source)
        place = join_safely(folder, name.parent.as_posix()) / name.name
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}{process_ownership.owner_suffix()}")
        try:
            with path.open("rb") as read, temporary.open("xb") as written:  # x: no link that waits there by that name
                shutil.copyfileobj(read, written)
            os.replace(temporary, place)
        finally:
            temporary.unlink(missing_ok=True)


def _opened(path: Path, limit: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        linked = os.path.islink(path)
        raise UnreadableFile(path, "is a link" if linked else f"cannot be read: {_why(error)}") from error
    status = os.fstat(descriptor)
    reason = ""
    if not stat.S_ISREG(status.st_mode):
        reason = "is no regular file"
    elif status.st_size > limit:
        reason = f"has {status.st_size:,} bytes, and no such file has more than {limit:,}"
    if reason:
        os.close(descriptor)
        raise UnreadableFile(path, reason)
    return descriptor


def _why(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)
