"""Standard output and error streams that continue after a pipe has been closed.

`fa-registry study mine | head -3` closes the pipe after three lines. Python then raises BrokenPipeError in the code
that prints next. This code may be a progress bar, a log message, a warning, a `print` in a method, or the interpreter
at shutdown. The streams of this module discard the further output instead, so the work continues.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import TextIO


def outlive_readers() -> None:
    """Make stdout and stderr continue after the reader has closed the pipe.

    The streams then write to the null device. A stream that a test or a notebook has replaced stays unchanged.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if _is_standard(stream, descriptor):  # not replaced by a test or a notebook
            stream.flush()
            setattr(sys, name, _outliving(stream))


def has_reader(stream: TextIO) -> bool:
    """Return whether a stream still has a reader.

    The result is false only after a write has failed because the reader has closed the pipe.
    """
    raw = _raw(stream)
    return not (isinstance(raw, _OutlivingFile) and raw.is_abandoned)


class _OutlivingFile(io.FileIO):
    """File descriptor that is redirected to the null device after its reader has closed the pipe."""

    is_abandoned = False

    def write(self, data: bytes) -> int | None:
        """Write the data; if the reader has closed the pipe, discard this and all later output."""
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
    """Return whether the cause of an error is a closed pipe or a closed terminal."""
    if error.errno == errno.EPIPE:
        return True
    return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(descriptor).st_mode)


def _raw(stream: TextIO | None) -> object:
    """Return the unbuffered file of a text stream, even if PYTHONUNBUFFERED is set."""
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _is_standard(stream: TextIO | None, descriptor: int) -> bool:
    """Return whether `stream` is Python's original text stream for `descriptor`."""
    return type(_raw(stream)) is io.FileIO and not stream.closed and stream.fileno() == descriptor


def _outliving(stream: TextIO) -> TextIO:
    """Return a new text stream with the same descriptor, encoding and buffering."""
    raw = _OutlivingFile(stream.fileno(), "wb", closefd=False)
    raw.name = stream.name
    return io.TextIOWrapper(
        io.BufferedWriter(raw) if hasattr(stream.buffer, "raw") else raw,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
