"""Safe access to untrusted files: regular files of limited size are opened, and links are refused.

A store that a reviewer receives may contain a link to a private file, a pipe without a writer, or an endless file.
Therefore the package opens files of a store only through this module.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fa_registry import process_ownership
from fa_registry.errors import IntegrityError

RECORD = 64 * 2**20  # bytes of one text file of a run or a study; the largest real file had 7 MB
TENSORS = 64 * 2**30  # bytes of one file of tensors
ONE_READ = 2**25  # bytes per read of `zipfile`, which reads its whole list of files at once: 25 MB for 200,000 entries


class UnreadableFile(IntegrityError):
    """Error for a file that is missing, cannot be read, or must not be read.

    `reason` is the last part of the message, after the path, such as "is a link".
    """

    def __init__(self, path: Path, reason: str):
        self.path = path
        self.reason = reason
        super().__init__(f"{path} {reason}")


def read_file(path: Path, limit: int = RECORD) -> bytes:
    """Return the bytes of a regular file of at most `limit` bytes.

    The function never blocks. If the path is a link, the function refuses to read the file.

    Raises:
        UnreadableFile: the file is missing or cannot be read, is no regular file, or is too large. If the file is missing,
            the cause of the error is FileNotFoundError.
    """
    with open_file(path, limit) as stream:
        # The size that the system reports is not reliable: 0 in /proc, and files may grow.
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise UnreadableFile(path, f"has more than {limit:,} bytes")
    return data


def open_file(path: Path, limit: int = TENSORS) -> BinaryIO:
    """Open a regular file for binary reading, even if the file is too large for memory.

    The path must not be a link. `limit` is the maximum size in bytes. The errors are those of `read_file`.
    """
    return open(_opened(path, limit), "rb")


def check_file(path: Path, limit: int = TENSORS) -> Path:
    """Return `path` after checking that it is a readable regular file. Errors are as for `read_file`.

    Use this check before a library opens the file by its name.
    """
    os.close(_opened(path, limit))
    return path


class _ShortReads(io.BufferedReader):
    """Binary file whose single reads are limited to ONE_READ bytes."""

    def read(self, size: int | None = -1) -> bytes:
        """Read at most `size` bytes; raise BadZipFile if `size` is larger than ONE_READ."""
        if size is not None and size > ONE_READ:
            raise zipfile.BadZipFile(f"the list of files in the zip archive has more than {ONE_READ:,} bytes")
        return super().read(ONE_READ if size is None or size < 0 else size)


@contextmanager
def open_zip(path: Path, limit: int = TENSORS) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose list of files fits in memory.

    Args:
        path: path of a regular file. The path must not be a link.
        limit: maximum size of the archive in bytes.

    Raises:
        UnreadableFile: see `read_file`.
        zipfile.BadZipFile: the file is no zip archive, or its list of files has more than ONE_READ bytes.
    """
    with _ShortReads(io.FileIO(_opened(path, limit))) as stream, zipfile.ZipFile(stream) as archive:
        yield archive


def resolve_user_path(path: Path) -> Path:
    """Return a path that the user typed, with every link replaced by its target.

    A path that the user typed may be a link. A path in a store must not be a link.
    """
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # not a valid file name: the error on opening gives the reason
        return path


def join_safely(folder: Path, name: str) -> Path:
    """Return `folder`/`name` after checking that the path stays inside the trusted folder.

    The file itself may be missing. `name` is a relative path with `/` as separator.

    Raises:
        UnreadableFile: `name` is absolute or contains `..`, or a part of the path below `folder` is a link. Links are
            refused because another program may change their target later.
    """
    path, parts = folder / name, Path(name).parts
    if name.startswith("/") or ".." in parts:
        raise UnreadableFile(path, "is outside its folder")
    step = os.fspath(folder)
    for part in parts:
        step = f"{step}/{part}"
        if os.path.islink(step):  # not Path.is_symlink, which raises for a name that is too long
            raise UnreadableFile(Path(step), "is a link, which is not allowed in a store")
    return path


def existing_file_in(folder: Path, name: str) -> Path | None:
    """Return `folder`/`name` if this path is a regular file, or None if the path does not exist.

    Raises:
        UnreadableFile: the path exists but is no regular file, or `join_safely` refuses it.
    """
    path = join_safely(folder, name)
    return check_file(path) if os.path.lexists(path) else None


def folder_size(folder: Path) -> int:
    """Return the total size in bytes of all files below a folder. Links are not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def copy_into(folder: Path, source: Path) -> None:
    """Copy every file below `source` to the same relative path below `folder`.

    Existing files are replaced. Nothing is written through a link.

    Raises:
        UnreadableFile: a folder in a target path is a link.
    """
    for path in sorted(source.rglob("*")):
        if path.is_dir():
            continue
        with path.open("rb") as data, _replaced(_target(folder, path.relative_to(source))) as copy:
            shutil.copyfileobj(data, copy)


def write_into(folder: Path, name: str, data: bytes) -> bool:
    """Write a file below `folder` as `copy_into` does, unless the file has this content.

    Return whether the file was written.
    """
    target = _target(folder, Path(name))
    with suppress(UnreadableFile), open_file(target) as stream:
        if os.fstat(stream.fileno()).st_size == len(data) and stream.read(len(data) + 1) == data:
            return False
    with _replaced(target) as copy:
        copy.write(data)
    return True


def _target(folder: Path, name: Path) -> Path:
    return join_safely(folder, name.parent.as_posix()) / name.name


@contextmanager
def _replaced(target: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which replaces `target` at the end of the `with` block."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}{process_ownership.owner_suffix()}")
    try:
        with temporary.open("xb") as stream:  # mode x fails if a link of that name exists
            yield stream
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _opened(path: Path, limit: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        is_link = os.path.islink(path)
        why = getattr(error, "strerror", None) or error
        raise UnreadableFile(path, "is a link" if is_link else f"cannot be read: {why}") from error
    status = os.fstat(descriptor)
    reason = ""
    if not stat.S_ISREG(status.st_mode):
        reason = "is no regular file"
    elif status.st_size > limit:
        reason = f"has {status.st_size:,} bytes, expected at most {limit:,}"
    if reason:
        os.close(descriptor)
        raise UnreadableFile(path, reason)
    return descriptor
