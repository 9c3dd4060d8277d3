"""Recomputation of the metrics of runs, in one or several processes."""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fa_registry import diagnostics
from fa_registry.diagnostics.base import Diagnostic
from fa_registry.disk_spill import SpillFile
from fa_registry.errors import IntegrityError, Interrupted, RegistryError
from fa_registry.parallel import usable_cores
from fa_registry.plugin_registry import IMPORTED
from fa_registry.protocol.evidence_rules import MEASURING
from fa_registry.protocol.integrity import compare, merged, with_checks
from fa_registry.protocol.replay_summary import WHOLE
from fa_registry.records import (
    Check,
    Exclusion,
    Integrity,
    Measurements,
    Reading,
    Replay,
    ReplayedRun,
    RunRecord,
)
from fa_registry.records.configurations import described_difference
from fa_registry.studies import executors
from fa_registry.studies.executors.base import EventSink, JobEvent, StopCheck
from fa_registry.studies.executors.local import run_jobs, stop_on_signal
from fa_registry.studies.worker_processes import supervise
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import check_files, read_record, read_spec
from fa_registry.training.backprop_check import backprop_check
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.code_fingerprint import packages_of
from fa_registry.training.devices import MOST_PROCESSES, device_of, on_device, pinned_threads, resolve, threads_refused
from fa_registry.training.measuring import NO_FEEDBACK, machine, obstacle, remeasure, without_input_site
from fa_registry.training.network_check import network_check
from fa_registry.training.probe_context import FIRST_CREDITED
from fa_registry.training.replay_from_seed import (
    OFF,
    ReplayResult,
    SealedTraining,
    asked_steps,
    credit_in_training,
    replay_training,
)
from fa_registry.training.run_setup import RunSetup, build_setup
from fa_registry.training.specs import whole_number
from fa_registry.training.user_run_setup import OWN_LOOP
from fa_registry.workflows.cluster_options import asked_resources, check_reach
from fa_registry.workflows.conformance import code_check
from fa_registry.workflows.duplicate_weights import compared, final_weights, initial_weights
from fa_registry.workflows.options import RemeasureOptions
from fa_registry.workflows.progress import Progress
from fa_registry.workflows.replays import asked_nonce, chosen_runs, recorded_epochs
from fa_registry.workflows.selection import INTEGRITY_FAILURE, make_exclusion
from fa_registry.workflows.stores import open_tracker
from fa_registry.workflows.third_party import Job, built_in_part, measured_apart, usable_members, with_third_party
from fa_registry.workflows.user_loops import of_own_loop

LOG = logging.getLogger(__name__)
ROLES = {"checkpoint": schema.FINAL, "feedback": schema.FEEDBACK, "initial": schema.INITIAL}
# Starting a process takes 5 s of a core, recomputing a run of the digits study 1 s, replaying an epoch of it 0.1 s.
RUNS_A_PROCESS = 8
EPOCHS_A_RUN = 10


@dataclass(frozen=True)
class RemeasuredRun:
    """Result of recomputing one run.

    Attributes:
        run: the run as the store lists it.
        record: the run's record, or None if the run is excluded.
        redrawn: result of the replay, or None if no training step was replayed.
        exclusion: reason why the run is excluded, or None.
    """

    run: StoredRun
    record: RunRecord | None = None
    redrawn: ReplayResult | None = None
    exclusion: Exclusion | None = None

    @property
    def text(self) -> str:
        """One-line description of the result, with the duration of the replay."""
        if not self.record:
            return self.exclusion.reason
        again = self.redrawn
        cost = f", {again.steps} steps replayed in {again.seconds:.2f} s" if again and again.steps else ""
        return f"{self.record.integrity.state}{cost}"


