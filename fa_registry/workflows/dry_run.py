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
    """Runs and estimated training time of one setting of a study.

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
    """Runs and estimated training time of a study.

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
        waiting: Fraction of the time in which the timed processes waited for a processor.
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
    selector: RunSelector,
    location: StoreLocation = StoreLocation(),
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
    """Return the runs and the estimated training time of a study, without training or writing anything.

    Args:
        jobs: Number of parallel processes; 0: the default.
        edition: Edition of the rules in `stop_on`.
        stop_on: Comma-separated codes of the rules that end a run when they fire.
        force: Whether to plan the training of complete runs too.
        keep_trained: Whether a run that other code trained counts as complete.
        probing: Whether to time training steps.
        keep_states: Number of training states to store per run; 0: the study's value.
    """
    study, resources, monitored_rules = checked_study(selector, jobs, edition, stop_on, executor, cluster=cluster)
    complete_ids, remarks = (set(), []) if force else _complete(study, location.store, monitored_rules, keep_trained)
    processes = resources.at_once or default_processes(study.specs)
    untimed_reason = _why_unprobed(probing, executor)
    probed = Probe() if untimed_reason else probe(study.specs, processes, location.root, selector.device)
    settings = tuple(
        _setting(specs, study.labels.get(identity, ()), complete_ids, probed, untimed_reason)
        for identity, specs in study.settings.items()
    )
    is_on_gpu = on_gpu(study.specs)
    usable_processes = 1 if is_on_gpu else min(processes, usable_cores())
    all_seconds = probed.seconds(study.specs)
    remaining_seconds = probed.seconds(spec for spec in study.specs if spec.identity not in complete_ids)
    all_seconds = None if all_seconds is None or untimed_reason else all_seconds
    remaining_seconds = None if all_seconds is None else remaining_seconds
    return Plan(
        study.name,
        study.title,
        study.edition,
        study.twin.description,
        len(study.specs),
        _methods(study.specs),
        sum(spec.control != "none" for spec in study.specs),
        len(complete_ids),
        settings,
        processes,
        not untimed_reason,
        None if all_seconds is None else sum(all_seconds),
        None if remaining_seconds is None else sum(remaining_seconds),
        None if all_seconds is None else shared(all_seconds, usable_processes),
        None if remaining_seconds is None else shared(remaining_seconds, usable_processes),
        probed.waiting,
        (
            *remarks,
            *filter(None, [kept_text(study.specs, keep_states or study.keep_states)]),
            *_time_remarks(settings, probed, processes, usable_processes, is_on_gpu),
        ),
    )


def _why_unprobed(probing: bool, executor: str) -> str:
    """Return the reason why training steps are not timed, or an empty string."""
    if not probing:
        return "no training step was timed (--no-timing)"
    if executor not in HERE:
        return f"executor {executor} may train on other machines, but only this machine could be timed"
    return ""


def shared(seconds: Iterable[float], workers: int) -> float:
    """Return the total time in seconds if `workers` processes execute the runs in order.

    Args:
        seconds: Duration of each run.
        workers: Number of processes. Each run starts as soon as a process is free.
    """
    ends = [0.0] * workers
    for duration in seconds:
        heapq.heapreplace(ends, ends[0] + duration)
    return max(ends)


def _complete(
    study: Study, store: str, monitored_rules: MonitoredRules, keep_trained: bool
) -> tuple[set[str], list[str]]:
    """Return the identities of the complete runs, and remarks for the user."""
    uri = resolve_uri(store)
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        return set(), [f"Store {uri} does not exist yet, so no run is complete."]
    tracker = open_tracker(store, create=False)
    attempts = runs_by_spec(tracker, [spec.identity for spec in study.specs])
    complete_ids, code_differences = set(), {}
    for spec in study.specs:
        run = newest_finished(attempts[spec.identity], spec, monitored_rules)
        if changed := code_changes(tracker, run, spec) if run else ():
            code_differences |= dict.fromkeys(changed)
        if run and (keep_trained or not changed):
            complete_ids.add(spec.identity)
    return complete_ids, [
        f"Some runs were trained by other code than the installed code: {line}." for line in code_differences
    ]


def _setting(
    specs: Sequence[RunSpec], labels: tuple[str, ...], complete_ids: set[str], probed: Probe, untimed_reason: str
) -> SettingPlan:
    first = specs[0]
    # all ladder controls are counted together
    controls = Counter(spec.control.partition("_")[0] for spec in specs if spec.control != "none")
    remaining = [spec for spec in specs if spec.identity not in complete_ids]
    all_seconds = probed.seconds(specs)
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
        len(specs) - len(remaining),
        *((sum(all_seconds), sum(probed.seconds(remaining))) if all_seconds else (None, None)),
        next((problem for spec in specs if (problem := probed.failures.get(kind(spec).identity))), ""),
        untimed_reason or next((reason for spec in specs if (reason := probed.reasons.get(kind(spec).identity))), ""),
    )


def _methods(specs: Sequence[RunSpec]) -> tuple[str, ...]:
    """Return the names of the trained methods; `+pen` marks a residual penalty."""
    trained = [spec for spec in specs if spec.control == "none"]
    return tuple(dict.fromkeys(f"{spec.method}+pen" if spec.penalty else spec.method for spec in trained))


def _time_remarks(
    settings: Sequence[SettingPlan], probed: Probe, processes: int, usable_processes: int, is_on_gpu: bool
) -> list[str]:
    """Return remarks that explain the estimated times, or why times are missing."""
    remarks = []
    if any(plan.seconds is not None for plan in settings):
        remarks.append(
            "The times are estimated from steps of these settings that were timed now. The times include training and "
            "measuring, but not the start of processes, MLflow's writes and the audit."
        )
    if usable_processes < processes:
        if is_on_gpu:
            explanation = "runs on one GPU are trained one after another"
        elif usable_processes == 1:
            explanation = "only 1 run is trained at a time, because this machine has 1 core"
        else:
            explanation = (
                f"only {usable_processes} runs are trained at a time, because this machine has {usable_processes} cores"
            )
        remarks.append(f"The times for {processes} runs in parallel assume that {explanation}.")
    if probed.waiting > BUSY:
        slowdown = 1 / (1 - probed.waiting)
        remarks.append(
            f"This machine is busy: timed steps waited for a processor during {probed.waiting:.0%} of the time. The estimated "
            f"times are for an idle machine; on a machine as busy as now, training takes {slowdown:.1f} times as long."
        )
    reasons: dict[str, list[str]] = {}
    for plan in settings:
        if plan.no_time:
            reasons.setdefault(plan.no_time, []).append(plan.setting)
    remarks += [
        f"No time was estimated for {'the study' if len(setting_names) == len(settings) else ', '.join(setting_names)}: {reason}."
        for reason, setting_names in reasons.items()
    ]
    problems = [plan.setting for plan in settings if plan.problem]
    if problems:
        remarks.append(f"These settings cannot be trained: {', '.join(problems)}.")
    return remarks
