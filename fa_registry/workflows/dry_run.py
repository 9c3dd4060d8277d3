"""The plan of a study: its runs, the complete runs, and the estimated time."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fa_registry.parallel import usable_cores
from fa_registry.records import RunSpec, Scalar
from fa_registry.studies.study import Study
from fa_registry.tracking.reader import runs_by_spec
from fa_registry.tracking.store import resolve_uri, sqlite_path
from fa_registry.training.specs import setting_label
from fa_registry.workflows.conformance import code_changes
from fa_registry.workflows.options import Cluster, RunSelector, StoreLocation
from fa_registry.workflows.probe import Probe, kind, probe
from fa_registry.workflows.rule_monitor import MonitoredRules
from fa_registry.workflows.stores import open_tracker
from fa_registry.workflows.study import checked_study, default_processes
from fa_registry.workflows.training import kept_text, newest_finished, on_gpu

HERE = ("", "local", "side_by_side")  # executors that train runs on this machine
BUSY = 0.1  # if the probe waits for a processor for a larger share of its time, a remark reports this share


@dataclass(frozen=True)
class SettingPlan:
    """The plan of one setting.

    Attributes:
        setting: Name of the setting.
        labels: Names that the study gives to the setting.
        methods: Names of the methods. The suffix `+pen` marks runs with the residual penalty.
        runs: Number of runs, including controls.
        controls: Mapping from the kind of a control to the number of its runs.
        complete: Number of runs that need no training, including controls.
        seconds: Estimated time of all runs in one process, or None if the time is unknown.
        seconds_left: Estimated time of the incomplete runs in one process, or None if the time is unknown.
        problem: Reason why the setting cannot be trained, or an empty string.
        no_time: Reason why the setting was not timed, or an empty string.
    """

    setting: str
    labels: tuple[str, ...]
    architecture: str
    architecture_options: Mapping[str, Scalar]
    dataset: str
    epochs: int
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: int
    controls: Mapping[str, int]
    complete: int
    seconds: float | None
    seconds_left: float | None
    problem: str = ""
    no_time: str = ""


@dataclass(frozen=True)
class Plan:
    """The plan of a study.

    Attributes:
        `twin`: Description of the study variant that the overrides define.
        runs: Number of runs, including controls.
        control_runs: Number of controls.
        complete: Number of runs that need no training, including controls.
        jobs: Number of parallel processes.
        probed: Whether training steps were timed.
        seconds: Estimated time of all runs in one process, or None if the time of a setting is unknown.
        seconds_left: Estimated time of the incomplete runs in one process, or None if the time of a setting is unknown.
        seconds_by_jobs, seconds_left_by_jobs: The same times for `jobs` parallel processes on this machine.
        waiting: Share of the timing during which processes waited for a processor.
        remarks: Explanations for the user.
    """

    study: str
    title: str
    edition: str
    twin: str
    runs: int
    methods: tuple[str, ...]
    control_runs: int
    complete: int
    settings: tuple[SettingPlan, ...]
    jobs: int
    probed: bool
    seconds: float | None
    seconds_left: float | None
    seconds_by_jobs: float | None
    seconds_left_by_jobs: float | None
    waiting: float
    remarks: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 1 if a setting cannot be trained, otherwise 0."""
        return 1 if any(setting.problem for setting in self.settings) else 0


def plan_study(
    chosen: RunSelector,
    place: StoreLocation = StoreLocation(),
    jobs: str | int = 0,
    edition: str = "",
    stop_on: str = "",
    force: bool = False,
    keep_trained: bool = False,
    executor: str = "",
    cluster: Cluster = Cluster(),
    probing: bool = True,
    keep_states: int = 0,
) -> Plan:
    """Return the plan of a study without training or writing anything.

    Args:
        edition: Edition of the rules in `stop_on`.
        stop_on: Rules that end a run when they fire.
        force: Whether to plan the training of complete runs too.
        keep_trained: Whether a run that other code trained counts as complete.
        probing: Whether to time training steps.
        keep_states: Number of training states to store per run; 0: the study's value.
    """
    study, resources, watch = checked_study(chosen, jobs, edition, stop_on, executor, cluster=cluster)
    there, remarks = (set(), []) if force else _complete(study, place.store, watch, keep_trained)
    processes = resources.at_once or default_processes(study.specs)
    unprobed = _why_unprobed(probing, executor)
    probed = Probe() if unprobed else probe(study.specs, processes, place.root, chosen.device)
    settings = tuple(
        _setting(specs, study.labels.get(identity, ()), there, probed, unprobed)
        for identity, specs in study.settings.items()
    )
    lanes = 1 if on_gpu(study.specs) else min(processes, usable_cores())
    every = probed.seconds(study.specs)
    left = probed.seconds(spec for spec in study.specs if spec.identity not in there)
    every = None if every is None or unprobed else every
    left = None if every is None else left
    return Plan(
        study.name,
        study.title,
        study.edition,
        study.twin.description,
        len(study.specs),
        _methods(study.specs),
        sum(spec.control != "none" for spec in study.specs),
        len(there),
        settings,
        processes,
        not unprobed,
        None if every is None else sum(every),
        None if left is None else sum(left),
        None if every is None else shared(every, lanes),
        None if left is None else shared(left, lanes),
        probed.waiting,
        (
            *remarks,
            *filter(None, [kept_text(study.specs, keep_states or study.keep_states)]),
            *_time_remarks(settings, probed, processes, lanes),
        ),
    )


