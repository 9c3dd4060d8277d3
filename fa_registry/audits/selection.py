"""Selection of the runs that an audit judges, by study, experiment or run id.

Runs that cannot be judged are returned as exclusions with a reason.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fa_registry import jsonio
from fa_registry.audits.trained_options import advice_text, has_finished_runs, trained_options
from fa_registry.errors import IntegrityError, NothingSelected, UsageError, pluralise
from fa_registry.evidence.exclusions import INTEGRITY_FAILURE, make_exclusion, read_artifact
from fa_registry.protocol.grouping import NEAR, NearSettings, left_out_runs, seeds_key
from fa_registry.protocol.integrity import with_checks
from fa_registry.protocol.paired_runs import COUNTED
from fa_registry.records import AuditReport, Exclusion, Measurements, OtherRun, RunRecord, RunSpec, SelectionSummary
from fa_registry.reporting.labels import frozen_long_of
from fa_registry.studies.options import RunSelector
from fa_registry.studies.study import Study
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker, is_ahead, newest_first
from fa_registry.tracking.reader import failure_text, read_record, runs_by_spec, training_run
from fa_registry.tracking.run_state import RunState
from fa_registry.training.loop import has_diverged
from fa_registry.training.specs import run_name, setting_label


@dataclass(frozen=True)
class Selection:
    """Runs that an audit judges.

    Attributes:
        runs: finished runs, in the order of the study's specifications, or oldest first if no study was given.
        excluded: runs that cannot be judged, with the reasons.
        text: description of the selection, e.g. `3 runs by id`.
        remarks: remarks for the report, e.g. on older runs of the same specifications.
        choice: summary of the selection by study, or None if no study was given.
    """

    runs: tuple[StoredRun, ...]
    excluded: tuple[Exclusion, ...]
    text: str
    remarks: tuple[str, ...] = ()
    choice: SelectionSummary | None = None

    @property
    def study(self) -> str:
        """Name of the study, or an empty string if the runs were not selected by study."""
        return self.choice.study if self.choice else ""


def select_runs(tracker: Tracker, selector: RunSelector) -> Selection:
    """Return the runs that the selector chooses.

    Raises:
        UsageError: none or several of study, experiment and run ids were given, or a run id is unknown.
        NothingSelected: none of the chosen runs is finished.
    """
    if len(selector.ways) != 1:
        options = (
            ", ".join(selector.ways) or f"none; runs of `train` and `track` are in --experiment {schema.EXPERIMENT}"
        )
        raise UsageError(f"expected exactly one of --study, --experiment and --run, found {options}")
    if selector.study:
        selection = _by_study(tracker, selector)
    elif selector.experiment:
        runs = tracker.search({schema.TAG_KIND: "run"}, selector.experiment)
        selection = _sorted_out(tracker, runs, f"all runs of experiment {selector.experiment}")
    else:
        runs = [training_run(tracker, run_id) for run_id in selector.run_ids]
        selection = _sorted_out(tracker, runs, f"{pluralise(len(runs), 'run')} by id")
    if not selection.runs:
        raise NothingSelected(_nothing_selected_text(tracker, selector, selection))
    return selection


def _nothing_selected_text(tracker: Tracker, selector: RunSelector, selection: Selection) -> str:
    """Return the message of NothingSelected. It names the options of the study's runs in the store."""
    options = trained_options(tracker, selector) if selector.study else []
    bin_text = tracker.experiment_deleted_message()
    # runs that were never trained are no news if the store has runs with other options
    excluded = [each for each in selection.excluded if not options or each.kind != "not trained"]
    next_step = "`fa-registry study` with the same options trains the missing runs" if selector.study else ""
    next_step = advice_text(selection.study, "runs", options) or next_step
    return (
        f"no finished run among {selection.text} in {tracker.uri}"
        + (f": {bin_text}" if bin_text else "")
        + "".join(f"\n  - {each.name}: {each.reason}" for each in excluded[:5])
        + (f"\n{next_step}" if next_step else "")
    )


