"""The n-th write of a command fails, n random: it ends with a sentence, loses nothing, and repeated ends as if nothing had been.

    python -m tests.stress.disk_faults [--faults 100] [--seed 1]

What fails is a file that is opened to be written, moved, made or brought to the disk, or a statement of the database, with
ENOSPC, EIO or EACCES. One line per command: tried, lost, crashed.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import io
import os
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner, Result
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from fa_registry.cli import main as command_line
from fa_registry.tracking import schema
from fa_registry.training import checkpoint
from tests.commands.promotion import Judged, judged_study
from tests.helpers.stores import copy_store, working_in

ERRORS = {
    errno.ENOSPC: (sqlite3.SQLITE_FULL, "database or disk is full"),
    errno.EIO: (sqlite3.SQLITE_IOERR, "disk I/O error"),
    errno.EACCES: (sqlite3.SQLITE_READONLY, "attempt to write a readonly database"),
}
PLACES = ((builtins, "open"), (io, "open"), (os, "open"), (os, "replace"), (os, "rename"), (os, "fsync"), (os, "mkdir"))
CHANGES = ("INSERT", "UPDATE", "DELETE")
STUDY = ("--study", "tiny/study.toml", "--device", "cpu")
TINY = ("--device", "cpu", "--set", "architecture.d_hidden=16", "--set", "architecture.num_blocks=2")


@dataclass(frozen=True)
class Command:
    """A call of the command line, and what is to be the same of a store in which it ended, however often it was begun."""

    call: Callable[[Judged], tuple[str, ...]]
    outcome: Callable[[Judged], Any]


def _weights(judged: Judged) -> set[str]:
    return {
        run.tags[schema.TAG_WEIGHTS]
        for run in judged.tracker.search({schema.TAG_STATUS: "complete", "fa.method": "bp"})
    }


def _verdicts(judged: Judged) -> dict[str, str]:
    runs = judged.tracker.search({schema.TAG_KIND: "run"})
    return {run.run_id: run.tags.get(schema.TAG_VERDICT, "") for run in runs}


def _pages(judged: Judged) -> dict[str, bytes]:
    return {name: (judged.folder / "again" / name).read_bytes() for name in ("index.html", "audit.json")}


def _versions(judged: Judged) -> set[str]:
    client = judged.registry.client
    return {
        bool(client.get_registered_model(name.rpartition("/")[0]).aliases) and run_id
        for name, run_id in judged.versions().items()
    }


COMMANDS = {
    "train": Command(lambda j: ("train", "--method", "bp", "--seed", "7", "--epochs", "1", *TINY), _weights),
    "audit": Command(lambda j: ("audit", *STUDY, "--jobs", "1", "--exit-zero", "--out", "out"), _verdicts),
    "report": Command(lambda j: ("report", "--study", "tiny", "--out", "again"), _pages),
    "promote": Command(lambda j: ("promote", j.run().run_id, "--edition", "2026-12"), _versions),
}


class Failing:
    """Counts writes, and lets the `nth` fail with `number`; 0: none."""

    def __init__(self, nth: int = 0, number: int = errno.ENOSPC):
        self.nth, self.number, self.count, self.what = nth, number, 0, ""

    def _fails(self, what: str) -> bool:
        self.count += 1
        self.what = what if self.count == self.nth else self.what
        return self.count == self.nth

    def _place(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if _writes(name, given, named) and self._fails(f"{name} {given[0]}"):
                raise OSError(self.number, os.strerror(self.number), str(given[0]))
            return genuine(*given, **named)

        return call

    def _statement(self, connection, cursor, statement, parameters, context, executemany) -> None:
        if statement.lstrip().startswith(CHANGES) and self._fails(statement[:40]):
            error = sqlite3.OperationalError(ERRORS[self.number][1])
            error.sqlite_errorcode = ERRORS[self.number][0]
            raise OperationalError(statement, parameters, error)

    def _tensors(self, *given: Any) -> None:
        if self._fails(f"save_file {given[1]}"):
            raise checkpoint.SafetensorError(f"I/O error: {os.strerror(self.number)} (os error {self.number})")
        self._saved(*given)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Inside, writes are counted, and fail."""
        self._saved = checkpoint.save_file
        event.listen(Engine, "before_cursor_execute", self._statement)
        patches = [mock.patch.object(place, name, self._place(name, getattr(place, name))) for place, name in PLACES]
        patches.append(mock.patch.object(checkpoint, "save_file", self._tensors))
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
            event.remove(Engine, "before_cursor_execute", self._statement)


