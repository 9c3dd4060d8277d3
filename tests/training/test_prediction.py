"""Methods that predict by themselves: what is evaluated, what stays the head's, and which scores are refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry import methods
from fa_registry.architectures.mlp import PLUGIN as MLP
from fa_registry.conformance.suite import PREDICTION, UNIVERSAL, check_method
from fa_registry.errors import PluginError, UsageError
from fa_registry.evidence.network_check import network_check
from fa_registry.methods.base import CreditedStates, HasOwnPrediction
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.methods.ep import EquilibriumPropagation
from fa_registry.methods.forward_forward import ForwardForward
from fa_registry.records import Measurements, Reading
from fa_registry.tasks.classification import accuracy
from fa_registry.tracking.model_loader import LoadedModel
from fa_registry.training.loop import train
from fa_registry.training.measuring import measure, with_final
from fa_registry.training.prediction import scores_of
from fa_registry.training.trainer import Trainer
from tests.helpers.plugins import put_plugin
from tests.helpers.tiny_tasks import Recorder, tiny_task, trained, weights_equal

CONSTANT = 3  # the class that AlwaysThree predicts


class OwnScores(DirectFeedbackAlignment, HasOwnPrediction):
    """dfa whose prediction is `answer(feedback, network, images)`."""

    card = dataclasses.replace(DirectFeedbackAlignment.card, name="own_scores", prediction="what a test chooses")

    def __init__(self, answer):
        self.answer = answer

    def scores(self, feedback, network, images):
        return self.answer(feedback, network, images)


def constant(feedback, network, images):
    return torch.eye(10)[CONSTANT].expand(len(images), -1)


def by_head(feedback, network, images):
    """The logits of the head, by way of the network that a method receives."""
    state = network.embed(images)
    for block in network.blocks:
        state = network.step(state, block(state))
    return network.readout(state)


def setup_of(answer, **changes):
    return dataclasses.replace(tiny_task(**changes), method=OwnScores(answer))


def share(labels: torch.Tensor) -> float:
    return (labels == CONSTANT).double().mean().item()


def test_accuracy_scores_and_training_accuracy_are_the_methods():
    setup = setup_of(constant)
    recorder = Recorder()
    outcome = train(Trainer(setup), recorder)
    scalars, splits = recorder.rows[-1].measurements.scalars, setup.splits
    assert scalars["accuracy"].value == pytest.approx(share(splits.test_labels))
    assert scalars["accuracy_train"].value == pytest.approx(share(splits.train_labels))
    right = torch.from_numpy(outcome.final.sample_scores["accuracy"].scores())
    assert torch.equal(right.bool(), (splits.test_labels == CONSTANT).cpu())
    assert measure(setup).scalars["accuracy"] == scalars["accuracy"]  # as an audit recomputes it


def test_weights_and_all_other_metrics_are_those_without_a_prediction():
    setups = [tiny_task(), setup_of(constant)]
    recorders = [Recorder(), Recorder()]
    outcomes = [train(Trainer(setup), recorder) for setup, recorder in zip(setups, recorders, strict=True)]
    assert weights_equal(setups[0].network, setups[1].network)
    finals = [outcome.final for outcome in outcomes]
    assert finals[0].sites == finals[1].sites
    differ = {name for name, reading in finals[0].scalars.items() if reading != finals[1].scalars[name]}
    assert differ == {"accuracy", "accuracy_train"}


def test_the_head_predicts_for_every_other_method():
    setup = tiny_task()
    assert setup.predictor is setup.network
    assert scores_of(setup.method, setup.feedback, setup.network, setup.eval_batch[0], (128, 10)) is None
    alone = setup_of(by_head)
    images, labels = alone.splits.test_images, alone.splits.test_labels
    assert accuracy(alone.predictor, images, labels) == accuracy(setup.network, images, labels)


def test_scores_are_computed_in_eval_mode_and_without_gradients():
    found = []

    def note(feedback, network, images):
        found.append((network.training, feedback.training, torch.is_grad_enabled()))
        return constant(feedback, network, images)

    setup = setup_of(note)
    setup.network.train(), setup.feedback.train()
    Trainer(setup).step(*setup.eval_batch)
    assert found == [(False, False, False)]
    assert setup.network.training and setup.feedback.training


def with_grad(feedback, network, images):
    with torch.enable_grad():
        return by_head(feedback, network, images)


REFUSED = {
    "wrong shape": lambda feedback, network, images: torch.zeros(len(images), 9),
    "one axis": lambda feedback, network, images: torch.zeros(len(images)),
    "classes": lambda feedback, network, images: torch.zeros(len(images), 10, dtype=torch.int64),
    "no tensor": lambda feedback, network, images: None,
    "raises": lambda feedback, network, images: 1 / 0,
    "gradients": with_grad,
}


@pytest.mark.parametrize("fault", REFUSED)
def test_bad_scores_are_refused_before_training_and_name_the_method(fault):
    trainer = Trainer(setup_of(REFUSED[fault]))
    with pytest.raises(PluginError, match="'own_scores'"):
        train(trainer, Recorder())
    assert trainer.epoch == 0
    with pytest.raises(PluginError, match="'own_scores'"):
        trainer.setup.predictor(trainer.setup.eval_batch[0])


def test_scores_that_are_not_finite_count_as_wrong():
    setup = setup_of(lambda feedback, network, images: constant(feedback, network, images) + torch.nan)
    scalars = train(Trainer(setup), Recorder()).final.scalars
    assert scalars["accuracy"].value == scalars["accuracy_train"].value == 0


class ReturnsATuple(EquilibriumPropagation):
    def credits_and_states(self, feedback, inputs):
        return super().credits_and_states(feedback, inputs).credits, inputs.hidden


def test_own_states_of_another_type_are_refused():
    setup = dataclasses.replace(tiny_task(method="ep"), method=ReturnsATuple())
    with pytest.raises(PluginError, match="'ep'.*CreditedStates.*tuple"):
        train(Trainer(setup), Recorder())


def test_credits_of_several_passes_are_summed_per_sample():
    rows = torch.arange(12.0).reshape(6, 2)
    (summed,) = CreditedStates([rows]).per_sample(3)
    assert torch.equal(summed, rows[:3] + rows[3:])
    assert CreditedStates([rows]).per_sample(6)[0] is rows
    assert CreditedStates([rows]).per_sample(4)[0] is rows  # no whole number of passes: check_credits refuses the shape


# Conformance


class ReadsTheBatch(ForwardForward):
    def scores(self, feedback, network, images):
        found = super().scores(feedback, network, images)
        return found - found.mean(dim=0)


class Counts(ForwardForward):
    def feedback(self, shape, options, generator):
        module = super().feedback(shape, options, generator)
        module.register_buffer("calls", torch.zeros(()))
        return module

    def scores(self, feedback, network, images):
        feedback.calls += 1
        return super().scores(feedback, network, images)


class SaysNothing(ForwardForward):
    card = dataclasses.replace(ForwardForward.card, prediction="")


@pytest.mark.parametrize("method", [ReadsTheBatch(), Counts(), SaysNothing()], ids=lambda one: type(one).__name__)
def test_conformance_refuses_a_prediction_that_is_no_function_of_the_sample(method):
    outcomes = {one.property: one.outcome for one in check_method(method, [MLP])}
    assert outcomes[PREDICTION.__name__] == "fail"


def test_conformance_checks_the_prediction_of_no_other_method():
    names = [check.__name__ for check in UNIVERSAL]
    assert [one.property for one in check_method("dfa", [MLP])][: len(names) + 1] == [*names, "exact"]
    assert check_method("forward_forward", [MLP])[len(names)].property == PREDICTION.__name__


# Audit


@pytest.fixture
def checked(monkeypatch):
    """The network check of a trained run whose method, of another package, predicts by `answer`."""
    location = dataclasses.replace(methods.CATALOG.location("dfa"), package="elsewhere", version="1")
    put_plugin(monkeypatch, methods.CATALOG, "dfa", location)
    setup = trained(method="bp", epochs=4)[0].setup
    setup = dataclasses.replace(setup, spec=dataclasses.replace(setup.spec, method="dfa"))

    def check(answer):
        judged = dataclasses.replace(setup, method=OwnScores(answer))
        right = accuracy(judged.predictor, setup.splits.test_images, setup.splits.test_labels)
        return network_check(judged, Measurements({}, {"accuracy": Reading(right)}))

    return check


def test_an_audit_probes_the_prediction_of_another_package(checked):
    assert checked(by_head).outcome == "agrees"


def test_a_prediction_that_ignores_the_network_gets_no_pass(checked):
    splits = tiny_task().splits
    images = splits.augment(splits.train_images, torch.Generator().manual_seed(0)).flatten(1)
    targets = torch.nn.functional.one_hot(splits.train_labels, 10).float()
    weights = torch.linalg.lstsq(images, targets, driver="gelsd").solution  # a classifier of its own
    found = checked(lambda feedback, network, images: images.flatten(1) @ weights)
    assert found.outcome == "not possible" and "newly drawn network" in found.detail


def test_a_built_in_prediction_is_not_probed():
    setup = tiny_task(method="forward_forward")
    assert network_check(setup, Measurements({}, {"accuracy": Reading(0.1)})) is None


def test_the_final_measurements_of_forward_forward_are_recomputed_alike():
    trainer, recorder, outcome = trained(method="forward_forward", epochs=1)
    again = with_final(measure(trainer.setup), trainer.setup)
    assert again.scalars["accuracy"] == outcome.final.scalars["accuracy"]
    assert again.sample_scores["accuracy"] == outcome.final.sample_scores["accuracy"]


# Promoted models


def test_a_loaded_model_predicts_as_its_run_was_evaluated():
    setup = tiny_task(method="forward_forward")
    images = setup.eval_batch[0]
    model = LoadedModel(setup.network, setup.feedback, setup.method, setup.spec, {})
    assert torch.equal(model.predict(images), setup.predictor(images))
    head = LoadedModel(setup.network, None, methods.CATALOG.get("bp"), setup.spec, {})
    with torch.no_grad():
        assert torch.equal(head.predict(images), setup.network(images))
    with pytest.raises(UsageError, match="'forward_forward'"):
        dataclasses.replace(model, feedback=None).predict(images)
