"""Estimate the training time of runs on this machine by a short test before training.

For every kind of run, a part of an epoch and all measurements are timed. Nothing is written to the store. As many
processes run at the same time as in training, because processes slow each other down.

On a CPU, times are processor seconds, which do not depend on other programs. `Probe.waiting` is the fraction of time in
which the processes waited for a processor.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fa_registry import datasets
from fa_registry.datasets._files import ImageFiles
from fa_registry.datasets.base import Dataset, DatasetCard, Splits
from fa_registry.datasets.random_targets import RandomTargets
from fa_registry.errors import RegistryError
from fa_registry.parallel import usable_cores
from fa_registry.records import RunSpec
from fa_registry.studies import executors
from fa_registry.studies.executors.base import JobEvent, JobResources
from fa_registry.training.cuda_graph import WARM_UP
from fa_registry.training.devices import device_of, on_device
from fa_registry.training.measuring import is_third_party, measure, with_final
from fa_registry.training.reference import EVERY
from fa_registry.training.run_setup import RunSetup, build_setup_from_splits, check_room
from fa_registry.training.specs import run_name
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.progress import Progress
from fa_registry.workflows.training import default_executor, on_gpu

BUDGET_SECONDS = 90.0  # work of one process, waiting for a processor not counted; checked before every kind of run
STEPS = 5  # least number of timed steps, if an epoch has so many
STEPS_SECONDS = 0.5  # least time of the timed steps, unless the epoch ends earlier

Clock = Callable[[], tuple[float, float]]


def clock() -> tuple[float, float]:
    """Return the tuple (wall-clock seconds, processor seconds of this process)."""
    return time.perf_counter(), time.process_time()


@dataclass(frozen=True)
class RunTime:
    """Durations of the parts of a run, in seconds.

    Attributes:
        training: duration of training for one epoch.
        measuring: duration of the measurements after one epoch.
        final: duration of the measurements that are made only at the end of a run.
    """

    training: float
    measuring: float
    final: float

    def of(self, epochs: int) -> float:
        """Return the seconds that a run of `epochs` epochs takes.

        The result includes the measurement before the first epoch.
        """
        return epochs * (self.training + self.measuring) + self.measuring + self.final


@dataclass
class Probe:
    """Result of timing several kinds of runs.

    A kind is identified by the identity of the specification that `kind` returns.

    Attributes:
        times: identity of a kind → durations.
        failures: identity of a kind → reason why such runs cannot be trained.
        reasons: identity of a kind → reason why the kind was not timed.
        wall: wall-clock seconds of all timings together.
        cpu: processor seconds of all timings together. On a GPU, `cpu` is equal to `wall`.
    """

    times: dict[str, RunTime] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    wall: float = 0.0
    cpu: float = 0.0

    @property
    def waiting(self) -> float:
        """Fraction of the time in which the timing processes waited for a processor."""
        return max(0.0, 1 - self.cpu / self.wall) if self.wall else 0.0

    def seconds(self, specs: Iterable[RunSpec]) -> list[float] | None:
        """Return the estimated duration of each run in seconds, or None if the kind of any run was not timed."""
        timings = [(spec.epochs, self.times.get(kind(spec).identity)) for spec in specs]
        return (
            None if any(timing is None for _, timing in timings) else [timing.of(epochs) for epochs, timing in timings]
        )

    def add(self, other: Probe) -> None:
        """Add the timings of another process to this object."""
        self.times |= other.times
        self.failures |= other.failures
        self.reasons |= other.reasons
        self.wall, self.cpu = self.wall + other.wall, self.cpu + other.cpu


def kind(spec: RunSpec) -> RunSpec:
    """Return the specification that represents all runs with equally expensive training steps.

    Runs of one kind differ only in the seed, the number of epochs, and the strength of the residual penalty.
    """
    return dataclasses.replace(spec, seed=0, epochs=2, penalty=0.01 if spec.penalty else 0.0)


@dataclass(frozen=True)
class ProbeJob:
    """Kinds of runs that one process times.

    Attributes:
        kinds: one specification per kind of run.
        root: folder with the files of data sets.
        device: GPU to use if the machine has several, e.g. `cuda:1`.
        budget: maximum time for all kinds together, in seconds.
    """

    kinds: tuple[RunSpec, ...]
    root: Path | None = None
    device: str = ""
    budget: float = BUDGET_SECONDS


def probe(
    specs: Sequence[RunSpec],
    at_once: int = 1,
    root: Path | None = None,
    device: str = "",
    budget: float = BUDGET_SECONDS,
) -> Probe:
    """Measure the time of every kind of run in `specs`.

    Args:
        specs: the runs to estimate.
        at_once: number of runs that will train at the same time. The number of timing processes is at most the number of
            cores.
        root: folder with the files of data sets.
        device: GPU to use if the machine has several, e.g. `cuda:1`.
        budget: maximum time of each process in seconds.
    """
    kinds = sorted({kind(spec).identity: kind(spec) for spec in specs}.values(), key=lambda spec: spec.dataset)
    count = 1 if on_gpu(kinds) else max(1, min(at_once, usable_cores(), len(specs)))
    jobs = [ProbeJob(tuple(kinds[index::count] or kinds), root, device, budget) for index in range(count)]
    probed, offsets = Probe(), [sum(len(job.kinds) for job in jobs[:index]) for index in range(count)]
    names = [_name(kind_spec) for job in jobs for kind_spec in job.kinds]
    title = f"timing {len(kinds)} kinds of runs, {count} at a time; expected time at most {budget:g} s, or more on a busy machine"
    with Progress(title, names, str) as progress:

        def receive(event: JobEvent) -> None:
            """Show the progress of a job, and collect its result or the reason why it failed."""
            if event.kind == "progress":
                kind_index, text = event.value
                progress.show(JobEvent(offsets[event.index] + kind_index, "done", text))
            elif event.kind == "done":
                probed.add(event.value)
            elif event.kind == "failed":
                reason = event.value.strip().splitlines()[-1]
                probed.reasons |= {kind_spec.identity: reason for kind_spec in jobs[event.index].kinds}

        executor = executors.CATALOG.get(default_executor(kinds, several=count > 1))
        resources = JobResources(at_once=count, device="cuda" if on_gpu(kinds) else "cpu")
        executor.run(jobs, probing_steps, resources, lambda: False, receive)
    return probed


def _name(spec: RunSpec) -> str:
    return run_name(spec).removesuffix(f" · s{spec.seed}").replace(f" · {spec.epochs} epochs", "")


def probing_steps(
    job: ProbeJob, stop: Callable[[], bool], report: Callable[[Any], None]
) -> Generator[None, None, Probe]:
    """Time the kinds of runs of a job; yield after each kind.

    Args:
        stop: not used.
        report: receives (index of the kind, result as text) for each kind.
    """
    with on_device(job.device):
        probed, data = Probe(), _Data(job.root)
        stopwatch = Stopwatch(device_of(job.kinds[0].device_class))
        start = stopwatch.now()
        for index, spec in enumerate(job.kinds):
            report((index, _probe_kind(spec, data, probed, job.budget - stopwatch.since(start))))
            yield
        return probed


def _probe_kind(spec: RunSpec, data: _Data, probed: Probe, budget: float) -> str:
    """Time one kind of run within `budget` seconds, add the times to `probed`, and return them as text."""
    limit_reason = "the time limit was reached before this kind of run was timed"
    if budget <= 0:
        probed.reasons[spec.identity] = limit_reason
        return f"not timed: {limit_reason}"
    try:
        card, splits = data.of(spec)
    except RegistryError as error:
        reason = str(error).splitlines()[0]
        probed.reasons[spec.identity] = f"the data set cannot be read on this machine: {reason}"
        return f"not timed: {reason}"
    try:
        setup = build_setup_from_splits(spec, device_of(spec.device_class), card, splits)
        check_room(setup)
        stopwatch = Stopwatch(setup.device)
        durations = run_time(setup, stopwatch, budget)
    except RegistryError as error:
        probed.failures[spec.identity] = str(error)
        return f"cannot be run: {error}"
    probed.wall, probed.cpu = probed.wall + stopwatch.wall, probed.cpu + stopwatch.cpu
    if durations is None:
        probed.reasons[spec.identity] = "a training step takes too long for the time limit"
        return f"not timed: {probed.reasons[spec.identity]}"
    probed.times[spec.identity] = durations
    step = 1000 * durations.training / batches(setup)
    return f"{step:.3g} ms per step, {durations.measuring:.2g} s per measurement, {durations.final:.2g} s at the end of a run"


class _Data:
    """Cache of the splits of one data set, without decoded images."""

    def __init__(self, root: Path | None):
        self._root = root
        self._known: tuple[str, DatasetCard, Splits] | None = None

    def of(self, spec: RunSpec) -> tuple[DatasetCard, Splits]:
        if self._known is None or self._known[0] != spec.dataset:
            self._known = None  # frees the memory before the next data set is loaded
            dataset = uncached(datasets.get(spec.dataset))
            splits = dataset.load(device_of(spec.device_class), self._root, spec.seed)
            self._known = (spec.dataset, dataset.card, splits)
        return self._known[1:]


def uncached(dataset: Dataset) -> Dataset:
    """Return a copy of the data set that does not cache decoded images."""
    if isinstance(dataset, RandomTargets):
        return dataclasses.replace(dataset, source=uncached(dataset.source))
    return dataclasses.replace(dataset, is_cached=False) if isinstance(dataset, ImageFiles) else dataset


class Stopwatch:
    """Stopwatch that measures processor seconds on a CPU, and wall-clock seconds on a GPU."""

    def __init__(self, device: torch.device, clock: Clock = clock):
        self._device, self._clock = device, clock
        self.wall = self.cpu = 0.0

    def now(self) -> tuple[float, float]:
        """Return the wall-clock and processor seconds, after the GPU has finished its work.

        On a GPU, both numbers are wall-clock seconds.
        """
        if self._device.type == "cpu":
            return self._clock()
        torch.cuda.synchronize(self._device)
        wall, _ = self._clock()
        return wall, wall

    def since(self, start: tuple[float, float]) -> float:
        """Return the seconds since `start`, a result of `now`."""
        return self.now()[1] - start[1]

    def time(self, work: Callable[[], object]) -> float:
        """Call `work`, return its duration in seconds, and add the duration to `wall` and `cpu`."""
        wall, cpu = self.now()
        work()
        wall_after, cpu_after = self.now()
        self.wall += wall_after - wall
        self.cpu += cpu_after - cpu
        return cpu_after - cpu


def batches(setup: RunSetup) -> int:
    """Return the number of training steps in one epoch."""
    return math.ceil(len(setup.splits.train_labels) / setup.spec.recipe.batch_size)


def run_time(setup: RunSetup, stopwatch: Stopwatch, budget: float) -> RunTime | None:
    """Return the durations of training and measuring, or None if timing would take longer than the budget."""
    trainer = Trainer(setup)
    first = stopwatch.time(
        lambda: _epoch(trainer, lambda all_batches: all_batches[: 1 if trainer.captured is None else WARM_UP + 2])
    )
    # the first steps only decide whether the timed steps and a pass over the test set fit into the budget
    if first * (STEPS + len(setup.splits.test_labels) / setup.spec.recipe.batch_size) > budget:
        return None
    training = training_seconds(trainer, stopwatch)
    measured = measure(setup)  # the first measurement also computes values that later measurements reuse
    measuring = stopwatch.time(lambda: measure(setup))
    if is_third_party(setup):  # the reference gradient of such a run is checked only every EVERY epochs
        unchecked = stopwatch.time(lambda: measure(setup, objection=""))
        measuring = unchecked + max(0.0, measuring - unchecked) / EVERY
    final = stopwatch.time(lambda: with_final(measured, setup, initial=trainer.initial))
    return RunTime(training, measuring, final)


def training_seconds(trainer: Trainer, stopwatch: Stopwatch) -> float:
    """Return the duration of training for one epoch in seconds.

    Only some steps are timed. The other steps are assumed to take the mean time of a timed step.
    """
    count = batches(trainer.setup)
    timed_steps, seconds = 0, 0.0

    def some(all_batches: Sequence[Tensor]) -> Iterator[Tensor]:
        nonlocal timed_steps, seconds
        start = stopwatch.now()
        for timed_steps, batch in enumerate(all_batches, start=1):  # noqa: B007
            yield batch
            if timed_steps % STEPS == 0 and stopwatch.since(start) >= STEPS_SECONDS:
                break
        seconds = stopwatch.since(start)

    elapsed = stopwatch.time(lambda: _epoch(trainer, some))
    return elapsed + (count - timed_steps) * seconds / timed_steps


def _epoch(trainer: Trainer, through: Callable[[Sequence[Tensor]], Iterable[Tensor]]) -> None:
    trainer.begin_epoch(through)
    trainer.end_epoch()
