"""FA004: what counts as a measurement with a new random matrix, and what does not."""

from __future__ import annotations

import pytest

from tests.lint.samples import FRESH_FEEDBACK, codes

HEAD = "import numpy as np\nimport torch\nimport torch.nn.functional as F\n"
GRADIENT = "    g = torch.autograd.grad(loss, h)[0]\n"
COSINE = "F.cosine_similarity({}, g, dim=1, eps=1e-30)"


def function(*lines: str, head: str = "def measured(e, loss, h, layer):") -> str:
    """A file with one function that computes a gradient g and then executes the lines."""
    return f"{HEAD}{head}\n{GRADIENT}" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    "lines",
    [
        ["return " + COSINE.format("e @ torch.randn(10, 64)")],
        ["q = torch.rand(10, 64)", "q = q / 8", "return " + COSINE.format("e.matmul(q)")],
        ["q = torch.empty(10, 64)", "torch.nn.init.xavier_uniform_(q)", "return " + COSINE.format("F.linear(e, q)")],
        ["q = torch.empty(10, 64).normal_()", "c = e @ q", "return " + COSINE.format("c")],
        ["q = torch.from_numpy(np.random.randn(10, 64))", "return " + COSINE.format("e @ q")],
        ["q = torch.randn(10, 64)", "c = e @ q", "return (c * g).sum() / (c.norm() * g.norm())"],
    ],
)
def test_a_matrix_that_is_drawn_for_the_cosine_is_found_under_any_name(lines):
    assert codes(function(*lines)) == ["FA004"]


def test_one_matrix_for_each_layer_is_found():
    text = f"""{HEAD}
def measured(e, loss, states):
    values = []
    slopes = torch.autograd.grad(loss, states)
    draws = [torch.randn(10, one.shape[1]) for one in states]
    for draw, g in zip(draws, slopes):
        values.append({COSINE.format("e @ draw")})
    return values
"""
    assert codes(text) == ["FA004"]


def test_backward_in_the_measuring_function_is_no_training():
    text = function("loss.backward()", "return F.cosine_similarity(e @ torch.randn(10, 64), h.grad, dim=1, eps=1e-30)")
    assert codes(text) == ["FA004"]


@pytest.mark.parametrize(
    "lines",
    [
        ["return " + COSINE.format("e @ layer.q")],  # the matrix of the training
        ["q = torch.randn(10, 64)", "train(layer, q)", "return " + COSINE.format("e @ q")],
        ["q = torch.randn(10, 64)", "layer.q = q", "return " + COSINE.format("e @ q")],
        ["q = torch.randn(10, 64)", "layer.w -= 0.1 * (e @ q)", "return " + COSINE.format("e @ q")],
        ["q = torch.randn(10, 64)", "c = e @ q", "layer.w = layer.w - c", "return " + COSINE.format("c")],
        ["torch.manual_seed(layer.seed)", "q = torch.randn(10, 64)", "return " + COSINE.format("e @ q")],
        ["q = torch.randn(10, 64, generator=layer.generator)", "return " + COSINE.format("e @ q")],
        ["real = " + COSINE.format("e @ layer.q"), "return real, " + COSINE.format("e @ torch.randn(10, 64)")],
        ["net.step()", "return " + COSINE.format("e @ torch.randn(10, 64)")],  # a step with new feedback each time
        ["noise = torch.randn(10, 64)", "return " + COSINE.format("e @ (layer.q + noise)")],
        ["v = torch.randn_like(h)", "return " + COSINE.format("(v * g).sum() * v")],  # forward gradient
        ["p = torch.randn(64, 8)", "g = g @ p", "return " + COSINE.format("(e @ layer.q) @ p")],  # random projection
    ],
)
def test_honest_uses_of_random_numbers_are_none(lines):
    assert codes(function(*lines)) == []


def test_the_value_to_expect_by_chance_is_none():
    lines = ["return " + COSINE.format("e @ torch.randn(10, 64)")]
    assert codes(function(*lines, head="def null_distribution(e, loss, h):")) == []


def test_a_script_that_trains_with_its_matrix_is_none():
    text = f"""{HEAD}
def run(x, y, w):
    q = torch.randn(10, 64)
    for _ in range(10):
        h = x @ w
        e = h.softmax(1) - y
        g = torch.autograd.grad(e.sum(), h)[0]
        c = e @ q
        w = w - 0.1 * x.T @ c
        print({COSINE.format("c")})
"""
    assert codes(text) == [] and codes(FRESH_FEEDBACK) == ["FA004"]


AGAIN = "def matrices():\n    return [torch.randn(10, 64) for _ in range(2)]\n"
STEP = "    for x, y in data:\n        {draw}\n        w -= 0.1 * x.T @ (net(x, y) @ {matrix})\n"


def test_feedback_that_a_function_draws_again_for_a_measurement_is_found():
    measure = f"def angles(paths, e, g):\n    c = e @ paths[0]\n    return {COSINE.format('c')}\n"
    run = "def run(e, g):\n    fixed = matrices()\n    train(fixed)\n    return angles({given}, e, g)\n"
    text = f"{HEAD}# feedback alignment\n{AGAIN}{measure}{run}"
    assert codes(text.format(given="matrices()")) == ["FA004"]
    assert codes(text.format(given="fixed")) == []


@pytest.mark.parametrize(
    ("draw", "matrix", "expected"),
    [
        ("paths = torch.randn(10, 64)", "paths", ["FA004"]),
        ("q = torch.empty(10, 64).normal_() / 8", "q", ["FA004"]),
        ("x = x + torch.randn(32, 8)", "fixed", []),  # noise on the input
        ("q = torch.randn(10, 64, generator=seeded)", "q", []),
    ],
)
def test_feedback_that_each_step_of_the_training_draws_is_found(draw, matrix, expected):
    head = "import torch\n# feedback alignment\ntorch.manual_seed(1)\ndef run(w, net, data, fixed, seeded):\n"
    assert codes(head + STEP.format(draw=draw, matrix=matrix)) == expected
