"""Standard output and error that survive a closed pipe: the output ends, the work continues.

`fa-registry study mine | head -3` closes the pipe after three lines. Python then raises BrokenPipeError in the code
that prints next: a progress bar, a log message, a warning, a method's own `print`, or the interpreter itself at
shutdown.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import TextIO


def outlive_readers() -> None:
    """Make standard output and error write to the null device after their reader has gone."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if _is_standard(stream, descriptor):  # not replaced by a test or a notebook
            stream.flush()
            setattr(sys, name, _outliving(stream))


def has_reader(stream: TextIO) -> bool:
    """Return whether `stream` still has a reader, as far as the stream knows."""
    raw = _raw(stream)
    return not (isinstance(raw, _OutlivingFile) and raw.is_abandoned)


class _OutlivingFile(io.FileIO):
    """A file descriptor that is redirected to the null device when its reader has gone."""

    is_abandoned = False

    def write(self, data: bytes) -> int | None:
        """Write like a file, but to the null device after the reader has gone."""
        try:
            return super().write(data)
        except OSError as error:
            if not _is_abandoned(error, self.fileno()):
                raise
        self.is_abandoned = True
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())  # libraries in C, and processes started later, write to the same descriptor
        os.close(null)
        return super().write(data)


def _is_abandoned(error: OSError, descriptor: int) -> bool:
    """Return whether the reader of a pipe, or a terminal, has gone; false for a disk error."""
    if error.errno == errno.EPIPE:
        return True
    return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(descriptor).st_mode)


def _raw(stream: TextIO | None) -> object:
    """Return the file below a text stream; with PYTHONUNBUFFERED there is no buffer between them."""
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _is_standard(stream: TextIO | None, descriptor: int) -> bool:
    """Return whether `stream` is Python's own text stream over `descriptor` and not replaced yet."""
    return type(_raw(stream)) is io.FileIO and not stream.closed and stream.fileno() == descriptor


def _outliving(stream: TextIO) -> TextIO:
    """Return a text stream over the same descriptor, with the same encoding and buffering."""
    raw = _OutlivingFile(stream.fileno(), "wb", closefd=False)
    raw.name = stream.name
    return io.TextIOWrapper(
        io.BufferedWriter(raw) if hasattr(stream.buffer, "raw") else raw,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
