"""Storage of large record fields in a temporary file, to save memory.

An audit of 10,000 runs therefore fits in memory. The first 200 records of each spill file stay in memory, so an ordinary
audit does not use the disk. The spill file has no name on disk, so a killed process leaves no stale file. The file is
closed when no record uses the file any more. The forked copies of the process that parallel.parallel_for creates read the
same file.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from multiprocessing.reduction import ForkingPickler
from typing import IO, Any, ClassVar, TypeVar

LOG = logging.getLogger(__name__)
AS_THEY_ARE = 200  # number of records of each spill file that stay in memory
READ_LAST = 64  # records whose fields are cached after reading: enough for the seeds of a group and their controls
FAST = 1  # compression level of zlib: a run's metrics shrink to a quarter
HERE = hasattr(os, "pread")  # whether the system has pread; without pread every record stays in memory
LIES = "_lies"  # attribute of a spilled record with the position of its fields in the file

R = TypeVar("R", bound="SpilledFields")
Lies = tuple[Callable[[int, int], Mapping[str, Any]], int, int]  # reader of the fields, offset, size in bytes


class SpilledFields:
    """Base class of frozen dataclasses whose large fields may be in a spill file.

    The class attribute SPILLED_FIELDS lists the names of these fields. Code reads a spilled field like any other field, but
    must not change its value. A spilled field must not have a plain default value, because Python would return the default and
    never call `__getattr__`. dataclasses.replace returns a record whose fields are all in memory.
    """

    SPILLED_FIELDS: ClassVar[tuple[str, ...]] = ()

    def __getattr__(self, name: str) -> Any:  # Python calls this method for a missing attribute
        if name in self.SPILLED_FIELDS and LIES in vars(self):
            read_fields, offset, length = vars(self)[LIES]
            return read_fields(offset, length)[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        """Return all fields, including the spilled fields, for copying and pickling."""
        state = {name: value for name, value in vars(self).items() if name != LIES}
        return state | {name: getattr(self, name) for name in self.SPILLED_FIELDS}


def replace_fields(record: R, **fields: Any) -> R:
    """Return a copy of a record with new values for some fields.

    Spilled fields stay on disk. The function does not call `__post_init__`, so use it only for fields that `__post_init__`
    does not check.

    Args:
        **fields: new value of each field to replace.
    """
    replacement = object.__new__(type(record))
    object.__setattr__(replacement, "__dict__", vars(record) | fields)
    return replacement


class SpillFile:
    """Temporary file to which the large fields of records are appended."""

    def __init__(self) -> None:
        self._laid = 0
        self._file: _File | None = None

    def spill(self, record: R) -> R:
        """Write the SPILLED_FIELDS of a record to the file and return the same record.

        The first AS_THEY_ARE records stay in memory. A record that is already spilled is returned unchanged. If the file
        cannot be created or the disk is full, the method logs one warning, and this and all later records stay in memory.
        """
        self._laid += 1
        if HERE and self._laid > AS_THEY_ARE and LIES not in vars(record):
            fields = {name: vars(record)[name] for name in record.SPILLED_FIELDS}
            try:
                self._file = self._file or _File()
                location = self._file.write(fields)
            except OSError as error:
                LOG.warning(
                    "%s: all further records stay in memory; to use less memory, set TMPDIR to a folder with more free space",
                    error,
                )
                self._laid = -sys.maxsize  # log the warning only once
                return record
            other_fields = {name: value for name, value in vars(record).items() if name not in fields}
            object.__setattr__(record, "__dict__", other_fields | {LIES: location})  # the dataclass is frozen
        return record

    def spill_all(self, records: Iterable[R]) -> list[R]:
        """Spill each record when the iterable yields it, and return all records."""
        return [self.spill(record) for record in records]


class _File:
    """Open spill file, which is closed when no record uses it any more."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed by weakref.finalize)
        self._read = lru_cache(READ_LAST)(partial(_unpacked, self._file))
        self._end = 0
        weakref.finalize(self._read, self._file.close)

    def write(self, fields: Mapping[str, Any]) -> Lies:
        """Append the fields of one record to the file.

        Returns:
            Function that reads the fields, and the offset and size of the fields in the file in bytes.

        Raises:
            OSError: The disk is full.
        """
        # Pickle is safe here: the file has no name, so only this process and its forked copies can read it.
        packed = ForkingPickler.dumps(
            {name: zlib.compress(ForkingPickler.dumps(value), FAST) for name, value in fields.items()}
        )
        if os.pwrite(self._file.fileno(), packed, self._end) < len(packed):
            raise OSError(f"{tempfile.gettempdir()} is full")
        self._end += len(packed)
        return self._read, self._end - len(packed), len(packed)


class _Fields(dict[str, Any]):
    """Fields of one record; each field is decompressed at its first access, as most loops read one field."""

    def __init__(self, packed: Mapping[str, bytes]) -> None:
        self._packed = packed

    def __missing__(self, name: str) -> Any:
        return self.setdefault(name, ForkingPickler.loads(zlib.decompress(self._packed[name])))


def _unpacked(file: IO[bytes], offset: int, length: int) -> _Fields:
    return _Fields(ForkingPickler.loads(os.pread(file.fileno(), length, offset)))
