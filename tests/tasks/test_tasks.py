"""Tasks: identities of loss, error and score; the data that a task refuses; a third-party task."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fa_registry import datasets, tasks
from fa_registry.diagnostics.base import MOMENTS
from fa_registry.errors import InvalidFields, PluginError, UnknownName, UsageError
from fa_registry.evidence.backprop_check import backprop_check
from fa_registry.evidence.replay_from_seed import credit_in_training
from fa_registry.methods.base import CreditInputs
from fa_registry.tasks import TaskCard, output_error, sample_losses, target_rows, task_of
from fa_registry.tasks.classification import Classification, accuracy
from fa_registry.training.code_fingerprint import fingerprint
from fa_registry.training.measuring import check_first_credits, measure, with_conventions
from fa_registry.training.run_setup import RunSetup, build_setup, build_setup_from_splits
from fa_registry.training.spec_plugins import KEPT
from fa_registry.training.trainer import Trainer
from tests.helpers.covering import every_method
from tests.helpers.tiny_tasks import CPU, supported, tiny_spec, tiny_task

DRAW = torch.Generator().manual_seed(2)
OUTPUTS = torch.randn(6, 4, generator=DRAW, dtype=torch.float64)
CLASSES = torch.tensor([0, 3, 1, 2, 2, 0])
VALUES = torch.randn(6, 4, generator=DRAW, dtype=torch.float64)


@pytest.mark.parametrize("labels", [CLASSES, VALUES], ids=["classes", "values"])
def test_the_error_is_the_gradient_of_the_summed_loss(labels):
    outputs = OUTPUTS.clone().requires_grad_()
    gradient = torch.autograd.grad(sample_losses(outputs, labels).sum(), outputs)[0]
    torch.testing.assert_close(output_error(OUTPUTS, labels), gradient, rtol=1e-14, atol=1e-14)


def test_the_loss_of_values_is_half_the_squared_distance():
    assert sample_losses(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0]])).tolist() == [12.5]


def test_the_loss_of_classes_is_minus_the_logarithm_of_their_share():
    shares = OUTPUTS.exp() / OUTPUTS.exp().sum(dim=1, keepdim=True)
    expected = -shares[torch.arange(6), CLASSES].log()
    torch.testing.assert_close(sample_losses(OUTPUTS, CLASSES), expected)


def test_target_rows():
    assert target_rows(OUTPUTS[:2], CLASSES[:2]).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert torch.equal(target_rows(OUTPUTS, VALUES), VALUES)


@pytest.mark.parametrize(("labels", "name"), [(CLASSES, "classification"), (VALUES, "regression")])
def test_the_type_of_the_labels_determines_the_builtin_task(labels, name):
    assert task_of(labels).card.name == name and task_of(labels, name) is task_of(labels)
    assert [task.card.name for task in tasks.CATALOG.built_in().values() if task.takes(labels)] == [name]


def test_a_name_that_no_task_has_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'regression'"):
        task_of(VALUES, "regresion")


@pytest.mark.parametrize(("name", "labels"), [("classification", VALUES), ("regression", CLASSES)])
def test_targets_of_the_other_task_are_refused(name, labels):
    task = tasks.CATALOG.get(name)
    with pytest.raises(UsageError, match=r"found outputs \(6, 4\) with torch"):
        task.sample_losses(OUTPUTS, labels)
    assert len(task.problems(labels, labels, 4, 128)) == 2


def test_the_batch_score_counts_right_classes_with_finite_losses():
    task, outputs = tasks.CATALOG.get("classification"), OUTPUTS.clone()
    outputs[torch.arange(6), CLASSES] += 100.0
    outputs[1] = torch.nan
    outputs[2, 0] += 1000.0
    losses = task.sample_losses(outputs, CLASSES)
    assert task.batch_score(outputs, CLASSES, losses).item() == 4
    assert tasks.CATALOG.get("regression").batch_score(outputs, VALUES, losses).item() == 0


def test_evaluation_is_the_accuracy_or_has_a_reason():
    network = nn.Identity()
    evaluated = tasks.CATALOG.get("classification").evaluate(network, OUTPUTS, CLASSES)
    assert {name: reading.value for name, reading in evaluated.items()} == {
        "accuracy": accuracy(network, OUTPUTS, CLASSES)
    }
    reading = tasks.CATALOG.get("regression").evaluate(network, OUTPUTS, VALUES)["accuracy"]
    assert reading.value is None and "no accuracy" in reading.reason


def test_a_card_without_a_loss_is_refused():
    with pytest.raises(PluginError, match="lacks: loss, source"):
        TaskCard("mine", "one line", "class numbers (N,)", "", "")


def test_the_card_of_a_data_set_names_its_task():
    assert datasets.get("lq").card.task == "regression"
    setup = tiny_task()
    assert setup.card.task == "" and setup.task.card.name == "classification"


def test_data_that_do_not_fit_the_named_task_are_refused_before_training():
    setup, spec = tiny_task(), tiny_spec()
    card = dataclasses.replace(setup.card, task="regression")
    other = SimpleNamespace(card=card, same_for_every_seed=False, load=lambda *where: setup.splits)
    vars(spec)[KEPT] = SimpleNamespace(dataset=other)
    with pytest.raises(InvalidFields, match="expected target values"):
        build_setup(spec, CPU)


def test_without_a_task_the_inputs_use_that_of_their_labels():
    inputs = CreditInputs([], OUTPUTS, OUTPUTS, OUTPUTS, labels=CLASSES)
    assert torch.equal(inputs.losses_of(OUTPUTS), sample_losses(OUTPUTS, CLASSES))
    assert torch.equal(inputs.losses_of(OUTPUTS, VALUES), sample_losses(OUTPUTS, VALUES))


class TwiceTheLoss(Classification):
    """A third-party task: every loss counts twice."""

    card = TaskCard("twice", "cross entropy times two", "class numbers (N,)", "2 CE", "tests", headline="accuracy")

    def sample_losses(self, outputs, targets):
        return 2 * super().sample_losses(outputs, targets)

    def output_error(self, outputs, targets, rows=None):
        return 2 * super().output_error(outputs, targets, rows)


@pytest.fixture
def twice(monkeypatch) -> None:
    """The task `twice` of another package."""
    location = dataclasses.replace(tasks.CATALOG.location("classification"), package="elsewhere", version="1.0")
    builtin = tasks.CATALOG.get
    monkeypatch.setitem(tasks.CATALOG._locations, "twice", location)
    monkeypatch.setattr(tasks.CATALOG, "get", lambda name: TwiceTheLoss() if name == "twice" else builtin(name))


@pytest.mark.parametrize("method", ["bp", "dfa", "ep", "weight_mirror"])
def test_a_third_party_task_reaches_training_and_measurements(twice, method):
    """Twice the loss is twice the gradient, the error and the loss that is reported; Γ is unchanged."""
    once = tiny_task(**supported(method))
    setup = build_setup_from_splits(once.spec, CPU, dataclasses.replace(once.card, task="twice"), once.splits)
    assert isinstance(setup.task, TwiceTheLoss)
    one, two = measure(once), measure(setup)
    for single, double in zip(one.sites["g_norm"], two.sites["g_norm"], strict=True):
        assert double.value == pytest.approx(2 * single.value, rel=1e-5)
    if method == "dfa":
        gammas = zip(one.sites["gamma"], two.sites["gamma"], strict=True)
        assert all(
            single.value is None or double.value == pytest.approx(single.value, abs=1e-6) for single, double in gammas
        )
    first, second = _first_step(once), _first_step(setup)
    assert second.loss.item() == pytest.approx(2 * first.loss.item(), rel=1e-6)
    assert second.score.item() == first.score.item()
    if method != "bp":
        torch.testing.assert_close(second.seen.error, 2 * first.seen.error)
        torch.testing.assert_close(second.seen.losses_of(OUTPUTS, CLASSES), 2 * sample_losses(OUTPUTS, CLASSES))


def _first_step(setup: RunSetup):
    splits = setup.splits
    return Trainer(setup).step(splits.test_images[:32], splits.test_labels[:32])


class OneHot(Classification):
    """A third-party task: classification with one-hot rows as targets, which no built-in task takes."""

    card = TaskCard("one_hot", "one-hot rows", "one-hot rows (N, C)", "CE", "tests", headline="accuracy")

    def takes(self, targets):
        return not targets.is_floating_point()

    def problems(self, train, test, outputs, eval_samples):
        return []

    def target_shape(self, outputs):
        return outputs.shape

    def target_rows(self, outputs, targets):
        self.check_shapes(outputs, targets)
        return targets.to(outputs.dtype)

    def sample_losses(self, outputs, targets):
        return super().sample_losses(outputs, targets.argmax(dim=1))

    def check_shapes(self, outputs, targets):
        assert outputs.dim() == 2

    def batch_score(self, outputs, targets, losses):
        return super().batch_score(outputs, targets.argmax(dim=1), losses)

    def evaluate(self, network, inputs, targets):
        return super().evaluate(network, inputs, targets.argmax(dim=1))


@pytest.fixture
def one_hot(monkeypatch) -> None:
    """The task `one_hot` of another package."""
    location = dataclasses.replace(tasks.CATALOG.location("classification"), package="elsewhere", version="1.0")
    builtin = tasks.CATALOG.get
    monkeypatch.setitem(tasks.CATALOG._locations, "one_hot", location)
    monkeypatch.setattr(tasks.CATALOG, "get", lambda name: OneHot() if name == "one_hot" else builtin(name))


@pytest.mark.long
@pytest.mark.parametrize("method", every_method())
def test_every_metric_and_step_uses_the_task_of_the_data_set(one_hot, method):
    """One-hot targets give every value of class numbers; code that ignores the task fails on their shape."""
    fields = supported(method)
    once = tiny_task(**fields)
    splits = dataclasses.replace(
        once.splits,
        train_labels=nn.functional.one_hot(once.splits.train_labels, 10),
        test_labels=nn.functional.one_hot(once.splits.test_labels, 10),
    )
    setup = build_setup_from_splits(once.spec, CPU, dataclasses.replace(once.card, task="one_hot"), splits)
    results = []
    for each in (once, setup):
        trainer = Trainer(each)
        check_first_credits(each)
        losses = trainer.run_epoch()
        measured = measure(each, moments=MOMENTS, initial=trainer.initial)
        results.append((losses, measured, credit_in_training(each), backprop_check(each)))
    (old_losses, old, *old_checks), (losses, new, *checks) = results
    assert losses == old_losses and new.failures == old.failures == {}
    assert new.scalars == old.scalars
    assert {**new.sites, "reference_check": None} == {**old.sites, "reference_check": None}
    assert all(value.value is None or value.value < 0.01 for value in new.sites["reference_check"])
    assert checks == old_checks and checks[0].outcome != "differs"


def test_the_fingerprint_names_third_party_tasks_only(twice, monkeypatch):
    spec = tiny_spec()
    assert not any(name.startswith("tasks/") for name in fingerprint(spec))
    digits = datasets.get(spec.dataset)
    monkeypatch.setattr(type(digits), "card", dataclasses.replace(digits.card, task="twice"))
    assert fingerprint(spec)["tasks/twice"]["package"] == "elsewhere"


def test_chance_is_what_a_model_without_inputs_reaches():
    """The share of the largest test class; the entropy of the training text's tokens, without those that do not count."""
    task = tasks.CATALOG.get("classification")
    assert task.chance(torch.tensor([0, 1]), torch.tensor([2, 2, 2, 0, 1])) == 3 / 5
    tokens = tasks.CATALOG.get("token_prediction")
    text = torch.tensor([[0, 0, 1, -100], [0, 2, 0, -100]])  # of 6 tokens four are 0
    expected = -(4 / 6 * math.log(4 / 6) + 2 * (1 / 6) * math.log(1 / 6))
    assert tokens.chance(text, torch.tensor([[1, 1]])) == pytest.approx(expected)
    assert tasks.CATALOG.get("regression").chance(torch.rand(3, 2), torch.rand(3, 2)) is None


