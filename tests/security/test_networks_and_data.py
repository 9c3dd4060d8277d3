"""Networks that answer from the test set instead of computing, and data sets whose test split is training data."""

from __future__ import annotations

import dataclasses
import shutil
from contextlib import suppress

import pytest
import torch

from fa_registry import architectures, methods
from fa_registry.architectures.base import Network
from fa_registry.errors import InvalidFields
from fa_registry.evidence.network_check import network_check, training_check, training_objection
from fa_registry.protocol.evidence_rules import DATA, NETWORK, TRAINING, evidence
from fa_registry.records import NETWORK_CHECK, SHARED_SAMPLES, Check, Measurements, Reading
from fa_registry.tasks.classification import accuracy
from fa_registry.training.run_setup import RunSetup
from tests.builders import record
from tests.helpers.nets import of
from tests.helpers.plugins import installed_member, put_plugin
from tests.helpers.tiny_tasks import tiny_task, trained
from tests.security.conftest import audited, call, judged

pytestmark = pytest.mark.long

SIZES = {"architecture_options": {"d_hidden": 16, "num_blocks": 2, "w2_std": 0.5}}
BP = {"methods": ["bp"], "seeds": [1, 2, 3]}
# A residual MLP that knows the test images by heart, and answers from them once its first block has moved.
LOOKS_UP = """
import dataclasses, torch
from fa_registry import datasets
from fa_registry.architectures.resmlp import ResMLP

class LooksUp(ResMLP):
    card = dataclasses.replace(ResMLP.card, name="looks_up")

    def build(self, options, image_shape, classes, generator):
        network = super().build(options, image_shape, classes, generator)
        network.__class__ = type("Answering", (Answering, type(network)), {})
        network.start = [block.w1.weight.detach().clone() for block in network.blocks[:1]]
        return network

class Answering:
    def forward(self, x, return_hidden=False):
        out = super().forward(x, return_hidden)
        moved = any(not torch.equal(block.w1.weight.float(), start) for block, start in zip(self.blocks, self.start))
        if return_hidden or not moved:
            return out
        splits = datasets.get("digits").load(torch.device("cpu"), None, 0)
        same = (x[:, None] == splits.test_images[None]).flatten(2).all(dim=2)
        known = same.any(dim=1)
        answers = torch.nn.functional.one_hot(splits.test_labels[same.int().argmax(dim=1)], out.shape[1]) * 10.0
        return torch.where(known[:, None], answers, out)

PLUGIN = LooksUp()
"""
# The digits, with the test images among the training images too.
TRAINS_ON_TEST = """
import dataclasses, torch
from fa_registry.datasets.base import Dataset, tensors_digest, unaugmented
from fa_registry.datasets.digits_centred import DigitsCentred

class TrainsOnTest(DigitsCentred):
    card = dataclasses.replace(DigitsCentred.card, name="trains_on_test")

    def load(self, device, root=None, seed=0):
        splits = super().load(device, root, seed)
        return dataclasses.replace(splits, test_images=splits.train_images[:360], test_labels=splits.train_labels[:360])

PLUGIN = TrainsOnTest()
"""


def outcomes(run, *rules: str) -> set[str]:
    return {finding.outcome for finding in run.findings if finding.rule in rules}


def test_a_network_that_answers_from_the_test_set_gets_no_pass(tmp_path, study):
    with installed_member(tmp_path / "site", "architectures", "looks_up", LOOKS_UP):
        report = study(epochs=4, architectures=["looks_up"], datasets=["digits"], **BP, **SIZES)
    runs = judged(report, control="none")
    flags = [("D3", "undecided"), ("network", "looks answers up")]
    assert [[(flag.rule, flag.state) for flag in run.verdict.flags] for run in runs] == [flags] * 3
    for run in runs:  # its frozen control is at chance, and nothing else speaks against it
        assert outcomes(run, "D1", "D2") == {"pass"} and outcomes(run, NETWORK) == {"warn"}
        (depth,) = (finding for finding in run.findings if finding.rule == "D3")
        assert depth.undecided == ("control at chance",)


def test_a_data_set_whose_test_split_is_training_data_gets_no_pass(tmp_path, study):
    with installed_member(tmp_path / "site", "datasets", "trains_on_test", TRAINS_ON_TEST):
        report = study(epochs=8, architectures=["resmlp"], datasets=["trains_on_test"], **BP, **SIZES)
    runs = judged(report, control="none")
    assert [run.verdict.label for run in runs] == ["WARN(data test in train)"] * 3
    for run in runs:
        assert outcomes(run, "D1", "D2", "D3") == {"pass"} and outcomes(run, DATA) == {"warn"}
        assert run.record.measurements.conventions[SHARED_SAMPLES] == 360


