"""Measuring many runs again: one after another here, or in several processes. What breaks one run is that run's own."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fa_registry.commands.evidence import gather
from fa_registry.commands.progress import Progress
from fa_registry.commands.same_weights import compared
from fa_registry.commands.stores import open_tracker
from fa_registry.errors import IntegrityError, Interrupted
from fa_registry.records import RunRecord
from fa_registry.studies.executors.local import JobEvent, run_jobs, stop_on_signal
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.training.devices import usable_cores
from fa_registry.training.redraw import AUTO, Redrawn

RUNS_A_PROCESS = 8  # starting a process takes 5 s of a core, measuring a run of the digits study again 1 s


@dataclass(frozen=True)
class Gathered:
    """A run's record; or None with the reason and, where the run is not merely tampered with, the traceback.

    redrawn: what was drawn and taken again of it, where it was.
    """

    run: StoredRun
    record: RunRecord | None
    reason: str = ""
    failure: str = ""
    tampered: bool = False
    redrawn: Redrawn | None = None

    @property
    def words(self) -> str:
        """How it went, in one line; what taking steps again cost is said here and in no report, where it would be no fact."""
        if not self.record:
            return self.reason
        again = self.redrawn
        cost = f", {again.steps} steps again in {again.seconds:.2f} s" if again and again.steps else ""
        return f"{self.record.integrity.state}{cost}"


@dataclass(frozen=True)
class GatherJob:
    """One run to measure again. store: tracking URI; replay: see evidence.gather."""

    run: StoredRun
    store: str
    trust_logged: bool = False
    data_root: str = ""
    replay: str | int = AUTO


def gather_all(
    tracker: Tracker,
    runs: Sequence[StoredRun],
    trust_logged: bool = False,
    data_root: str = "",
    processes: int = 0,
    replay: str | int = AUTO,
) -> list[Gathered]:
    """Every run gathered, in the order given. processes 0: one a core, where there are runs enough to pay for them.

    The figures do not depend on `processes`: each run is measured at its own thread count. Raises Interrupted on request.
    replay: see evidence.gather.
    """
    return _compared(tracker, _each(tracker, runs, trust_logged, data_root, processes, replay))


def _compared(tracker: Tracker, gathered: list[Gathered]) -> list[Gathered]:
    """What only all runs together can show: the same weights twice."""
    records = compared(tracker, [one.record for one in gathered if one.record])
    by_id = {record.run_id: record for record in records}
    return [dataclasses.replace(one, record=by_id[one.run.run_id]) if one.record else one for one in gathered]


def _each(
    tracker: Tracker,
    runs: Sequence[StoredRun],
    trust_logged: bool,
    data_root: str,
    processes: int,
    replay: str | int,
) -> list[Gathered]:
    if trust_logged:
        return [gather_one(tracker, GatherJob(run, tracker.uri, trust_logged, data_root)) for run in runs]
    jobs = [GatherJob(run, tracker.uri, trust_logged, data_root, replay) for run in runs]
    count = min(processes or _default_processes(len(jobs)), len(jobs))
    if count > 1:
        with stop_on_signal() as stop:  # the workers leave Ctrl-C to this process
            return _run(jobs, _gather_there, count, stop)
    return _run(jobs, lambda job, stop, report: gather_one(tracker, job), 1, lambda: False)


def gather_one(tracker: Tracker, job: GatherJob) -> Gathered:
    """One run gathered; whatever goes wrong with it is told, not raised: the other runs go on."""
    root = Path(job.data_root) if job.data_root else None
    heard: list[Redrawn] = []
    try:
        record = gather(tracker, job.run, job.trust_logged, root, job.replay, heard.append)
        return Gathered(job.run, record, redrawn=next(iter(heard), None))
    except IntegrityError as error:
        return Gathered(job.run, None, f"integrity failure: {error}", tampered=True)
    except Exception as error:
        return _broken(job.run, f"{type(error).__name__}: {error}", traceback.format_exc())


def _gather_there(job: GatherJob, stop: Callable[[], bool], report: Callable[[Any], None]) -> Gathered:
    """In a worker: a tracker cannot be sent there, its address can."""
    return gather_one(open_tracker(job.store, create=False), job)


def _run(jobs: Sequence[GatherJob], work: Callable, processes: int, stop: Callable[[], bool]) -> list[Gathered]:
    found: dict[int, Gathered] = {}
    names = [job.run.name for job in jobs]
    title = f"measuring {len(jobs)} runs again" + (f", {processes} at a time" if processes > 1 else "")
    with Progress(title, names, lambda gathered: gathered.words) as progress:

        def hear(event: JobEvent) -> None:
            progress.show(event)
            if event.kind == "done":
                found[event.index] = event.value
            elif event.kind == "failed":  # the worker itself died: what it was doing could not be told
                found[event.index] = _broken(jobs[event.index].run, event.value.strip().splitlines()[-1], event.value)

        run_jobs(jobs, work, processes, stop, hear)
    if len(found) < len(jobs):
        raise Interrupted("stopped while runs were measured again; nothing was judged")
    return [found[index] for index in range(len(jobs))]


def replay_remark(gathered: Sequence[Gathered]) -> Iterator[str]:
    """How many training steps were taken again, for the report; nothing where none were asked for."""
    taken = [one.redrawn for one in gathered if one.redrawn and one.redrawn.steps]
    if taken:
        steps, of = sum(one.steps for one in taken), sum(one.of for one in taken)
        yield (
            f"Of {len(taken)} runs the first training steps were taken again from the specification: {steps} of their "
            f"{of} steps ({100 * steps / of:.2g} %)."
        )


def _broken(run: StoredRun, error: str, failure: str) -> Gathered:
    return Gathered(run, None, f"cannot be measured again: {error}", failure)


def _default_processes(runs: int) -> int:
    """One on a GPU, as for training."""
    if torch.cuda.is_available():
        return 1
    return max(1, min(usable_cores(), runs // RUNS_A_PROCESS))
