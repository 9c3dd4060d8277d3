"""Reading of untrusted files: only regular files of limited size, without waiting for a pipe."""

from __future__ import annotations

import os
import stat
from pathlib import Path

LARGEST = 64 * 2**20  # bytes of one file; notebooks contain pictures


class UnreadableFile(Exception):
    """Error for a file that cannot be read; the message is the reason without the path."""


def read_file(path: Path, limit: int = LARGEST) -> bytes:
    """Return the bytes of a regular file of at most `limit` bytes; links are followed.

    Raises:
        UnreadableFile: If the file is missing or cannot be read, is no regular file, or is too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableFile("is no regular file")
            with open(descriptor, "rb", closefd=False) as stream:
                data = stream.read(limit + 1)  # the size before is not reliable: 0 in /proc, and files may grow
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise UnreadableFile(getattr(error, "strerror", None) or str(error)) from error
    if len(data) > limit:
        raise UnreadableFile(f"has more than {limit:,} bytes")
    return data
