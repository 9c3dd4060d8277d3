"""On a stand-in for a GPU: nothing is on another device, no step waits, and no stream or host reads what is not yet written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch

from fa_registry import architectures, datasets, methods, tasks
from fa_registry.architectures.base import TOKENS
from fa_registry.datasets import digits
from fa_registry.datasets.base import Splits
from fa_registry.diagnostics.stability import BATCH as STABILITY_BATCH
from fa_registry.diagnostics.stability import BATCHES
from fa_registry.errors import UsageError
from fa_registry.records import Recipe, RunSpec
from fa_registry.studies.executors.side_by_side import run_side_by_side
from fa_registry.training import loop
from fa_registry.training.cuda_graph import CAPTURED, PLAIN
from fa_registry.training.loop import train, train_epochs
from fa_registry.training.measuring import measure, with_final
from fa_registry.training.resume import ResumeFile
from fa_registry.training.run_setup import RunSetup, build_setup_from_splits
from fa_registry.training.spec_plugins import with_defaults
from fa_registry.training.trainer import Trainer
from tests.helpers.covering import WAYS
from tests.helpers.nets import TINY
from tests.helpers.tiny_tasks import Recorder
from tests.helpers.virtual_gpu import CARD, MixedDevices, Race, VirtualGpu, Wait

SAMPLES, CLASSES, LENGTH, BATCH = 8, 3, 5, 4
ANCHOR = 5  # an epoch in which a method has an anchor step
TARGETS = (
    torch.arange(SAMPLES) % CLASSES,
    torch.zeros(SAMPLES, CLASSES),
    torch.arange(SAMPLES * LENGTH).reshape(SAMPLES, LENGTH) % CLASSES,
)

# Which combinations do not train, and why. The rules read cards, so they hold for a plug-in that comes later too.
REFUSED = {
    "the method's card does not name the architecture": lambda method, architecture, task: (
        not method.supports(architecture.name)
    ),
    "the method's card names no task with such targets": lambda method, architecture, task: not method.trains(task),
    "token ids have one target per position, other inputs one per sample": lambda method, architecture, task: (
        (architecture.inputs == TOKENS) != task.by_position
    ),
}
NEEDS_LABELS = {("forward_forward", "regression"): "it writes labels into inputs, and values are none: no card says so"}


def combinations() -> Iterator[tuple[str, str, str]]:
    """Every method, architecture and task that may be combined."""
    for method in methods.CATALOG.names():
        for architecture in architectures.CATALOG.names():
            for task in tasks.CATALOG.names():
                catalogs = (methods.CATALOG, method), (architectures.CATALOG, architecture), (tasks.CATALOG, task)
                cards = [catalog.get(name).card for catalog, name in catalogs]
                if (method, task) not in NEEDS_LABELS and not any(rule(*cards) for rule in REFUSED.values()):
                    yield method, architecture, task


COMBINATIONS = list(combinations())


@pytest.fixture
def gpu(monkeypatch):
    with VirtualGpu(monkeypatch) as gpu:
        yield gpu


def setup_of(
    method: str = "dfa",
    architecture: str = "resmlp",
    task: str = "classification",
    recipe: dict | None = None,
    copies: int = 1,
    **changes: object,
) -> RunSetup:
    """A tiny network and a few samples on the card. copies: how often each is in the training data."""
    takes_tokens = architectures.CATALOG.get(architecture).card.inputs == TOKENS
    shape, kind = ((LENGTH,), torch.int64) if takes_tokens else ((1, 12, 12), torch.float32)
    found = tasks.CATALOG.get(task)
    labels = next(one for one in TARGETS if found.takes(one) and not found.problems(one, one, CLASSES, SAMPLES))
    images, labels = torch.zeros(SAMPLES, *shape, dtype=kind).to(CARD), labels.to(CARD)
    many = [torch.cat([one] * copies) for one in (images, labels)]
    splits = Splits(*many, images, labels, jittered, "", None, images, labels)
    card = dataclasses.replace(digits.PLUGIN.card, image_shape=shape, classes=CLASSES, task=task)
    fields = {"architecture_options": TINY.get(architecture, {}), "device_class": "cuda", "epochs": 3, **changes}
    fields["recipe"] = Recipe(**{"batch_size": BATCH, **(recipe or {})})
    return build_setup_from_splits(
        with_defaults(RunSpec(method, architecture, "digits", seed=1, **fields)), CARD, card, splits
    )


def jittered(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw as an augmentation does."""
    torch.rand(len(images), generator=generator, device=images.device)
    return images