def remeasure_all(
    tracker: Tracker,
    runs: Sequence[StoredRun],
    measuring: RemeasureOptions = RemeasureOptions(),
    data_root: Path | None = None,
    opened: Callable[[], Tracker] | None = None,
) -> list[RemeasuredRun]:
    """Recompute the metrics of several runs, and return one result per run in the order of `runs`.

    An error in one run does not affect the other runs. Each run is recomputed with its recorded number of threads, so the
    metrics do not depend on the number of processes.

    Args:
        measuring: options, as `checked_measuring` returns them.
        data_root: folder with the files of data sets.
        opened: function that opens the tracker in a worker process. If None, the worker opens the store by its URI.
    """
    opened = opened or partial(open_tracker, tracker.uri, create=False)
    measuring = with_chosen(tracker, runs, measuring)
    gathered = _each(tracker, runs, partial(_gather_there, opened, measuring, data_root), measuring, data_root)
    gathered = _with_third_party(
        tracker, gathered, partial(_third_party_there, opened, measuring, data_root), measuring
    )
    # mark runs with equal final weights
    records = compared(tracker, [outcome.record for outcome in gathered if outcome.record])
    by_id = {record.run_id: record for record in records}
    return [
        dataclasses.replace(outcome, record=by_id[outcome.run.run_id]) if outcome.record else outcome
        for outcome in gathered
    ]


def with_chosen(tracker: Tracker, runs: Sequence[StoredRun], measuring: RemeasureOptions) -> RemeasureOptions:
    """Choose the runs to replay completely, and return the options with these runs and with the nonce.

    The nonce determines the random choice and is logged. If the runs were chosen before, `measuring` is returned unchanged.
    """
    if measuring.whole is not None:
        return measuring
    measuring = dataclasses.replace(measuring, nonce=asked_nonce(measuring.nonce))
    chosen = chosen_runs(tracker, runs, measuring)
    if chosen:
        LOG.info(
            "%d runs are trained again completely for comparison; to choose the same runs in another audit, use --nonce %s",
            len(chosen),
            measuring.nonce,
        )
    return dataclasses.replace(measuring, whole=chosen)


def checked_measuring(measuring: RemeasureOptions, problems: list[str]) -> RemeasureOptions:
    """Return the options with typed numbers converted, and append all errors to `problems`."""
    numbers: dict[str, Any] = {}
    for name, number in {
        "jobs": lambda typed: whole_number(typed, least=0, most=MOST_PROCESSES),
        "replay": asked_steps,
        "nonce": asked_nonce,
    }.items():
        try:
            numbers[name] = number(getattr(measuring, name))
        except ValueError as error:
            problems.append(f"{name}: {error}")
    asked_resources(measuring.executor, measuring.cluster, measuring.device, problems)
    try:
        resolve(measuring.device)
    except ValueError as error:
        if f"device: {error}" not in problems:  # the check of the study may have found the same error
            problems.append(f"device: {error}")
    return dataclasses.replace(measuring, **numbers)


def _each(
    tracker: Tracker, runs: Sequence[StoredRun], there: Callable, measuring: RemeasureOptions, data_root: Path | None
) -> list[RemeasuredRun]:
    """Recompute all runs, one group per set of imported third-party packages; workers call `there`."""
    if measuring.trust_logged:
        spill_file = SpillFile()
        return [_laid(remeasure_one(tracker, run, measuring, data_root), run, spill_file) for run in runs]
    parts: dict[frozenset[str], list[int]] = {frozenset(): []}
    for place, run in enumerate(runs):
        parts.setdefault(_packages(tracker, run, bool(measuring.factories)), []).append(place)
    gathered: dict[int, RemeasuredRun] = {}
    for packages, places in parts.items():  # the first group imports no third-party package
        part = [runs[place] for place in places]
        outcomes = _part(tracker, part, there, measuring, data_root, bool(packages)) if part else []
        gathered |= dict(zip(places, outcomes, strict=True))
    return [gathered[place] for place in range(len(runs))]


