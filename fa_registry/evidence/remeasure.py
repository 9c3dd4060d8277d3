"""Recomputation of the metrics of runs, in one or several processes."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from fa_registry import diagnostics
from fa_registry.errors import IntegrityError
from fa_registry.evidence.backprop_check import backprop_check
from fa_registry.evidence.data_check import DataWatch, with_compared_data
from fa_registry.evidence.duplicate_weights import compared, final_weights, initial_weights
from fa_registry.evidence.exclusions import RemeasuredRun
from fa_registry.evidence.kept_state_files import kept_state_files
from fa_registry.evidence.network_check import network_check, task_check, training_check
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.repetitions import with_repetitions
from fa_registry.evidence.replay_from_seed import OFF, asked_steps, credit_in_training, replay_first_steps, replay_whole
from fa_registry.evidence.replay_plan import PlannedReplay, asked_budget, planned_replays
from fa_registry.evidence.replay_record import asked_nonce, fact_checks, recorded_epochs
from fa_registry.evidence.replayer import RecordedTraining, ReplayResult
from fa_registry.evidence.run_passes import RECOMPUTING, REPLAYING, RunPass, default_processes, run_job
from fa_registry.evidence.third_party import Job, built_in_part, measured_apart, usable_members, with_third_party
from fa_registry.evidence.user_loops import of_own_loop
from fa_registry.field_types import Converted
from fa_registry.jsonio import parse_fields
from fa_registry.metrics import headline_of
from fa_registry.protocol.evidence_rules import MEASURING
from fa_registry.protocol.integrity import compare, merged, with_checks, with_replaced
from fa_registry.records import CREDIT_CHECK, Check, Integrity, Measurements, Reading, RunRecord
from fa_registry.records.configurations import described_difference
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.studies.coordination import asked_resources
from fa_registry.studies.method_conformance import code_check
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import READ, check_files, read_record
from fa_registry.tracking.stores import open_tracker
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.device_names import Processes, resolve
from fa_registry.training.devices import device_of, on_device, pinned_threads, threads_refused
from fa_registry.training.measuring import NO_FEEDBACK, machine, obstacle, remeasure
from fa_registry.training.run_setup import RunSetup, build_setup

LOG = logging.getLogger(__name__)
ROLES = {"checkpoint": schema.FINAL, "feedback": schema.FEEDBACK, "initial": schema.INITIAL}
NO_THREADS = "the run recorded no number of threads, so its metrics cannot be computed in the same way"
TYPED = {  # option of the recomputation → its type
    "jobs": Processes,
    "replay": Annotated[Any, Converted(asked_steps)],
    "replay_budget": Annotated[Any, Converted(asked_budget)],
    "nonce": Annotated[str, Converted(asked_nonce)],
    "device": Annotated[str, Converted(resolve)],
}


def remeasure_all(
    tracker: Tracker,
    runs: Sequence[StoredRun],
    measuring: RemeasureOptions,
    data_root: Path | None = None,
    opener: Callable[[], Tracker] | None = None,
) -> list[RemeasuredRun]:
    """Recompute the metrics of several runs, and return one result per run in the order of `runs`.

    An error in one run does not affect the other runs. Each run is recomputed with its recorded number of threads, so the
    metrics do not depend on the number of processes. Runs with the same final weights as another run get a mismatch, and so do
    runs of one specification that contradict each other. Then some runs are replayed completely, see `replay_plan`.

    Args:
        measuring: options, as `checked_measuring` returns them.
        data_root: folder with the files of data sets.
        opener: function that opens the tracker in a worker process. If None, the worker opens the store by its URI.
    """
    opener = opener or partial(open_tracker, tracker.uri, create=False)
    results = _recomputed(tracker, runs, measuring, data_root, opener)
    judged = _compared(tracker, results)
    while planned := planned_replays(judged, measuring):
        results = _replayed(tracker, results, planned, measuring, data_root, opener)
        judged = _compared(tracker, results)
    return judged


def _recomputed(
    tracker: Tracker,
    runs: Sequence[StoredRun],
    measuring: RemeasureOptions,
    data_root: Path | None,
    opener: Callable[[], Tracker],
) -> list[RemeasuredRun]:
    """Recompute each run alone, including the metrics of third-party diagnostics."""
    work = partial(_remeasured, measuring=measuring, data_root=data_root)
    results = RunPass(tracker, RECOMPUTING, work, measuring, opener).over(runs)
    return _with_third_party(tracker, results, partial(_third_party_there, opener, measuring, data_root), measuring)


def _replayed(
    tracker: Tracker,
    results: Sequence[RemeasuredRun],
    planned: Mapping[str, PlannedReplay],
    measuring: RemeasureOptions,
    data_root: Path | None,
    opener: Callable[[], Tracker],
) -> list[RemeasuredRun]:
    """Replay the planned runs completely, and add the checks to their results."""
    runs = [outcome.run for outcome in results if outcome.run.run_id in planned]
    LOG.info("to replay the same runs in another audit, use --nonce %s and the same budget", measuring.nonce)
    work = partial(_replayed_one, measuring=measuring, data_root=data_root, planned=planned)
    outcomes = RunPass(tracker, REPLAYING, work, measuring, opener).over(runs)
    replays = {each.run.run_id: each for each in outcomes}
    return [
        _with_replay(outcome, replays[outcome.run.run_id]) if outcome.run.run_id in replays else outcome
        for outcome in results
    ]


def _with_replay(outcome: RemeasuredRun, replayed: RemeasuredRun) -> RemeasuredRun:
    """Add the checks of a complete replay to a run.

    On another configuration, the metrics of the replayed weights replace those of the recorded weights.
    """
    replay = replayed.whole
    if replay is None:
        return dataclasses.replace(outcome, record=None, exclusion=replayed.exclusion)
    near = [Check(CREDIT_CHECK, "not possible", replay.near_backprop)] if replay.near_backprop else []
    integrity = with_replaced(outcome.record.integrity, [*replay.checks, *near])
    record = dataclasses.replace(outcome.record, integrity=integrity)
    if replay.measured:
        own, metric = record.measurements, headline_of(record.measurements).name
        measurements = dataclasses.replace(
            replay.measured,
            sites={**own.sites, **replay.measured.sites},
            scalars={**own.scalars, **replay.measured.scalars},
            conventions={**own.conventions, **replay.measured.conventions},
            failures={**own.failures, **replay.measured.failures},
        )
        recorded = own.scalars.get(metric, Reading(None, f"{metric} was not recorded"))
        record = dataclasses.replace(record, measurements=measurements, recorded_result=recorded)
    return dataclasses.replace(outcome, record=record, whole=replay)


def _compared(tracker: Tracker, results: Sequence[RemeasuredRun]) -> list[RemeasuredRun]:
    """Compare the recomputed runs with each other and with the other runs of the store."""
    records = with_compared_data(compared(tracker, [outcome.record for outcome in results if outcome.record]))
    by_id = {record.run_id: record for record in with_repetitions(tracker, records)}
    return [
        dataclasses.replace(outcome, record=by_id[outcome.run.run_id]) if outcome.record else outcome
        for outcome in results
    ]


def checked_measuring(measuring: RemeasureOptions, problems: list[str]) -> RemeasureOptions:
    """Return the options with the numbers that the user typed; append all errors to `problems`."""
    values, wrong = parse_fields(TYPED, {name: getattr(measuring, name) for name in TYPED})
    problems += filter(None, map(_factory_problem, measuring.factories))
    asked_resources(measuring.executor, measuring.cluster, measuring.device, problems)
    problems += (
        problem for problem in wrong if problem not in problems
    )  # the check of the study may have found it too
    return dataclasses.replace(measuring, **{**values, "device": measuring.device})


def _factory_problem(path: str) -> str:
    """Return the reason why a factory cannot be imported; no code of the factory is run."""
    package, colon, _ = path.partition(":")
    if not colon:
        return f"factory: expected package.module:function, found {path!r}"
    package = package.partition(".")[0]
    with suppress(ValueError):  # find_spec refuses an empty name and `__main__`
        if package in sys.modules or importlib.util.find_spec(package):
            return ""
    return f"factory: {path}: Python finds no module {package!r}; set PYTHONPATH to the folder of this module"


def _with_third_party(
    tracker: Tracker, results: Sequence[RemeasuredRun], job: Job, measuring: RemeasureOptions
) -> Sequence[RemeasuredRun]:
    """Add metrics of third-party diagnostics to the recomputed runs; workers measure these metrics."""
    selected = [outcome for outcome in results if outcome.record and outcome.first_steps]
    if not selected or not diagnostics.CATALOG.third_party():
        return results
    count = min(int(measuring.jobs) or default_processes([outcome.run for outcome in selected]), len(selected))
    measurements = measured_apart([outcome.run for outcome in selected], job, count)
    records = {
        outcome.run.run_id: with_third_party(outcome.record, read_record(tracker, outcome.run).measurements, extra)
        for outcome, extra in zip(selected, measurements, strict=True)
    }
    return [dataclasses.replace(outcome, record=records.get(outcome.run.run_id, outcome.record)) for outcome in results]


def _third_party_there(
    opener: Callable[[], Tracker], measuring: RemeasureOptions, data_root: Path | None, run: StoredRun, *_: Any
) -> Measurements:
    """Measure the third-party diagnostics of a run in a worker process."""
    tracker = opener()
    record = read_record(tracker, run)
    recorded = record.measurements.conventions
    digests = {role: record.digests.get(name) for role, name in ROLES.items()}
    with on_device(measuring.device), pinned_threads(int(recorded["threads"])):
        feedback = tracker.artifact(record.run_id, schema.FEEDBACK)
        setup = build_setup(record.spec, device_of(record.spec.device_class), data_root)
        initial = _initial_weights(setup, _recorded_training(tracker, record, setup, feedback, RemeasureOptions()))
        checkpoint = tracker.artifact(record.run_id, schema.FINAL)
        return remeasure(setup, checkpoint, feedback, digests, initial, recorded, usable_members())


def remeasure_one(
    tracker: Tracker, run: StoredRun, measuring: RemeasureOptions, data_root: Path | None
) -> RemeasuredRun:
    """Recompute the metrics of one run; if an error occurs, return it as the `exclusion` of the result."""
    work = partial(_remeasured, measuring=measuring, data_root=data_root)
    return run_job(work, measuring.device, lambda: tracker, run)


def _remeasured(tracker: Tracker, run: StoredRun, measuring: RemeasureOptions, data_root: Path | None) -> RemeasuredRun:
    """Recompute the metrics of one run and replay its first steps."""
    return RemeasuredRun(run, *remeasure_run(tracker, run, measuring, data_root))


def _replayed_one(
    tracker: Tracker,
    run: StoredRun,
    measuring: RemeasureOptions,
    data_root: Path | None,
    planned: Mapping[str, PlannedReplay],
) -> RemeasuredRun:
    """Replay the whole training of one recomputed run, as far as its limit allows."""
    record, plan = read_record(tracker, run), planned[run.run_id]
    recorded = record.measurements.conventions
    with pinned_threads(int(recorded["threads"])):
        setup = build_setup(record.spec, device_of(record.spec.device_class), data_root)
        feedback = tracker.artifact(record.run_id, schema.FEEDBACK)
        training = _recorded_training(tracker, record, setup, feedback, measuring, is_full_replay=True)
        data = DataWatch(setup, measuring.nonce)
        replay = replay_whole(data.setup, training, plan.cpu_limit, plan.fits, recorded)
        checks = (*replay.checks, *data.replay_check())
        return RemeasuredRun(run, whole=dataclasses.replace(replay, checks=checks))


def remeasure_run(
    tracker: Tracker, run: StoredRun, measuring: RemeasureOptions = RemeasureOptions(), data_root: Path | None = None
) -> tuple[RunRecord, ReplayResult | None]:
    """Recompute a run's metrics, compare them with the logged metrics, and replay training steps.

    If `measuring.trust_logged` is set, nothing is recomputed, and only the code and the digests of the files are checked.

    Returns:
        The record with the recomputed metrics, and the result of the replay or None if no step was replayed.

    Raises:
        IntegrityError: a file is missing or differs from its recorded digest.
    """
    logged = read_record(tracker, run)
    unchecked = dataclasses.replace(logged, integrity=dataclasses.replace(logged.integrity, checks=()))
    record, replay = _measured(tracker, unchecked, measuring, data_root)
    checks = [*logged.integrity.checks, final_weights(tracker, logged), *initial_weights(tracker, logged)]
    return dataclasses.replace(record, integrity=with_checks(record.integrity, checks)), replay


def _measured(
    tracker: Tracker, record: RunRecord, measuring: RemeasureOptions, data_root: Path | None
) -> tuple[RunRecord, ReplayResult | None]:
    feedback = tracker.artifact(record.run_id, schema.FEEDBACK)
    code = code_check(record)
    # The digests of the files are checked even if the logged metrics are trusted.
    others = {name: digest for name, digest in record.digests.items() if name not in READ}
    check_files(tracker, record.run_id, others, may_be_lost=ROLES.values())
    if OWN_LOOP in record.provenance:
        return of_own_loop(tracker, record, measuring.factories), None
    if measuring.trust_logged:
        is_feedback_missing = schema.FEEDBACK in record.digests and feedback is None
        code_checks = [] if record.spec.weights and code.outcome == "agrees" else [code]
        record = dataclasses.replace(record, integrity=with_checks(record.integrity, code_checks))
        return (_without_credits(record) if is_feedback_missing else record), None
    checkpoint = tracker.artifact(record.run_id, schema.FINAL)
    if checkpoint is None:
        raise IntegrityError(f"run {record.run_id}: {schema.FINAL} is missing")
    if "threads" not in record.measurements.conventions:  # a mismatch, which the check of the files reports
        return dataclasses.replace(record, integrity=Integrity("unverifiable", (NO_THREADS,))), None
    reason = obstacle(record.spec) or threads_refused(int(record.measurements.conventions["threads"]))
    if code.outcome != "agrees" or reason:
        check = code if code.outcome != "agrees" else Check(MEASURING, "not possible", reason)
        return dataclasses.replace(record, integrity=Integrity("unverifiable", (check.detail,), (check,))), None
    digests = {role: record.digests.get(name) for role, name in ROLES.items()}
    try:
        with pinned_threads(int(record.measurements.conventions["threads"])):
            setup = build_setup(record.spec, device_of(record.spec.device_class), data_root)
            recorded_training = _recorded_training(tracker, record, setup, feedback, measuring)
            data = DataWatch(setup, measuring.nonce)
            replay = replay_first_steps(data.setup, recorded_training, measuring.replay)
            recorded = record.measurements.conventions
            initial, members = _initial_weights(setup, recorded_training), diagnostics.CATALOG.built_in()
            remeasured = data.measured(remeasure(setup, checkpoint, feedback, digests, initial, recorded, members))
            # the method's credit cannot be recomputed for an adopted run or without the feedback state
            is_feedback_missing = bool(setup.feedback.state_dict()) and feedback is None
            skip_credit = measuring.replay == OFF or is_feedback_missing or setup.spec.weights
            # an adopted run records the code that measured the checkpoint, not the code that trained it
            checks = [*replay.checks, *([] if skip_credit else [credit_in_training(setup)])]
            checks += [] if setup.spec.weights else [code]
            optional_checks = (
                backprop_check(setup, NO_FEEDBACK if is_feedback_missing else "", replay.near_backprop),
                network_check(setup, remeasured),
                training_check(setup),
                task_check(setup),
            )
            checks += [check for check in optional_checks if check]
            checks += fact_checks(record, setup, recorded_training.exact)
            checks += kept_state_files(tracker, record)
            checks += data.checks(recorded, remeasured.conventions, recorded_training.exact, data_root)
    except IntegrityError as error:
        raise IntegrityError(f"run {record.run_id}: {error}") from error
    logged = built_in_part(record.measurements) if diagnostics.CATALOG.third_party() else record.measurements
    integrity = with_checks(compare(logged, remeasured, is_complete=True), checks)
    measurements = merged(record.measurements, remeasured)
    return dataclasses.replace(record, measurements=measurements, integrity=integrity), replay


def _initial_weights(setup: RunSetup, recorded_training: RecordedTraining) -> Mapping[str, Tensor] | None:
    """Return the initial weights from the run's file or from `setup`, or None if none were recorded."""
    if recorded_training.initial:
        return load_tensors(recorded_training.initial, recorded_training.digests["initial"])
    weights = setup.network.state_dict()
    return {name: tensor.clone() for name, tensor in weights.items()} if recorded_training.initial_content else None


