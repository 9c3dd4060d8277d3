"""The plan of a study: all runs, and the runs that are already complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fa_registry.records import RunSpec, Scalar
from fa_registry.reporting.results import TableResult
from fa_registry.studies.coordination import asked_keep, default_processes
from fa_registry.studies.options import ExecutorOptions, RunSelector, StoreLocation, TrainingOptions
from fa_registry.studies.rule_monitor import MonitoredRules
from fa_registry.studies.study import Study
from fa_registry.studies.study_command import check_settings, checked_study
from fa_registry.studies.training_plan import plan_training
from fa_registry.tracking.store import resolve_uri
from fa_registry.tracking.stores import is_missing, open_tracker
from fa_registry.training.controls import depth
from fa_registry.training.specs import setting_label


@dataclass(frozen=True)
class SettingPlan:
    """Runs of one setting of a study; `runs` and `complete` include controls.

    Attributes:
        labels: Names that the study gives to the setting.
        methods: Names of the methods. The suffix `+pen` marks runs with the residual penalty.
        controls: Mapping from the kind of a control to the number of its runs.
        complete: Number of runs that need no training.
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

    def row(self) -> dict[str, str | int]:
        """Return the cells of the plan's table."""
        return {
            "setting": self.setting,
            "called": ", ".join(self.labels),
            "methods": ", ".join(self.methods),
            "seeds": ", ".join(map(str, self.seeds)),
            "runs": self.runs,
            "controls": ", ".join(f"{count} {name}" for name, count in self.controls.items()) or "none",
            "complete": self.complete,
            "to train": self.runs - self.complete,
        }


@dataclass(frozen=True, repr=False)
class Plan(TableResult):
    """Runs of a study; `runs` and `complete` include controls.

    Attributes:
        `twin`: Description of the study variant that the overrides define.
        complete: Number of runs that need no training.
        jobs: Number of parallel processes.
        remarks: Explanations for the user.
        kept_states: Largest number of training states that a run will keep; None if every run is complete.
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
    remarks: tuple[str, ...]
    kept_states: int | None = None
    exit_code = 0

    def lines(self) -> Iterator[str]:
        yield f"{' '.join(filter(None, ('study', self.study, self.twin)))}: {self.title}"
        yield f"runs: {self.runs}, controls: {self.control_runs}, complete: {self.complete}; edition {self.edition}"
        yield from self.remarks

    def rows(self) -> list[dict[str, str | int]]:
        return [setting.row() for setting in self.settings]


def plan_study(
    selector: RunSelector,
    location: StoreLocation,
    training: TrainingOptions,
    execution: ExecutorOptions,
) -> Plan:
    """Return the runs of a study, without training or writing anything."""
    study, resources, monitored_rules = checked_study(selector, training, execution)
    complete_ids, remarks, kept_states = set(), [], None
    if not training.force:
        complete_ids, remarks = _complete(study, location.store, monitored_rules, training.keep_trained)
    if len(complete_ids) < len(study.specs):
        check_settings(study, selector.study)
        from fa_registry.training.state_sizes import planned_states  # late, because it imports torch

        keep = asked_keep(training.keep, [], study.keep_states)
        states = planned_states(study.specs, keep.keep_states, keep.checkpoint_every)
        kept_states, remarks = states.states, [*remarks, states.text]
    settings = study.settings.items()
    return Plan(
        study.name,
        study.title,
        study.edition,
        study.variant.description,
        len(study.specs),
        _methods(study.specs),
        sum(spec.control != "none" for spec in study.specs),
        len(complete_ids),
        tuple(_setting(specs, study.labels.get(identity, ()), complete_ids) for identity, specs in settings),
        resources.at_once or default_processes(study.specs),
        tuple(remarks),
        kept_states,
    )


def _complete(
    study: Study, store: str, monitored_rules: MonitoredRules, keep_trained: bool
) -> tuple[set[str], list[str]]:
    """Return the identities of the complete runs, and remarks for the user."""
    if is_missing(store):
        return set(), [f"Store {resolve_uri(store)} does not exist yet, so no run is complete."]
    tracker = open_tracker(store, create=False)
    plan = plan_training(study.specs, tracker, monitored_rules, keep_trained=keep_trained)
    code_differences = dict.fromkeys(line for lines in plan.other_code.values() for line in lines)
    text = "Some runs were trained by other code than the installed code"
    return set(plan.finished), [f"{text}: {line}." for line in code_differences]


def _setting(specs: Sequence[RunSpec], labels: tuple[str, ...], complete_ids: set[str]) -> SettingPlan:
    first = specs[0]
    # all ladder controls are counted together
    names = ("ladder" if depth(spec.control) is not None else spec.control for spec in specs)
    controls = Counter(name for name in names if name != "none")
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
        sum(spec.identity in complete_ids for spec in specs),
    )


def _methods(specs: Sequence[RunSpec]) -> tuple[str, ...]:
    """Return the names of the trained methods; `+pen` marks a residual penalty."""
    trained = [spec for spec in specs if spec.control == "none"]
    return tuple(dict.fromkeys(spec.method if spec == spec.unpenalised else f"{spec.method}+pen" for spec in trained))