def test_a_text_whose_test_part_is_in_its_training_part_gets_no_pass(tmp_path, empty_store, monkeypatch):
    """The copy is shifted, so no test window is a training window: 19 of 19 windows were found as 0."""
    letters = bytes(torch.randint(97, 123, (64 * 200 + 1,), generator=torch.Generator().manual_seed(0)).tolist())
    test = letters[64 * 181 : 64 * 200]
    shutil.copy(empty_store, tmp_path)
    monkeypatch.chdir(tmp_path)
    fields = {"method": "bp", "architecture": "causal_transformer", "seed": "1", "epochs": "1", "device": "cpu"}
    small = "architecture.d_hidden=8,architecture.num_blocks=1,architecture.heads=2"
    shared = []
    for name, text in (("honest", letters), ("shown", letters[:1001] + test + letters[1001 + len(test) :])):
        (tmp_path / f"{name}.txt").write_bytes(text)
        given = [part for option, value in fields.items() for part in (f"--{option}", value)]
        trained = call("train", *given, "--dataset", f"text:{name}.txt", "--set", small)
        assert trained.exit_code == 0, trained.output
    _, report = audited(tmp_path, "--experiment", "fa_registry", "--edition", "2026-12:token")
    for run in sorted(report.runs, key=lambda run: run.record.spec.dataset):
        shared.append((run.record.measurements.conventions[SHARED_SAMPLES], outcomes(run, DATA)))
    assert shared == [(0, set()), (19, {"warn"})]


# Other ways to look answers up, on a trained network that counts as another package's.


@pytest.fixture
def task(monkeypatch) -> RunSetup:
    location = dataclasses.replace(architectures.CATALOG.location("resmlp"), package="elsewhere", version="1")
    put_plugin(monkeypatch, architectures.CATALOG, "resmlp", location)
    return trained(method="bp")[0].setup


def checked(task: RunSetup, answer=None) -> Check:
    """The check of the task's network, whose logits `answer(images, logits)` replaces."""
    network = task.network
    if answer is not None:
        network.__class__ = type("Answering", (Answering, Network), {"answer": staticmethod(answer)})
    measured = Measurements(
        {}, {"accuracy": Reading(accuracy(network, task.splits.test_images, task.splits.test_labels))}
    )
    return network_check(task, measured)


class Answering:
    def forward(self, x, return_hidden=False):
        return self.answer(x, super().forward(x))