def _by_study(tracker: Tracker, selector: RunSelector) -> Selection:
    """Return the newest finished run of each specification of the study."""
    study, remarks = _as_trained(tracker, selector)
    tagged = tracker.search({schema.TAG_STUDY: study.name, schema.TAG_KIND: "run"})
    by_identity: dict[str, list[StoredRun]] = {}
    for run in tagged:
        by_identity.setdefault(run.tags[schema.TAG_SPEC], []).append(run)
    untagged_runs = runs_by_spec(tracker, [spec.identity for spec in study.specs if spec.identity not in by_identity])
    newest, excluded, superseded = [], [], 0
    for spec in study.specs:
        attempts = by_identity.pop(spec.identity, None) or untagged_runs[spec.identity]
        finished = newest_first(run for run in attempts if RunState(run).is_finished)
        if finished:
            newest.append(finished[0])
            superseded += len(finished) - 1
            # the author may have edited the status tag of a run with recorded digests to exclude the run from an audit
            hidden = (run for run in attempts if schema.TAG_ARTIFACTS in run.tags and not RunState(run).has_results)
            excluded += [half_written(tracker, run, spec) for run in hidden]
        else:
            excluded.append(half_written(tracker, attempts[0], spec) if attempts else never_trained(spec))
    other_count = sum(len(runs) for runs in by_identity.values())
    if future_runs := [run for run in tagged if is_ahead(run)]:
        remarks.append(
            f"{len(future_runs)} runs have a start time in the future, e.g. {future_runs[0].run_id}, because the clock of "
            "their machine was wrong. If a specification has several runs, the runs with such a start time count as the oldest."
        )
    if superseded:
        remarks.append(
            f"{superseded} older runs were not audited, because newer runs of the same specifications were audited."
        )
    if other_count:
        remarks.append(
            f"{other_count} runs have the tag of study {study.name} but other specifications than requested, and were not audited."
        )
    requested = _asked(study, selector.overrides)
    choice = SelectionSummary(study.name, requested, other_count, superseded)
    return Selection(tuple(newest), tuple(excluded), _text(study, requested), tuple(remarks), choice)


def _asked(study: Study, overrides: Mapping[str, Any]) -> dict[str, str]:
    """Return the user's overrides of the study's file, except the device."""
    listed = [str(seed) for seed in overrides.get("seeds") or ()]
    given = (overrides.get("settings") or {}).items()
    settings = ",".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}" for name, value in given
    )
    values = {"seeds": ", ".join(listed), "epochs": overrides.get("epochs"), **study.variant.overrides, "set": settings}
    return {name: str(value) for name, value in values.items() if value}


def _text(study: Study, requested: Mapping[str, str]) -> str:
    replaced = [f"{name} {value}" for name, value in requested.items() if name not in study.variant.overrides]
    label = ", ".join([" ".join([study.name, study.variant.description]).strip(), *replaced])
    return f"study {label} ({pluralise(len(study.specs), 'specification')})"


def _as_trained(tracker: Tracker, selector: RunSelector) -> tuple[Study, list[str]]:
    """Return the study whose runs are selected, and remarks.

    This is usually the requested study. Exception: no run of the requested study is finished, a study variant was trained, and
    the user requested no variant, no number of epochs and no other settings. The variant that was trained last is then
    returned.
    """
    study = selector.as_asked
    is_changed = study.variant.description or selector.overrides.get("epochs") or selector.overrides.get("settings")
    trained = [] if is_changed else tracker.search({schema.TAG_KIND: "study", schema.TAG_STUDY: study.name})
    variant = next(
        (run.tags[schema.TAG_VARIANT] for run in newest_first(trained) if schema.TAG_VARIANT in run.tags), ""
    )
    if not variant:
        return study, []
    if has_finished_runs(tracker, selector):
        return study, []
    try:
        trained_variant = selector.variant(jsonio.decode(dict, jsonio.loads(variant), f"tag {schema.TAG_VARIANT}"))
    except ValueError as error:
        raise IntegrityError(
            f"tag {schema.TAG_VARIANT} of a study run is not JSON: {error}. The runs of the study are intact; "
            "select them with --experiment or --run"
        ) from error
    text = trained_variant.variant.description
    return trained_variant, [
        f"The store has no finished run of the unchanged study {study.name}; the study variant {text} was audited instead."
    ]


def _sorted_out(tracker: Tracker, runs: Sequence[StoredRun], text: str) -> Selection:
    finished = tuple(run for run in runs if RunState(run).is_finished)
    excluded = tuple(half_written(tracker, run) for run in runs if not RunState(run).is_finished)
    # oldest first: if a seed was trained several times, the newest run counts
    return Selection(tuple(sorted(finished[::-1], key=lambda run: run.started)), excluded, text)


# Runs that cannot be judged, with their method and seed, because the method's form must list them.
ENDED_EARLY = "ended early"