def check_two_steps(gpu: VirtualGpu, trainer: Trainer) -> None:
    batches = torch.arange(SAMPLES).to(CARD).split(BATCH)
    with gpu.without_waits():
        trainer.train_batch(batches)


def test_every_plug_in_is_in_a_combination():
    for place, catalog in enumerate((methods.CATALOG, architectures.CATALOG, tasks.CATALOG)):
        assert {combination[place] for combination in COMBINATIONS} == {*catalog.names()}


@pytest.mark.parametrize(("method", "architecture", "task"), COMBINATIONS)
def test_two_steps_of_every_combination_never_wait_and_are_on_one_device(gpu, method, architecture, task):
    check_two_steps(gpu, Trainer(setup_of(method, architecture, task, penalty=0.01)))


@pytest.mark.parametrize(("method", "task"), NEEDS_LABELS)
def test_a_combination_that_no_card_refuses_is_refused_in_its_first_step(gpu, method, task):
    architecture = next(
        name for name in architectures.CATALOG.names() if methods.CATALOG.get(method).card.supports(name)
    )
    with pytest.raises(UsageError, match="needs class labels"):
        check_two_steps(gpu, Trainer(setup_of(method, architecture, task)))


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": {"clip_gradient": 1.0, "credit_norm": "none", "clip_credit": 1.0}},
        {"recipe": {"clip_gradient": 1.0, "optimizer": "sgd", "momentum": 0.9}, "method": "kolen_pollack"},
        {"recipe": {"schedule": "step", "step_epochs": 1, "warmup_epochs": 1}, "epochs": 2 * ANCHOR},
        {"penalty_embedding": 0.1},
        {"precision": "tf32"},
        {"control": "frozen"},
        {"control": "ladder_1"},
        {"control": "deep_supervision", "method": "bp"},
        {"method": "grape", "method_options": {"anchor_every": ANCHOR}, "epochs": 2 * ANCHOR},
        {"architecture_options": {**TINY["resmlp"], "dropout": 0.1}},
        {"architecture": "linear_lq", "task": "regression", "architecture_options": {"num_blocks": 2, "sigma": 0.5}},
    ],
    ids=str,
)
def test_so_do_those_of_other_recipes_controls_and_sources_of_random_numbers(gpu, changes):
    trainer = Trainer(setup_of(**changes))
    trainer.epoch = ANCHOR
    check_two_steps(gpu, trainer)


def of_measuring() -> Iterator[object]:
    """Each architecture and task with dfa, and each method where it trains first; one a way and architecture are short."""
    seen = set()
    for method, architecture, task in COMBINATIONS:
        is_new = method not in seen or (method == "dfa" and architecture not in seen)
        seen |= {method, architecture} if method == "dfa" else {method}
        if is_new or method == "dfa":
            is_short = is_new and method in WAYS
            yield pytest.param(method, architecture, task, marks=[] if is_short else pytest.mark.long)


