"""Malformed files: bytes and values put wrong in a good file of each kind; each must be read, or refused in a sentence.

python -m tests.stress.malformed --inputs 100000
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import json
import logging
import multiprocessing
import os
import random
import tempfile
import time
import traceback
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.audits.options import AuditSource, ReportOutput
from fa_registry.audits.reports import load_report, run_report
from fa_registry.errors import RegistryError
from fa_registry.evidence.duplicate_weights import final_weights
from fa_registry.external.checkpoint_import import read_foreign
from fa_registry.external.weight_names import find_weights
from fa_registry.metrics import ACCURACY
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.reproduction import load_reference
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.waivers import load_waivers
from fa_registry.studies.study import load_study
from fa_registry.text_safety import CATEGORIES
from fa_registry.tracking import schema
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.reader import read_record, table_history
from fa_registry.tracking.series_parquet import by_site, points, read_rows, trajectory
from fa_registry.training.checkpoint import content_digest, load_tensors
from tests.helpers.pictures import blank_pictures
from tests.reporting.sample_reports import full_report, small_report
from tests.reporting.test_hostile import NAMES as HOSTILE
from tests.tracking.conftest import write_run

PATIENCE = 5.0  # CPU seconds of one input, after which it counts as a hang
SELDOM = 100  # an audit is written as pages in one round of so many, and in one of so many of these with its pictures
JSON = (schema.SPEC, schema.MEASUREMENTS, schema.PROVENANCE, schema.FEEDBACK_CARD)
SEEN = (".html", ".md", ".tex", ".csv", ".xml", ".svg", ".json")  # of files that an audit writes, those of text
NAMES = ["x" * 5000, "x\0y", "../" * 500, "\ud800", "", ".", "/", "a.toml/b", "é" * 200]
DEEP = json.loads("[" * 300 + "]" * 300)
VALUES = [
    *(None, True, -1, 0, 1e308, -1e-320, 2**63, 10**400, "", "x", "\ud800", "\0", "9" * 5000, "not finite (nan)"),
    *([], {}, [1, None], {"na": ""}, {"na": "x"}, {"x" * 10_000: 1}, [[]], DEEP),
]


TEXTS = [
    *HOSTILE,
    "",
    "x" * 10_000,
    "e\u0301" * 2_000,
    "\ud800",
    "a\nb",
    "$x^",
    "9" * 400,
    "-inf",
    "2099-99-99",
    "/",
    "#",
]
NUMBERS = [0, -1, 1, 0.5, 1e308, -1e308, 5e-324, -5e-324, 2**31, 2**63, -(2**63), 10**17, 1e15]


@dataclass
class Tally:
    """Of one reader: inputs, those refused in a sentence, those that ended in anything else, those that took PATIENCE."""

    tried: int = 0
    refused: int = 0
    uncaught: list[str] = field(default_factory=list)
    slow: int = 0

    def add(self, other: Tally) -> None:
        self.tried += other.tried
        self.refused += other.refused
        self.uncaught += other.uncaught
        self.slow += other.slow


Inputs = Callable[[random.Random], Callable[[], Any]]  # one malformed input, and what reads it


def spoilt_bytes(whole: bytes, draw: random.Random) -> bytes:
    """The bytes with one to eight of them changed, or cut off, left out or doubled somewhere."""
    data, place = bytearray(whole), draw.randrange(len(whole))
    kind = draw.randrange(5)
    if kind == 0:
        return bytes(data[:place])
    if kind == 1:
        del data[place : place + draw.randrange(1, 64)]
    elif kind == 2:
        data[place:place] = data[place : place + draw.randrange(1, 64)]
    else:
        for _ in range(draw.randrange(1, 9)):
            data[draw.randrange(len(data))] = draw.choice([0, 0x7F, 0x80, 0xFF, draw.randrange(256)])
    return bytes(data)


def spoilt_value(value: Any, draw: random.Random) -> Any:
    """A copy with one of VALUES in the place of one to three of its values, or a field that is missing."""
    changed = copy.deepcopy(value)
    for _ in range(draw.randrange(1, 4)):
        owners = list(_owners(changed))
        owner = draw.choice(owners)
        key = draw.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
        if draw.randrange(6):
            owner[key] = copy.deepcopy(draw.choice(VALUES))
        else:
            del owner[key]
    return changed


def other_value(value: Any, draw: random.Random) -> Any:
    """A copy with others of the same type in the place of one to eight of its values: what a reader has no reason to refuse."""
    changed = copy.deepcopy(value)
    for _ in range(draw.randrange(1, 9)):
        owner = draw.choice(list(_owners(changed)))
        key = draw.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
        if isinstance(owner[key], bool):
            owner[key] = not owner[key]
        elif isinstance(owner[key], (int, float)):
            owner[key] = draw.choice(NUMBERS)
        elif isinstance(owner[key], str):
            owner[key] = draw.choice(TEXTS)
        elif isinstance(owner[key], list):
            owner[key] = owner[key] * draw.randrange(3)
        elif isinstance(owner[key], dict) and owner[key]:
            owner[key][draw.choice(TEXTS)] = owner[key].pop(draw.choice(list(owner[key])))
    return changed


def check_page(path: Path) -> None:
    """AssertionError where a page, or a file next to it, contains what a reader does not see, or what a browser runs."""
    if path.suffix in SEEN:
        text = path.read_text(encoding="utf-8")
        hidden = {sign for sign in text if unicodedata.category(sign) in CATEGORIES} - set("\n\r\t")
        assert not hidden, f"{path.name} holds {sorted(map(ascii, hidden))}"
        if path.suffix == ".html":
            assert "<script>alert" not in text and "<img src=x" not in text and 'href="javascript' not in text, (
                path.name
            )


def _owners(value: Any) -> Iterator[Any]:
    """Everything inside that holds something, and not the innermost of what was put there."""
    waiting = [(value, 0)]
    while waiting:
        owner, depth = waiting.pop()
        if not isinstance(owner, (dict, list)) or depth > 12:
            continue
        if owner:
            yield owner
        waiting += [(item, depth + 1) for item in (owner.values() if isinstance(owner, dict) else owner)]


class Torture:
    """A good file of every kind in `folder`, and one way of spoiling and reading each."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.tracker = MemoryTracker(folder / "runs")
        writer, *_ = write_run(self.tracker)
        self.run_id = writer.run_id
        self.run = self.tracker.get(self.run_id)
        self.whole = {path: path.read_bytes() for path in (folder / "runs" / self.run_id).rglob("*") if path.is_file()}
        self.held = {name: json.loads(self.path(name).read_bytes()) for name in JSON}
        self.edition = load_edition("2026-12")
        self.reports = [jsonio.encode(report()) for report in (small_report, full_report)]

    def path(self, name: str) -> Path:
        return self.folder / "runs" / self.run_id / name

    def readers(self) -> dict[str, Inputs]:
        return {
            "series": self.series,
            "run, a damaged file": self.damaged,
            "run, recorded again": self.rewritten,
            "audit.json": self.report,
            "pages": self.pages,
            "tensors": self.tensors,
            "foreign tensors": self.foreign,
            "TOML": self.toml,
            "names": self.names,
        }

    def file(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def series(self, draw: random.Random) -> Callable[[], Any]:
        path = self.file("series.parquet", spoilt_bytes(self.whole[self.path(schema.SERIES)], draw))

        def read() -> Any:
            rows = read_rows(path)
            return trajectory(rows, ACCURACY), by_site(rows), list(points(rows))

        return read

    def read_run(self) -> Any:
        """As an audit that trusts the figures, and `show`; every file is then as it was."""
        try:
            record = read_record(self.tracker, self.tracker.get(self.run_id))
            table_history(self.tracker, self.run)
            final_weights(self.tracker, record)
            return jsonio.pretty(judge_all([record], self.edition))
        finally:
            for path, data in self.whole.items():
                path.write_bytes(data)
            self.tracker.runs[self.run_id] = self.run

    def damaged(self, draw: random.Random) -> Callable[[], Any]:
        path = draw.choice(list(self.whole))
        path.write_bytes(spoilt_bytes(self.whole[path], draw) if draw.randrange(4) else b"")
        return self.read_run

    def rewritten(self, draw: random.Random) -> Callable[[], Any]:
        """Valid digests over hostile values: what the owner of a store can write."""
        for name in draw.sample(JSON, draw.randrange(1, 3)):
            self.path(name).write_text(json.dumps(spoilt_value(self.held[name], draw)), encoding="utf-8")
        if not draw.randrange(4):
            self.path(schema.SERIES).write_bytes(spoilt_bytes(self.whole[self.path(schema.SERIES)], draw))
        held = json.loads(self.path(schema.PROVENANCE).read_bytes())
        if isinstance(held, dict) and isinstance(held.get("digests"), dict):
            held["digests"] |= {
                name: jsonio.file_digest(self.path(name))
                for name in (*JSON, schema.SERIES)
                if name != schema.PROVENANCE
            }
            self.path(schema.PROVENANCE).write_text(json.dumps(held), encoding="utf-8")
            recorded = {**held["digests"], schema.PROVENANCE: jsonio.file_digest(self.path(schema.PROVENANCE))}
            try:
                tags = {schema.TAG_ARTIFACTS: jsonio.digest_of(recorded)}
            except (RecursionError, ValueError):
                tags = {}
            self.tracker.log(self.run_id, tags=tags)
        return self.read_run

    def report(self, draw: random.Random) -> Callable[[], Any]:
        path = self.file(
            "audit.json", json.dumps(spoilt_value(draw.choice(self.reports), draw)).encode("utf-8", "surrogatepass")
        )
        return lambda: load_report(path)

    def pages(self, draw: random.Random) -> Callable[[], Any]:
        changed = json.dumps(other_value(draw.choice(self.reports), draw))
        path = self.file("audit.json", changed.encode("utf-8", "surrogatepass"))
        pictures = blank_pictures if draw.randrange(SELDOM) else contextlib.nullcontext

        def write() -> None:
            with pictures(), tempfile.TemporaryDirectory(dir=self.folder) as out:
                for page in run_report(str(path), AuditSource(), ReportOutput(out)):
                    check_page(page)

        return write

    def tensors(self, draw: random.Random) -> Callable[[], Any]:
        path = self.file("a.safetensors", spoilt_bytes(self.whole[self.path(schema.FINAL)][:4096], draw))
        whole = self.whole[self.path(schema.FINAL)]
        header = 8 + int.from_bytes(whole[:8], "little")
        path.write_bytes(
            spoilt_bytes(whole[:header], draw) + whole[header:] if draw.randrange(2) else path.read_bytes()
        )
        return lambda: content_digest(load_tensors(path))

    def foreign(self, draw: random.Random) -> Callable[[], Any]:
        path = self.file(f"a{draw.choice(['.safetensors', '.pt'])}", b"")
        path.write_bytes(spoilt_bytes(self.whole[self.path(schema.FINAL)], draw))

        def read() -> Any:
            try:
                return find_weights(read_foreign(path), ["a"])
            except ValueError as error:  # how it reports to its caller, which names the field
                raise RegistryError(str(error)) from error

        return read

    def toml(self, draw: random.Random) -> Callable[[], Any]:
        from tests.commands.test_malformed import KINDS, replaced  # the good files, and values of TOML

        kind = draw.choice(sorted(KINDS))
        text, read = KINDS[kind]
        value = draw.choice(
            ["9" * 5000, "-inf", "nan", "[" * 2000 + "]" * 2000, '"x"', "true", "[]", "{}", "0x" + "f" * 99]
        )
        data = draw.choice(list(replaced(text, value))).encode() if draw.randrange(2) else text.encode()
        (self.folder / kind).mkdir(exist_ok=True)
        path = self.folder / kind / ("study.toml" if kind == "study" else f"{kind}.toml")
        path.write_bytes(data if draw.randrange(2) else spoilt_bytes(data, draw))
        return lambda: read(path)

    def names(self, draw: random.Random) -> Callable[[], Any]:
        name = draw.choice(NAMES) + draw.choice(["", ".toml", "/study.toml", ".json", ".safetensors"])
        today = datetime.date(2026, 11, 22)
        return draw.choice(
            [
                lambda: load_study(name),
                lambda: load_edition(name),
                lambda: load_waivers(Path(name), today),
                lambda: load_reference(Path(name)),
                lambda: load_report(Path(name)),
                lambda: self.tracker.artifact(self.run_id, name),
                lambda: load_tensors(Path(name)),
            ]
        )


def stress(folder: Path, inputs: int, seed: int) -> dict[str, Tally]:
    """So many inputs, spread over all readers."""
    draw, torn = random.Random(seed), Torture(folder)
    readers = torn.readers()
    tallies = {name: Tally() for name in readers}
    for place in range(inputs):
        turn, name = place // len(readers), list(readers)[place % len(readers)]
        if name == "pages" and turn % SELDOM:
            continue
        tally = tallies[name]
        read = readers[name](draw)
        tally.tried += 1
        begun = time.process_time()
        try:
            read()
        except RegistryError:
            tally.refused += 1
        except Exception as error:  # every other kind is a fault, and the next input is tried
            where = traceback.extract_tb(error.__traceback__)[-1]
            tally.uncaught.append(
                f"{Path(where.filename).name}:{where.lineno} {type(error).__name__}: {str(error)[:200]}"
            )
        tally.slow += time.process_time() - begun > PATIENCE
    return tallies


def stressed(inputs: int, seed: int) -> dict[str, Tally]:
    """As `stress`, in a separate folder and process."""
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        return stress(Path(folder), inputs, seed)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--inputs", type=int, default=100_000)
    asked.add_argument("--seed", type=int, default=random.randrange(2**32))
    asked.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = asked.parse_args()
    print(f"seed {options.seed}", flush=True)
    tallies: dict[str, Tally] = defaultdict(Tally)
    cores = options.processes
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        parts = pool.map(stressed, [-(-options.inputs // cores)] * cores, range(options.seed, options.seed + cores))
        for name, tally in (entry for part in parts for entry in part.items()):
            tallies[name].add(tally)
    for name, tally in tallies.items():
        counts = f"tried {tally.tried}, refused {tally.refused}, uncaught {len(tally.uncaught)}, slow {tally.slow}"
        print(f"malformed {name}: {counts}")
        for line in sorted(set(tally.uncaught)):
            print(f"  {line}")
    raise SystemExit(any(tally.uncaught or tally.slow for tally in tallies.values()))


if __name__ == "__main__":
    main()