def not_judged(record: RunRecord) -> Exclusion | None:
    """Return the exclusion of a run that must not be judged, or None if the run may be judged.

    A run is excluded if its metrics, tables or weights differ from the recorded values, or if it was not trained to its end.
    """
    if record.integrity.state == "mismatch":
        return _of_record(record, "integrity", f"{INTEGRITY_FAILURE}: {'; '.join(record.integrity.details)}")
    if record.status not in schema.FINISHED_STATUSES:
        return _of_record(record, ENDED_EARLY, ended_early(record))
    return None


def ended_early(record: RunRecord, stopped_on: str = "") -> str:
    """Return a text that explains why a run ended before its last epoch.

    If the provenance contains no reason, the reason comes from `stopped_on`, the value of the run's tag TAG_STOPPED_ON.
    """
    if rules := record.provenance.get("ended_by") or stopped_on:
        return f"{ENDED_EARLY} (--stop-on): {rules}"
    return f"{ENDED_EARLY}: {record.status.replace('_', ' ')}, not trained to epoch {record.spec.epochs}"


def _of_record(record: RunRecord, kind: str, reason: str) -> Exclusion:
    labels = record.spec.method_label, record.setting
    return Exclusion(record.run_id, record.name, reason, "", *labels, record.spec, kind, record.integrity)


def never_trained(spec: RunSpec) -> Exclusion:
    """Return the exclusion of a specification that was requested but has no run."""
    labels = spec.method_label, setting_label(spec)
    return Exclusion("", run_name(spec), "no run of this specification yet", "", *labels, spec, "not trained")


def half_written(tracker: Tracker, run: StoredRun, spec: RunSpec | None = None) -> Exclusion:
    """Return the exclusion of a run whose status tag is not one of the finished statuses.

    If the run has recorded files, the reason comes from these files, because the author could have edited the tag to exclude
    the run. The exclusion of a failed run contains its traceback.
    """
    status = run.tags.get(schema.TAG_STATUS, "not set")
    if schema.TAG_ARTIFACTS in run.tags:  # set together with the status when the digests are recorded
        try:
            record = read_record(tracker, run)
        except IntegrityError as error:
            return make_exclusion(tracker, run, f"{INTEGRITY_FAILURE}: {error}", spec=spec, kind="integrity")
        if record.status in schema.FINISHED_STATUSES:
            integrity = with_checks(replace(record.integrity, checks=()), record.integrity.checks)
            reason = f"{INTEGRITY_FAILURE}: tag {schema.TAG_STATUS} is {status!r}, but the files have the status {record.status}"
            return _of_record(replace(record, integrity=integrity), "integrity", reason)
        return _of_record(record, ENDED_EARLY, ended_early(record, run.tags.get(schema.TAG_STOPPED_ON, "")))
    failure = failure_text(tracker, run.run_id)
    reason = "this run failed" if status == "failed" else f"this run did not finish: {schema.TAG_STATUS} is {status}"
    return make_exclusion(tracker, run, reason, failure, spec, "half-written")


# Which sets of a method's seeds were judged before: every further set is another interim analysis, with a wider interval.
#
# An author may audit, add seeds, and audit again until the margin is large enough. By chance, this succeeds in 8 % of cases,
# although the page states 2.5 %. Therefore an audit writes to a tag of each run which sets of seeds have been judged. The next
# audit reads this tag without a further query. A set that was judged before keeps its number, because auditing the same seeds
# again is no new analysis. A single seed has no interval, so its audit is no interim analysis.
COUNT = re.compile("[0-9]{1,9}")
MOST_SEED_SETS = 200  # number of sets in a tag: one set has 13 characters, and MLflow allows 5,000 characters


def previous_seed_sets(
    records: Sequence[RunRecord], stored: Iterable[StoredRun]
) -> tuple[dict[str, int], dict[str, str]]:
    """Return the number of this interim analysis for each group of runs, and new tags.

    A group contains the runs of one method in one setting, which differ only in the seed (see grouping.seeds_key). Each
    audit of another set of seeds is an interim analysis. Controls and groups with a single seed are omitted.

    Args:
        records: runs that this audit judges.
        stored: the same runs with their tags. Earlier audits recorded the judged sets of seeds in these tags.

    Returns:
        Two mappings: key of the group → number of this interim analysis, and run id → new value of the tag TAG_INTERIM_ANALYSES.
    """
    sets_by_run = {run.run_id: run.tags.get(schema.TAG_INTERIM_ANALYSES, "").split() for run in stored}
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.spec.control == "none" and record.status in COUNTED:
            groups.setdefault(seeds_key(record.spec), []).append(record)
    numbers: dict[str, int] = {}
    tags: dict[str, str] = {}
    for key, members in groups.items():
        seeds = {record.spec.seed for record in members}
        if len(seeds) > 1:
            earlier = [sets_by_run.get(record.run_id, []) for record in members]
            numbers[key], history = _interim_analysis(_name(seeds), earlier)
            tags |= {record.run_id: " ".join(history[:MOST_SEED_SETS]) for record in members}
    return numbers, tags


