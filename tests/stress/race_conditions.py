"""Many processes write runs into one store in the same moment: none may fail, and no run may be lost.

    python -m tests.stress.race_conditions [--store URI] [--writers 8] [--runs 50]

Without a store it takes a new sqlite database in a temporary folder. One line: tried, lost, crashed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import tempfile
import traceback
from pathlib import Path

from fa_registry.tracking.base import DatasetReference, Point
from fa_registry.tracking.mlflow_tracker import MlflowTracker

TAG = "stress.writer"
EXPERIMENT = "races"
TOGETHER = 600.0  # seconds until who did not come to the start of a run never will
POINTS = [Point(f"loss/{kind}", float(step), step) for kind in ("train", "test") for step in range(3)]


def write(store: str, name: str, runs: int, begin, errors) -> None:
    """One writer: opens the store with all others, begins each run with them, and reports what went wrong, or ''."""
    try:
        begin.wait(TOGETHER)
        tracker = MlflowTracker(store, EXPERIMENT)
        for number in range(runs):
            begin.wait(TOGETHER)
            run_id = tracker.create(f"{name}-{number}", {TAG: name}, {"cfg/seed": str(number)})
            tracker.log_dataset(run_id, DatasetReference("digits", f"{number:064}"[::-1], "races", "training"))
            tracker.log(run_id, POINTS, {"fa.status": "complete"})
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "spec.json").write_text(name)
                tracker.upload(run_id, Path(folder))
            tracker.finish(run_id, "FINISHED")
        errors.put("")
    except BaseException:
        begin.abort()
        errors.put(f"{name}: {traceback.format_exc()}")


def race(store: str, writers: int, runs: int) -> tuple[int, list[str]]:
    """How many of the runs are not whole in the store, and what writers failed of."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fa_registry.tracking.mlflow_tracker", "mlflow.store.tracking.sqlalchemy_store"])
    begin, errors = context.Barrier(writers), context.Queue()
    names = [f"w{number}" for number in range(writers)]
    started = [context.Process(target=write, args=(store, name, runs, begin, errors)) for name in names]
    for process in started:
        process.start()
    texts = [errors.get(timeout=TOGETHER) for _ in started]
    for process in started:
        process.join()
    kept = MlflowTracker(store, EXPERIMENT).search({"fa.status": "complete"}, EXPERIMENT)
    whole = [run for run in kept if run.state == "FINISHED" and len(run.metrics) == 2 and run.params]
    return writers * runs - len(whole), [text for text in texts if text]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="", help="a database or a server; empty: a new sqlite database")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--runs", type=int, default=50, help="of each writer")
    asked = parser.parse_args(arguments)
    with contextlib.ExitStack() as kept:
        folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="fa_registry-races-"))
        store = asked.store or f"sqlite:///{folder}/mlflow.db"
        lost, crashed = race(store, asked.writers, asked.runs)
    print(*crashed, sep="\n", end="", file=sys.stderr)
    kind = store.partition(":")[0]
    print(
        f"races on {kind}: tried {asked.writers * asked.runs} runs, lost {lost}, crashed {len(crashed)} of {asked.writers}"
    )
    return bool(lost or crashed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
