"""A study's plan: what it would train, what is there already, and what the rest would take. Nothing is written."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fa_registry import datasets, methods
from fa_registry.datasets.base import DatasetCard, Splits
from fa_registry.errors import RegistryError
from fa_registry.records import RunSpec, Scalar
from fa_registry.studies.executors.base import JobEvent
from fa_registry.studies.study import Study
from fa_registry.tracking.reader import runs_by_spec
from fa_registry.tracking.store import resolve_uri, sqlite_path
from fa_registry.training.controls import rung, train_mode
from fa_registry.training.devices import device_of, on_device, pinned_threads
from fa_registry.training.measuring import measure
from fa_registry.training.specs import setting_label
from fa_registry.training.task import EVAL_SAMPLES, Task, assemble, check_room
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.conformance import code_changes
from fa_registry.workflows.progress import Progress
from fa_registry.workflows.requests import Chosen, Cluster, Place
from fa_registry.workflows.stores import open_tracker
from fa_registry.workflows.study import checked_study, default_processes
from fa_registry.workflows.training import kept_words, newest_finished, on_gpu
from fa_registry.workflows.watching import Watch


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
    chosen: Chosen,
    place: Place = Place(),
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
    """The plan of what run_study is asked, whose InvalidFields it raises; no file of a data set is touched."""
    study, resources, watch = checked_study(chosen, jobs, edition, stop_on, executor, cluster=cluster)
    there, remarks = (set(), []) if force else _complete(study, place.store, watch, keep_trained)
    with on_device(chosen.device):
        probed = probe(study.specs) if probing else Probe()
    settings = tuple(
        _setting(specs, study.labels.get(identity, ()), there, probed) for identity, specs in study.settings.items()
    )
    processes = resources.at_once or default_processes(study.specs)
    sharing = 1 if on_gpu(study.specs) else processes  # what runs side by side gain on one card is not known beforehand
    seconds, left = _sum(plan.seconds for plan in settings), _sum(plan.seconds_left for plan in settings)
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
        (
            *remarks,
            *filter(None, [kept_words(study.specs, keep_states or study.keep_states)]),
            *(_probe_remarks(settings, probed) if probing else ("Nothing was probed: no cost is given.",)),
        ),
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


def _setting(specs: Sequence[RunSpec], labels: tuple[str, ...], there: set[str], probed: Probe) -> SettingPlan:
    first = specs[0]
    # the rungs of a ladder are counted together
    controls = Counter(spec.control.partition("_")[0] for spec in specs if spec.control != "none")
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
        dict(controls),
        len(specs) - len(left),
        probed.seconds(specs),
        probed.seconds(left),
        next((problem for spec in specs if (problem := probed.failures.get(kind(spec).identity))), ""),
    )


def _methods(specs: Sequence[RunSpec]) -> tuple[str, ...]:
    """Credit rules of the trained runs; with the residual penalty, of whatever strength, a rule is another method."""
    trained = [spec for spec in specs if spec.control == "none"]
    return tuple(dict.fromkeys(f"{spec.method}+pen" if spec.penalty else spec.method for spec in trained))


def _sum(values: Iterable[float | None]) -> float | None:
    """Over the settings that have a figure; None where none has."""
    given = [value for value in values if value is not None]
    return sum(given) if given else None


def _probe_remarks(settings: Sequence[SettingPlan], probed: Probe) -> list[str]:
    remarks = [
        "Seconds are of training and measuring by a few timed steps of this machine as it is now; "
        "MLflow's own writing and the audit come on top."
    ]
    if probed.random:
        remarks.append(
            f"Its files were left alone, random images of its shape were probed: {', '.join(sorted(probed.random))}."
        )
    if probed.unprobed:
        remarks.append(f"Not probed, so the sums are too low by them: {', '.join(probed.unprobed)}.")
    problems = [plan.setting for plan in settings if plan.problem]
    if problems:
        remarks.append(f"Cannot be run as they are: {', '.join(problems)}.")
    return remarks


# How long runs will take on this machine: a few timed steps and one measurement of every kind of run, within a minute.
#
# Nothing is written anywhere. Runs that differ in seed, epochs, penalty or rung of the ladder alone are of one kind.


BUDGET_SECONDS = 60.0  # checked between settings: the last one begun may exceed it
FEW = 16  # samples of the first step; where they take long, the batch is not tried but reckoned in proportion
LIGHT_SECONDS = 0.5  # of a step on a whole batch, up to which it is timed itself
TRIED = {0.05: EVAL_SAMPLES, LIGHT_SECONDS: 16}  # seconds of a step up to which so many samples are measured; beyond: 2
STABILITY_BATCHES = 8  # docs/decisions/0013
STEPS = 5
TEST_SHARE = 5  # a data set read from files is taken to hold one test sample for five of training, as CIFAR does


@dataclass
class Probe:
    """speeds: kind of a run → seconds of one epoch (training and measuring) and of the final measurement.

    random: data sets that were probed with random images. failures: kind → why it cannot be run. unprobed: the settings for
    which no time was left.
    """

    speeds: dict[str, tuple[float, float]] = field(default_factory=dict)
    random: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)
    unprobed: list[str] = field(default_factory=list)

    def seconds(self, specs: Iterable[RunSpec]) -> float | None:
        """What all these runs take, one after another, without MLflow's part; None where one of them has not been probed."""
        total: float = 0
        for spec in specs:
            speed = self.speeds.get(kind(spec).identity)
            if speed is None:
                return None
            epoch, final = speed
            total += spec.epochs * epoch + final
        return total