@pytest.mark.parametrize("counted", [None, 3], ids=["all positions", "some positions"])
def test_the_mean_of_the_scores_of_tokens_is_the_loss_per_token(counted):
    task, draw = tasks.CATALOG.get("token_prediction"), torch.Generator().manual_seed(3)
    tokens = torch.randint(7, (70, 5), generator=draw)
    targets = torch.randint(7, (70, 5), generator=draw)
    if counted:
        targets[:9, counted:] = -100
    network = torch.nn.Sequential(torch.nn.Embedding(7, 6), torch.nn.Linear(6, 7))
    scores = task.scores(network, tokens, targets)
    assert scores.shape == (70,)
    loss = task.evaluate(network, tokens, targets)["token_loss"].value
    assert scores.mean().item() == pytest.approx(loss, rel=1e-6)


def test_the_scores_of_classes_are_right_answers():
    task, images = tasks.CATALOG.get("classification"), torch.randn(600, 4, generator=torch.Generator().manual_seed(4))
    network = torch.nn.Linear(4, 3)
    with torch.no_grad():
        labels = network(images).argmax(dim=1)
        labels[100:] = (labels[100:] + 1) % 3
    assert task.scores(network, images, labels).tolist() == [True] * 100 + [False] * 500
    assert task.evaluate(network, images, labels)["accuracy"].value == 1 / 6
    assert tasks.CATALOG.get("regression").scores(network, images, labels) is None


