"""span_masking, a third-party task for tokens: one file, shown in docs/own-task.md, and this test.

Each span counts equally, so the loss is not that of token_prediction, and the rows of metrics are not what the loss is divided by.
"""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

import fa_registry
from fa_registry import architectures, datasets, tasks
from fa_registry.architectures.base import Network
from fa_registry.conformance.credit_check import Trial, gradients_by_credits
from fa_registry.diagnostics import run_forward_backward
from fa_registry.errors import InvalidFields, PluginError
from fa_registry.methods.base import CreditedStates
from fa_registry.metrics import REFERENCE_CHECK
from fa_registry.records import NOT_ITS_GRADIENT, TASK_CHECK
from fa_registry.seeding import generator
from fa_registry.tasks import reported_metrics, token_prediction
from fa_registry.tasks.token_prediction import IGNORED
from fa_registry.training.measuring import measure
from fa_registry.training.probe_context import credits_under
from fa_registry.training.run_setup import RunSetup, build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.step import backprop_step
from tests.helpers.plugins import installed_member
from tests.helpers.tiny_tasks import CPU

SOURCE = Path(__file__).resolve().parents[1] / "fixtures" / "third_party_task" / "my_tasks" / "span_masking.py"
SMALL = {"d_hidden": 8, "num_blocks": 2, "heads": 2}
FIELDS = {"architecture": "causal_transformer", "dataset": "masked_text", "architecture_options": SMALL}
METHOD = """
import dataclasses
from fa_registry.methods.dfa import DirectFeedbackAlignment

class Mine(DirectFeedbackAlignment):
    card = dataclasses.replace(DirectFeedbackAlignment.card, name="my_dfa")

PLUGIN = Mine()
"""
N, T, V = 5, 9, 7
# spans at the start and the end of a sequence, two neighbours with one visible token between them, and no span
VISIBLE = ["..#######", "##..#...#", "###...##.", ".#.#.#.#.", "#########"]


@pytest.fixture(scope="module", autouse=True)
def packages(tmp_path_factory):
    """The task, its data set and a method, each in a separate package."""
    folder = tmp_path_factory.mktemp("packages")
    data = "from span_masking import DATASET as PLUGIN\n"
    with (
        installed_member(folder / "task", "tasks", "span_masking", SOURCE.read_text(encoding="utf-8")),
        installed_member(folder / "data", "datasets", "masked_text", data),
        installed_member(folder / "method", "methods", "my_dfa", METHOD),
    ):
        yield


