"""A study's plan: what it would train, what is there already, and what the rest would take. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fa_registry.commands.code import code_changes
from fa_registry.commands.monitor import Watch
from fa_registry.commands.probing import Probe, probe
from fa_registry.commands.stores import open_tracker
from fa_registry.commands.study import checked_study, default_processes, on_gpu
from fa_registry.commands.training import newest_finished
from fa_registry.records import RunSpec, Scalar
from fa_registry.studies.study import Study
from fa_registry.tracking.attempts import runs_by_spec
from fa_registry.tracking.store import resolve_uri, sqlite_path
from fa_registry.training.naming import setting_label


@dataclass(frozen=True)
class SettingPlan:
    """One setting: what its runs share whatever their method. labels: what the study calls it.

    methods: with `+pen` where penalised. runs: all, controls included. seconds: of one process, for all runs from nothing;
    seconds_left: for those that are not complete. Both None where it was not probed or cannot be run (problem says why).
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


@dataclass(frozen=True)
class Plan:
    """twin: the words that make it another than its study.toml. seconds: sums over the settings that have them.

    seconds_by_jobs: what is left, shared among `jobs` processes. probed: whether anything was timed.
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
    seconds_left_by_jobs: float | None
    remarks: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 where a setting cannot be run."""
        return 1 if any(setting.problem for setting in self.settings) else 0


def plan_study(
    name: str,
    overrides: Mapping[str, Any],
    store: str = "",
    jobs: str | int = 0,
    edition: str = "",
    stop_on: str = "",
    force: bool = False,
    keep_trained: bool = False,
    probing: bool = True,
) -> Plan:
    """The plan of a study under the arguments of run_study, whose InvalidFields it raises; no file of a data set is touched."""
    study, processes, watch = checked_study(name, overrides, jobs, edition, stop_on)
    there, remarks = (set(), []) if force else _complete(study, store, watch, keep_trained)
    found = probe(study.specs) if probing else Probe()
    settings = tuple(
        _setting(specs, study.labels.get(identity, ()), there, found) for identity, specs in study.settings.items()
    )
    processes = processes or default_processes(study.specs)
    sharing = 1 if on_gpu(study.specs) else processes  # what runs side by side gain on one card is not known beforehand
    seconds, left = (_sum([getattr(one, name) for one in settings]) for name in ("seconds", "seconds_left"))
    return Plan(
        study.name,
        study.title,
        study.edition,
        study.twin.words,
        len(study.specs),
        _methods(study.specs),
        sum(spec.control != "none" for spec in study.specs),
        len(there),
        settings,
        processes,
        probing,
        seconds,
        left,
        None if left is None else left / sharing,
        (*remarks, *(_probe_remarks(settings, found) if probing else ("Nothing was probed: no cost is given.",))),
    )


def _complete(study: Study, store: str, watch: Watch, keep_trained: bool) -> tuple[set[str], list[str]]:
    """Identities of the runs that would not be trained. A store that is not there is not made for asking."""
    uri = resolve_uri(store)
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        return set(), [f"There is no store {uri} yet: nothing is complete."]
    tracker = open_tracker(store, create=False)
    attempts = runs_by_spec(tracker, [spec.identity for spec in study.specs])
    there, other = set(), {}
    for spec in study.specs:
        run = newest_finished(attempts[spec.identity], spec, watch)
        if changed := code_changes(tracker, run, spec) if run else ():
            other |= dict.fromkeys(changed)
        if run and (keep_trained or not changed):
            there.add(spec.identity)
    return there, [f"Some runs were trained by other code: {line}." for line in other]


def _setting(specs: Sequence[RunSpec], labels: tuple[str, ...], there: set[str], found: Probe) -> SettingPlan:
    first = specs[0]
    controls: dict[str, int] = {}
    for spec in specs:
        if spec.control != "none":
            word = spec.control.partition("_")[0]  # the rungs of a ladder are counted together
            controls[word] = controls.get(word, 0) + 1
    left = [spec for spec in specs if spec.identity not in there]
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
        controls,
        len(specs) - len(left),
        _seconds(specs, found),
        _seconds(left, found),
        next((found.failure(spec) for spec in specs if found.failure(spec)), ""),
    )


def _methods(specs: Sequence[RunSpec]) -> tuple[str, ...]:
    """Credit rules of the trained runs; with the residual penalty, of whatever strength, a rule is another method."""
    trained = [spec for spec in specs if spec.control == "none"]
    return tuple(dict.fromkeys(f"{spec.method}+pen" if spec.penalty else spec.method for spec in trained))


def _seconds(specs: Sequence[RunSpec], found: Probe) -> float | None:
    """Of all these runs, one after another; None where one of them has not been probed."""
    known = [found.seconds(spec) for spec in specs]
    return None if None in known else sum(known)


def _sum(known: Sequence[float | None]) -> float | None:
    """Over the settings that have a figure; None where none has."""
    given = [value for value in known if value is not None]
    return sum(given) if given else None


def _probe_remarks(settings: Sequence[SettingPlan], found: Probe) -> list[str]:
    remarks = [
        "Seconds are of training and measuring by a few timed steps of this machine as it is now; "
        "MLflow's own writing and the audit come on top."
    ]
    if found.random:
        remarks.append(
            f"Its files were left alone, random images of its shape were probed: {', '.join(sorted(found.random))}."
        )
    if found.unprobed:
        remarks.append(f"Not probed, so the sums are too low by them: {', '.join(found.unprobed)}.")
    problems = [one.setting for one in settings if one.problem]
    if problems:
        remarks.append(f"Cannot be run as they are: {', '.join(problems)}.")
    return remarks
