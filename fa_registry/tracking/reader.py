"""From a stored run back to a RunRecord, checking every file against the digest recorded when it was written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import IntegrityError
from fa_registry.records import Integrity, Measurements, RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.series import read_series

NEEDED = (schema.SPEC, schema.MEASUREMENTS, schema.PROVENANCE, schema.SERIES)


def read_record(tracker: Tracker, run: StoredRun) -> RunRecord:
    """The record of a complete or diverged run as it was logged; IntegrityError when a file is gone or was changed."""
    files = {name: tracker.artifact(run.run_id, name) for name in NEEDED}
    missing = [name for name, path in files.items() if path is None]
    if missing:
        raise IntegrityError(f"run {run.run_id}: {', '.join(missing)} missing")
    provenance = _json(files[schema.PROVENANCE])
    digests = provenance["digests"]
    sealed = jsonio.digest_of({**digests, schema.PROVENANCE: jsonio.file_digest(files[schema.PROVENANCE])})
    if run.tags.get(schema.TAG_ARTIFACTS) != sealed:
        raise IntegrityError(
            f"run {run.run_id}: {schema.PROVENANCE} is not the file that was recorded (tag {schema.TAG_ARTIFACTS})"
        )
    for name in (schema.SPEC, schema.MEASUREMENTS, schema.SERIES):
        check_digest(run.run_id, name, files[name], digests)
    card = tracker.artifact(run.run_id, schema.FEEDBACK_CARD)
    if card:
        check_digest(run.run_id, schema.FEEDBACK_CARD, card, digests)
    spec = jsonio.decode(RunSpec, _json(files[schema.SPEC]), "spec.json")
    if spec.identity != run.tags.get(schema.TAG_SPEC):
        raise IntegrityError(
            f"run {run.run_id}: the tag {schema.TAG_SPEC} names another specification than its {schema.SPEC}"
        )
    trajectory, by_site = read_series(files[schema.SERIES])
    return RunRecord(
        run_id=run.run_id,
        name=run.name,
        setting=run.tags.get(schema.TAG_SETTING, ""),
        status=run.tags[schema.TAG_STATUS],
        spec=spec,
        measurements=jsonio.decode(Measurements, _json(files[schema.MEASUREMENTS]), "measurements.json"),
        trajectory=trajectory,
        integrity=Integrity("trusted", ("logged figures, not recomputed",)),
        digests=digests,
        feedback=_json(card) if card else {},
        provenance={name: value for name, value in provenance.items() if name != "digests"},
        by_site=by_site,
    )


def check_digest(run_id: str, name: str, path: Path, digests: Mapping[str, str]) -> None:
    """Raise IntegrityError unless `path` has the digest recorded for `name`."""
    found = jsonio.file_digest(path)
    if found != digests.get(name):
        raise IntegrityError(f"run {run_id}: {name}: expected SHA-256 {digests.get(name, 'none')}, found {found}")


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