def batch(vocabulary: int = V) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits (N, T, V) in float64 and targets (N, T)."""
    random = torch.Generator().manual_seed(1)
    is_visible = torch.tensor([[mark == "#" for mark in line] for line in VISIBLE])
    targets = torch.randint(0, vocabulary, (N, T), generator=random).masked_fill(is_visible, IGNORED)
    return torch.randn(N, T, vocabulary, dtype=torch.float64, generator=random), targets


def setup_of(method: str = "dfa", **changes) -> RunSetup:
    setup = build_setup(parse_spec({**FIELDS, "method": method, "seed": 1, "epochs": 1, **changes}), CPU)
    splits = dataclasses.replace(
        setup.splits,
        test_images=setup.splits.test_images[:48],
        test_labels=setup.splits.test_labels[:48],
        train_images=setup.splits.train_images[:96],
        train_labels=setup.splits.train_labels[:96],
    )
    return dataclasses.replace(setup, splits=splits)


def in_float64(setup: RunSetup) -> RunSetup:
    return dataclasses.replace(setup, network=setup.network.double())


def test_every_span_counts_equally():
    outputs, targets = batch()
    task, shares = tasks.CATALOG.get("span_masking"), outputs.softmax(dim=2)
    expected, spans = [0.0] * N, 0
    for sample, line in enumerate(VISIBLE):
        position = 0
        for span in line.replace("#", " ").split():
            position = line.index(span, position)
            places = range(position, position + len(span))
            nats = [-shares[sample, place, targets[sample, place]].log().item() for place in places]
            expected[sample] += sum(nats) / len(nats)
            position, spans = position + len(span), spans + 1
    assert task.sample_losses(outputs, targets).tolist() == pytest.approx(expected, rel=1e-12)
    assert task.counted(targets) == spans == 10
    assert len(task.state_rows(outputs, targets)) == sum(line.count(".") for line in VISIBLE) == 16


@pytest.mark.parametrize("vocabulary", [V, T])
def test_the_error_is_the_gradient_of_the_loss(vocabulary):
    outputs, targets = batch(vocabulary)
    task, leaf = tasks.CATALOG.get("span_masking"), outputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(task.sample_losses(leaf, targets).sum(), leaf)
    torch.testing.assert_close(task.output_error(outputs, targets), gradient, rtol=1e-13, atol=1e-15)
    assert gradient[4].count_nonzero() == 0 and gradient[0, :2].count_nonzero() == 2 * vocabulary


def test_the_exact_credit_trains_as_autograd_does():
    """Credits g_l, a step of bp, and autograd of the mean loss give the same gradients of all weights."""
    setup = in_float64(setup_of("bp", credit_norm="none"))
    images, labels = setup.eval_batch
    found = run_forward_backward(setup.network, images, labels, task=setup.task)
    credits = credits_under(setup, setup.feedback, found)
    logits, states, *_ = setup.network(images, return_hidden=True)
    loss = setup.task.sample_losses(logits, labels)
    for credit, gradient in zip(credits, torch.autograd.grad(loss.sum(), states, retain_graph=True), strict=True):
        torch.testing.assert_close(credit, gradient, rtol=1e-10, atol=1e-14)
    weights = dict(setup.network.named_parameters())
    expected = dict(zip(weights, torch.autograd.grad(loss.mean(), list(weights.values())), strict=True))
    trial = Trial.copy_of(setup, generator(1, "noise"))
    by_credits = gradients_by_credits(trial, images, labels, CreditedStates(credits))
    backprop_step(setup.network, images, labels, 0.0, task=setup.task)
    for name, weight in weights.items():
        torch.testing.assert_close(weight.grad, expected[name], rtol=1e-9, atol=1e-14)
        torch.testing.assert_close(by_credits[name], expected[name], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("size", [1, 7])
def test_batches_change_neither_the_loss_nor_the_main_metric(monkeypatch, size):
    setup = in_float64(setup_of("bp"))
    images, labels = setup.eval_batch
    whole = setup.task.sample_losses(setup.network(images), labels)
    parts = [
        setup.task.sample_losses(setup.network(each), y)
        for each, y in zip(images.split(size), labels.split(size), strict=True)
    ]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-12, atol=1e-12)
    metrics = setup.task.evaluate(setup.network, images, labels)
    monkeypatch.setattr(token_prediction, "TEST_BATCH", size)
    again = setup.task.evaluate(setup.network, images, labels)
    assert again["token_loss"].value == pytest.approx(metrics["token_loss"].value, rel=1e-12)
    assert metrics["token_loss"].value == pytest.approx(whole.sum().item() / setup.task.counted(labels), rel=1e-12)


@pytest.mark.parametrize("method", ["dni", "pepita"])
def test_a_method_without_tokens_is_refused_by_its_card(method):
    expected = f"method: according to its card, {method} trains the tasks classification, regression, not span_masking"
    with pytest.raises(InvalidFields, match=expected):
        parse_spec({**FIELDS, "method": method, "seed": 1, "epochs": 1})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("token_loss", -0.25, "at least 0"), ("perplexity", 0.5, "at least 1"), ("bits_per_token", -1.0, "at least 0")],
)
def test_an_impossible_value_for_tokens_is_refused(monkeypatch, name, value, expected):
    task, reading = tasks.CATALOG.get("span_masking"), fa_registry.Reading(value)
    monkeypatch.setattr(task, "evaluate", lambda *batch: {"token_loss": fa_registry.Reading(1.0), name: reading})
    with pytest.raises(PluginError, match=f"task 'span_masking': evaluate: {name}: expected {expected}, found {value}"):
        reported_metrics(task, "evaluate")


@pytest.mark.long
def test_two_epochs_are_recorded_verified_and_at_most_warned(tmp_path):
    """The method is third-party too, so its credits (N, T, D) reach the reference check."""
    store = f"sqlite:///{tmp_path}/store.db"
    settings = {f"architecture.{name}": value for name, value in SMALL.items()}
    for method, control in (("my_dfa", "none"), ("bp", "frozen")):
        fa_registry.train(
            method=method,
            architecture="causal_transformer",
            dataset="masked_text",
            seed=1,
            epochs=2,
            control=control,
            settings=settings,
            store=store,
            experiment="spans",
            device="cpu",
        )
    audited = fa_registry.audit(
        experiment="spans", edition="2026-12:token", store=store, out=str(tmp_path / "out"), device="cpu"
    )
    runs = {run.record.spec.method: run for run in audited.report.runs}
    assert set(runs) == {"my_dfa", "bp"} and not [gap for gap in audited.report.excluded if gap.kind == "integrity"]
    for run in runs.values():
        assert run.record.integrity.state == "verified", run.record.integrity
        assert run.verdict.outcome != "pass"
        assert ("task", "warn") in [(finding.rule, finding.outcome) for finding in run.findings]
        assert TASK_CHECK in [check.subject for check in run.record.integrity.checks]
        assert 0 < run.record.measurements.scalars["token_loss"].value < 4
        deviations = [reading.value for reading in run.record.measurements.sites[REFERENCE_CHECK]]
        assert len(deviations) == 3 and max(deviations) < 1e-3
    assert "tasks/span_masking" in runs["bp"].record.provenance["code"]


class Doubled(torch.autograd.Function):
    """The identity, whose backward pass doubles the gradient."""

    @staticmethod
    def forward(ctx, state):
        return state.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class DoubledBack(nn.Module):
    def __init__(self, block: nn.Module):
        super().__init__()
        self.block = block

    def forward(self, state):
        return Doubled.apply(self.block(state))


@pytest.mark.parametrize(
    ("dataset", "method", "samples"),
    [
        ("masked_text", "my_dfa", 48),
        ("markov_text", "bp", 1),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in product(["masked_text", "markov_text"], ["my_dfa", "dfa", "ep", "bp"], [48, 1])
        ),
    ],
)
def test_reference_of_tokens(monkeypatch, dataset, method, samples):
    """A wrong backward pass of the last block is found at the sites below it; an honest network passes."""
    setup = setup_of(method, dataset=dataset)
    test = setup.splits.test_images[:samples], setup.splits.test_labels[:samples]
    splits = dataclasses.replace(setup.splits, test_images=test[0], test_labels=test[1])
    location = dataclasses.replace(architectures.CATALOG.location("causal_transformer"), package="other", version="1")
    monkeypatch.setattr(architectures.CATALOG, "location", lambda name: location)
    honest = dataclasses.replace(setup, splits=splits)
    rows = measure(honest, moments=("epoch", "final")).sites
    assert max(reading.value for reading in rows[REFERENCE_CHECK]) < 1e-3
    assert all(reading.value is not None for reading in rows["g_norm"])
    network = setup.network
    wrong = Network(
        network.embed, [network.blocks[0], DoubledBack(network.blocks[1])], network.out_ln, network.out_head
    )
    rows = measure(dataclasses.replace(honest, network=wrong), moments=("epoch", "final")).sites
    deviations = [reading.value for reading in rows[REFERENCE_CHECK]]
    assert min(deviations[:2]) > 0.01 and deviations[2] < 1e-3
    assert all(reading.reason.startswith(NOT_ITS_GRADIENT) for reading in rows["g_norm"])


def test_the_data_set_names_the_task_and_hides_the_masked_tokens():
    setup = setup_of()
    images, labels = setup.eval_batch
    masked = labels != IGNORED
    assert datasets.get("masked_text").card.task == setup.task.card.name == "span_masking"
    assert torch.equal(images == 32, masked) and 0.1 < masked.double().mean() < 0.4 and labels[masked].max() < 32
