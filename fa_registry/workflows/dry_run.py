"""A study's plan: what it would train, what is there already, and what the rest would take. Nothing is written."""

from __future__ import annotations

import dataclasses
import math
import time
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
from fa_registry.training.devices import pinned_threads
from fa_registry.training.measuring import measure
from fa_registry.training.specs import setting_label
from fa_registry.training.task import EVAL_SAMPLES, Task, assemble
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.conformance import code_changes
from fa_registry.workflows.progress import Progress
from fa_registry.workflows.stores import open_tracker
from fa_registry.workflows.study import StudyRequest, checked_study, default_processes, on_gpu
from fa_registry.workflows.training import newest_finished
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


def plan_study(request: StudyRequest, probing: bool = True) -> Plan:
    """The plan of what run_study is asked, whose InvalidFields it raises; no file of a data set is touched."""
    study, processes, watch = checked_study(request)
    there, remarks = set(), []
    if not request.force:
        there, remarks = _complete(study, request.place.store, watch, request.keep_trained)
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


# How long runs will take on this machine: a few timed steps and one measurement of every kind of run, within a minute.
#
# Nothing is written anywhere. Runs that differ in seed, epochs, penalty or rung of the ladder alone are of one kind.


BUDGET_SECONDS = 60.0  # checked between settings: the last one begun may exceed it
FEW = 16  # samples of the first step; where they take long, the batch is not tried but reckoned in proportion
LIGHT_SECONDS = 0.5  # of a step on a whole batch, up to which it is timed itself
TRIED = {0.05: EVAL_SAMPLES, LIGHT_SECONDS: 16}  # seconds of a step up to which so many samples are measured; beyond: 2
STABILITY_BATCHES = 8  # docs/decisions/0013
STEPS = 5
TEST_SHARE = (
    5  # a data set that is read from files is taken to hold one test sample for five of training, as CIFAR does
)


@dataclass(frozen=True)
class Speed:
    """Seconds of one epoch (training and measuring) and of the final measurement."""

    epoch: float
    final: float


@dataclass
class Probe:
    """speeds: kind of a run → its speed. random: data sets that were probed with random images. failures: kind → why.

    unprobed: the settings for which no time was left.
    """

    speeds: dict[str, Speed] = field(default_factory=dict)
    random: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)
    unprobed: list[str] = field(default_factory=list)

    def seconds(self, spec: RunSpec) -> float | None:
        """What the run will take, without MLflow's part; None where its kind has not been probed."""
        speed = self.speeds.get(kind(spec).identity)
        return speed and spec.epochs * speed.epoch + speed.final

    def failure(self, spec: RunSpec) -> str:
        """Why the run cannot be run; empty where it can, as far as is known."""
        return self.failures.get(kind(spec).identity, "")


def kind(spec: RunSpec) -> RunSpec:
    """The run that stands for all that take as long an epoch: a rung is reckoned as its method, which is more than it takes."""
    control = "none" if rung(spec.control) is not None else spec.control
    return dataclasses.replace(spec, seed=0, epochs=1, penalty=0.0, control=control)


def probe(specs: Iterable[RunSpec], budget: float = BUDGET_SECONDS) -> Probe:
    """Time every kind of run among `specs`, setting by setting, on the device they name and one CPU thread."""
    groups: dict[str, list[RunSpec]] = {}
    for spec in sorted({kind(spec).identity: kind(spec) for spec in specs}.values(), key=lambda one: one.dataset):
        groups.setdefault(spec.setting.identity, []).append(spec)
    found, data = Probe(), _Data()
    names = [setting_label(specs[0]).replace(" · 1 epochs", "") for specs in groups.values()]
    started = time.monotonic()
    with (
        Progress(f"probing {len(groups)} settings, about {budget:g} s at most", names, str) as progress,
        pinned_threads(1),
    ):
        for index, kinds in enumerate(groups.values()):
            if time.monotonic() - started > budget:
                found.unprobed.append(names[index])
                progress.show(JobEvent(index, "done", "not probed: the time for it is used up"))
            else:
                progress.show(JobEvent(index, "done", _probe_setting(kinds, data, found)))
    return found


class _Data:
    """The splits of one data set at a time; random images for one that is read from files, which are left alone."""

    def __init__(self):
        self._held: tuple[str, DatasetCard, Splits, bool] | None = None

    def of(self, spec: RunSpec) -> tuple[DatasetCard, Splits, bool]:
        """Card, splits on the run's device, and whether they are random images."""
        if self._held is None or self._held[0] != spec.dataset:
            self._held = None  # two CIFARs need not be held at once
            dataset, device = datasets.get(spec.dataset), torch.device(spec.device_class)
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


def _probe_setting(kinds: list[RunSpec], data: _Data, found: Probe) -> str:
    """Fill in the speeds of one setting's kinds; returns what to tell of them."""
    try:
        card, splits, is_random = data.of(kinds[0])
        if is_random:
            found.random.add(kinds[0].dataset)
        steps = {spec.identity: step_seconds(Trainer(_task(spec, card, splits))) for spec in kinds}
        local = [spec for spec in kinds if not methods.CATALOG.get(spec.method).end_to_end]
        measured, final = _measuring_seconds(_task([*local, *kinds][0], card, splits), min(steps.values()))
    except RegistryError as error:
        found.failures |= {spec.identity: str(error) for spec in kinds}
        return f"cannot be run: {error}"
    for spec in kinds:
        batches = math.ceil(card.train_samples / spec.recipe.batch_size)
        found.speeds[spec.identity] = Speed(batches * steps[spec.identity] + measured, final)
    shown = ", ".join(f"{_word(spec)} {1000 * steps[spec.identity]:.3g}" for spec in kinds)
    return f"ms a step: {shown}" + (" (random images)" if is_random else "")


def _word(spec: RunSpec) -> str:
    return spec.method if spec.control == "none" else spec.control


def _task(spec: RunSpec, card: DatasetCard, splits: Splits) -> Task:
    return assemble(spec, torch.device(spec.device_class), card, splits)


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
    few = Splits(*(part[:count] for part in _parts(splits)), augment=splits.augment, digest=splits.digest)
    small, share = dataclasses.replace(task, splits=few), EVAL_SAMPLES / count
    passes = len(splits.test_labels) / task.spec.recipe.batch_size
    final = _timed(lambda: measure(small, moments=("final",)), task) * share + STABILITY_BATCHES * step
    return _timed(lambda: measure(small), task) * share + passes * step / 3, final


def _parts(splits: Splits) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return splits.train_images, splits.train_labels, splits.test_images, splits.test_labels


def _timed(work: Callable[[], object], task: Task) -> float:
    _finish(task.device)
    started = time.perf_counter()
    work()
    _finish(task.device)
    return time.perf_counter() - started


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
