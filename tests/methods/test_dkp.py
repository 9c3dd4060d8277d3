"""dkp: the reference implementation, the learned matrices of every shape of state, and better alignment than dfa."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.architectures import CATALOG as ARCHITECTURES
from fa_registry.conformance.small_networks import Setting, variants
from fa_registry.diagnostics.base import sample_cosines
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.dfa import PLUGIN as DFA
from fa_registry.methods.dkp import PLUGIN as DKP
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.numpy_resmlp import AdamW, Arrays, forward, local_gradients
from tests.helpers.tiny_tasks import tiny_task


def dkp_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_l = e B_lᵀ; c_0 uses B_1."""

    def credit(states, error, top_gradient):
        return [error @ feedback[f"B_{max(site, 1):02d}"].T for site in range(len(states))]

    return local_gradients(w, x, y, credit, penalty, kind)


def feedback_gradients(w: Arrays, x: np.ndarray, y: np.ndarray) -> Arrays:
    """h_lᵀ e/N for the sites 1..L: the transpose of what a head reading h_l would receive."""
    states, _, error = forward(w, x, y)
    return {f"B_{site:02d}": state.T @ error / len(x) for site, state in enumerate(states) if site}


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("dkp", dkp_reference, penalty, credit_norm)


def test_weights_and_feedback_learn_as_the_reference():
    task, images, labels = numpy_checks.reference_task("dkp", 0.0, "rms")
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)
    recipe, batch = task.spec.recipe, (images.numpy(), labels.numpy())
    trainer, for_w, for_b = Trainer(task), *(AdamW(recipe.learning_rate, recipe.weight_decay) for _ in range(2))
    for _ in range(3):
        trainer.step(images, labels)
        grads, feedback_grads = (
            dkp_reference(weights, feedback, *batch, 0.0, "rms"),
            feedback_gradients(weights, *batch),
        )
        for name, matrix in task.feedback.named_parameters():
            assert matrix.grad.numpy() == pytest.approx(feedback_grads[name], rel=1e-8, abs=1e-10), name
        weights, feedback = for_w.step(weights, grads), for_b.step(feedback, feedback_grads)
    for module, expected in ((task.network, weights), (task.feedback, feedback)):
        for name, found in numpy_checks.arrays(module).items():
            assert found == pytest.approx(expected[name], rel=1e-7, abs=1e-9), name


def test_feedback_starts_as_dfas_and_is_learned():
    shape = NetworkShape((7, 20, 30), 5)
    own, dfas = (method.feedback(shape, {}, torch.Generator().manual_seed(4)) for method in (DKP, DFA))
    assert own.state_dict().keys() == dfas.state_dict().keys() == {"B_01", "B_02", "B_00"}
    assert all(torch.equal(value, dfas.state_dict()[name]) for name, value in own.state_dict().items())
    assert len(list(own.parameters())) == 3 and not list(own.buffers())


@pytest.mark.parametrize("name", ["vit_mini", "small_resnet", "causal_transformer", "mlp"])
def test_a_matrix_learns_from_the_average_over_positions_or_from_every_position(name):
    architecture = ARCHITECTURES.get(name)
    case = Setting(DKP, architecture, next(variants(architecture)), 0).case()
    inputs = case.inputs(measuring=False)
    DKP.feedback_loss(case.feedback, inputs).backward()
    for matrix_name, matrix in case.feedback.named_parameters():
        state, error = inputs.hidden[int(matrix_name[2:])].numpy(), inputs.error.numpy()
        if error.ndim == 3:
            expected = np.einsum("ntd,ntc->dc", state, error)
        else:
            axes = {2: (), 3: (1,), 4: (2, 3)}[state.ndim]
            expected = state.mean(axis=axes).T @ error if axes else state.T @ error
        assert matrix.grad.numpy() == pytest.approx(expected / len(error), rel=1e-10, abs=1e-12)


def test_dkp_aligns_better_than_dfa():
    """Plain tanh network of two layers on digits; the cosine of the credit with the gradient at site 2, averaged over samples."""

    def alignment(method: str) -> float:
        options = {"d_hidden": 32, "num_blocks": 2, "activation": "tanh"}
        recipe = {"credit_norm": "none", "weight_decay": 0.0, "learning_rate": 0.01, "epochs": 10}
        trainer = Trainer(tiny_task(method=method, architecture="mlp", architecture_options=options, **recipe))
        for _ in range(10):
            trainer.run_epoch()
        network, (images, labels) = trainer.setup.network, trainer.setup.eval_batch
        logits, hidden = network(images, return_hidden=True)
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        gradient = torch.autograd.grad(losses, hidden[2])[0]
        error = logits.softmax(dim=1) - torch.nn.functional.one_hot(labels, 10)
        return sample_cosines((error @ trainer.setup.feedback.B_02.T).detach(), gradient).mean().item()

    assert alignment("dkp") > alignment("dfa") + 0.1
