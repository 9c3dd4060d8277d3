"""From a stored run to a record whose figures were recomputed from its artifacts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fa_registry import diagnostics
from fa_registry.errors import IntegrityError
from fa_registry.commands.same_weights import final_weights
from fa_registry.protocol.integrity import compare, merged, with_checks
from fa_registry.records import Integrity, Reading, RunRecord
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import check_digest, read_record
from fa_registry.training.recompute import NO_FEEDBACK, obstacle, remeasure


def gather(tracker: Tracker, run: StoredRun, trust_logged: bool = False, data_root: Path | None = None) -> RunRecord:
    """The run's record; unless trusted, with every figure measured again and compared with what was logged.

    Raises IntegrityError when a file is missing or is not the one that was recorded.
    """
    logged = read_record(tracker, run)
    bare = dataclasses.replace(logged, integrity=dataclasses.replace(logged.integrity, checks=()))
    record = _measured(tracker, bare, trust_logged, data_root)
    checks = [*logged.integrity.checks, final_weights(tracker, logged)]
    return dataclasses.replace(record, integrity=with_checks(record.integrity, checks))


def _measured(tracker: Tracker, record: RunRecord, trust_logged: bool, data_root: Path | None) -> RunRecord:
    """The record as logged, its figures measured again and compared unless trusted."""
    feedback = tracker.artifact(record.run_id, schema.FEEDBACK)
    if trust_logged:
        _check_files(tracker, record)
        lost = schema.FEEDBACK in record.digests and feedback is None
        return _without_credits(record) if lost else record
    checkpoint = tracker.artifact(record.run_id, schema.FINAL)
    if checkpoint is None:
        raise IntegrityError(f"run {record.run_id}: {schema.FINAL} is missing")
    if hindrance := obstacle(record.spec):
        return dataclasses.replace(record, integrity=Integrity("unverifiable", (hindrance,)))
    names = {"checkpoint": schema.FINAL, "feedback": schema.FEEDBACK, "initial": schema.INITIAL}
    digests = {role: record.digests.get(name) for role, name in names.items()}
    # a file that was never recorded is nobody's evidence; one that was recorded and is gone makes its figures N/A
    initial = tracker.artifact(record.run_id, schema.INITIAL) if digests["initial"] else None
    threads = int(record.measurements.conventions["threads"])
    try:
        again = remeasure(record.spec, checkpoint, feedback, digests, threads, data_root, initial)
    except IntegrityError as error:
        raise IntegrityError(f"run {record.run_id}: {error}") from error
    integrity = compare(record.measurements, again)
    return dataclasses.replace(record, measurements=merged(record.measurements, again), integrity=integrity)


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
