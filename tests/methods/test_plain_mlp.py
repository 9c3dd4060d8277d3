"""bp and dfa on a plain perceptron with tanh and ReLU: the setting of the studies on Fashion-MNIST, against the equations."""

from __future__ import annotations

import numpy as np
import pytest

from fa_registry.training.step import backprop_step, local_credit_step
from tests.helpers.numpy_checks import arrays
from tests.helpers.numpy_resmlp import Arrays
from tests.helpers.tiny_tasks import double, tiny_task

SAMPLES, LAYERS = 23, 3
ACTIVATIONS = {"tanh": (np.tanh, lambda a: 1 - np.tanh(a) ** 2), "relu": (lambda a: np.maximum(a, 0), lambda a: a > 0)}


def gradients(weights: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, activation: str) -> Arrays:
    """Gradients of the mean cross entropy by backpropagation, or by dfa where there is a feedback matrix for every layer.

    a_l = h_{l-1} W_lᵀ + b_l, h_l = φ(a_l), z = h_L W_oᵀ + b_o, e = softmax(z) − onehot(y).
    bp: δ_L = e W_o ∘ φ'(a_L), δ_{l-1} = δ_l W_l ∘ φ'(a_{l-1}); dfa: δ_l = e B_lᵀ ∘ φ'(a_l). dW_l = δ_lᵀ h_{l-1} / N.
    """
    phi, slope = ACTIVATIONS[activation]
    states, sums = [x.reshape(len(x), -1)], []
    for layer in range(LAYERS):
        sums.append(states[-1] @ weights[f"blocks.{layer}.w.weight"].T + weights[f"blocks.{layer}.w.bias"])
        states.append(phi(sums[-1]))
    outputs = states[-1] @ weights["out_head.weight"].T + weights["out_head.bias"]
    odds = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True) - np.eye(outputs.shape[1])[y]  # (batch, classes)
    found = {"out_head.weight": error.T @ states[-1], "out_head.bias": error.sum(axis=0)}
    arriving = error @ weights["out_head.weight"]  # (batch, hidden)
    for layer in reversed(range(LAYERS)):
        arriving = error @ feedback[f"B_{layer + 1:02d}"].T if feedback else arriving
        delta = arriving * slope(sums[layer])
        found[f"blocks.{layer}.w.weight"] = delta.T @ states[layer]
        found[f"blocks.{layer}.w.bias"] = delta.sum(axis=0)
        arriving = delta @ weights[f"blocks.{layer}.w.weight"]
    return {name: gradient / len(x) for name, gradient in found.items()}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("method", ["bp", "dfa"])
def test_a_step_on_three_hidden_layers_is_that_of_the_equations(method, activation):
    options = {"d_hidden": 16, "num_blocks": LAYERS, "activation": activation}
    task = double(tiny_task(method=method, architecture="mlp", architecture_options=options, credit_norm="none"))
    images, labels = task.splits.test_images[:SAMPLES], task.splits.test_labels[:SAMPLES]
    expected = gradients(arrays(task.network), arrays(task.feedback), images.numpy(), labels.numpy(), activation)
    if method == "bp":
        backprop_step(task.network, images, labels, 0.0)
    else:
        local_credit_step(task.network, task.method, task.feedback, images, labels, 0.0, "none")
    found = {name: parameter.grad.numpy() for name, parameter in task.network.named_parameters()}
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert gradient == pytest.approx(expected[name], rel=1e-9, abs=1e-12), name
