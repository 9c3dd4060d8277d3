"""Methods that are backpropagation at some sites, for some batches, in one precision or for some time; and honest ones."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import pytest
import torch

from fa_registry import methods
from fa_registry.conformance import check_method
from fa_registry.conformance.credit_check import DISGUISED, TOO_EARLY, Trial, gradients, objection
from fa_registry.evidence.backprop_check import (
    ANOTHER_NAME,
    BEFORE_LEARNING,
    NO_FEEDBACK_LEARNS,
    backprop_check,
    early_objection,
    site_cosines,
)
from fa_registry.evidence.replay import RecordedEpochs
from fa_registry.evidence.replay_from_seed import replay_first_steps
from fa_registry.evidence.replayer import RecordedTraining
from fa_registry.methods.base import NoFeedback
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.seeding import generator
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import Trainer
from tests.conformance.fakes import backpropagated, calls_autograd
from tests.helpers.plugins import put_plugin
from tests.helpers.tiny_tasks import tiny_task, trained

BATCH = 32  # of the run; the eval batch has 128 samples


class Mixed(DirectFeedbackAlignment):
    """DFA's card and feedback; the credit is what `mix` makes of the inputs, the gradients and DFA's credit."""

    card = dataclasses.replace(calls_autograd(DirectFeedbackAlignment.card), properties=("feedback_fixed",))

    def __init__(self, mix, **card):
        self.mix, self.card = mix, dataclasses.replace(self.card, **card)

    def honest(self, feedback, inputs):
        return super().credits(feedback, inputs)

    def credits(self, feedback, inputs):
        return self.mix(inputs, backpropagated(inputs), self.honest(feedback, inputs))


class Hashed(Mixed):
    """Without a feedback state: the matrix of each site is a constant of the code."""

    def feedback(self, shape, options, generator):
        return NoFeedback()

    def honest(self, feedback, inputs):
        shapes = [(inputs.error.shape[1], state.shape[1]) for state in inputs.hidden]
        drawn = (
            torch.randn(*shape, generator=torch.Generator().manual_seed(site)) for site, shape in enumerate(shapes)
        )
        return [inputs.error @ matrix.to(inputs.error) for matrix in drawn]


def turned(gradient, other, degrees):
    """The gradient of each sample, turned towards another direction."""
    unit = gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-30)
    side = other - (other * unit).sum(dim=1, keepdim=True) * unit
    side = side / side.norm(dim=1, keepdim=True).clamp_min(1e-30)
    angle = math.radians(degrees)
    return gradient.norm(dim=1, keepdim=True) * (math.cos(angle) * unit + math.sin(angle) * side)


def honest(inputs, exact, own):
    return own


def all_but_last(inputs, exact, own):
    return [*exact[:-1], turned(exact[-1], own[-1], 30)]


def only_at(site, inputs, exact, own):
    return [exact[index] if index == site else credit for index, credit in enumerate(own)]


def only_in(dtype, inputs, exact, own):
    return exact if inputs.error.dtype == dtype else own


def unless_the_probe(inputs, exact, own):
    return own if len(inputs.labels) == 128 else only_at(1, inputs, exact, own)


def but_one_sample(inputs, exact, own):
    credits = [credit.clone() for credit in exact]
    for credit, other in zip(credits, own, strict=True):
        credit[0] = 1e8 * other[0]
    return credits


def turned_everywhere(degrees, inputs, exact, own):
    return [turned(*pair, degrees) for pair in zip(exact, own, strict=True)]


@pytest.fixture(autouse=True)
def third_party(monkeypatch):
    """The method dfa counts as another package's."""
    location = dataclasses.replace(methods.CATALOG.location("dfa"), package="elsewhere", version="1")
    put_plugin(monkeypatch, methods.CATALOG, "dfa", location)


@pytest.fixture(scope="module")
def network():
    return trained(method="bp", batch_size=BATCH)[0].setup.network


def setup_of(method, network=None) -> RunSetup:
    setup = tiny_task(batch_size=BATCH)
    shape = methods.base.NetworkShape(tuple([16] * 3), 10, tuple(setup.splits.test_images.shape[1:]), {})
    feedback = method.feedback(shape, {}, generator(3, "feedback"))
    return dataclasses.replace(setup, network=network or setup.network, method=method, feedback=feedback)