def _part(
    tracker: Tracker,
    runs: Sequence[StoredRun],
    there: Callable,
    measuring: RemeasureOptions,
    data_root: Path | None,
    third_party: bool,
) -> list[RemeasuredRun]:
    """Recompute runs that import the same third-party packages, if any."""
    if measuring.executor:
        return _on_a_cluster(tracker, runs, there, measuring)
    count = min(int(measuring.jobs) or _default_processes(runs, measuring), len(runs))
    # Third-party code may end its process or change functions, so it runs in other processes. If this process has
    # imported such code, built-in metrics are also computed in other processes.
    run_all = supervise if third_party or IMPORTED else run_jobs
    if count > 1 or run_all is supervise:
        with stop_on_signal() as stop:  # this process handles Ctrl-C, which workers ignore
            return _run(tracker, runs, there, count, stop, run_all)

    def here(run: StoredRun, stop: Callable[[], bool], report: Callable[[Any], None]) -> RemeasuredRun:
        return remeasure_one(tracker, run, measuring, data_root)

    return _run(tracker, runs, here, 1, lambda: False, run_all)


def _on_a_cluster(
    tracker: Tracker, runs: Sequence[StoredRun], there: Callable, measuring: RemeasureOptions
) -> list[RemeasuredRun]:
    """Recompute the runs with the executor that the user chose."""
    executor = executors.CATALOG.get(measuring.executor)
    resources = asked_resources(measuring.executor, measuring.cluster, measuring.device, [])
    with executor.opened(resources) as room, stop_on_signal() as stop:
        check_reach(tracker.uri, room)
        most = room.at_once or _default_processes(runs, measuring)

        def run_all(
            jobs: Sequence[Any],
            job_function: Callable[..., RemeasuredRun],
            processes: int,
            stop: StopCheck,
            report: EventSink,
        ) -> None:
            executor.run(
                jobs,
                partial(_in_one_step, job_function),
                dataclasses.replace(resources, at_once=processes),
                stop,
                report,
            )

        return _run(tracker, runs, there, min(int(measuring.jobs) or most, most, len(runs)), stop, run_all)


def _in_one_step(
    job_function: Callable[..., RemeasuredRun], run: StoredRun, stop: StopCheck, report: Callable[[Any], None]
) -> Generator[None, None, RemeasuredRun]:
    """Convert the job function to a generator, because executors expect generators."""
    return job_function(run, stop, report)
    yield


def _packages(tracker: Tracker, run: StoredRun, factories: bool) -> frozenset[str]:
    """Return the third-party packages that must be imported to recompute a run."""
    # from spec.json, because the parameters in the store's tables can be edited
    try:
        path = tracker.artifact(run.run_id, schema.SPEC)
        return packages_of(read_spec(path)) if path is not None else frozenset()
    except RegistryError:  # spec.json is unreadable or names code that is not installed; only a factory can run
        return frozenset({OWN_LOOP}) if factories else frozenset()


def _with_third_party(
    tracker: Tracker, gathered: Sequence[RemeasuredRun], there: Job, measuring: RemeasureOptions
) -> Sequence[RemeasuredRun]:
    """Add the metrics of third-party diagnostics, which workers measure, to the recomputed runs."""
    chosen = [outcome for outcome in gathered if outcome.record and outcome.redrawn]
    if not chosen or not diagnostics.CATALOG.third_party():
        return gathered
    count = min(int(measuring.jobs) or _default_processes([outcome.run for outcome in chosen]), len(chosen))
    found = measured_apart([outcome.run for outcome in chosen], there, count)
    records = {
        outcome.run.run_id: with_third_party(outcome.record, read_record(tracker, outcome.run).measurements, extra)
        for outcome, extra in zip(chosen, found, strict=True)
    }
    return [
        dataclasses.replace(outcome, record=records.get(outcome.run.run_id, outcome.record)) for outcome in gathered
    ]


def _third_party_there(
    opened: Callable[[], Tracker],
    measuring: RemeasureOptions,
    data_root: Path | None,
    run: StoredRun,
    stop: Callable[[], bool],
    report: Callable[[Any], None],
) -> Measurements:
    """Measure the third-party diagnostics of a run in a worker process."""
    tracker = opened()
    record = read_record(tracker, run)
    with on_device(measuring.device), pinned_threads(int(record.measurements.conventions["threads"])):
        return _remeasured(tracker, record, data_root, members=usable_members())


