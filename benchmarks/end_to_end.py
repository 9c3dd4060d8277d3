"""python -m benchmarks.end_to_end [--json] [--record]: whole epochs on two cores by the clock, and what a second process brings.

Published: benchmarks/published_epoch.py, with two threads, as torch starts on two cores, and with one, which leaves room for its
loaders' workers and is faster. Ours: a run as a study trains it, which measures every epoch, watches the edition's rules and
tracks into a sqlite store; two at a time, as `--jobs` runs them, and alone. All train dfa on resmlp D = 256, L = 4 on a tenth of
CIFAR's images, an epoch at a time in turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.published_epoch import WORKERS, PublishedEpoch
from benchmarks.recording import FOLDER, add_options, tell
from benchmarks.timing import Spread, by_the_clock, on_cores, ratios
from fa_registry.protocol.rules import load_edition
from fa_registry.records import RunSpec
from fa_registry.studies.rule_monitor import MonitoredRules
from fa_registry.studies.training_job import training_steps
from fa_registry.studies.training_plan import TrainingJob
from fa_registry.training.devices import pinned_threads
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec

MEASURED = FOLDER / "end_to_end.json"
CORES, IMAGES, ROUNDS = 2, 5_000, 5
EDITION = "2026-12"
PUBLISHED = {
    1: f"published, one thread beside {WORKERS} loader workers",
    CORES: f"published, {CORES} threads beside {WORKERS} loader workers",
}  # by threads that compute
FASTER = "published, the faster"
JOBS = f"ours, {CORES} runs in {CORES} processes of one thread"
ONE, THREADED = "ours, one process of one thread", f"ours, one process of {CORES} threads"
BY_JOBS = f"runs a second, {CORES} processes / one process"
BY_THREADS = f"runs a second, one process of {CORES} threads / of one thread"
THROUGHPUT = f"throughput: published, the faster / ours, {CORES} runs at a time"
COMPARED = {  # words → time a run of the first / of the second, and the aim
    f"throughput: published as torch starts it, {CORES} threads / ours, {CORES} runs at a time": (
        PUBLISHED[CORES],
        JOBS,
        None,
    ),
    THROUGHPUT: (FASTER, JOBS, None),
    f"one run: published / ours, one process of {CORES} threads": (FASTER, THREADED, None),
    "one run: published / ours, one process of one thread": (FASTER, ONE, None),
    BY_JOBS: (ONE, JOBS, 1.8),
    BY_THREADS: (ONE, THREADED, None),
}
NOTE = (
    f"Published is the faster of its two rows where not said otherwise. Throughput: {CORES} runs of ours at a time in {CORES}\n"
    "processes, counted by the run, against one published run; one run against one run is in the rows below it."
)


@dataclass(frozen=True)
class EndToEnd:
    """seconds: of an epoch a run, median over the rounds, by name. ratio: by the words of COMPARED."""

    seconds: dict[str, float]
    ratio: dict[str, Spread]

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> EndToEnd:
        """From what --record kept; a ratio that is no longer compared is left out."""
        return cls(kept["seconds"], {words: Spread(**one) for words, one in kept["ratio"].items() if words in COMPARED})

    @classmethod
    def timed(cls, clock: Mapping[str, Sequence[float]]) -> EndToEnd:
        """From seconds of every round in which JOBS trained CORES runs and all others one."""
        seconds = {name: [value / (CORES if name == JOBS else 1) for value in values] for name, values in clock.items()}
        medians = {name: median(values) for name, values in seconds.items()}
        seconds[FASTER] = seconds[min(PUBLISHED.values(), key=medians.__getitem__)]
        pairs = {words: (seconds[above], seconds[below]) for words, (above, below, _) in COMPARED.items()}
        return cls(medians, {words: ratios(*pair) for words, pair in pairs.items()})


def measure_end_to_end(rounds: int = ROUNDS, images: int = IMAGES) -> EndToEnd:
    """An epoch of each in turns; the first of each is not counted."""
    base = {"method": "dfa", "architecture": "resmlp", "dataset": f"cifar_shaped:{images}", "epochs": 2 * rounds + 3}
    specs = [parse_spec({**base, "seed": seed}) for seed in range(CORES + 1)]
    with ExitStack() as stack:
        stack.enter_context(on_cores(CORES))
        store = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/mlflow.db"
        published = PublishedEpoch(build_setup(specs[0], torch.device("cpu")), images)
        jobs = [study_job(spec, store) for spec in specs[:CORES]]
        jobs.append(study_job(specs[CORES], store, threads=CORES))
        *single, threaded = [stack.enter_context(_at_work(job)) for job in jobs]
        epochs = {name: lambda threads=threads: _published(published, threads) for threads, name in PUBLISHED.items()}
        epochs |= {
            JOBS: lambda: _epoch_of(*single),
            ONE: lambda: _epoch_of(single[0]),
            THREADED: lambda: _epoch_of(threaded),
        }
        return EndToEnd.timed(by_the_clock(epochs, rounds))


def study_job(spec: RunSpec, store: str, threads: int = 1) -> TrainingJob:
    """As a study trains it: watched by the rules of its edition, none of which ends it."""
    return TrainingJob(spec, store, threads=threads, watch=MonitoredRules(load_edition(EDITION)))


def _published(epoch: PublishedEpoch, threads: int) -> None:
    with pinned_threads(threads):
        epoch.run()


@contextmanager
def _at_work(job: TrainingJob) -> Iterator[ProcessPoolExecutor]:
    """A process of its own that goes through the job's run, one epoch whenever it is asked to; ended with the block."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (job,)) as process:
        yield process
        process.submit(_end).result()


def _epoch_of(*processes: ProcessPoolExecutor) -> None:
    """One epoch in each, side by side."""
    for epoch in [process.submit(_epoch) for process in processes]:
        epoch.result()


_worker: dict[str, Any] = {}


def _begin(job: TrainingJob) -> None:
    torch.set_num_threads(job.threads)
    _worker["run"] = training_steps(job, lambda: False, lambda progress: None)


def _epoch() -> None:
    """To the end of the next epoch's steps: the epoch before it is measured and tracked first."""
    next(_worker["run"])


def _end() -> None:
    _worker["run"].close()  # marks the run as interrupted


def end_to_end_lines(found: EndToEnd) -> list[str]:
    """The table people read."""
    lines = ["end to end: an epoch of CIFAR's shape, data, steps, measuring and tracking, on two cores, by the clock"]
    lines += [f"  {name:<46}{value:8.2f} s a run" for name, value in found.seconds.items()]
    lines += [f"  {line}" for line in NOTE.splitlines()]
    for words, one in found.ratio.items():
        aim = COMPARED[words][2]
        verdict = f"  target ≥ {aim:g}: {'met' if one.median >= aim else 'MISSED'}" if aim else ""
        lines.append(f"  {words:<74}{one.median:8.2f}  ({one.low:.2f} to {one.high:.2f}){verdict}")
    return lines


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.end_to_end", description=__doc__.split("\n\n")[0])
    add_options(parser, MEASURED)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"[{ROUNDS}]")
    options = parser.parse_args(arguments)
    found = measure_end_to_end(options.rounds)
    tell(dataclasses.asdict(found), end_to_end_lines(found), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