def count_audits(runs: Iterable[StoredRun]) -> int:
    """Return the number of audits that selected these runs, including the present audit."""
    tags = (run.tags.get(schema.TAG_AUDITS, "") for run in runs)
    return 1 + max((int(tag) for tag in tags if COUNT.fullmatch(tag)), default=0)


def _interim_analysis(judged: str, earlier: Sequence[Sequence[str]]) -> tuple[int, list[str]]:
    """Return the number of this interim analysis, and all judged seed sets including the set `judged`."""
    history = list(dict.fromkeys(seeds for sets in sorted(earlier, key=len, reverse=True) for seeds in sets))
    if judged not in history:
        history.append(judged)
    return history.index(judged) + 1, history


def _name(seeds: Iterable[int]) -> str:
    """Return a name of about 13 characters for a set of seeds: the number of seeds and a hash."""
    ordered = sorted(seeds)
    return f"{len(ordered)}:{hashlib.sha256(repr(ordered).encode()).hexdigest()[:8]}"


# Runs in the store that an audit does not judge, although they are other seeds or other trials of the judged methods.
#
# An author can choose favourable seeds with the selection of the audit: a study file, an experiment or run ids. Therefore the
# whole store is searched, including deleted runs. The parameters or spec.json of a run determine its group, because tags are
# easy to edit. There are one or two queries per setting, not one per run (docs/decisions/02).
COMPARED = ("architecture", "dataset", "epochs")  # parameters that all runs of a setting share
FREE = (schema.PARAM_SEED, schema.PARAM_WEIGHTS)  # parameters in which the runs of one group differ
Candidate = tuple[StoredRun, RunSpec | None]  # a run that may have a judged setting, and the content of its spec.json


def add_unaudited_runs(tracker: Tracker, report: AuditReport, judged: Sequence[StoredRun]) -> AuditReport:
    """Return the report with a list of runs in the store that the audit did not judge.

    The list contains all runs of the judged groups, the controls frozen_long of the judged methods, and runs whose settings differ
    from a judged setting by at most 1 % in some numbers. The runs `judged` were selected for the audit.
    """
    choice = report.choice or SelectionSummary("")
    listed_ids = {run.record.run_id for run in report.runs} | {excluded.run_id for excluded in report.excluded}
    found_runs = _candidates(tracker, _comparable_specs(report), listed_ids)
    candidates = [(run, read_artifact(tracker, run, schema.SPEC, RunSpec)) for run in found_runs]
    unaudited = tuple(_unaudited(tracker, report, judged, candidates))
    left_out = tuple(run.run_id for run in left_out_runs((run.record.spec for run in report.runs), unaudited))
    choice = replace(
        choice, unaudited=unaudited, left_out=left_out, beside=tuple(_neighbour(tracker, report, candidates))
    )
    return replace(report, choice=choice)


def _comparable_specs(report: AuditReport) -> list[RunSpec]:
    """Return the judged specifications, and those of the controls frozen_long of the judged methods.

    A verdict may depend on such a control, so a selection without it could change the verdict.
    """
    specs = [run.record.spec for run in report.runs]
    longer = {spec.setting.identity: frozen_long_of(spec) for spec in specs if spec.control == "none"}
    return [*specs, *longer.values()]


def _neighbour(tracker: Tracker, report: AuditReport, candidates: Sequence[Candidate]) -> Iterator[OtherRun]:
    """Yield the runs whose settings differ from a judged setting by at most 1 % in some numbers.

    Judged runs in these settings are included too, because an author could move seeds with bad results to a similar setting.
    """
    settings = NearSettings(run.record.spec for run in report.runs)
    neighbours = []
    for run in report.runs:
        run_id, spec = run.record.run_id, run.record.spec
        if settings.near(spec):
            status = f"{run.record.status}, judged in this report"
            neighbours.append(OtherRun(run_id, spec, setting_label(spec), status, True))
    for run, spec in candidates:
        if spec and settings.near(spec):
            ended = _ended(tracker, run, spec)
            neighbours.append(OtherRun(run.run_id, spec, setting_label(spec), *ended, run.deleted))
    yield from sorted(neighbours, key=lambda other: (other.spec.label, other.spec.seeds, other.spec.seed, other.run_id))