def _writes(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether a call changes a file that is neither a device nor a part of Python."""
    if not isinstance(given[0], (int, str, bytes, Path)) or str(given[0]).startswith(("/dev/", "/proc/", sys.prefix)):
        return False
    if name != "open":
        return True
    how = given[1] if len(given) > 1 else named.get("mode", "r")
    return bool(how & (os.O_WRONLY | os.O_RDWR)) if isinstance(how, int) else bool(set(how) & set("wax+"))


def called(command: Command, judged: Judged, failing: Failing) -> Result:
    with failing.inside():
        return CliRunner().invoke(command_line, command.call(judged))


def undisturbed(command: Command, store: Path, folder: Path) -> tuple[int, Any]:
    """How many writes the command makes, and its result."""
    judged, counting = _copy(store, folder), Failing()
    with working_in(folder):
        result = called(command, judged, counting)
        assert result.exit_code == 0, (result.output, result.exception)
        return counting.count, command.outcome(judged)


def tried(command: Command, store: Path, folder: Path, failing: Failing, expected: Any) -> tuple[str, str]:
    """What was lost and what crashed by one fault; empty where nothing was."""
    judged = _copy(store, folder)
    with working_in(folder):
        result = called(command, judged, failing)
        sentence = "Traceback" not in result.output and isinstance(result.exception, (SystemExit, type(None)))
        is_reported = result.exit_code in (0, 1, 2, 3) and sentence
        again = called(command, judged, Failing())
        lost = again.exit_code or command.outcome(judged) != expected
        where = f"{failing.what}, {errno.errorcode[failing.number]}"
        return (
            f"{where}: {again.output}" if lost else "",
            "" if is_reported else f"{where}: {result.output} {result.exception!r}",
        )


def _copy(store: Path, folder: Path) -> Judged:
    copy_store(store, folder)
    return Judged(folder)


def faults(name: str, store: Path, draw: random.Random, count: int) -> tuple[list[str], list[str]]:
    """What was lost and what crashed in `count` calls of a command, each with one random write that failed."""
    command, lost, crashed = COMMANDS[name], [], []
    with tempfile.TemporaryDirectory(prefix="fa_registry-faults-") as place:
        writes, expected = undisturbed(command, store, Path(place) / "undisturbed")
        for index in range(count):
            failing = Failing(draw.randint(1, writes), draw.choice(list(ERRORS)))
            outcome = tried(command, store, Path(place) / str(index), failing, expected)
            for texts, text in zip((lost, crashed), outcome, strict=True):
                texts += [text] if text else []
    return lost, crashed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100, help="in all verbs together")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--verb", choices=COMMANDS, default="", help="one alone")
    asked = parser.parse_args(arguments)
    draw, broken = random.Random(asked.seed), False
    names = [asked.verb] if asked.verb else list(COMMANDS)
    with tempfile.TemporaryDirectory(prefix="fa_registry-faults-") as folder:
        judged_study(Path(folder))
        for name in names:
            count = asked.faults // len(names)
            lost, crashed = faults(name, Path(folder), draw, count)
            print(*lost, *crashed, sep="\n", file=sys.stderr)
            print(
                f"faults in {name}: tried {count}, lost {len(lost)}, crashed {len(crashed)} (seed {asked.seed})",
                flush=True,
            )
            broken |= bool(lost or crashed)
    return broken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
