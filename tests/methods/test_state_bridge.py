"""state_bridge: the reference twin of credit and loss, a perfect predictor is backpropagation, and the toy LQ task."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry import architectures
from fa_registry.errors import InvalidFields
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.state_bridge import PLUGIN
from fa_registry.testing.cases import Case, Setting
from tests.helpers import twins
from tests.helpers.bridges import seen, slopes
from tests.helpers.numpy_mlp import pulled_back, rows, value
from tests.helpers.numpy_resmlp import Arrays, forward, head_back, layer_norm, linear, local_gradients
from tests.helpers.small import tiny_spec, trained


def state_bridge_twin(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_l = ∂CE(head(G(h_l, l/L, e)), y)/∂h_l with e held."""

    def credit(states, error, top_gradient):
        credits = []
        for site, h in enumerate(states):
            told = rows(h, site / (len(states) - 1), error)
            predicted = value(feedback, "layers", told)
            z = linear(w, "out_head", layer_norm(w, "out_ln", predicted))
            p = np.exp(z - z.max(axis=1, keepdims=True))
            believed = p / p.sum(axis=1, keepdims=True) - np.eye(z.shape[1])[y]
            credits.append(
                pulled_back(feedback, "layers", told, head_back(w, {}, predicted, believed))[:, : h.shape[1]]
            )
        return credits

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_twin(penalty, credit_norm):
    twins.check_step("state_bridge", state_bridge_twin, penalty, credit_norm)


def loss_twin(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray) -> float:
    """mean over samples and sites of ‖G − h_L‖² / (‖h_L‖² + 1e-6)."""
    states, _, error = forward(w, x, y)
    top, depth = states[-1], len(states) - 1
    errors = [value(feedback, "layers", rows(h, site / depth, error)) - top for site, h in enumerate(states)]
    return float(np.mean([(miss**2).sum(axis=1) / ((top**2).sum(axis=1) + 1e-6) for miss in errors]))


def test_the_loss_and_its_gradient_equal_the_twins():
    task, images, labels = twins.twin_task("state_bridge", 0.0, "none")
    weights, feedback = twins.arrays(task.network), twins.arrays(task.feedback)

    def twin(moved: Arrays) -> float:
        return loss_twin(weights, moved, images.numpy(), labels.numpy())

    loss = PLUGIN.feedback_loss(task.feedback, seen(task, images, labels))
    assert loss.item() == pytest.approx(twin(feedback), rel=1e-12)
    loss.backward()
    found, expected = slopes(twin, feedback, task.feedback)
    assert found == pytest.approx(expected, rel=1e-7)


class Tail(torch.nn.Module):
    """A perfect predictor: chunk l of the rows goes through blocks l+1..L."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def told(self, inputs):
        return inputs.error

    def forward(self, states, times, told):
        sites = len(self.network.blocks) + 1
        predicted = []
        for site, (state, time) in enumerate(zip(states.chunk(sites), times.chunk(sites), strict=True)):
            assert torch.allclose(time, torch.full_like(time, site / (sites - 1)))
            for block in self.network.blocks[site:]:
                state = self.network.step(state, block(state))
            predicted.append(state)
        return torch.cat(predicted)


@pytest.mark.parametrize("architecture", ["resmlp", "linear_lq", "student_net"])
def test_a_perfect_predictor_is_backpropagation(architecture):
    setting = Setting(PLUGIN, architectures.CATALOG.get(architecture), {"num_blocks": 3, "learn": True}, 0)
    drawn = setting.case()
    case = Case(PLUGIN, drawn.network, Tail(drawn.network), drawn.images, drawn.labels)
    inputs = case.inputs()
    for credit, gradient in zip(case.credits(inputs), inputs.gradients, strict=True):
        assert torch.allclose(credit, gradient, rtol=1e-10, atol=1e-12)
    assert PLUGIN.feedback_loss(case.feedback, inputs).item() == pytest.approx(0.0, abs=1e-25)


@pytest.mark.parametrize(("conditioning", "told"), [("error", 10), ("target", 10), ("none", 0)])
def test_two_hidden_layers_of_256_on_state_time_and_what_is_told(conditioning, told):
    shape = NetworkShape((7, 7, 7), 10)
    state = PLUGIN.feedback(shape, {"conditioning": conditioning}, torch.Generator().manual_seed(0)).state_dict()
    shapes = {name: tuple(value.shape) for name, value in state.items() if name.endswith("weight")}
    assert list(shapes.values()) == [(256, 7 + 4 + told), (256, 256), (7, 256)]
    for weight in (state[name] for name in shapes):
        assert weight.abs().max().item() <= weight.shape[1] ** -0.5
        assert weight.var().item() == pytest.approx(1 / (3 * weight.shape[1]), rel=0.06)  # of U(±1/√inputs)


@pytest.mark.parametrize("conditioning", ["error", "target", "none"])
def test_what_is_told_is_what_the_option_says(conditioning):
    task, images, labels = twins.twin_task("state_bridge", 0.0, "none")
    inputs = seen(task, images, labels)
    task.feedback.conditioning = conditioning
    expected = {"error": inputs.error, "target": torch.eye(10)[labels].double(), "none": torch.empty(len(labels), 0)}
    assert torch.equal(task.feedback.told(inputs), expected[conditioning])


def test_unknown_conditioning_is_refused():
    with pytest.raises(InvalidFields, match="expected one of error, target, none, found 'logits'"):
        tiny_spec(method="state_bridge", method_options={"conditioning": "logits"})


def test_it_finds_the_costate_of_the_toy_task():
    """Published: .945 after 8,000 steps of 12 blocks; here 200 of 4 blocks, so that the test takes seconds."""
    raw = {"architecture": "linear_lq", "dataset": "lq", "batch_size": 256, "architecture_options": {"num_blocks": 4}}
    cosines = {}
    for method in ("state_bridge", "dfa"):
        row = trained(**raw, method=method, epochs=2)[2].final.sites["costate_cosine"]
        cosines[method] = [reading.value for reading in row]
    assert min(cosines["state_bridge"]) > 0.85
    assert np.mean(cosines["state_bridge"]) > 0.9
    assert abs(np.mean(cosines["dfa"])) < 0.05