def _recorded_training(
    tracker: Tracker,
    record: RunRecord,
    setup: RunSetup,
    feedback: Path | None,
    measuring: RemeasureOptions,
    is_full_replay: bool = False,
) -> RecordedTraining:
    """Return the recorded files and digests with which a replay is compared."""
    digests = {role: record.digests.get(ROLES[role]) for role in ("initial", "feedback")}
    # a file without a recorded digest is not used; without the file, the seed gives the weights with the recorded content
    initial = tracker.artifact(record.run_id, schema.INITIAL) if digests["initial"] else None
    content = record.provenance.get("initial_weights", "")
    step, early_path = schema.recorded_early_step(record.digests), None
    if step is not None:
        digests["early"] = record.digests[schema.step_checkpoint(step)]
        early_path = tracker.artifact(record.run_id, schema.step_checkpoint(step))
        if early_path is None:
            raise IntegrityError(f"{schema.step_checkpoint(step)} is missing")
    machine_difference = described_difference(record.measurements.conventions, machine(setup))
    exact = setup.device.type == "cpu" and not machine_difference
    epochs_run = max(0, min(int(record.provenance.get("epochs_run", 0)), record.spec.epochs))
    selected = record.provenance.get(schema.SELECTED)
    final = epochs_run if selected is None else min(selected, epochs_run)
    epoch_files = {epoch: schema.epoch_checkpoint(epoch) for epoch in range(1, epochs_run)} | {final: schema.FINAL}
    checkpoints = {
        epoch: (path, record.digests[name])
        for epoch, name in epoch_files.items()
        if name in record.digests and (path := tracker.artifact(record.run_id, name))
    }
    recorded = recorded_epochs(tracker, record, measuring, epochs_run, setup.task.headline, is_full_replay)
    return RecordedTraining(
        initial,
        content,
        feedback,
        early_path,
        step,
        digests,
        checkpoints,
        epochs_run,
        exact,
        machine_difference,
        recorded,
        final if selected is not None else None,
    )


def _without_credits(record: RunRecord) -> RunRecord:
    """Return the record without metrics that need the feedback file, because this file is missing."""
    missing_reading = Reading(None, NO_FEEDBACK)
    cards = [diagnostic.card for diagnostic in diagnostics.CATALOG.members().values()]
    missing_names = {metric for card in cards for metric in card.needs_credit}
    measured = record.measurements
    sites = {name: (missing_reading,) * len(row) for name, row in measured.sites.items() if name in missing_names}
    scalars = dict.fromkeys(missing_names & measured.scalars.keys(), missing_reading)
    measurements = dataclasses.replace(
        measured, sites={**measured.sites, **sites}, scalars={**measured.scalars, **scalars}
    )
    integrity = Integrity("unverifiable", ("the feedback file is missing",))
    return dataclasses.replace(record, measurements=measurements, integrity=integrity)