@pytest.mark.parametrize(("method", "architecture", "task"), list(of_measuring()))
def test_measuring_is_on_one_device_and_reads_only_what_is_written(gpu, method, architecture, task):
    copies = BATCHES * STABILITY_BATCH // SAMPLES
    setup = setup_of(method, architecture, task, {"batch_size": SAMPLES * copies // 2}, copies)
    trainer = Trainer(setup)
    trainer.run_epoch()
    final = with_final(measure(setup), setup, initial=trainer.initial)
    assert (
        final.failures == {}
        and {"rho", "nudge", "stability"} <= final.sites.keys()
        and final.conventions["device"] == "cuda"
    )


MEMBERS = {"cifar_shaped": "cifar_shaped:1000", "random_targets": "random_targets:digits", "text": f"text:{__file__}"}


@pytest.mark.parametrize("name", datasets.CATALOG.names())
def test_samples_are_on_the_card_and_augmented_there(gpu, name):
    dataset = datasets.get(MEMBERS.get(name, name))
    if dataset.card.files:  # cifar_shaped has their transform
        return
    splits = dataset.load(CARD)
    assert {splits.train_images.device, splits.train_labels.device, splits.test_images.device} == {CARD}
    with gpu.without_waits():
        splits.augment(splits.train_images[:BATCH], torch.Generator(CARD))


# The order of a run's work. Two steps an epoch: three warm up, the fourth is captured.

DIGEST = "host waits for default"  # of the initial state
BEGIN = ["own waits for default"]
END = ["default waits for own"]


def run_on(gpu: VirtualGpu, **changes: object) -> tuple[list[str], str]:
    """Train three epochs. Return what happened and how the steps ran."""
    outcome = train(Trainer(setup_of(**changes)), Recorder())
    return gpu.events, outcome.stepping


def test_a_run_waits_captures_replays_and_releases_in_this_order(gpu):
    events, stepping = run_on(gpu)
    warm, first, later = [], ["capture", "replay on own"], ["replay on own"] * 2
    assert events == [DIGEST, *BEGIN, *warm, *END, *BEGIN, *first, *END, *BEGIN, *later, *END, "release"]
    assert stepping == CAPTURED


@pytest.mark.parametrize("method", ["weight_mirror", "brsf"])
def test_random_numbers_of_a_step_are_those_of_generators_that_the_graph_knows(gpu, method):
    assert run_on(gpu, method=method)[1] == CAPTURED
    assert gpu.draws & {"normal_", "randn"}


def test_the_host_hands_an_epoch_to_the_card_without_a_wait(gpu):
    """Or runs side by side would take turns with the card instead of sharing it."""
    trainer = Trainer(setup_of())
    trainer.run_epoch()
    with gpu.without_waits():
        trainer.begin_epoch()
    trainer.end_epoch()
    assert len(trainer.chain.digests) == 3


def test_the_order_of_an_epoch_is_made_on_the_stream_that_reads_it(gpu):
    """Elsewhere its memory is free for others as soon as the host has handed the epoch to the card."""
    writers = []
    Trainer(setup_of()).begin_epoch(lambda batches: writers.append(gpu.writer(batches[0]).name) or batches)
    assert writers == ["own"]


def test_batches_that_are_trained_on_alone_are_on_the_own_stream_too(gpu):
    trainer = Trainer(setup_of())
    check_two_steps(gpu, trainer)
    assert gpu.events[-1:] == BEGIN and {gpu.writer(one).name for one in trainer.parameters} == {"own"}


def test_the_graphs_are_released_before_the_final_measurements(gpu, monkeypatch):
    """The final measurements need the memory of a small GPU that eight runs share."""
    trainer, before = Trainer(setup_of()), []
    final = loop.with_final
    monkeypatch.setattr(
        loop, "with_final", lambda *given, **named: before.append([*gpu.events]) or final(*given, **named)
    )
    train(trainer, Recorder())
    assert before[0][-1] == "release" and all(parameter.grad is None for parameter in trainer.parameters)


def in_a_step(monkeypatch, work):
    """Do `work(images)` in every step, before it."""
    plain = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self, images, labels: (work(images), plain(self, images, labels))[1])


def test_a_step_that_waits_is_never_captured_and_trains_on(gpu, monkeypatch):
    steps = []
    in_a_step(monkeypatch, lambda images: steps.append(images.sum().item()))
    events, stepping = run_on(gpu)
    assert events == [DIGEST, *(BEGIN + END) * 3] and len(steps) == 6
    assert stepping.startswith(PLAIN) and "waits for the GPU in virtual_gpu.py" in stepping


def test_a_capture_that_raises_gives_the_generators_back_and_its_batch_is_trained_on(gpu, monkeypatch):
    steps = []

    def refused(images):
        if gpu.capturing:
            raise RuntimeError("cannot be recorded")
        steps.append(images)

    in_a_step(monkeypatch, refused)
    events, stepping = run_on(gpu)
    failure = ["capture", *["generator comes back"] * 3, "release"]
    assert events == [DIGEST, *BEGIN, *END, *BEGIN, *failure, *END, *BEGIN, *END] and len(steps) == 6
    assert stepping.startswith(PLAIN) and stepping.endswith("cannot be recorded")


def test_a_capture_refuses_random_numbers_of_a_generator_that_it_does_not_know(gpu, monkeypatch):
    strange = torch.Generator(CARD)
    in_a_step(monkeypatch, lambda images: torch.rand(2, generator=strange, device=images.device))
    assert "generator that the graph does not know" in run_on(gpu)[1]


def test_a_step_that_fails_lets_the_card_finish_what_it_began(gpu, monkeypatch):
    """The memory of a failed run is given to another one at once."""
    trainer = Trainer(setup_of())
    in_a_step(monkeypatch, lambda images: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.begin_epoch()
    assert gpu.events[-1] == "host waits for own"


def test_runs_side_by_side_have_streams_and_graphs_of_their_own(gpu):
    events = []
    trainers = [Trainer(setup_of()) for _ in range(3)]
    run_side_by_side(
        trainers, lambda one, stop, report: train_epochs(one, Recorder(), stop), 3, lambda: False, events.append
    )
    assert [event.kind for event in events] == ["done"] * 3 and {one.value.stepping for one in events} == {CAPTURED}
    assert gpu.events.count("capture") == gpu.events.count("release") == 3
    assert len({id(one._stream) for one in trainers}) == 3


def test_a_resumed_run_begins_with_a_capture_of_its_own(gpu, tmp_path):
    first, second = Trainer(setup_of()), Trainer(setup_of())
    first.run_epoch()
    first.run_epoch()
    ResumeFile(tmp_path, "id").write(first, [])
    ResumeFile(tmp_path, "id").read_into(second)
    gpu.events.clear()
    second.run_epoch()
    assert gpu.events == [*BEGIN, *END] and second.epoch == 3 and second.stepping == PLAIN


# The stand-in sees what it is there for


def test_a_stream_that_has_not_waited_must_not_read(gpu):
    own, tensor = torch.cuda.Stream(), torch.zeros(2, device=CARD)
    with torch.cuda.stream(own), pytest.raises(Race, match="own reads what default wrote"):
        tensor + 1
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        later = tensor + 1
    with pytest.raises(Race, match="default reads what own wrote"):
        later.tolist()


def test_the_host_must_not_read_a_copy_that_is_under_way(gpu):
    pinned = torch.empty(2, pin_memory=True).copy_(torch.zeros(2, device=CARD), non_blocking=True)
    with pytest.raises(Race, match="host reads what default wrote"):
        pinned.numpy()
    torch.cuda.current_stream().synchronize()
    assert len(pinned.numpy()) == 2


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.equal(x, x),
        lambda x: torch.tensor(1.0, device=x.device),
        lambda x: torch.ones(2).to(x.device),
        lambda x: x.copy_(torch.ones(2)),
        lambda x: torch.empty(2).copy_(x),
    ],
    ids=range(12),
)
def test_every_way_to_wait_is_seen(gpu, work):
    x = torch.ones(2, device=CARD)
    work(x)
    with gpu.without_waits(), pytest.raises(Wait):
        work(x)


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x + torch.ones(2),
        lambda x: x @ torch.ones(2, 2),
        lambda x: x[torch.tensor([0])],
        lambda x: torch.nn.functional.linear(x, torch.ones(2, 2)),
        lambda x: x * torch.tensor(2.0),
        lambda x: torch.rand(2, generator=torch.Generator(), device=x.device),
        lambda x: torch.rand(2, generator=torch.Generator(x.device)),
    ],
    ids=range(7),
)
def test_every_mixture_of_devices_is_seen(gpu, work):
    with pytest.raises((MixedDevices, RuntimeError), match="on the card has a tensor|generator on|on device cpu"):
        work(torch.ones(2, device=CARD))
