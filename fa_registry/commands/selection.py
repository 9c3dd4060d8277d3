"""Which runs an audit looks at: by study, by experiment, by id. What cannot be judged is listed with its reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fa_registry.commands.exclusions import half_written, is_hidden, never_trained
from fa_registry.errors import NothingSelected, UsageError
from fa_registry.records import Choice, Exclusion, RunSpec
from fa_registry.studies.study import Study, load_study
from fa_registry.tracking import schema
from fa_registry.tracking.attempts import runs_by_spec
from fa_registry.tracking.base import StoredRun, Tracker

FULL_ID = 32  # hexadecimal characters


@dataclass(frozen=True)
class Selection:
    """runs: finished runs to judge, in the study's order. words: how they were chosen. edition, choice: the study's, if any."""

    runs: tuple[StoredRun, ...]
    excluded: tuple[Exclusion, ...]
    words: str
    remarks: tuple[str, ...] = ()
    edition: str = ""
    study: str = ""
    choice: Choice | None = None


def select(
    tracker: Tracker,
    study: str = "",
    experiment: str = "",
    run_ids: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Selection:
    """Exactly one of study, experiment and run_ids; NothingSelected when no finished run is among them."""
    given = [name for name, value in (("--study", study), ("--experiment", experiment), ("--run", run_ids)) if value]
    if len(given) != 1:
        raise UsageError(f"choose runs by one of --study, --experiment or --run; found {', '.join(given) or 'none'}")
    if study:
        selection = _by_study(tracker, study, overrides or {})
    elif experiment:
        selection = _sorted_out(
            tracker, tracker.search({schema.TAG_KIND: "run"}, experiment), f"every run of experiment {experiment}"
        )
    else:
        selection = _sorted_out(
            tracker, [tracker.get(whole_id(tracker, run_id)) for run_id in run_ids], f"{len(run_ids)} runs by id"
        )
    if not selection.runs:
        raise NothingSelected(
            f"no finished run among {selection.words} in {tracker.uri}"
            + "".join(f"\n  - {one.name}: {one.reason}" for one in selection.excluded[:5])
        )
    return selection


def whole_id(tracker: Tracker, start: str) -> str:
    """The full id of a run by its first characters, as tables and reports print them."""
    if len(start) >= FULL_ID:
        return start
    found = [run.run_id for run in tracker.search({schema.TAG_KIND: "run"}, start=start)]
    if len(found) != 1:
        shown = f": {', '.join(found[:5])}" if found else ""
        raise UsageError(f"run {start!r}: {len(found)} runs begin so{shown}; give more characters of the id")
    return found[0]


def _by_study(tracker: Tracker, name: str, overrides: Mapping[str, Any]) -> Selection:
    """The newest finished run of every spec of the study as it is now; older and other runs are counted, not hidden."""
    study, remarks = _as_trained(tracker, name, overrides)
    tagged = tracker.search({schema.TAG_STUDY: study.name, schema.TAG_KIND: "run"})
    by_identity: dict[str, list[StoredRun]] = {}
    for run in tagged:
        by_identity.setdefault(run.tags[schema.TAG_SPEC], []).append(run)
    elsewhere = runs_by_spec(tracker, [spec.identity for spec in study.specs if spec.identity not in by_identity])
    chosen, excluded, superseded = [], [], 0
    for spec in study.specs:
        attempts = by_identity.pop(spec.identity, None) or elsewhere[spec.identity]
        finished = [run for run in attempts if _is_finished(run)]
        if finished:
            chosen.append(finished[0])
            superseded += len(finished) - 1
            excluded += [half_written(tracker, run, spec) for run in attempts if is_hidden(run)]
        else:
            excluded.append(_unfinished(tracker, spec, attempts))
    others = sum(len(runs) for runs in by_identity.values())
    if superseded:
        remarks.append(f"{superseded} older runs of the same specifications exist; the newest of each was audited.")
    if others:
        remarks.append(
            f"{others} runs carry the tag of study {study.name} with other specifications than those asked for; not audited."
        )
    choice = Choice(study.name, _asked(study, overrides), others, superseded)
    return Selection(
        tuple(chosen), tuple(excluded), _words(study, overrides), tuple(remarks), study.edition, study.name, choice
    )


def _asked(study: Study, overrides: Mapping[str, Any]) -> dict[str, str]:
    """What was asked for instead of the file's own. The device is not: it says where a run trains, not which runs there are."""
    listed = [str(seed) for seed in overrides.get("seeds") or ()]
    given = {"seeds": ", ".join(listed), "epochs": overrides.get("epochs"), **study.twin.overrides}
    return {name: str(value) for name, value in given.items() if value}


def _words(study: Study, overrides: Mapping[str, Any]) -> str:
    replaced = [
        f"{name} {value}" for name, value in _asked(study, overrides).items() if name not in study.twin.overrides
    ]
    which = ", ".join([" ".join([study.name, study.twin.words]).strip(), *replaced])
    return f"study {which} ({len(study.specs)} specifications)"


def _as_trained(tracker: Tracker, name: str, overrides: Mapping[str, Any]) -> tuple[Study, list[str]]:
    """The study as asked for. Where nothing of it is finished but a twin was trained, the twin trained last, with a remark."""
    study = load_study(name, overrides)
    asked = study.twin.words or overrides.get("epochs")
    trained = [] if asked else tracker.search({schema.TAG_KIND: "study", schema.TAG_STUDY: study.name})
    twin = next((run.tags[schema.TAG_TWIN] for run in trained if schema.TAG_TWIN in run.tags), "")
    if not twin:
        return study, []
    attempts = runs_by_spec(tracker, [spec.identity for spec in study.specs])
    if any(_is_finished(run) for runs in attempts.values() for run in runs):
        return study, []
    found = load_study(name, {**overrides, **json.loads(twin)})
    return found, [
        f"No run of study {study.name} as it is written is finished here; audited is its twin {found.twin.words}."
    ]


def _sorted_out(tracker: Tracker, runs: Sequence[StoredRun], words: str) -> Selection:
    finished = tuple(run for run in runs if _is_finished(run))
    excluded = tuple(half_written(tracker, run) for run in runs if not _is_finished(run))
    return Selection(finished[::-1], excluded, words)


def _is_finished(run: StoredRun) -> bool:
    return run.tags.get(schema.TAG_STATUS) in schema.FINISHED_STATUSES


def _unfinished(tracker: Tracker, spec: RunSpec, attempts: Sequence[StoredRun]) -> Exclusion:
    return half_written(tracker, attempts[0], spec) if attempts else never_trained(spec)
