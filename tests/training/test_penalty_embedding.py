"""The penalty on the embedding: λ_0·mean_i ‖h_0‖² in J_0, and in the loss of bp."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry.conformance.suite import objective_gradient
from fa_registry.errors import InvalidFields
from fa_registry.records.runs import RunSpec
from fa_registry.training import step as step_module
from fa_registry.training.specs import parse_spec, run_name
from tests.architectures.test_block_form import setting
from tests.helpers.tiny_tasks import RAW, double, tiny_spec, tiny_task, trained
from tests.training.test_step import gradients

LAMBDA, LAMBDA_0, SAMPLES = 0.05, 0.3, 32
# one method of each way through the step: end to end, own credits, chained credits, own states of the blocks
METHODS = ("bp", "dfa", "weight_fa", "ep")


def step(task, penalty: float, penalty_embedding: float, credit_norm: str = "rms") -> step_module.StepSums:
    images, labels = (rows[:SAMPLES] for rows in task.eval_batch)
    task.network.zero_grad(set_to_none=True)
    if task.method.end_to_end:
        return step_module.backprop_step(task.network, images, labels, penalty, penalty_embedding=penalty_embedding)
    given = (task.network, task.method, task.feedback, images, labels, penalty, credit_norm)
    return step_module.local_credit_step(*given, penalty_embedding=penalty_embedding)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("penalty", [0.0, LAMBDA])
def test_it_adds_autograds_gradient_to_the_embedding_alone(method, penalty):
    task = double(tiny_task(method=method))
    sums = [step(task, penalty, 0.0)]
    without = gradients(task.network)
    sums.append(step(task, penalty, LAMBDA_0))
    added = {name: gradient - without[name] for name, gradient in gradients(task.network).items()}
    h_0 = task.network.embed(task.eval_batch[0][:SAMPLES])
    loss = LAMBDA_0 * h_0.square().sum(dim=1).mean()
    for name, parameter in task.network.embed.named_parameters():
        expected = torch.autograd.grad(loss, parameter, retain_graph=True)[0]
        torch.testing.assert_close(added.pop(f"embed.{name}"), expected, rtol=1e-10, atol=1e-13)
    assert not any(change.any() for change in added.values())
    assert (sums[1].penalty - sums[0].penalty).item() == pytest.approx((loss * SAMPLES).item(), rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_step_is_autograd_of_the_literal_objective(method):
    """In float64, to 1e-10; see fa_registry.conformance.suite.PENALTIES."""
    assert objective_gradient(setting(method, "resmlp", {})).outcome == "pass"


def test_the_conformance_suite_sees_a_penalty_on_the_wrong_site(monkeypatch):
    genuine = step_module.local_credit_step
    monkeypatch.setattr(
        "fa_registry.conformance.small_networks.local_credit_step",
        lambda *given, penalty_embedding=0.0, **named: genuine(*given, **named),
    )
    assert objective_gradient(setting("dfa", "resmlp", {})).outcome == "fail"


@pytest.mark.parametrize("method", ["bp", "dfa", "weight_fa"])
def test_training_uses_it_and_reports_it(method):
    plain, penalised = (trained(method=method, epochs=2, penalty_embedding=strength)[1].rows for strength in (0, 1.0))
    norms = [rows[-1].measurements.sites["h_norm"][0].value for rows in (plain, penalised)]
    assert norms[1] < norms[0]
    assert plain[-1].measurements.scalars["penalty"].value == 0.0
    assert penalised[-1].measurements.scalars["penalty"].value > 0.0


def test_labels_and_names():
    spec = tiny_spec(penalty=0.01, penalty_embedding=0.02)
    assert spec.method_label == "dfa+pen λ=0.01, embedding 0.02"
    assert dataclasses.replace(spec, penalty=0.0).method_label == "dfa+pen embedding 0.02"
    assert dataclasses.replace(spec, penalty_embedding=0.0).method_label == "dfa+pen λ=0.01"
    assert run_name(spec).startswith(spec.method_label)


def test_a_penalty_of_zero_is_no_part_of_the_identity():
    plain = RunSpec("dfa", "resmlp", "digits", 1, 2, penalty=0.01)
    penalised = dataclasses.replace(plain, penalty_embedding=0.01)
    # recorded before the field existed
    assert plain.identity == "d55ee2feb50eec1e0d5fc735db27228324080c9e1acb312053ae5389ce451b16"
    assert penalised.identity != plain.identity and penalised.setting == plain.setting
    assert penalised.unpenalised == dataclasses.replace(plain, penalty=0.0)


@pytest.mark.parametrize("control", ["frozen", "shallow", "ladder_0"])
def test_a_control_without_trained_blocks_has_no_penalty(control):
    with pytest.raises(InvalidFields) as caught:
        parse_spec({**RAW, "method": "bp", "control": control, "penalty": 0.1, "penalty_embedding": 0.1})
    assert [problem.split(": ")[0] for problem in caught.value.problems] == ["penalty", "penalty_embedding"]


@pytest.mark.parametrize("value", [-1, "much"])
def test_a_wrong_strength(value):
    with pytest.raises(InvalidFields) as caught:
        parse_spec({**RAW, "penalty_embedding": value})
    assert [problem.split(": ")[0] for problem in caught.value.problems] == ["penalty_embedding"]


def test_an_embedding_without_weights_has_no_penalty():
    shape = {"d_hidden": 16, "num_blocks": 2}
    with pytest.raises(InvalidFields) as caught:
        tiny_task(architecture="mlp", architecture_options=shape, penalty_embedding=0.1)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == ["penalty_embedding"]
