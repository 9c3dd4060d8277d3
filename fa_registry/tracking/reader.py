"""Conversion of a stored run to a RunRecord, after a check of its files."""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, InvalidFields, UsageError, shortened
from fa_registry.metrics import headline_of
from fa_registry.records import Check, Integrity, Measurements, RunRecord, RunSpec
from fa_registry.records.manifest_checks import Feedback, Manifest
from fa_registry.safe_files import UnreadableFile, read_file
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.integrity_checks import RecordedRun, checks, history_check
from fa_registry.tracking.series_parquet import by_site, parse_rows, trajectory
from fa_registry.tracking.store import command_on

# fields of provenance.json: the first is stored separately, the second grows with the epochs
NOT_HELD = ("digests", schema.EPOCH_CHAIN)
FULL_ID = 32  # hexadecimal characters of a run id
NAMED = 5  # listed runs if the start of an id is ambiguous
NEEDED = (schema.SPEC, schema.MEASUREMENTS, schema.PROVENANCE, schema.SERIES)
READ = (
    schema.SPEC,
    schema.MEASUREMENTS,
    schema.SERIES,
    schema.FEEDBACK_CARD,
)  # files whose digests `read_record` checks
_parsed = functools.lru_cache(maxsize=64)(json.loads)


class Content(NamedTuple):
    """Path and bytes of a file."""

    path: Path
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


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
    card = tracker.artifact(run.run_id, schema.FEEDBACK_CARD)
    # each file is read once, so the bytes that are decoded are those whose digest is checked
    contents = {
        name: Content(path, read_file(path)) for name, path in (files | {schema.FEEDBACK_CARD: card}).items() if path
    }
    found = {name: content.digest for name, content in contents.items()}
    provenance = _parsed_as(contents[schema.PROVENANCE], Manifest)[0]
    digests = provenance["digests"]
    _check_manifest(run, digests, found[schema.PROVENANCE])
    required = {
        schema.SPEC,
        schema.MEASUREMENTS,
        schema.SERIES,
        *({schema.FEEDBACK_CARD} & (found.keys() | digests.keys())),
    }
    _refuse_changed(
        run.run_id, {name: (digests.get(name, "none"), found.get(name)) for name in READ if name in required}
    )
    recorded = _recorded(contents, provenance)
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
        feedback=_held_once(_parsed_as(contents[schema.FEEDBACK_CARD], Feedback)[0]) if card else {},
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
    contents = {name: Content(path, read_file(path)) for name, path in files.items()}
    return _recorded(contents, _parsed_as(contents[schema.PROVENANCE], Manifest)[0])


def _recorded(contents: Mapping[str, Content], provenance: Mapping[str, Any]) -> RecordedRun:
    source, spec = _parsed_as(contents[schema.SPEC], RunSpec)
    _, measurements = _parsed_as(contents[schema.MEASUREMENTS], Measurements)
    return RecordedRun(spec, source, provenance, measurements, parse_rows(*contents[schema.SERIES]))


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
    _check_manifest(run, digests, jsonio.file_digest(path))
    return {schema.PROVENANCE: path.stat().st_size}


def _check_manifest(run: StoredRun, digests: Mapping[str, str], provenance_digest: str) -> None:
    if run.tags.get(schema.TAG_ARTIFACTS) != jsonio.digest_of({**digests, schema.PROVENANCE: provenance_digest}):
        raise IntegrityError(
            f"run {run.run_id}: {schema.PROVENANCE} does not match the tag {schema.TAG_ARTIFACTS}; one of them was changed"
        )


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
    paths = {name: tracker.artifact(run_id, name) for name in digests}
    compared = {
        name: (digests[name], path and jsonio.file_digest(path))
        for name, path in paths.items()
        if path or name not in may_be_lost
    }
    _refuse_changed(run_id, compared)
    return {name: paths[name].stat().st_size for name in compared}


def _refuse_changed(run_id: str, compared: Mapping[str, tuple[str, str | None]]) -> None:
    """Raise IntegrityError if a file is missing or changed: file name → (recorded digest, found digest)."""
    problems = [
        f"{name}: expected SHA-256 {recorded}, found {found}; the file was changed after the recording"
        if found
        else f"{name} is missing"
        for name, (recorded, found) in compared.items()
        if found != recorded
    ]
    if problems:
        raise IntegrityError(f"run {run_id}: {'; '.join(problems)}")


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
    return _parsed_as(Content(path, read_file(path)), kind)


def _parsed_as(file: Content, kind: Any) -> tuple[Any, Any]:
    content = jsonio.parse_json(*file)
    try:
        return content, jsonio.decode(kind, content, file.path.name)
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


def compared_values(tracker: Tracker, tag: str, values: Iterable[str], known_ids: Collection[str]) -> list[str]:
    """Return those values of a tag that several runs have, or a run that is not in `known_ids`.

    Deleted runs count too. If the store would have to read the runs for this, return all values.
    """
    tags = tracker.everywhere("tags", tag)
    if tags is None:
        return list(values)
    counts, unknown = Counter(tags.values()), {value for run_id, value in tags.items() if run_id not in known_ids}
    return [value for value in values if counts[value] > 1 or value in unknown]


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
