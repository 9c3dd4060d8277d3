"""A team's server is killed again and again while a study trains into it: no run may be lost, and every point is there once.

    python -m tests.torture.absence [--kills 5]

One line: tried, lost, crashed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record, table_history
from tests.end_to_end.server import free_port, mlflow_server

STUDY = """
name = "absence"
title = "Trained into a server that is not always there"
edition = "2026-11"
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
    """The study at work in a process of its own, two runs at a time."""
    (folder / "absence").mkdir(exist_ok=True)
    (folder / "absence" / "study.toml").write_text(STUDY, encoding="utf-8")
    verb = ["study", "absence", "--jobs", "2", "--device", "cpu", "--store", store]
    own = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "fa_registry", *verb], cwd=folder, env=own, stderr=subprocess.PIPE, text=True
    )


def absence(folder: Path, kills: int) -> tuple[int, int, str]:
    """How many times the server was killed while the study ran, how many of its runs are not whole afterwards, and what it said."""
    port, database = free_port(), f"sqlite:///{folder / 'mlflow.db'}"
    done = 0
    with contextlib.ExitStack() as lives:
        store = lives.enter_context(mlflow_server(database, folder / "mlartifacts", port, KILL))
        training = study(folder, store)
        begun(store, training)
        while done < kills and training.poll() is None:
            time.sleep(PAUSE)
            lives.close()  # the server is gone, whatever it was at
            done += 1
            time.sleep(PAUSE)
            lives.enter_context(mlflow_server(database, folder / "mlartifacts", port, KILL))
        said = training.communicate(timeout=SECONDS)[1]
        whole = [
            run
            for run in MlflowTracker(store).search({"fa.kind": "run", "fa.status": "complete"})
            if is_whole(store, run)
        ]
    once = "" if training.returncode == 0 else f"exit code {training.returncode}: {said}"
    return done, RUNS - len({run.tags["fa.spec"] for run in whole}), once or twice(folder / "mlflow.db")


def begun(store: str, training: subprocess.Popen[str]) -> None:
    """Return when the first run is at work: a server that is away before that is told at once, and nothing is lost."""
    tracker = MlflowTracker(store)
    while training.poll() is None and not tracker.search({"fa.kind": "run"}):
        time.sleep(0.5)


def is_whole(store: str, run) -> bool:
    """Whether a run's files are as sealed and every point of its tables is the sealed one."""
    tracker = MlflowTracker(store)
    read_record(tracker, run)
    return run.state == "FINISHED" and table_history(tracker, run).outcome == "agrees"


def twice(database: Path) -> str:
    """The first point that a complete run has more than once; empty where there is none."""
    points = "SELECT run_uuid, metrics.key, step FROM metrics JOIN tags USING (run_uuid)"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        ended = connection.execute(f"{points} WHERE tags.key = 'fa.status' AND tags.value = 'complete'").fetchall()
    return next((f"point {point} is there {count} times" for point, count in Counter(ended).items() if count > 1), "")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    with tempfile.TemporaryDirectory(prefix="fa_registry-absence-") as folder:
        kills, lost, wrong = absence(Path(folder), parser.parse_args(arguments).kills)
    print(wrong, end="\n" if wrong else "", file=sys.stderr)
    print(f"absence: tried {kills} kills of the server, lost {lost} of {RUNS} runs, crashed {int(bool(wrong))}")
    return bool(lost or wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
