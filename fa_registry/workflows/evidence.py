"""Measuring many runs again: one after another here, or in several processes. What breaks one run is that run's own."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fa_registry import diagnostics
from fa_registry.errors import IntegrityError, Interrupted
from fa_registry.protocol.evidence import MEASURING
from fa_registry.protocol.integrity import SAME_MACHINE, compare, merged, with_checks
from fa_registry.records import Check, Integrity, Reading, RunRecord
from fa_registry.studies.executors.base import JobEvent
from fa_registry.studies.executors.local import run_jobs, stop_on_signal
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import check_digest, read_record
from fa_registry.training.devices import pinned_threads, usable_cores
from fa_registry.training.measuring import NO_FEEDBACK, machine, obstacle, remeasure
from fa_registry.training.redraw import AUTO, OFF, Redrawn, Sealed, asked_steps, credit_in_training, redraw
from fa_registry.training.specs import whole_number
from fa_registry.training.task import Task, prepare
from fa_registry.workflows.conformance import code_check, with_other_code
from fa_registry.workflows.progress import Progress
from fa_registry.workflows.requests import Measuring
from fa_registry.workflows.same_weights import compared, final_weights
from fa_registry.workflows.stores import open_tracker

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
    measuring: Measuring = Measuring(),  # noqa: B008
    data_root: str = "",
) -> list[Gathered]:
    """Every run gathered, in the order given. measuring: as `checked_measuring` returns it.

    The figures do not depend on the number of processes: each run is measured at its own thread count. Raises Interrupted on
    request.
    """
    return _compared(tracker, _each(tracker, runs, measuring, data_root))


def checked_measuring(measuring: Measuring, problems: list[str]) -> Measuring:
    """The same with numbers for what was typed; what is wrong with them is added to `problems`."""
    numbers: dict[str, Any] = {}
    for name, number in {"jobs": lambda typed: whole_number(typed, least=0), "replay": asked_steps}.items():
        try:
            numbers[name] = number(getattr(measuring, name))
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return dataclasses.replace(measuring, **numbers)


def _compared(tracker: Tracker, gathered: list[Gathered]) -> list[Gathered]:
    """What only all runs together can show: the same weights twice."""
    records = compared(tracker, [one.record for one in gathered if one.record])
    by_id = {record.run_id: record for record in records}
    return [dataclasses.replace(one, record=by_id[one.run.run_id]) if one.record else one for one in gathered]


def _each(tracker: Tracker, runs: Sequence[StoredRun], measuring: Measuring, data_root: str) -> list[Gathered]:
    jobs = [GatherJob(run, tracker.uri, measuring.trust_logged, data_root, measuring.replay) for run in runs]
    if measuring.trust_logged:
        return [gather_one(tracker, job) for job in jobs]
    count = min(int(measuring.jobs) or _default_processes(len(jobs)), len(jobs))
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


# From a stored run to a record whose figures were recomputed from its artifacts.


def gather(
    tracker: Tracker,
    run: StoredRun,
    trust_logged: bool = False,
    data_root: Path | None = None,
    replay: str | int = AUTO,
    tell: Callable[[Redrawn], None] = lambda redrawn: None,
) -> RunRecord:
    """The run's record; unless trusted, with every figure measured again and compared with what was logged.

    Then too what follows from its specification is drawn again, and its first steps are taken again: see training.redraw.
    replay: redraw.asked_steps; tell: hears what was drawn and taken again, and what it cost.
    Raises IntegrityError when a file is missing or is not the one that was recorded.
    """
    logged = read_record(tracker, run)
    bare = dataclasses.replace(logged, integrity=dataclasses.replace(logged.integrity, checks=()))
    record = _measured(tracker, bare, trust_logged, data_root, replay, tell)
    checks = [*logged.integrity.checks, final_weights(tracker, logged)]
    return dataclasses.replace(record, integrity=with_checks(record.integrity, checks))


def _measured(
    tracker: Tracker,
    record: RunRecord,
    trust_logged: bool,
    data_root: Path | None,
    replay: str | int,
    tell: Callable[[Redrawn], None],
) -> RunRecord:
    """The record as logged, its figures measured again and compared unless trusted."""
    feedback = tracker.artifact(record.run_id, schema.FEEDBACK)
    code = code_check(record)
    if trust_logged:
        _check_files(tracker, record)
        lost = schema.FEEDBACK in record.digests and feedback is None
        record = dataclasses.replace(record, integrity=with_checks(record.integrity, [code]))
        return _without_credits(record) if lost else record
    checkpoint = tracker.artifact(record.run_id, schema.FINAL)
    if checkpoint is None:
        raise IntegrityError(f"run {record.run_id}: {schema.FINAL} is missing")
    if code.outcome != "agrees":
        _check_files(tracker, record)
        return with_other_code(record, code)
    if hindrance := obstacle(record.spec):
        _check_files(tracker, record)
        check = Check(MEASURING, "not possible", hindrance)
        return dataclasses.replace(record, integrity=Integrity("unverifiable", (hindrance,), (check,)))
    names = {"checkpoint": schema.FINAL, "feedback": schema.FEEDBACK, "initial": schema.INITIAL}
    digests = {role: record.digests.get(name) for role, name in names.items()}
    # a file that was never recorded is nobody's evidence; one that was recorded and is gone makes its figures N/A
    initial = tracker.artifact(record.run_id, schema.INITIAL) if digests["initial"] else None
    threads = int(record.measurements.conventions["threads"])
    try:
        with pinned_threads(threads):
            task = prepare(record.spec, torch.device(record.spec.device_class), data_root)
            redrawn = redraw(task, _sealed(tracker, record, task, feedback, initial), replay)
            again = remeasure(record.spec, checkpoint, feedback, digests, threads, data_root, initial, task)
            checks = (*redrawn.checks, *_final_credit(task, feedback, replay))
    except IntegrityError as error:
        raise IntegrityError(f"run {record.run_id}: {error}") from error
    tell(redrawn)
    integrity = with_checks(compare(record.measurements, again), (*checks, code))
    return dataclasses.replace(record, measurements=merged(record.measurements, again), integrity=integrity)


def _sealed(tracker: Tracker, record: RunRecord, task: Task, feedback: Path | None, initial: Path | None) -> Sealed:
    """The sealed files that a redraw is held against. task: says what machine this is."""
    names = {"initial": schema.INITIAL, "feedback": schema.FEEDBACK}
    digests = {role: record.digests.get(name) for role, name in names.items()}
    step, early = schema.sealed_step(record.digests), None
    if step is not None:
        digests["early"] = record.digests[schema.step_checkpoint(step)]
        early = tracker.artifact(record.run_id, schema.step_checkpoint(step))
        if early is None:
            raise IntegrityError(f"{schema.step_checkpoint(step)} is missing")
    here, there = machine(task), record.measurements.conventions
    exact = task.device.type == "cpu" and all(here[name] == there.get(name) for name in SAME_MACHINE)
    ran = int(record.provenance.get("epochs_run", 0))
    later = {epoch: schema.epoch_checkpoint(epoch) for epoch in range(1, ran)} | {ran: schema.FINAL}
    paths = {
        epoch: (tracker.artifact(record.run_id, name), record.digests[name])
        for epoch, name in later.items()
        if name in record.digests
    }
    kept = {epoch: (path, digest) for epoch, (path, digest) in paths.items() if path}
    return Sealed(initial, feedback, early, step, digests, kept, ran, exact)


def _final_credit(task: Task, feedback: Path | None, replay: str | int) -> list[Check]:
    """Nothing where the method cannot be asked: of an adopted run, and without the feedback state."""
    lost = bool(task.feedback.state_dict()) and feedback is None
    return [] if replay == OFF or lost or task.spec.weights else [credit_in_training(task)]


def _check_files(tracker: Tracker, record: RunRecord) -> None:
    """Trusted are the logged figures, not the files behind them: each that is there must be the recorded one."""
    for name in (schema.FINAL, schema.INITIAL, schema.FEEDBACK):
        path = tracker.artifact(record.run_id, name) if name in record.digests else None
        if path:
            check_digest(record.run_id, name, path, record.digests)


def _without_credits(record: RunRecord) -> RunRecord:
    """The record with every figure that needs the lost feedback state struck out."""
    absent = Reading(None, NO_FEEDBACK)
    cards = [diagnostics.CATALOG.get(name).card for name in diagnostics.CATALOG.names()]
    lost = {quantity for card in cards for quantity in card.needs_credit}
    measured = record.measurements
    sites = {name: tuple(absent for _ in row) if name in lost else row for name, row in measured.sites.items()}
    scalars = {name: absent if name in lost else reading for name, reading in measured.scalars.items()}
    measurements = dataclasses.replace(measured, sites=sites, scalars=scalars)
    integrity = Integrity("unverifiable", ("the feedback file is missing",))
    return dataclasses.replace(record, measurements=measurements, integrity=integrity)