def _remeasured(
    tracker: Tracker, record: RunRecord, data_root: Path | None, members: Mapping[str, Diagnostic]
) -> Measurements:
    feedback = tracker.artifact(record.run_id, schema.FEEDBACK)
    digests = {role: record.digests.get(name) for role, name in ROLES.items()}
    setup = build_setup(record.spec, device_of(record.spec.device_class), data_root)
    initial = _initial_weights(setup, _sealed(tracker, record, setup, feedback, RemeasureOptions()))
    checkpoint, recorded = tracker.artifact(record.run_id, schema.FINAL), record.measurements.conventions
    return remeasure(setup, checkpoint, feedback, digests, initial, recorded, members)


def remeasure_one(
    tracker: Tracker, run: StoredRun, measuring: RemeasureOptions, data_root: Path | None
) -> RemeasuredRun:
    """Recompute the metrics of one run; if an error occurs, return it as the `exclusion` of the result."""
    try:
        with on_device(measuring.device):
            return RemeasuredRun(run, *remeasure_run(tracker, run, measuring, data_root))
    except IntegrityError as error:
        return RemeasuredRun(
            run, exclusion=make_exclusion(tracker, run, f"{INTEGRITY_FAILURE}: {error}", kind="integrity")
        )
    except Exception as error:
        return _broken(tracker, run, f"{type(error).__name__}: {error}", traceback.format_exc())


def _broken(tracker: Tracker, run: StoredRun, error: str, failure: str) -> RemeasuredRun:
    return RemeasuredRun(run, exclusion=make_exclusion(tracker, run, f"cannot be recomputed: {error}", failure))


def _gather_there(
    opened: Callable[[], Tracker],
    measuring: RemeasureOptions,
    data_root: Path | None,
    run: StoredRun,
    stop: Callable[[], bool],
    report: Callable[[Any], None],
) -> RemeasuredRun:
    """Open the tracker in a worker process, because a tracker cannot be pickled, and recompute one run."""
    return remeasure_one(opened(), run, measuring, data_root)


def _run(
    tracker: Tracker,
    runs: Sequence[StoredRun],
    work: Callable,
    processes: int,
    stop: Callable[[], bool],
    run_all: Callable[..., None],
) -> list[RemeasuredRun]:
    """Recompute the runs in `processes` workers, which `run_all` (e.g. `run_jobs`) starts."""
    gathered: dict[int, RemeasuredRun] = {}
    spill_file = SpillFile()
    title = f"recomputing {len(runs)} runs" + (f", {processes} at a time" if processes > 1 else "")
    with Progress(title, [run.name for run in runs], lambda outcome: outcome.text) as progress:

        def receive(event: JobEvent) -> None:
            progress.show(event)
            if event.kind == "done":
                gathered[event.index] = _laid(event.value, runs[event.index], spill_file)
            elif event.kind == "failed":  # the worker ended without a result
                error = event.value.strip().splitlines()[-1]
                gathered[event.index] = _broken(tracker, runs[event.index], error, event.value)

        run_all(runs, work, processes, stop, receive)
    if len(gathered) < len(runs):
        raise Interrupted("stopped while runs were recomputed; no run was judged")
    return [gathered[index] for index in range(len(runs))]


def _laid(outcome: RemeasuredRun, run: StoredRun, spill_file: SpillFile) -> RemeasuredRun:
    """Return the result after its large fields were written to the spill file."""
    if outcome.record:
        spill_file.spill(outcome.record)
    # the worker returned a copy of `run` that is completely in memory
    return dataclasses.replace(outcome, run=run)


def replay_remark(gathered: Sequence[RemeasuredRun]) -> Iterator[str]:
    """Yield the report's remark on the number of replayed training steps.

    If no step was replayed, nothing is yielded.
    """
    taken = [outcome.redrawn for outcome in gathered if outcome.redrawn and outcome.redrawn.steps]
    if taken:
        steps, of = sum(again.steps for again in taken), sum(again.of for again in taken)
        yield (
            f"In {len(taken)} runs, training steps were replayed from the specification: {steps} of their {of} steps "
            f"({100 * steps / of:.1f} %)."
        )


