"""Runs that cannot be judged, with whose seed each would have been: its method's form must not be silent about it."""

from __future__ import annotations

import dataclasses
import json

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, RegistryError
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import Exclusion, Integrity, RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import read_record
from fa_registry.training.naming import run_name, setting_label

ENDED_EARLY = "ended early"
INTEGRITY_FAILURE = "integrity failure"


def exclusion(
    tracker: Tracker, run: StoredRun, reason: str, failure: str = "", spec: RunSpec | None = None, kind: str = "broken"
) -> Exclusion:
    """A stored run that cannot be judged. spec: where the caller knows it; else it is read from the run's own file.

    kind: one of records.EXCLUSION_KINDS.
    """
    tags = run.tags
    named = tags.get(schema.TAG_METHOD, ""), tags.get(schema.TAG_SETTING, "")
    return Exclusion(run.run_id, run.name, reason, failure, *named, spec or own_spec(tracker, run), kind)


def not_judged(record: RunRecord) -> Exclusion | None:
    """A run whose files could be read, and that gets no verdict all the same; None where it may be judged.

    Its figures, its tables or its weights are not what is sealed; or it was not trained to its end.
    """
    if record.integrity.state == "mismatch":
        reason = f"{INTEGRITY_FAILURE}: {'; '.join(record.integrity.details)}"
        return _of_record(record, "integrity", reason, record.integrity)
    if record.status not in schema.FINISHED_STATUSES:
        return _of_record(record, "ended early", ended_early(record), record.integrity)
    return None


def ended_early(record: RunRecord, stopped_on: str = "") -> str:
    """Why a run ended before its last epoch. stopped_on: what its tag says, for a run whose provenance has no word of it."""
    rules, _, epoch = (record.provenance.get("ended_by") or stopped_on).partition(" at epoch ")
    if not rules:
        return f"{ENDED_EARLY}: {record.status.replace('_', ' ')}, not trained to epoch {record.spec.epochs}"
    return f"{ENDED_EARLY} at epoch {epoch or '?'} because {rules.replace('+', ' and ')} fired (--stop-on)"


def _of_record(record: RunRecord, kind: str, reason: str, integrity: Integrity) -> Exclusion:
    named = record.spec.method_label, record.setting
    return Exclusion(record.run_id, record.name, reason, "", *named, record.spec, kind, integrity)


def never_trained(spec: RunSpec) -> Exclusion:
    """A specification that was asked for and has no run."""
    named = spec.method_label, setting_label(spec)
    return Exclusion("", run_name(spec), "no run of this specification yet", "", *named, spec, "not trained")


def half_written(tracker: Tracker, run: StoredRun, spec: RunSpec | None = None) -> Exclusion:
    """A run whose tag says that it did not finish. What is sealed decides: a tag may have been changed to hide the run.

    A broken run comes with the traceback that it left, if it left one.
    """
    status = run.tags.get(schema.TAG_STATUS, "not set")
    if schema.TAG_ARTIFACTS in run.tags:  # set when the files are sealed, in one call with the status
        try:
            record = read_record(tracker, run)
        except IntegrityError as error:
            return exclusion(tracker, run, f"{INTEGRITY_FAILURE}: {error}", spec=spec, kind="integrity")
        if record.status in schema.FINISHED_STATUSES:
            told = f"tag {schema.TAG_STATUS} is {status!r}, its sealed files say {record.status}"
            held = with_checks(dataclasses.replace(record.integrity, checks=()), record.integrity.checks)
            return _of_record(record, "integrity", f"{INTEGRITY_FAILURE}: {told}", held)
        reason = ended_early(record, run.tags.get(schema.TAG_STOPPED_ON, ""))
        return _of_record(record, "ended early", reason, record.integrity)
    path = tracker.artifact(run.run_id, schema.FAILURE)
    failure = path.read_text(encoding="utf-8") if path else ""
    return exclusion(tracker, run, f"half-written: {schema.TAG_STATUS} is {status}", failure, spec)


def is_hidden(run: StoredRun) -> bool:
    """Whether a run is sealed, though its tag says that it never came so far."""
    told = (*schema.FINISHED_STATUSES, schema.STOPPED_EARLY)
    return schema.TAG_ARTIFACTS in run.tags and run.tags.get(schema.TAG_STATUS) not in told


def own_spec(tracker: Tracker, run: StoredRun) -> RunSpec | None:
    """What the run's spec.json says; None where it is missing, unreadable, or not the one that the run's tag names.

    Why the run cannot be judged is told elsewhere: here a broken file only means that its tags are all that is known.
    """
    try:
        path = tracker.artifact(run.run_id, schema.SPEC)
        held = json.loads(path.read_text(encoding="utf-8")) if path else None
        spec = None if held is None else jsonio.decode(RunSpec, held, schema.SPEC)
    except (RegistryError, OSError, ValueError):  # no store, no file, no JSON, no specification
        return None
    return spec if spec and spec.identity == run.tags.get(schema.TAG_SPEC) else None