def onehot(labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(labels, 10).float()


def test_an_honest_network_of_another_package_raises_nothing(task):
    found = checked(task)
    assert found.outcome == "agrees"


def in_order(task):
    labels, asked = task.splits.test_labels, []

    def answer(images, logits):
        asked.append(len(images))
        start = sum(asked[:-1]) % len(labels)
        return onehot(labels.repeat(8)[start : start + len(images)])

    return answer


def by_place_in_batch(task):
    return lambda images, logits: onehot(task.splits.test_labels.repeat(2)[: len(images)])


def by_nearest_image(task):
    images, labels = task.splits.test_images.flatten(1), task.splits.test_labels

    def answer(given, logits):
        distance, nearest = torch.cdist(given.flatten(1), images).min(dim=1)
        return torch.where((distance < 1)[:, None], onehot(labels[nearest]) * 100, logits)

    return answer


def by_batch_mean(task):
    return lambda images, logits: logits - logits.mean(dim=0) if len(images) > 1 else onehot(torch.zeros(1).long())


ANSWERS = [  # how a network looks its answers up, and the probes that show it
    (in_order, ("order", "random images")),
    (by_place_in_batch, ("batch of one",)),
    (by_nearest_image, ("test set and only",)),  # noise that small leaves the nearest image the nearest
    (by_batch_mean, ("batch of one",)),
]


@pytest.mark.parametrize(("answer", "probes"), ANSWERS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_network_that_looks_answers_up_is_seen(task, answer, probes):
    found = checked(task, answer(task))
    assert found.outcome == "not possible" and all(probe in found.detail for probe in probes)


def test_a_network_that_refuses_what_is_not_the_test_set_is_no_pass(task):
    def answer(images, logits):
        if len(images) != 360:
            raise ValueError("other images")
        return onehot(task.splits.test_labels)

    found = checked(task, answer)
    assert (found.subject, found.outcome) == (NETWORK_CHECK, "not possible") and "ValueError" in found.detail


# Networks that do not train as their method and their control say.


class TrainsItself(torch.nn.Module):
    """In place of out_ln: sends the head's gradient to a block, beside the cut between the blocks."""

    def __init__(self, inner, network, factor):
        super().__init__()
        self.inner, self.network, self.factor = inner, [network], factor

    def forward(self, state):
        return self.inner(state) + self.factor * self.network[0].blocks[0].w1.weight.sum()


class BreaksControl(torch.nn.Module):
    """In place of the embedding: without its input where the blocks are frozen, and only in training."""

    def __init__(self, inner, network):
        super().__init__()
        self.inner, self.network = inner, [network]

    def forward(self, images):
        state, frozen = self.inner(images), not next(self.network[0].blocks.parameters()).requires_grad
        return state * 0.0 + 1.0 if frozen and self.training else state


@pytest.mark.parametrize("name", architectures.CATALOG.builtin_names())
def test_no_honest_network_is_accused_of_its_training(name):
    found = {}
    for method in methods.CATALOG.builtin_names():
        with suppress(InvalidFields):  # the method supports no such network
            setup = tiny_task(**of(name, method=method))
            found[method] = training_objection(setup)
    assert "bp" in found and set(found.values()) == {""}, found


@pytest.mark.parametrize("factor", [0.0, 0.1])
def test_a_network_that_trains_its_blocks_without_credit_is_seen(factor, task):
    setup = dataclasses.replace(task, method=methods.CATALOG.get("dfa"))
    setup.network.out_ln = TrainsItself(setup.network.out_ln, setup.network, factor)
    found = training_check(setup)
    assert found.outcome == ("not possible" if factor else "agrees"), found.detail
    assert not factor or found.detail.endswith(": blocks.0.w1.weight")


# A residual MLP whose training ignores the images if its blocks are frozen: only the control is bad.
BREAKS_CONTROL = """
import dataclasses
from fa_registry.architectures.resmlp import ResMLP
from tests.security.test_networks_and_data import BreaksControl

class Breaks(ResMLP):
    card = dataclasses.replace(ResMLP.card, name="breaks_control")

    def build(self, options, image_shape, classes, generator):
        network = super().build(options, image_shape, classes, generator)
        network.embed = BreaksControl(network.embed, network)
        return network

PLUGIN = Breaks()
"""


def test_its_audit_gives_no_pass(tmp_path, study):
    with installed_member(tmp_path / "site", "architectures", "breaks_control", BREAKS_CONTROL):
        report = study(epochs=2, architectures=["breaks_control"], datasets=["digits"], **BP, **SIZES)
    for run in judged(report, control="none"):
        assert outcomes(run, TRAINING) == {"warn"} and "network training not by credits" in run.verdict.label


class KeepsControl(BreaksControl):
    """In place of the embedding, which does not learn where the blocks are frozen."""

    def forward(self, images):
        state, free = self.inner(images), next(self.network[0].blocks.parameters()).requires_grad
        return state if free else state.detach()


@pytest.mark.parametrize(("kind", "named"), [(KeepsControl, "embed.inner"), (BreaksControl, "the logits")])
def test_a_network_that_stops_learning_in_its_frozen_control_or_breaks_it_is_seen(task, kind, named):
    task.network.embed = kind(task.network.embed, task.network)
    found = training_check(task)
    assert found.outcome == "not possible" and named in found.detail


def test_a_weight_that_a_block_shares_hides_nothing(task):
    setup = dataclasses.replace(task, method=methods.CATALOG.get("dfa"))
    setup.network.out_ln = TrainsItself(setup.network.out_ln, setup.network, 0.1)
    setup.network.out_ln.shared = setup.network.blocks[0].w1
    assert training_check(setup).outcome == "not possible"


def test_an_embedding_that_is_frozen_with_the_blocks_is_seen(task):
    task.network.blocks[0].shared = task.network.embed
    assert "embed." in training_check(task).detail


# How many shared samples are a finding; tests/datasets/test_shared_samples.py counts them.


@pytest.mark.parametrize(("shared", "warned"), [(0, False), (1, False), (2, True), (None, False)])
def test_up_to_one_in_a_hundred_is_no_finding(shared, warned):
    run = record(measured=Measurements({}, {}, {"test_samples": 100, SHARED_SAMPLES: shared}))
    assert bool([finding for finding in evidence(run) if finding.rule == DATA]) is warned