def kind(spec: RunSpec) -> RunSpec:
    """The run that stands for all that take as long an epoch: a rung is reckoned as its method, which is more than it takes."""
    control = "none" if rung(spec.control) is not None else spec.control
    return dataclasses.replace(spec, seed=0, epochs=1, penalty=0.0, control=control)


def probe(specs: Iterable[RunSpec], budget: float = BUDGET_SECONDS) -> Probe:
    """Time every kind of run among `specs`, setting by setting, on the device they name and one CPU thread."""
    groups: dict[str, list[RunSpec]] = {}
    for spec in sorted({kind(spec).identity: kind(spec) for spec in specs}.values(), key=lambda kind: kind.dataset):
        groups.setdefault(spec.setting.identity, []).append(spec)
    probed, data = Probe(), _Data()
    names = [setting_label(specs[0]).replace(" · 1 epochs", "") for specs in groups.values()]
    started = time.monotonic()
    with (
        Progress(f"probing {len(groups)} settings, about {budget:g} s at most", names, str) as progress,
        pinned_threads(1),
    ):
        for index, kinds in enumerate(groups.values()):
            if time.monotonic() - started > budget:
                probed.unprobed.append(names[index])
                progress.show(JobEvent(index, "done", "not probed: the time for it is used up"))
            else:
                progress.show(JobEvent(index, "done", _probe_setting(kinds, data, probed)))
    return probed


class _Data:
    """The splits of one data set at a time; random images for one that is read from files, which are left alone."""

    def __init__(self):
        self._held: tuple[str, DatasetCard, Splits, bool] | None = None

    def of(self, spec: RunSpec) -> tuple[DatasetCard, Splits, bool]:
        """Card, splits on the run's device, and whether they are random images."""
        if self._held is None or self._held[0] != spec.dataset:
            self._held = None  # two CIFARs need not be held at once
            dataset, device = datasets.get(spec.dataset), device_of(spec.device_class)
            from_files = bool(dataset.card.files)
            splits = random_splits(dataset.card, device) if from_files else dataset.load(device, None, spec.seed)
            self._held = (spec.dataset, dataset.card, splits, from_files)
        return self._held[1:]