def test_the_bigram_loss_is_the_entropy_of_a_token_given_the_token_before_it():
    """A cycle has none; tokens that depend on nothing have that of one token; a coin after every second token half of ln 2."""
    task = tasks.CATALOG.get("token_prediction")

    def bigram(text):
        text = torch.as_tensor(text)
        return task.baselines(text[None, :-1], text[None, 1:])["bigram_loss"]

    assert bigram([0, 1, 2] * 50 + [0]) == pytest.approx(0, abs=1e-12)
    pairs = [(a, b) for a in range(4) for b in range(4)]
    inputs, targets = torch.tensor(pairs).T
    assert task.baselines(inputs[None], targets[None])["bigram_loss"] == pytest.approx(math.log(4))
    assert bigram([0, 1, 0, 2] * 50 + [0]) == pytest.approx(math.log(2) / 2)
    ignored = torch.tensor([[1, -100, -100]])
    assert task.baselines(torch.tensor([[0, 0, 0]]), ignored)["bigram_loss"] == pytest.approx(0)
    assert task.baselines(torch.randn(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)) == {}


class OwnScores(Classification):
    card = dataclasses.replace(Classification.card, name="own_scores")
    wrong: torch.Tensor | None = None

    def evaluate(self, network, inputs, targets):
        return super().evaluate(network, inputs, targets)

    def scores(self, network, inputs, targets):
        return super().scores(network, inputs, targets) if self.wrong is None else self.wrong