def report_replay(measuring: RemeasureOptions, gathered: Sequence[RemeasuredRun]) -> Replay:
    """Return the nonce and the list of completely replayed runs with their results, for the report."""
    runs = []
    for outcome in gathered:
        if outcome.run.run_id in measuring.whole:
            checks = outcome.record.integrity.checks if outcome.record else ()
            found = next((one for one in checks if one.subject == WHOLE), Check(WHOLE, "not possible"))
            runs.append(ReplayedRun(outcome.run.run_id, found.outcome, found.detail))
    return Replay(measuring.nonce, str(measuring.replay), tuple(runs))


def _default_processes(runs: Sequence[StoredRun], measuring: RemeasureOptions = RemeasureOptions()) -> int:
    """Return the number of processes that saves time for these runs, or 1 on a machine with a GPU."""
    if torch.cuda.is_available():
        return 1
    whole = [run.params.get(f"{schema.PARAM}epochs", "") for run in runs if run.run_id in (measuring.whole or ())]
    replayed = sum(int(epochs) for epochs in whole if epochs.isdecimal() and len(epochs) < 9)
    return max(1, min(usable_cores(), (len(runs) + replayed // EPOCHS_A_RUN) // RUNS_A_PROCESS))


def remeasure_run(
    tracker: Tracker, run: StoredRun, measuring: RemeasureOptions = RemeasureOptions(), data_root: Path | None = None
) -> tuple[RunRecord, ReplayResult | None]:
    """Recompute a run's metrics, compare them with the logged metrics, and replay training steps.

    If `measuring.trust_logged` is set, only the digests of the files are checked.

    Returns:
        The record with the recomputed metrics, and the result of the replay or None if no step was replayed.

    Raises:
        IntegrityError: a file is missing or differs from its recorded digest.
    """
    logged = read_record(tracker, run)
    bare = dataclasses.replace(logged, integrity=dataclasses.replace(logged.integrity, checks=()))
    record, redrawn = _measured(tracker, bare, measuring, data_root)
    if FIRST_CREDITED not in logged.measurements.conventions and OWN_LOOP not in record.provenance:
        record = without_input_site(record)
    checks = [*logged.integrity.checks, final_weights(tracker, logged), *initial_weights(tracker, logged)]
    return dataclasses.replace(record, integrity=with_checks(record.integrity, checks)), redrawn


def _measured(
    tracker: Tracker, record: RunRecord, measuring: RemeasureOptions, data_root: Path | None
) -> tuple[RunRecord, ReplayResult | None]:
    feedback = tracker.artifact(record.run_id, schema.FEEDBACK)
    code = code_check(record)
    # This check is made even if the logged metrics are trusted.
    check_files(tracker, record.run_id, record.digests, may_be_lost=ROLES.values())
    if OWN_LOOP in record.provenance:
        return of_own_loop(tracker, record, measuring.factories), None
    if measuring.trust_logged:
        lost = schema.FEEDBACK in record.digests and feedback is None
        held = [] if record.spec.weights and code.outcome == "agrees" else [code]
        record = dataclasses.replace(record, integrity=with_checks(record.integrity, held))
        return (_without_credits(record) if lost else record), None
    checkpoint = tracker.artifact(record.run_id, schema.FINAL)
    if checkpoint is None:
        raise IntegrityError(f"run {record.run_id}: {schema.FINAL} is missing")
    hindrance = obstacle(record.spec) or threads_refused(int(record.measurements.conventions["threads"]))
    if code.outcome != "agrees" or hindrance:
        check = code if code.outcome != "agrees" else Check(MEASURING, "not possible", hindrance)
        return dataclasses.replace(record, integrity=Integrity("unverifiable", (check.detail,), (check,))), None
    digests = {role: record.digests.get(name) for role, name in ROLES.items()}
    try:
        with pinned_threads(int(record.measurements.conventions["threads"])):
            setup = build_setup(record.spec, device_of(record.spec.device_class), data_root)
            sealed = _sealed(tracker, record, setup, feedback, measuring)
            redrawn = replay_training(setup, sealed, measuring.replay, record.run_id in (measuring.whole or ()))
            recorded = record.measurements.conventions
            initial, members = _initial_weights(setup, sealed), diagnostics.CATALOG.built_in()
            again = remeasure(setup, checkpoint, feedback, digests, initial, recorded, members)
            # the method's credit cannot be recomputed for an adopted run or without the feedback state
            lost = bool(setup.feedback.state_dict()) and feedback is None
            unasked = measuring.replay == OFF or lost or setup.spec.weights
            # an adopted run records the code that measured the checkpoint, not the code that trained it
            checks = [*redrawn.checks, *([] if unasked else [credit_in_training(setup)])]
            checks += [] if setup.spec.weights else [code]
            further = (backprop_check(setup, NO_FEEDBACK if lost else ""), network_check(setup, again))
            checks += [check for check in further if check]
    except IntegrityError as error:
        raise IntegrityError(f"run {record.run_id}: {error}") from error
    logged = built_in_part(record.measurements) if diagnostics.CATALOG.third_party() else record.measurements
    integrity = with_checks(compare(logged, again), checks)
    merged_figures = merged(record.measurements, again)
    return dataclasses.replace(record, measurements=merged_figures, integrity=integrity), redrawn


def _initial_weights(setup: RunSetup, sealed: SealedTraining) -> Mapping[str, Tensor] | None:
    """Return the initial weights from the run's file or from `setup`, or None if none were recorded."""
    if sealed.initial:
        return load_tensors(sealed.initial, sealed.digests["initial"])
    drawn = setup.network.state_dict()
    return {name: tensor.clone() for name, tensor in drawn.items()} if sealed.initial_content else None


def _sealed(
    tracker: Tracker, record: RunRecord, setup: RunSetup, feedback: Path | None, measuring: RemeasureOptions
) -> SealedTraining:
    """Return the recorded files and digests with which a replay is compared."""
    digests = {role: record.digests.get(ROLES[role]) for role in ("initial", "feedback")}
    # a file without a recorded digest is not used; if a recorded file is missing, metrics that need it become N/A
    initial = tracker.artifact(record.run_id, schema.INITIAL) if digests["initial"] else None
    content = "" if digests["initial"] else record.provenance.get("initial_weights", "")
    step, early = schema.sealed_step(record.digests), None
    if step is not None:
        digests["early"] = record.digests[schema.step_checkpoint(step)]
        early = tracker.artifact(record.run_id, schema.step_checkpoint(step))
        if early is None:
            raise IntegrityError(f"{schema.step_checkpoint(step)} is missing")
    elsewhere = described_difference(record.measurements.conventions, machine(setup))
    exact = setup.device.type == "cpu" and not elsewhere
    ran = max(0, min(int(record.provenance.get("epochs_run", 0)), record.spec.epochs))
    ends = {epoch: schema.epoch_checkpoint(epoch) for epoch in range(1, ran)} | {ran: schema.FINAL}
    later = {
        epoch: (path, record.digests[name])
        for epoch, name in ends.items()
        if name in record.digests and (path := tracker.artifact(record.run_id, name))
    }
    recorded = recorded_epochs(tracker, record, measuring, ran)
    return SealedTraining(initial, content, feedback, early, step, digests, later, ran, exact, elsewhere, recorded)


def _without_credits(record: RunRecord) -> RunRecord:
    """Return the record without metrics that need the feedback file, because this file is missing."""
    absent = Reading(None, NO_FEEDBACK)
    cards = [diagnostic.card for diagnostic in diagnostics.CATALOG.members().values()]
    lost = {quantity for card in cards for quantity in card.needs_credit}
    measured = record.measurements
    sites = {name: tuple(absent for _ in row) if name in lost else row for name, row in measured.sites.items()}
    scalars = {name: absent if name in lost else reading for name, reading in measured.scalars.items()}
    measurements = dataclasses.replace(measured, sites=sites, scalars=scalars)
    integrity = Integrity("unverifiable", ("the feedback file is missing",))
    return dataclasses.replace(record, measurements=measurements, integrity=integrity)