def random_splits(card: DatasetCard, device: torch.device) -> Splits:
    """Random images of the card's shape: a step takes as long on them. As many tests as the set would have, about."""
    draw = torch.Generator(device).manual_seed(0)
    tests = max(EVAL_SAMPLES, card.train_samples // TEST_SHARE)

    def drawn(count: int) -> tuple[Tensor, Tensor]:
        images = torch.randn(count, *card.image_shape, generator=draw, device=device)
        return images, torch.randint(card.classes, (count,), generator=draw, device=device)

    return Splits(
        *drawn(min(card.train_samples, 2 * tests)), *drawn(tests), augment=lambda images, _: images, digest=""
    )


def _probe_setting(kinds: list[RunSpec], data: _Data, probed: Probe) -> str:
    """Fill in the speeds of one setting's kinds; returns what to tell of them."""
    try:
        card, splits, is_random = data.of(kinds[0])
        if is_random:
            probed.random.add(kinds[0].dataset)
        steps = {spec.identity: step_seconds(Trainer(_task(spec, card, splits))) for spec in kinds}
        local = [spec for spec in kinds if not methods.CATALOG.get(spec.method).end_to_end]
        measured, final = _measuring_seconds(_task([*local, *kinds][0], card, splits), min(steps.values()))
    except RegistryError as error:
        probed.failures |= {spec.identity: str(error) for spec in kinds}
        return f"cannot be run: {error}"
    for spec in kinds:
        batches = math.ceil(card.train_samples / spec.recipe.batch_size)
        probed.speeds[spec.identity] = (batches * steps[spec.identity] + measured, final)
    shown = ", ".join(
        f"{spec.method if spec.control == 'none' else spec.control} {1000 * steps[spec.identity]:.3g}" for spec in kinds
    )
    return f"ms a step: {shown}" + (" (random images)" if is_random else "")


def _task(spec: RunSpec, card: DatasetCard, splits: Splits) -> Task:
    task = assemble(spec, device_of(spec.device_class), card, splits)
    check_room(task)
    return task


def step_seconds(trainer: Trainer) -> float:
    """Seconds of one optimiser step on a whole batch, the median of a few; in proportion from a few samples if it takes long."""
    splits, batch = trainer.task.splits, trainer.task.spec.recipe.batch_size

    def step(count: int) -> Callable[[], object]:
        images, labels = splits.train_images[:count], splits.train_labels[:count]
        return lambda: trainer.step(splits.augment(images, trainer.generators["augmentation"]), labels)

    few = min(FEW, batch)
    train_mode(trainer.task.network)
    _timed(step(few), trainer.task)  # allocates, draws, compiles: not what a step takes
    reckoned = _timed(step(few), trainer.task) * batch / few
    if reckoned > LIGHT_SECONDS:
        return reckoned
    _timed(step(batch), trainer.task)
    return sorted(_timed(step(batch), trainer.task) for _ in range(STEPS))[STEPS // 2]


def _measuring_seconds(task: Task, step: float) -> tuple[float, float]:
    """Seconds of an epoch's measurement and of the final one. step: seconds of the setting's quickest.

    Where steps take long, an eval batch of a few samples is measured and the rest reckoned: evaluation in proportion, a forward
    pass over the test set as a third of a step a batch, the batches for stability as a step each.
    """
    splits = task.splits
    count = next((few for limit, few in TRIED.items() if step <= limit), 2)
    if count == EVAL_SAMPLES:
        measure(task)  # the first draws what later ones hold
        return _timed(lambda: measure(task), task), _timed(lambda: measure(task, moments=("final",)), task)
    parts = (splits.train_images, splits.train_labels, splits.test_images, splits.test_labels)
    few = Splits(*(part[:count] for part in parts), augment=splits.augment, digest=splits.digest)
    small, share = dataclasses.replace(task, splits=few), EVAL_SAMPLES / count
    passes = len(splits.test_labels) / task.spec.recipe.batch_size
    final = _timed(lambda: measure(small, moments=("final",)), task) * share + STABILITY_BATCHES * step
    return _timed(lambda: measure(small), task) * share + passes * step / 3, final


def _timed(work: Callable[[], object], task: Task) -> float:
    _finish(task.device)
    started = time.perf_counter()
    work()
    _finish(task.device)
    return time.perf_counter() - started


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
