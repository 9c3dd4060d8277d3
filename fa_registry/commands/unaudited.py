"""Which runs of the store an audit leaves out although they are other seeds, or other trials, of what it judges.

Whoever picks seeds picks them by what an audit looks at: a study file, an experiment, run ids. So the whole store is
asked, deleted runs too, and a run counts as one of a group where its parameters or its spec.json say so: its tags are
the first thing that can be edited. Asked is once or twice a setting, not once a run (docs/decisions/0034).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fa_registry import jsonio
from fa_registry.errors import RegistryError
from fa_registry.records import AuditReport, Choice, Measurements, OtherRun, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.training.loop import has_diverged
from fa_registry.training.naming import setting_label

COMPARED = ("architecture", "dataset", "epochs")  # parameters that all runs of a setting share
FREE = ("cfg/seed", "cfg/weights")  # parameters in which the runs of one group differ


def with_unaudited(tracker: Tracker, report: AuditReport, judged: Sequence[StoredRun]) -> AuditReport:
    """The report with what the store holds besides; judged: the runs that it was asked for."""
    choice = report.choice or Choice("")
    return replace(report, choice=replace(choice, unaudited=tuple(_unaudited(tracker, report, judged))))


def _unaudited(tracker: Tracker, report: AuditReport, judged: Sequence[StoredRun]) -> Iterator[OtherRun]:
    """Runs of the judged groups, controls included, that are neither judged nor listed as excluded; by seed, newest first."""
    known = {run.record.run_id for run in report.runs} | {one.run_id for one in report.excluded}
    groups = _Groups([run.record.spec for run in report.runs])
    started = {run.run_id: run.started for run in judged}
    newest: dict[str, int] = {}
    for run in report.runs:
        identity = run.record.spec.identity
        newest[identity] = max(newest.get(identity, 0), started.get(run.record.run_id, 0))
    found = [run for run in candidates(tracker, groups.specs) if run.run_id not in known]
    members = [(run, spec) for run in found if (spec := groups.spec_of(tracker, run))]
    for run, spec in sorted(members, key=lambda pair: (pair[1].label, pair[1].seed, -pair[0].started)):
        status, finished = _ended(tracker, run, spec)
        newer = spec.identity in newest and run.started > newest[spec.identity]
        yield OtherRun(run.run_id, spec, setting_label(spec), status, finished, run.deleted, newer)


def candidates(tracker: Tracker, specs: Iterable[RunSpec]) -> list[StoredRun]:
    """Every run of the store that its parameters or its tags place in the setting of one of the specs."""
    settings = {spec.setting.identity: spec for spec in specs}.values()
    found: dict[str, StoredRun] = {}
    for params in _distinct({f"cfg/{name}": str(getattr(spec, name)) for name in COMPARED} for spec in settings):
        found |= {run.run_id: run for run in tracker.search_everywhere(params, {})}
    for label in dict.fromkeys(setting_label(spec) for spec in settings):
        if "'" not in label:  # for which MLflow's queries have no escape; the parameters have told
            found |= {run.run_id: run for run in tracker.search_everywhere({}, {schema.TAG_SETTING: label})}
    return list(found.values())


def _distinct(mappings: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    return list({tuple(one.items()): one for one in mappings}.values())


class _Groups:
    """The groups of some specs, each the seeds of one method in one setting, to be recognised in the store."""

    def __init__(self, specs: Sequence[RunSpec]):
        self.specs = specs
        self._identities = {spec.seeds for spec in specs}
        self._by_params = {_shared(schema.params(spec)): spec for spec in specs}

    def spec_of(self, tracker: Tracker, run: StoredRun) -> RunSpec | None:
        """The run's specification where it is of one of the groups, by its spec.json or else by its parameters.

        A run at work has no spec.json yet, and one whose files were changed or removed may have none any more.
        """
        held = _spec_file(tracker, run)
        if held and held.seeds in self._identities:
            return held
        alike = self._by_params.get(_shared(run.params))
        seed = run.params.get("cfg/seed", "")
        if alike is None or not seed.lstrip("-").isdecimal():
            return None
        return replace(alike, seed=int(seed), weights=run.params.get("cfg/weights", ""))


def _shared(params: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The specification's parameters without those in which seeds differ; an adopted run is no seed of one trained here."""
    kept = {name: value for name, value in params.items() if name.startswith("cfg/") and name not in FREE}
    return tuple(sorted({**kept, "adopted": str("cfg/weights" in params)}.items()))


def _spec_file(tracker: Tracker, run: StoredRun) -> RunSpec | None:
    """What its spec.json says, whatever its tag names; None where there is none that can be read."""
    return _read(tracker, run, schema.SPEC, RunSpec)


def _ended(tracker: Tracker, run: StoredRun, spec: RunSpec) -> tuple[str, bool]:
    """The run's status, and whether it was trained to its end: by its tag, or by the files it left whatever the tag says."""
    status = run.tags.get(schema.TAG_STATUS, "not set")
    if status in schema.FINISHED_STATUSES:
        return status, True
    provenance = _read(tracker, run, schema.PROVENANCE, dict) or {}
    last = _read(tracker, run, schema.MEASUREMENTS, Measurements)
    whole = provenance.get("epochs_run") == spec.epochs or (last is not None and has_diverged(last))
    if provenance and last is not None and whole:
        return f"trained to its end by its files, {status} by its tag", True
    return status, False


def _read(tracker: Tracker, run: StoredRun, name: str, kind: type):
    """An artifact of the run; None where it cannot be read: what is missing is no evidence here."""
    try:
        path = tracker.artifact(run.run_id, name)
        held = json.loads(path.read_text(encoding="utf-8")) if path else None
        return None if held is None else held if kind is dict else jsonio.decode(kind, held, name)
    except (RegistryError, OSError, ValueError):
        return None
