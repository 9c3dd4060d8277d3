"""A team's server is killed again and again while a study trains into it: no run may be lost, and every point is there once.

    python -m tests.stress.server_outage [--kills 5] [--postgresql]

--postgresql: a database that the study writes to without MLflow's server.

One line: tried, lost, crashed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import sqlalchemy

from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record, table_history
from tests.end_to_end.server import free_port, mlflow_server
from tests.helpers.postgres import postgres

STUDY = """
name = "absence"
title = "Trained into a server that is not always there"
edition = "2026-12"
cost = "a minute"

[recipe]
epochs = 150

[[grid]]
methods = ["bp", "fa", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2]
architecture_options = { d_hidden = 16, num_blocks = 2 }
"""
RUNS = 8  # of the study, its frozen controls among them
KILL = 9
SECONDS = 900  # until a study that does not end never will
PAUSE = 3.0  # seconds between two lives of the server, and of its life while the study is at work


def study(folder: Path, store: str) -> subprocess.Popen[str]:
    """The study at work in a separate process, two runs at a time."""
    (folder / "absence").mkdir(exist_ok=True)
    (folder / "absence" / "study.toml").write_text(STUDY, encoding="utf-8")
    arguments = ["study", "absence", "--jobs", "2", "--device", "cpu", "--store", store]
    own = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "fa_registry", *arguments], cwd=folder, env=own, stderr=subprocess.PIPE, text=True
    )


def absence(
    folder: Path, kills: int, live: Callable[[], AbstractContextManager[str]], database: str
) -> tuple[int, int, str]:
    """How many times the server was killed while the study ran, how many of its runs are not whole afterwards, and what it said.

    live: begins the server, which is killed at the end of the block, and gives its address. database: of its runs.
    """
    done = 0
    with contextlib.ExitStack() as lives:
        store = lives.enter_context(live())
        training = study(folder, store)
        begun(store, training)
        while done < kills and training.poll() is None:
            time.sleep(PAUSE)
            lives.close()  # the server is gone, in the middle of its work
            done += 1
            time.sleep(PAUSE)
            lives.enter_context(live())
        log = training.communicate(timeout=SECONDS)[1]
        once = "" if training.returncode == 0 else f"exit code {training.returncode}: {log}"
        kept = MlflowTracker(store).search({"fa.kind": "run", "fa.status": "complete"})
        whole = {run.tags["fa.spec"] for run in kept if is_whole(store, run)}
        return done, RUNS - len(whole), once or twice(database)


def of_server(folder: Path, kills: int) -> tuple[int, int, str]:
    """`absence` of an MLflow server over sqlite."""
    port, database = free_port(), f"sqlite:///{folder / 'mlflow.db'}"
    return absence(folder, kills, lambda: mlflow_server(database, folder / "mlartifacts", port, KILL), database)


def of_postgresql(folder: Path, kills: int) -> tuple[int, int, str]:
    """`absence` of a database that the study writes to itself."""
    with postgres() as database:
        database.end()  # each life begins it

        @contextlib.contextmanager
        def life() -> Iterator[str]:
            database.begin()
            try:
                yield database.address()
            finally:
                database.end()

        return absence(folder, kills, life, database.address())


def begun(store: str, training: subprocess.Popen[str]) -> None:
    """Return when the first run is at work: a server that is away before that is reported at once, and nothing is lost."""
    tracker = MlflowTracker(store)
    while training.poll() is None and not tracker.search({"fa.kind": "run"}):
        time.sleep(0.5)


def is_whole(store: str, run) -> bool:
    """Whether a run's files are as recorded and every point of its tables is the recorded one."""
    tracker = MlflowTracker(store)
    read_record(tracker, run)
    return run.state == "FINISHED" and table_history(tracker, run).outcome == "agrees"


def twice(database: str) -> str:
    """The first point that a complete run has more than once; empty where there is none."""
    points = "SELECT run_uuid, metrics.key, step FROM metrics JOIN tags USING (run_uuid)"
    ended_well = f"{points} WHERE tags.key = 'fa.status' AND tags.value = 'complete'"
    with sqlalchemy.create_engine(database, poolclass=sqlalchemy.NullPool).connect() as connection:
        ended = connection.execute(sqlalchemy.text(ended_well)).fetchall()
    return next((f"point {point} is there {count} times" for point, count in Counter(ended).items() if count > 1), "")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--postgresql", action="store_true")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fa_registry-absence-") as folder:
        kills, lost, wrong = (of_postgresql if asked.postgresql else of_server)(Path(folder), asked.kills)
    print(wrong, end="\n" if wrong else "", file=sys.stderr)
    print(f"absence: tried {kills} kills of the server, lost {lost} of {RUNS} runs, crashed {int(bool(wrong))}")
    return bool(lost or wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
