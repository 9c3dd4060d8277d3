"""Conversion of a stored run to a RunRecord, after a check of its files."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, InvalidFields, UsageError, shortened
from fa_registry.metrics import headline_of
from fa_registry.records import Check, Integrity, Measurements, RunRecord, RunSpec
from fa_registry.records.manifest_checks import Feedback, Manifest
from fa_registry.safe_files import UnreadableFile, read_file
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.integrity_checks import RecordedRun, checks, history_check
from fa_registry.tracking.series_parquet import by_site, read_rows, trajectory
from fa_registry.tracking.store import command_on

# fields of provenance.json: the first is stored separately, the second grows with the epochs
NOT_HELD = ("digests", schema.EPOCH_CHAIN)
FULL_ID = 32  # hexadecimal characters of a run id
NAMED = 5  # listed runs if the start of an id is ambiguous
NEEDED = (schema.SPEC, schema.MEASUREMENTS, schema.PROVENANCE, schema.SERIES)
_parsed = functools.lru_cache(maxsize=64)(json.loads)


def read_record(tracker: Tracker, run: StoredRun) -> RunRecord:
    """Read the recorded files of a run that has ended and return its RunRecord.

    Status, setting and all other facts come from the recorded files and not from the store's tables. The record's field `integrity`
    contains the results of the checks; see protocol.integrity.with_checks.

    Raises:
        IntegrityError: a file is missing or was changed.
    """
    files = {name: tracker.artifact(run.run_id, name) for name in NEEDED}
    missing = [name for name, path in files.items() if path is None]
    if len(missing) == len(NEEDED):
        raise IntegrityError(
            f"run {run.run_id}: all its files are missing. The files were expected in {tracker.describe_location(run.run_id)}"
        )
    if missing:
        raise IntegrityError(f"run {run.run_id}: {', '.join(missing)} missing")
    provenance = read_provenance(files[schema.PROVENANCE])
    digests = provenance["digests"]
    check_manifest(tracker, run, digests)
    texts = (schema.SPEC, schema.MEASUREMENTS, schema.SERIES)
    check_files(tracker, run.run_id, {name: digests.get(name, "none") for name in texts})
    card = tracker.artifact(run.run_id, schema.FEEDBACK_CARD)
    if card or schema.FEEDBACK_CARD in digests:
        check_files(tracker, run.run_id, {schema.FEEDBACK_CARD: digests.get(schema.FEEDBACK_CARD, "none")})
    recorded = read_recorded(files)
    spec, measurements = recorded.spec, recorded.measurements
    if spec.identity != run.tags.get(schema.TAG_SPEC):
        raise IntegrityError(
            f"run {run.run_id}: the tag {schema.TAG_SPEC} refers to another specification than {schema.SPEC}"
        )
    return RunRecord(
        run_id=run.run_id,
        name=run.name,
        setting=recorded.setting,
        status=recorded.status,
        spec=spec,
        measurements=replace(measurements, conventions=_held_once(measurements.conventions)),
        trajectory=trajectory(recorded.rows, headline_of(recorded.measurements)),
        integrity=Integrity("trusted", ("the logged metrics were not recomputed",), checks(recorded, run)),
        digests=digests,
        feedback=_held_once(_read(card, Feedback)[0]) if card else {},
        provenance={name: _held_once(value) for name, value in provenance.items() if name not in NOT_HELD},
        by_site=by_site(recorded.rows),
    )


def _held_once(value: Any) -> Any:
    """Return one shared copy of equal values, so that runs with equal values need less memory."""
    return _parsed(json.dumps(value)) if isinstance(value, (dict, list)) else jsonio.intern_values(value)


def table_history(tracker: Tracker, run: StoredRun) -> Check:
    """Compare the metric tables of a run that `read_record` accepts with its recorded series."""
    return history_check(read_recorded({name: tracker.artifact(run.run_id, name) for name in NEEDED}), tracker, run)


def read_recorded(files: Mapping[str, Path]) -> RecordedRun:
    """Decode the recorded files of a run (file name → path) without checking their digests."""
    source, spec = _read(files[schema.SPEC], RunSpec)
    _, measurements = _read(files[schema.MEASUREMENTS], Measurements)
    return RecordedRun(
        spec, source, read_provenance(files[schema.PROVENANCE]), measurements, read_rows(files[schema.SERIES])
    )


def check_manifest(tracker: Tracker, run: StoredRun, digests: Mapping[str, str]) -> dict[str, int]:
    """Compare provenance.json and the digests of the artifacts with the run's tag `fa.artifacts`.

    Returns:
        Mapping from the name provenance.json to its size in bytes.

    Raises:
        IntegrityError: the file is missing, or the tag contains another digest.
    """
    path = tracker.artifact(run.run_id, schema.PROVENANCE)
    if path is None:
        raise IntegrityError(f"run {run.run_id}: {schema.PROVENANCE} is missing")
    if run.tags.get(schema.TAG_ARTIFACTS) != jsonio.digest_of({**digests, schema.PROVENANCE: jsonio.file_digest(path)}):
        raise IntegrityError(
            f"run {run.run_id}: {schema.PROVENANCE} does not match the tag {schema.TAG_ARTIFACTS}; one of them was changed"
        )
    return {schema.PROVENANCE: path.stat().st_size}


def check_files(
    tracker: Tracker, run_id: str, digests: Mapping[str, str], may_be_lost: Sequence[str] = ()
) -> dict[str, int]:
    """Compare files of a run with their recorded digests.

    Args:
        digests: mapping from file name to recorded SHA-256.
        may_be_lost: names of the files that may be missing.

    Returns:
        Mapping from the name of each existing file to its size in bytes.

    Raises:
        IntegrityError: a file is missing or was changed. The message lists all such files.
    """
    sizes, problems = {}, []
    for name, recorded in digests.items():
        path = tracker.artifact(run_id, name)
        if path is None:
            problems += [] if name in may_be_lost else [f"{name} is missing"]
        elif (digest := jsonio.file_digest(path)) != recorded:
            problems.append(
                f"{name}: expected SHA-256 {recorded}, found {digest}; the file was changed after the recording"
            )
        else:
            sizes[name] = path.stat().st_size
    if problems:
        raise IntegrityError(f"run {run_id}: {'; '.join(problems)}")
    return sizes


def read_spec(path: Path) -> RunSpec:
    """Decode a spec.json. Raise IntegrityError if the file is invalid."""
    return _read(path, RunSpec)[1]


def read_provenance(path: Path) -> Mapping[str, Any]:
    """Read a provenance.json. Do not check its digest.

    Raises:
        IntegrityError: the file has fields of a wrong type or lacks the field `digests`.
    """
    return _read(path, Manifest)[0]


def _read(path: Path, kind: Any) -> tuple[Any, Any]:
    """Return the contents of a JSON file, and the object of type `kind` that they describe."""
    content = jsonio.read_json(path)
    try:
        return content, jsonio.decode(kind, content, path.name)
    except InvalidFields as error:
        raise IntegrityError(str(error)) from error


FEW = 12  # up to this number, values are searched one by one: reading all runs of a large store takes longer


def runs_by_spec(tracker: Tracker, identities: Iterable[str]) -> dict[str, list[StoredRun]]:
    """Return each identity with its runs, newest first, regardless of their state. The list may be empty."""
    return runs_by_tag(tracker, schema.TAG_SPEC, identities)


def runs_by_tag(
    tracker: Tracker, tag: str, values: Iterable[str], search_limit: int = FEW
) -> dict[str, list[StoredRun]]:
    """Return each value of a tag with its runs, newest first. The list may be empty.

    If there are more than `search_limit` values, all runs are read. Otherwise the store is searched once per value.
    """
    runs: dict[str, list[StoredRun]] = {value: [] for value in values}
    if len(runs) <= search_limit:
        return {value: tracker.search({tag: value}) for value in runs}
    for run in tracker.search({schema.TAG_KIND: "run"}):
        runs.get(run.tags.get(tag, ""), []).append(run)
    return runs


def training_run(tracker: Tracker, start: str) -> StoredRun:
    """Return the training run whose id begins with `start`.

    Raises:
        UsageError: see `expand_run_id`; or the run is no training run, for example an audit.
    """
    run = tracker.get(expand_run_id(tracker, start))
    check_kind(tracker, run)
    return run


def check_kind(tracker: Tracker, run: StoredRun) -> None:
    """Raise UsageError with the kind and the commands for this kind if a run is no training run.

    A run with the tag of a specification is a training run, even if the author of the store changed the tag of its kind.
    """
    kind, study = run.tags.get(schema.TAG_KIND, ""), run.tags.get(schema.TAG_STUDY, "")
    if kind == "run" or schema.TAG_SPEC in run.tags:
        return

    def command(name: str) -> str:
        return f"`{command_on(f'{name} --study {shlex.quote(study)}' if study else name, tracker.uri)}`"

    if kind == "audit":
        pages = f"{command('report')} renders the newest audit of its study" if study else ""
        text = "; ".join(filter(None, ["is an audit", f"{command('ui')} shows its pages", pages]))
    elif kind == "study":
        text = f"is the run of study {study}; {command('list runs')} lists its training runs, {command('audit')} judges them"
    elif kind == schema.LAUNCH:
        text = "is a run that `mlflow run` created and that no command has used"
    else:
        text = (
            "was not written by fa_registry, because it has no tag fa.kind; `fa_registry.track` logs a loop of your own"
        )
    raise UsageError(f"run {run.run_id} ({run.name}): expected a training run, but this run {text}")


def expand_run_id(tracker: Tracker, start: str) -> str:
    """Return the full id of the run whose id begins with `start`.

    If no training run has such an id, the ids that imported runs had in their bundle are searched, then the ids of other runs.

    Raises:
        UsageError: `start` is empty, or no run or several runs have an id that begins with `start`.
    """
    listing = f"`{command_on('list runs', tracker.uri)}` lists all runs"
    if not start.strip():  # would select the only run of a store, for example if a shell variable is not set
        raise UsageError(f"expected a run id or its first characters, found nothing; {listing}")
    if len(start) >= FULL_ID:
        return next((run.run_id for run in tracker.search({schema.TAG_IMPORTED_ID: start})), start)
    ids = [run.run_id for run in tracker.search({schema.TAG_KIND: "run"}, start=start)] or [
        run.run_id
        for run in tracker.search({schema.TAG_KIND: "run"})
        if run.tags.get(schema.TAG_IMPORTED_ID, "").startswith(start)
    ]
    ids = ids or [run.run_id for run in tracker.search({}, start=start)]
    if not ids:
        raise UsageError(f"run {shortened(start)!r}: no run id begins with these characters; {listing}")
    if len(ids) > 1:
        ellipsis = ", …" if len(ids) > NAMED else ""
        listed = ", ".join(ids[:NAMED]) + ellipsis
        raise UsageError(
            f"run {start!r}: {len(ids)} run ids begin with these characters: {listed}; give more characters"
        )
    return ids[0]


def failure_text(tracker: Tracker, run_id: str) -> str:
    """Return a failed run's traceback, the error if it is unreadable, or an empty text if it has none."""
    try:
        path = tracker.artifact(run_id, schema.FAILURE)
        return read_file(path).decode(errors="replace") if path else ""
    except UnreadableFile as error:
        return str(error)