def _why_unprobed(probing: bool, executor: str) -> str:
    """Return the reason why training steps are not timed, or an empty string."""
    if not probing:
        return "no training step was timed (--no-timing)"
    if executor not in HERE:
        return f"executor {executor} may train on other machines, but only this machine could be timed"
    return ""


def shared(seconds: Iterable[float], lanes: int) -> float:
    """Return the total time in seconds if `lanes` processes execute the runs in order.

    Args:
        seconds: Duration of each run.
        lanes: Number of processes. Each run starts as soon as a process is free.
    """
    ends = [0.0] * lanes
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


def _complete(study: Study, store: str, watch: MonitoredRules, keep_trained: bool) -> tuple[set[str], list[str]]:
    """Return the identities of the complete runs, and remarks for the user."""
    uri = resolve_uri(store)
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        return set(), [f"Store {uri} does not exist yet, so no run is complete."]
    tracker = open_tracker(store, create=False)
    attempts = runs_by_spec(tracker, [spec.identity for spec in study.specs])
    there, other = set(), {}
    for spec in study.specs:
        run = newest_finished(attempts[spec.identity], spec, watch)
        if changed := code_changes(tracker, run, spec) if run else ():
            other |= dict.fromkeys(changed)
        if run and (keep_trained or not changed):
            there.add(spec.identity)
    return there, [f"Some runs were trained by other code than the installed code: {line}." for line in other]


def _setting(
    specs: Sequence[RunSpec], labels: tuple[str, ...], there: set[str], probed: Probe, unprobed: str
) -> SettingPlan:
    first = specs[0]
    # all ladder controls are counted together
    controls = Counter(spec.control.partition("_")[0] for spec in specs if spec.control != "none")
    left = [spec for spec in specs if spec.identity not in there]
    every = probed.seconds(specs)
    return SettingPlan(
        setting_label(first),
        labels,
        first.architecture,
        first.architecture_options,
        first.dataset,
        first.epochs,
        _methods(specs),
        tuple(sorted({spec.seed for spec in specs})),
        len(specs),
        dict(controls),
        len(specs) - len(left),
        *((sum(every), sum(probed.seconds(left))) if every else (None, None)),
        next((problem for spec in specs if (problem := probed.failures.get(kind(spec).identity))), ""),
        unprobed or next((why for spec in specs if (why := probed.reasons.get(kind(spec).identity))), ""),
    )


def _methods(specs: Sequence[RunSpec]) -> tuple[str, ...]:
    """Return the names of the trained methods; `+pen` marks a residual penalty."""
    trained = [spec for spec in specs if spec.control == "none"]
    return tuple(dict.fromkeys(f"{spec.method}+pen" if spec.penalty else spec.method for spec in trained))


def _time_remarks(settings: Sequence[SettingPlan], probed: Probe, processes: int, lanes: int) -> list[str]:
    """Return remarks that explain the estimated times, or why times are missing."""
    remarks = []
    if any(plan.seconds is not None for plan in settings):
        remarks.append(
            "The times are estimated from steps of these settings that were timed now. The times include training and "
            "measuring, but not the start of processes, MLflow's writes and the audit."
        )
    if lanes < processes:
        why = "runs on one GPU are counted one after another" if lanes == 1 else f"this machine has {lanes} cores"
        remarks.append(f"With {processes} runs in parallel: {why}.")
    if probed.waiting > BUSY:
        busy = 1 / (1 - probed.waiting)
        remarks.append(
            f"This machine is busy: timed steps waited for a processor during {probed.waiting:.0%} of the time. The estimated "
            f"times are for an idle machine; on a machine as busy as now, training takes {busy:.1f} times as long."
        )
    reasons: dict[str, list[str]] = {}
    for plan in settings:
        if plan.no_time:
            reasons.setdefault(plan.no_time, []).append(plan.setting)
    remarks += [
        f"No time was estimated for {'the study' if len(named) == len(settings) else ', '.join(named)}: {why}."
        for why, named in reasons.items()
    ]
    problems = [plan.setting for plan in settings if plan.problem]
    if problems:
        remarks.append(f"These settings cannot be trained: {', '.join(problems)}.")
    return remarks
