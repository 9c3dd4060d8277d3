"""Workers that start together share a study: every specification is trained once, none twice, no run is left RUNNING.

    python -m tests.stress.workers [--store URI] [--workers 4] [--specs 40] [--rounds 1]

Without a store it takes a new sqlite database in a temporary folder. One line: tried, lost, twice, running, crashed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from fa_registry.api import work
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker

TOGETHER = 900.0  # seconds until who did not come to the start never will
STUDY = """
name = "shared"
title = "One method and its control, many seeds"
edition = "2026-05"
cost = "a minute"
recipe = {{ epochs = 1 }}

[[grid]]
methods = ["dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [{seeds}]
architecture_options = {{ d_hidden = 8, num_blocks = 1 }}
"""


def share(store: str, experiment: str, folder: Path, begin, results) -> None:
    """One worker; reports how many runs it trained, and the error that it crashed with, or ''."""
    try:
        os.chdir(folder)
        begin.wait(TOGETHER)
        result = work("shared", store=store, experiment=experiment, jobs=1, executor="side_by_side", device="cpu")
        results.put((len(result.trained), "".join(result.failed.values())))
    except BaseException:
        results.put((0, traceback.format_exc()))


def shared(store: str, workers: int, specs: int, round: int = 0) -> dict[str, int | list[str]]:
    """What became of the study: specs lost, trained twice, still RUNNING, runs of each worker, and what workers crashed of."""
    with tempfile.TemporaryDirectory(prefix="fa_registry-workers-") as place:
        (Path(place) / "shared").mkdir()
        first, experiment = 1 + round * specs, f"shared-{os.getpid()}-{round}"
        seeds = ", ".join(map(str, range(first, first + specs // 2)))  # each with its control, new ones in each round
        (Path(place) / "shared" / "study.toml").write_text(STUDY.format(seeds=seeds))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["fa_registry.studies.study_command", "mlflow.store.tracking.sqlalchemy_store"])
        begin, results = context.Barrier(workers), context.Queue()
        given = (store, experiment, Path(place), begin, results)
        started = [context.Process(target=share, args=given) for _ in range(workers)]
        for process in started:
            process.start()
        ends = [results.get(timeout=TOGETHER) for _ in started]
        for process in started:
            process.join()
        runs = MlflowTracker(store, experiment).search({schema.TAG_KIND: "run"}, experiment)
    complete = Counter(run.tags[schema.TAG_SPEC] for run in runs if run.tags[schema.TAG_STATUS] == "complete")
    return {
        "lost": specs - len(complete),
        "twice": sum(count - 1 for count in complete.values()),
        "running": sum(run.state == "RUNNING" for run in runs),
        "trained": sorted(trained for trained, _ in ends),
        "crashed": [error for _, error in ends if error],
    }


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--store", default="")
    asked.add_argument("--workers", type=int, default=4)
    asked.add_argument("--specs", type=int, default=40)
    asked.add_argument("--rounds", type=int, default=1)
    options = asked.parse_args()
    faults = 0
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="fa_registry-workers-") as folder:
            store = options.store or f"sqlite:///{folder}/mlflow.db"
            found = shared(store, options.workers, options.specs, number)
        crashed = found.pop("crashed")
        faults += found["lost"] + found["twice"] + found["running"] + len(crashed)
        counts = ", ".join(f"{word} {count}" for word, count in found.items())
        print(
            f"workers: tried {options.specs} specs, {counts}, crashed {len(crashed)} of {options.workers}", flush=True
        )
        print("\n".join(crashed), end="")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