class OnlyEvaluate(Classification):
    def evaluate(self, network, inputs, targets):
        return super().evaluate(network, inputs, targets)


def with_task(setup, task):
    """The setup of the same data whose task is another one."""
    other = dataclasses.replace(setup)
    vars(other)["task"] = task
    return other


def test_scores_are_those_of_the_task_that_evaluates():
    setup = tiny_task()
    measured = measure(setup)
    recorded = with_conventions(measured, setup).sample_scores
    assert recorded["accuracy"].samples == len(setup.splits.test_labels)
    assert recorded["accuracy"].scores().mean() == pytest.approx(measured.scalars["accuracy"].value)
    assert with_conventions(measured, with_task(setup, OwnScores())).sample_scores == recorded
    assert "accuracy" not in with_conventions(measured, with_task(setup, OnlyEvaluate())).sample_scores


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.full((360,), 2.0)])
def test_scores_of_another_shape_or_mean_are_refused(wrong):
    setup, task = tiny_task(), OwnScores()
    task.wrong = wrong
    with pytest.raises(PluginError, match="scores: expected one score per test sample"):
        with_conventions(measure(setup), with_task(setup, task))


def test_scores_that_raise_name_the_task(monkeypatch):
    setup, task = tiny_task(), OwnScores()
    monkeypatch.setattr(OwnScores, "scores", lambda self, *arguments: 1 / 0)
    with pytest.raises(PluginError, match="own_scores.*ZeroDivisionError"):
        with_conventions(measure(setup), with_task(setup, task))