ATTACKS = {
    "every site but the last": Mixed(all_but_last),
    "every site but the last, without a feedback state": Hashed(all_but_last),
    "the first site alone": Mixed(partial(only_at, 0)),
    "the middle site alone": Mixed(partial(only_at, 1)),
    "float32 alone": Mixed(partial(only_in, torch.float32)),
    "float64 alone": Mixed(partial(only_in, torch.float64)),
    "other batch sizes than the probe's": Mixed(unless_the_probe),
    "every sample but one, whose credit is huge": Mixed(but_one_sample),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_one_site_that_is_the_gradient_is_enough(attack, network):
    found = backprop_check(setup_of(ATTACKS[attack], network))
    assert found.outcome == "not possible" and found.detail.startswith(ANOTHER_NAME)


@pytest.mark.parametrize("kind", [Mixed, Hashed])
def test_honest_credits_raise_no_alarm(kind, network):
    assert backprop_check(setup_of(kind(honest), network)).outcome == "agrees"


@pytest.mark.parametrize(
    ("kind", "fresh"), [(Mixed, "newly drawn feedback"), (Hashed, "newly drawn weights")], ids=["feedback", "no state"]
)
def test_a_turned_gradient_is_seen_under_fresh_draws_with_and_without_a_feedback_state(kind, fresh, network):
    found = {angle: backprop_check(setup_of(kind(partial(turned_everywhere, angle)), network)) for angle in (15, 32)}
    assert found[15].outcome == "not possible" and fresh in found[15].detail
    assert found[32].outcome == "agrees"  # beyond the limit of the conformance suite, see SECURITY.md


def test_a_card_may_not_say_that_feedback_learns_where_there_is_none(network):
    found = backprop_check(setup_of(Hashed(all_but_last, may_reach_bp=True), network))
    assert found.outcome == "not possible" and found.detail.startswith(NO_FEEDBACK_LEARNS)


def trial_and_batch(method):
    setup = setup_of(method)
    trial = Trial.copy_of(setup, generator(3, "noise"))
    return trial, *setup.eval_batch


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_median_over_samples_is_a_cosine_whatever_the_length_of_the_gradient(scale):
    """One huge sample hides the gradient from the cosine of the batch and of the update, not from the median."""

    def scaled(inputs, exact, own):
        return [scale * credit for credit in but_one_sample(inputs, exact, own)]

    found = site_cosines(*trial_and_batch(Mixed(scaled)))
    assert all(value == pytest.approx(1.0, abs=1e-5) for value in found.values())


@pytest.mark.parametrize(
    ("card", "progress", "reason"),
    [
        ({}, 0.0, ANOTHER_NAME),
        ({}, 0.5, ANOTHER_NAME),
        ({"may_reach_bp": True}, 0.05, BEFORE_LEARNING),
        ({"may_reach_bp": True}, 0.5, ""),
        ({"properties": ("approaches_bp",)}, 0.0, ""),
    ],
)
def test_feedback_that_learns_may_reach_backpropagation_only_after_a_tenth_of_the_epochs(card, progress, reason):
    found = early_objection(*trial_and_batch(Mixed(all_but_last, **card)), progress)
    assert found.startswith(reason) and bool(found) == bool(reason)


@pytest.mark.parametrize(("card", "text"), [({}, DISGUISED), ({"may_reach_bp": True}, TOO_EARLY)])
def test_a_step_that_is_backpropagation_does_not_deny_what_the_card_declares(card, text):
    trainer = Trainer(setup_of(Mixed(lambda inputs, exact, own: exact, **card)))
    trial = Trial.copy_of(trainer.setup, trainer.generators["noise"])
    batch = trainer.setup.eval_batch
    trainer.step(*batch)
    assert objection(trial, *batch, gradients(trainer.setup.network)) == text


class ForAWhile(Mixed):
    """Backpropagation at one site from call 30 to call 90: not in the first steps, and not at the final weights."""

    def __init__(self):
        super().__init__(self.by_calls)
        self.calls = 0

    def by_calls(self, inputs, exact, own):
        self.calls += 1
        return only_at(1, inputs, exact, own) if 30 <= self.calls < 90 else own


def test_steps_that_an_author_cannot_know_are_compared_in_a_whole_replay():
    def replayed(draws):
        recorded = RecordedTraining(epochs=2, exact=False, recorded=RecordedEpochs(draws=draws))
        return replay_first_steps(setup_of(ForAWhile()), recorded, replay=80).near_backprop

    assert replayed({}) == ""
    assert replayed({1: 45 + 7}).startswith(f"at step {45 + 8}: {ANOTHER_NAME}")


@pytest.mark.parametrize(
    ("method", "failed"),
    [
        (Mixed(partial(only_in, torch.float32)), {"not_secretly_bp", "credit_is_equal_in_float32"}),
        (Hashed(honest), {"feedback_is_drawn_from_the_seed"}),
        (Hashed(honest, has_feedback=False), set()),
    ],
    ids=["exact in float32", "declares a state that it lacks", "honest"],
)
def test_the_conformance_suite_runs_the_credit_in_the_precision_of_training_too(method, failed):
    method.card = dataclasses.replace(method.card, properties=())
    assert {result.property for result in check_method(method, ["mlp"]) if result.outcome == "fail"} == failed
