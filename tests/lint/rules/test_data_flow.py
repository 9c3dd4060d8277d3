"""Rules that recognise code about feedback alignment by its data flow: no usual variable name and no comment is needed."""

from __future__ import annotations

import pytest

from tests.lint.samples import codes

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
TEACH = """
def teach(net, x, y, paths):
    z = net.stem(x)
    delta = (net(x).softmax(1) - F.one_hot(y, 10)).detach()
    for k, piece in enumerate(net.body):
        z = torch.tanh(piece(z.detach()))
        z.backward(delta @ paths[k])
"""
PLAIN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.paths = [torch.randn(10, 32) for _ in range(3)]

    def teach(self, z, delta):
        for piece, path in zip(self.body, self.paths):
            z = torch.tanh(piece(z.detach()))
            signal = delta @ path
            z.backward(signal / len(z))
"""
BATCH = """
def check(net, held):
    a, b = next(iter(held))
    return (net(a).argmax(1) == b).float().mean()
"""
MODE = """
layer = nn.Dropout()
def probe(z, signal):
    return F.cosine_similarity(signal, z.grad, dim=1, eps=1e-30).mean()
"""


MARGIN = """
def rate(net, a, b):
    return (net(a).argmax(1) == b).float().mean().item()

LEVEL = 0.853
found = rate(net, a, b)
print(found - LEVEL)
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (PLAIN, "FA007"),
        (BATCH + TEACH, "FA009"),
        (MARGIN + TEACH, "FA010"),
        (MARGIN.replace("found - LEVEL", "rate(net, a, b) - 0.853") + TEACH, "FA010"),
        (MODE + TEACH, "FA012"),
    ],
    ids=["plain", "batch", "margin", "margin over a literal", "mode"],
)
def test_the_backward_pass_with_a_product_is_recognised(text, code):
    assert codes(HEAD + text) == [code]


@pytest.mark.parametrize(
    "text",
    [
        BATCH,
        MODE,
        MARGIN,
        MARGIN.replace("0.853", "0.1") + TEACH,  # chance among ten classes
        MARGIN.replace("0.853", "rate(other, a, b)") + TEACH,
        MARGIN.replace("found - LEVEL", "found + LEVEL") + TEACH,
        PLAIN.replace("z.backward(signal / len(z))", "z.backward()"),  # random numbers, but not of a backward pass
        PLAIN.replace("delta @ path", "delta * path"),
        PLAIN.replace("self.paths = [", "self.paths = nn.ParameterList(nn.Parameter(p) for p in [").replace(
            "(3)]", "(3)])"
        ),
    ],
)
def test_other_code_is_not_about_feedback_alignment(text):
    assert codes(HEAD + text) == []
