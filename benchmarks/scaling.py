"""What a store of many runs on many cards would take: measured on a few runs through a server, and multiplied.

python -m benchmarks.scaling [--runs 8] [--json] [--record]: some minutes. Runs of the digits study are trained through an MLflow
server on loopback, whose own CPU seconds are read from the system; what an audit takes comes from docs/measured/store_scale.json
(`python -m benchmarks.store_scale --record`). --record keeps the answers in docs/measured/scaling.json, and writes the tables of
docs/scaling.md anew.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import requests

from benchmarks.recording import FOLDER, ROOT, add_options, recorded, tell, where
from benchmarks.store_scale import AUDIT
from benchmarks.store_scale import MEASURED as STORE_SCALE
from fa_registry.process_ownership import LEASE
from fa_registry.studies.study import load_study
from fa_registry.tracking.lease import LeaseHolder
from fa_registry.training.loop import run_to_completion
from fa_registry.workflows import training
from fa_registry.workflows.training import TrainingJob, training_steps

MEASURED, PAGE = FOLDER / "scaling.json", ROOT / "docs" / "scaling.md"
BEGIN, END = "<!-- python -m benchmarks.scaling --record -->", "<!-- end -->"
RUNS, CARDS = (1_000, 10_000, 100_000), (10, 100, 1_000)
A_MINUTE = 60.0  # seconds that a run takes a card, for the table: small, so that the server is asked for much
GIB, TICKS = 2.0**30, os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[str, int]]:
    """(address, pid) of an MLflow server over an sqlite file, one worker, with its files below `folder`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"sqlite:///{folder}/server.db",
        *options,
    ]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(600):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health"):
                    break
                time.sleep(0.2)
            yield address, process.pid
        finally:
            process.terminate()


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of all below it, those that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(int, fields[11:15])) / TICKS + sum(cpu_of(int(child)) for child in below)


