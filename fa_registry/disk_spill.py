"""Records whose fields lie in a file until somebody asks: of ten thousand runs, memory holds the names and not the figures.

The first records of a shelf stay as they are, so that a usual audit reads nothing twice. The file has no name: a killed process
leaves none. It goes with the last record that lies in it, and a copy of the process (parallel.parallel_for) reads the same one.
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
AS_THEY_ARE = 200  # records of a shelf that stay in memory
READ_LAST = 64  # records whose fields stay there once somebody asked: the seeds of a group, with their controls
FAST = 1  # zlib's level; a run's figures take a quarter of their room
HERE = hasattr(os, "pread")  # else every record stays in memory
LIES = "_lies"  # of a record whose fields lie in a file: its Lies

R = TypeVar("R", bound="SpilledFields")
Lies = tuple[Callable[[int, int], Mapping[str, Any]], int, int]  # how it is read, offset and bytes in the file


class SpilledFields:
    """A frozen dataclass of which the fields named in SPILLED_FIELDS may lie on a shelf; whoever asks for one sees no difference.

    Their values are read, never changed. None of them may have a plain default: Python would find that one and ask no further.
    What dataclasses.replace makes is in memory as a whole.
    """

    SPILLED_FIELDS: ClassVar[tuple[str, ...]] = ()

    def __getattr__(self, name: str) -> Any:  # Python asks for what it did not find
        if name in self.SPILLED_FIELDS and LIES in vars(self):
            read, offset, length = vars(self)[LIES]
            return read(offset, length)[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        """All of it, for a copy or another process."""
        state = {name: value for name, value in vars(self).items() if name != LIES}
        return state | {name: getattr(self, name) for name in self.SPILLED_FIELDS}


def replace_fields(record: R, **fields: Any) -> R:
    """As dataclasses.replace, of fields whose values its __post_init__ has no word in: what lies on a shelf stays there."""
    other = object.__new__(type(record))
    object.__setattr__(other, "__dict__", vars(record) | fields)
    return other


class SpillFile:
    """Where records are laid one after another."""

    def __init__(self) -> None:
        self._laid = 0
        self._file: _File | None = None

    def spill(self, record: R) -> R:
        """The same record, with its SPILLED_FIELDS fields in the file; one of the first, or one that lies already, as it is."""
        self._laid += 1
        if HERE and self._laid > AS_THEY_ARE and LIES not in vars(record):
            fields = {name: vars(record)[name] for name in record.SPILLED_FIELDS}
            try:
                self._file = self._file or _File()
                lies = self._file.write(fields)
            except OSError as error:
                LOG.warning("%s: records stay in memory; TMPDIR names a folder with more room", error)
                self._laid = -sys.maxsize  # said once
                return record
            kept = {name: value for name, value in vars(record).items() if name not in fields}
            object.__setattr__(record, "__dict__", kept | {LIES: lies})  # frozen for everybody else
        return record

    def spill_all(self, records: Iterable[R]) -> list[R]:
        """Each as it comes: they may be made one by one."""
        return [self.spill(record) for record in records]


class _File:
    """Fields, packed one after another; gone with the last record that knows of it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed with the last that reads)
        self._read = lru_cache(READ_LAST)(partial(_unpacked, self._file))
        self._end = 0
        weakref.finalize(self._read, self._file.close)

    def write(self, fields: Mapping[str, Any]) -> Lies:
        """Returns where they lie; OSError where there is no room for them."""
        # as multiprocessing sends them: nobody but this process and its copies comes to the file, which has no name
        packed = ForkingPickler.dumps(
            {name: zlib.compress(ForkingPickler.dumps(value), FAST) for name, value in fields.items()}
        )
        if os.pwrite(self._file.fileno(), packed, self._end) < len(packed):
            raise OSError(f"{tempfile.gettempdir()} is full")
        self._end += len(packed)
        return self._read, self._end - len(packed), len(packed)


class _Fields(dict[str, Any]):
    """Each is made when it is asked for: most ways through all runs look at one."""

    def __init__(self, packed: Mapping[str, bytes]) -> None:
        self._packed = packed

    def __missing__(self, name: str) -> Any:
        return self.setdefault(name, ForkingPickler.loads(zlib.decompress(self._packed[name])))


def _unpacked(file: IO[bytes], offset: int, length: int) -> _Fields:
    return _Fields(ForkingPickler.loads(os.pread(file.fileno(), length, offset)))