def _unaudited(
    tracker: Tracker, report: AuditReport, judged: Sequence[StoredRun], candidates: Sequence[Candidate]
) -> Iterator[OtherRun]:
    """Yield the runs of the judged groups, including controls, that are neither judged nor excluded."""
    started = {run.run_id: run.started for run in judged}
    newest: dict[str, int] = {}
    for run in report.runs:
        identity = run.record.spec.identity
        newest[identity] = max(newest.get(identity, 0), started.get(run.record.run_id, 0))
    seeds = _others(report, candidates)
    for run, spec in sorted(seeds, key=lambda pair: (pair[1].label, pair[1].seed, -pair[0].started)):
        status, finished = _ended(tracker, run, spec)
        is_newer = spec.identity in newest and run.started > newest[spec.identity] and not is_ahead(run)
        yield OtherRun(run.run_id, spec, setting_label(spec), status, finished, run.deleted, is_newer)


def _others(report: AuditReport, candidates: Sequence[Candidate]) -> Iterator[tuple[StoredRun, RunSpec]]:
    """Yield the runs that differ from a judged run only in the seed, with their specifications.

    The specification comes from spec.json or, if this file is missing, from the parameters in the store.
    """
    specs = _comparable_specs(report)
    groups = {spec.seeds for spec in specs}
    by_params = {_shared(schema.params(spec)): spec for spec in specs}
    for run, stored_spec in candidates:
        sibling = by_params.get(_shared(run.params))
        seed = schema.seed_of(run.params)
        if stored_spec and stored_spec.seeds in groups:
            yield run, stored_spec
        elif sibling and seed is not None:
            yield run, replace(sibling, seed=seed, weights=run.params.get(schema.PARAM_WEIGHTS, ""))


def _candidates(tracker: Tracker, specs: Iterable[RunSpec], excluded_ids: Collection[str]) -> list[StoredRun]:
    """Return the runs whose parameters or setting tag match a specification, except `excluded_ids`."""
    settings = {(spec.setting.identity, spec.epochs): spec for spec in specs}.values()
    runs: dict[str, StoredRun] = {}
    searches: dict[tuple[tuple[str, str], ...], None] = {}  # in order, each once
    for spec in settings:
        names = [name for name in COMPARED if name != "epochs" or spec.epochs * NEAR < 1]
        searches.setdefault(tuple((f"{schema.PARAM}{name}", str(getattr(spec, name))) for name in names))
    labels = dict.fromkeys(setting_label(spec) for spec in settings)
    queries = [*((dict(params), {}) for params in searches), *(({}, {schema.TAG_SETTING: label}) for label in labels)]
    values = functools.cache(tracker.everywhere)
    for params, tags in queries:
        if not _has_only(values, params, tags, {*excluded_ids, *runs}):
            matches = tracker.search_everywhere(params, tags)
            runs |= {run.run_id: run for run in matches if run.run_id not in excluded_ids}
    return list(runs.values())


def _has_only(
    everywhere: Callable[[str, str], Mapping[str, str] | None],
    params: Mapping[str, str],
    tags: Mapping[str, str],
    run_ids: set[str],
) -> bool:
    """Return whether no other runs than `run_ids` have these parameters and tags; False if unknown.

    `everywhere` is the method of a tracker.
    """
    remaining: set[str] | None = None
    for table, wanted in (("params", params), ("tags", tags)):
        for name, value in wanted.items():
            values = everywhere(table, name)
            if values is None:
                return False
            found = {run_id for run_id, other in values.items() if other == value}
            remaining = found if remaining is None else remaining & found
    return remaining is not None and remaining <= run_ids


def _shared(params: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the parameters that all runs of a group share, and whether the run is adopted."""
    shared = {name: value for name, value in params.items() if name.startswith(schema.PARAM) and name not in FREE}
    return tuple(sorted({**shared, "adopted": str(schema.PARAM_WEIGHTS in params)}.items()))


def _ended(tracker: Tracker, run: StoredRun, spec: RunSpec) -> tuple[str, bool]:
    """Return the status of a run, and whether it was trained to its end according to its tag or files."""
    status = run.tags.get(schema.TAG_STATUS, "not set")
    if status in schema.FINISHED_STATUSES:
        return status, True
    provenance = read_artifact(tracker, run, schema.PROVENANCE, dict) or {}
    last = read_artifact(tracker, run, schema.MEASUREMENTS, Measurements)
    is_complete = provenance.get("epochs_run") == spec.epochs or (last is not None and has_diverged(last))
    if provenance and last is not None and is_complete:
        return f"trained to its end according to its files, {status} according to its tag", True
    return status, False