@contextlib.contextmanager
def counted() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Inside, every request of this process by what it asks, and the bytes that it sends."""
    asked, sent = Counter(), Counter()
    genuine = requests.Session.send

    def send(session: requests.Session, request: requests.PreparedRequest, **named: Any) -> requests.Response:
        what = _endpoint(request)
        asked[what] += 1
        sent[what] += int(request.headers.get("Content-Length") or 0)
        return genuine(session, request, **named)

    requests.Session.send = send
    try:
        yield asked, sent
    finally:
        requests.Session.send = genuine


@contextlib.contextmanager
def timed() -> Iterator[list[float]]:
    """Inside, the seconds that taking a claim and looking at it before the end take; a sign of life goes with the points."""
    spent: list[float] = []

    def clocked(genuine: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return genuine(*given, **named)
            finally:
                spent.append(time.perf_counter() - began)

        return call

    with (
        patch.object(training, "take", clocked(training.acquire)),
        patch.object(LeaseHolder, "check", clocked(LeaseHolder.check)),
    ):
        yield spent


def _endpoint(request: requests.PreparedRequest) -> str:
    path = re.sub(r"/artifacts/.*", "/artifacts/…", request.path_url.partition("?")[0])
    return f"{request.method} {path.rpartition('/mlflow')[2].lstrip('/-') or path}"


def measure(runs: int) -> dict[str, Any]:
    """Train so many runs of the digits study, one after another; the first warms up and counts for nothing."""
    specs = load_study("digits", {"device": "cpu"}).specs[: runs + 1]
    with tempfile.TemporaryDirectory(prefix="fa_registry-scaling-") as name, server(Path(name)) as (address, pid):
        folder = Path(name)
        _train(specs[0], address)
        before, held = cpu_of(pid), _bytes(folder)
        began = time.perf_counter(), time.process_time()
        with counted() as (asked, sent), timed() as claiming:
            for spec in specs[1:]:
                _train(spec, address)
        took = time.perf_counter() - began[0], time.process_time() - began[1]
        database, files = (after - then for after, then in zip(_bytes(folder), held, strict=True))
        count = len(specs) - 1
        return {
            "runs": count,
            "epochs": specs[0].epochs,
            "requests": {what: times / count for what, times in sorted(asked.items())},
            "sent": sum(sent.values()) / count,
            "server_cpu": (cpu_of(pid) - before) / count,
            "seconds": took[0] / count,
            "client_cpu": took[1] / count,
            "claiming": sum(claiming) / count,
            "database": database / count,
            "files": files / count,
        }


def _train(spec: Any, address: str) -> None:
    run_to_completion(training_steps(TrainingJob(spec, address, study="digits"), lambda: False, lambda told: None))


def _bytes(folder: Path) -> tuple[int, int]:
    """Of the database and of the files."""
    with contextlib.closing(sqlite3.connect(folder / "server.db")) as connection:
        pages, size = (connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
    return pages * size, sum(path.stat().st_size for path in (folder / "files").rglob("*") if path.is_file())


def audit_slope(kept: Mapping[str, Any]) -> tuple[float, float, float]:
    """Of an audit of logged figures: CPU seconds a further run; MiB of many, and MiB a further run of those.

    Of many: the first some hundred stay in memory (shelf.AS_THEY_ARE), so that a small store says nothing of a large one's.
    """
    low, many, most = (kept["sizes"][place] for place in (0, -2, -1))
    memory = (most["costs"][AUDIT]["peak"] - many["costs"][AUDIT]["peak"]) / (most["runs"] - many["runs"])
    cpu = (most["costs"][AUDIT]["cpu"] - low["costs"][AUDIT]["cpu"]) / (most["runs"] - low["runs"])
    return cpu, most["costs"][AUDIT]["peak"] - most["runs"] * memory, memory


def lines(found: Mapping[str, Any], audit: tuple[float, float, float]) -> list[str]:
    """The tables of the page."""
    total = sum(found["requests"].values())
    signs = 3 / LEASE  # requests a second of every run at work
    request = found["server_cpu"] / total
    table = [
        "| a run of the digits study | measured |",
        "|---|---:|",
        f"| requests | {total:.1f} |",
        f"| sent to the server | {found['sent'] / 2**20:.2f} MiB |",
        f"| CPU of the server | {found['server_cpu']:.2f} s, {1e3 * request:.1f} ms a request |",
        f"| the claim: {found['claiming']:.2f} s | {100 * found['claiming'] / found['seconds']:.2f} % of a run |",
        f"| database (sqlite) | {found['database'] / 2**10:.0f} KiB |",
        f"| files | {found['files'] / 2**20:.2f} MiB |",
        f"| an audit of logged figures, a further run | {1e3 * audit[0]:.0f} ms of CPU, {1024 * audit[2]:.1f} KiB |",
        "",
        "| request | a run |",
        "|---|---:|",
        *(f"| `{what}` | {times:.1f} |" for what, times in sorted(found["requests"].items(), key=lambda row: -row[1])),
        "",
        "| runs | CPU of the server | database | files | audit of logged figures |",
        "|---:|---:|---:|---:|---:|",
    ]
    table += [
        f"| {runs:,} | {runs * found['server_cpu'] / 3600:.1f} core-hours | {runs * found['database'] / GIB:.1f} GiB | "
        f"{runs * found['files'] / GIB:.0f} GiB | {runs * audit[0] / 60:.0f} min of CPU, "
        f"{(audit[1] + runs * audit[2]) / 1024:.1f} GiB |"
        for runs in RUNS
    ]
    table += ["", "| cards, a run a minute each | requests a second | cores of the server |", "|---:|---:|---:|"]
    table += [
        f"| {cards:,} | {cards * (total / A_MINUTE + signs):.1f} | "
        f"{cards * (found['server_cpu'] / A_MINUTE + signs * request):.2f} |"
        for cards in CARDS
    ]
    return table


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=8, help="that are trained [8]")
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    found = measure(options.runs)
    tables = lines(found, audit_slope(recorded(STORE_SCALE)))
    tell(found, tables, options, MEASURED)
    if options.record:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        text = "\n".join([BEGIN, "", f"{where(recorded(MEASURED), 'benchmarks.scaling')}.", "", *tables, "", END])
        PAGE.write_text(before + text + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
