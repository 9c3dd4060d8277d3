"""Standard streams that continue after a pipe has been closed, or if a character has no encoding.

`fa-registry study mine | head -3` closes the pipe after three lines. Python then raises BrokenPipeError in the code
that prints next. This code may be a progress bar, a log message, a warning, a `print` in a method, or the interpreter
at shutdown. The streams of this module discard the further output instead, so the work continues.

With `PYTHONIOENCODING=latin-1`, or in the locale C, the encoding has no Γ and no lines for a table. Python then raises
UnicodeEncodeError. The streams of this module print a question mark instead. With `PYTHONWARNINGS=error`, Python raises
the warnings of dependencies, which `print_warnings` prints.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import stat
import sys
import warnings
from typing import TextIO

REPLACED = "fa_registry.replaced"  # error handler of Python's codecs that `_replace` implements
RAISING = ("strict", "surrogateescape")  # error handlers that raise an error for a Γ
FILE_NAME_BYTE = "\udc80-\udcff"  # characters with which Python represents undecodable bytes of a file name


def outlive_readers() -> None:
    """Make stdout and stderr continue after the reader has closed the pipe.

    The streams then write to the null device. A character without an encoding is replaced. A stream that a test or a
    notebook has replaced stays unchanged.
    """
    codecs.register_error(REPLACED, _replace)
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


def print_warnings() -> None:
    """Print each warning instead of raising it, also in the processes that this process starts.

    Otherwise PYTHONWARNINGS=error would end a command at the first deprecation in a dependency.
    """
    if not sys.warnoptions:
        return
    sys.warnoptions[:] = map(_printing, sys.warnoptions)  # multiprocessing passes these options to its processes
    if variable := os.environ.get("PYTHONWARNINGS"):
        os.environ["PYTHONWARNINGS"] = ",".join(map(_printing, variable.split(",")))
    filters = list(warnings.filters)
    warnings.resetwarnings()
    for action, *patterns, line in filters:
        message, category, module = (getattr(pattern, "pattern", pattern) or "" for pattern in patterns)
        action = "default" if action == "error" else action
        warnings.filterwarnings(action, message, category, module, line, append=True)


def _printing(warning_option: str) -> str:
    """Return an option such as `error::DeprecationWarning` with the action `default` instead of `error`."""
    action, colon, condition = warning_option.partition(":")
    is_error = bool(action) and "error".startswith(action)
    return f"default{colon}{condition}" if is_error else warning_option


def encodable(text: str, stream: TextIO | None) -> str:
    """Return a text with a question mark for each character that the encoding of a stream lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _replace(error: UnicodeError) -> tuple[bytes, int]:
    """Return a question mark for each character without an encoding.

    The bytes of file names stay unchanged.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = re.sub(f"[^{FILE_NAME_BYTE}]", "?", error.object[error.start : error.end])
    return text.encode("ascii", "surrogateescape"), error.end


class _AsciiStream(io.TextIOWrapper):
    """Text stream without a visible buffer.

    click would write UTF-8 to the buffer of a stream whose encoding is ASCII.
    """

    buffer = None


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
    is_text = isinstance(stream, io.TextIOWrapper)
    buffer = io.TextIOWrapper.buffer.__get__(stream) if is_text else getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _is_standard(stream: TextIO | None, descriptor: int) -> bool:
    """Return whether `stream` is Python's original text stream for `descriptor`."""
    return type(_raw(stream)) is io.FileIO and not stream.closed and stream.fileno() == descriptor


def _outliving(stream: TextIO) -> TextIO:
    """Return a new text stream with the same descriptor, encoding and buffering."""
    stream_class = _AsciiStream if codecs.lookup(stream.encoding).name == "ascii" else io.TextIOWrapper
    raw = _OutlivingFile(stream.fileno(), "wb", closefd=False)
    raw.name = stream.name
    return stream_class(
        io.BufferedWriter(raw) if hasattr(stream.buffer, "raw") else raw,
        encoding=stream.encoding,
        errors=REPLACED if stream.errors in RAISING else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
