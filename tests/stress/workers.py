"""Workers that start together share a study: every specification is trained once, none twice, no run is left RUNNING.

    python -m tests.stress.workers [--store URI] [--workers 4] [--specs 40] [--rounds 1]

Without a store it takes a new sqlite database in a temporary folder. One line: tried, lost, twice, running, crashed.
"""

from __future__ import annotations

import argparse
import logging
import math
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from fa_registry.api import work
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker

TOGETHER = 60.0
PRELOADED = [
    *("fa_registry.studies.study_command", "fa_registry.studies.training_job", "sklearn.datasets"),
    *("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.tracking.rest_store"),
]
LONGEST = 1800.0  # seconds until a worker that does not end never will
STUDY = """
name = "shared"
title = "Methods and their control, many seeds"
edition = "2026-05"
cost = "a minute"
recipe = {{ epochs = {epochs}, learning_rate = 0.01 }}

[[grid]]
methods = {methods}
architectures = ["resmlp"]
datasets = ["digits"]
seeds = {seeds}
architecture_options = {{ d_hidden = 16, num_blocks = 2 }}
"""


@dataclass(frozen=True)
class Shared:
    """A study that workers share.

    folder: of shared/study.toml. place: environment, as a user of a server has it. parts: the study's seeds, part by part; a worker
    that finds all of a part trained or at work begins the next one, unless it has worked for `seconds`.
    """

    store: str
    folder: Path
    experiment: str = schema.EXPERIMENT
    place: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[Sequence[int]] = ((),)
    seconds: float = math.inf

    def write(self, methods: Sequence[str], seeds: Sequence[int], epochs: int) -> None:
        """Make the study: of each seed one run a method, and the control's."""
        (self.folder / "shared").mkdir()
        (self.folder / "shared" / "study.toml").write_text(
            STUDY.format(methods=list(methods), seeds=list(seeds), epochs=epochs)
        )

    def runs(self) -> Counts:
        """What became of every specification that was begun."""
        with mock.patch.dict(os.environ, self.place):
            found = MlflowTracker(self.store, self.experiment).search({schema.TAG_KIND: "run"}, self.experiment)
        complete = Counter(run.tags[schema.TAG_SPEC] for run in found if run.tags[schema.TAG_STATUS] == "complete")
        begun = {run.tags[schema.TAG_SPEC] for run in found}
        return Counts(
            complete=len(complete),
            lost=len(begun - complete.keys()),
            twice=complete.total() - len(complete),
            running=sum(run.state == "RUNNING" for run in found),
        )


@dataclass(frozen=True)
class Counts:
    """Of specifications: complete, begun but not complete, complete more than once. running: runs whose state is RUNNING."""

    complete: int
    lost: int
    twice: int
    running: int


@dataclass
class Share:
    """What one worker did: ids of its runs, its last part, CPU seconds, warnings; the error it crashed with, or ''."""

    trained: list[str] = field(default_factory=list)
    part: int = -1
    cpu: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str = ""


def share(shared: Shared, begin, results) -> None:
    """One worker, in a process of its own."""
    done = Share()
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: done.warnings.append(record.getMessage())
    logging.getLogger("fa_registry").addHandler(listener)
    try:
        os.chdir(shared.folder)
        os.environ.update(shared.place)
        begin.wait(TOGETHER)
        end = time.monotonic() + shared.seconds
        options = {"store": shared.store, "experiment": shared.experiment, "executor": "side_by_side", "device": "cpu"}
        for part, seeds in enumerate(shared.parts):
            if time.monotonic() >= end:
                break
            done.part = part
            result = work("shared", **options, jobs=1, **({"seeds": seeds} if seeds else {}))
            done.trained += result.trained
            done.error += "".join(result.failed.values())
    except BaseException:
        done.error = traceback.format_exc()
    used = resource.getrusage(resource.RUSAGE_SELF)
    done.cpu = used.ru_utime + used.ru_stime
    results.put(done)


def together(shared: Shared, workers: int, meanwhile: Callable[[], None] = lambda: None) -> list[Share]:
    """What as many workers did that started in the same moment. meanwhile: called once while they are at work."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    begin, results = context.Barrier(workers + 1), context.Queue()
    started = [context.Process(target=share, args=(shared, begin, results)) for _ in range(workers)]
    try:
        for process in started:
            process.start()
        begin.wait(TOGETHER)
        meanwhile()
        ends = [results.get(timeout=LONGEST) for _ in started]
    except BaseException:
        for process in started:
            process.kill()
        raise
    for process in started:
        process.join()
    return ends


def rounds(store: str, workers: int, specs: int, number: int = 0) -> tuple[Counts, list[Share]]:
    """Of one study of so many new specifications, in an experiment of its own."""
    with tempfile.TemporaryDirectory(prefix="fa_registry-workers-") as place:
        shared = Shared(store, Path(place), f"shared-{os.getpid()}-{number}")
        shared.write(["dfa"], range(number * specs, number * specs + specs // 2), epochs=1)
        ends = together(shared, workers)
        return shared.runs(), ends


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
            found, ends = rounds(
                options.store or f"sqlite:///{folder}/mlflow.db", options.workers, options.specs, number
            )
        crashed = [end.error for end in ends if end.error]
        faults += found.lost + found.twice + found.running + len(crashed)
        shares = ", ".join(str(len(end.trained)) for end in ends)
        print(f"workers: {found} by {options.workers} workers ({shares}), crashed {len(crashed)}", flush=True)
        print("\n".join(crashed), end="")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
