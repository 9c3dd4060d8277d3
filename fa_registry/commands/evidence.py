"""From a stored run to a record whose figures were recomputed from its artifacts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch

from fa_registry import diagnostics
from fa_registry.commands.code import code_check, with_other_code
from fa_registry.commands.same_weights import final_weights
from fa_registry.errors import IntegrityError
from fa_registry.protocol.integrity import FIGURES, SAME_MACHINE, compare, merged, with_checks
from fa_registry.records import Check, Integrity, Reading, RunRecord
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import check_digest, read_record
from fa_registry.training.devices import pinned_threads
from fa_registry.training.measuring import machine
from fa_registry.training.recompute import NO_FEEDBACK, obstacle, remeasure
from fa_registry.training.redraw import AUTO, OFF, Redrawn, Sealed, credit_in_training, redraw
from fa_registry.training.task import Task, prepare


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
        check = Check(FIGURES, "not possible", hindrance)
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
