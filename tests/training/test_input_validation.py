"""Bad input is refused before anything is measured, in the package's words and never in torch's."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry.architectures.base import Network
from fa_registry.errors import EvidenceWarning, InvalidFields
from fa_registry.training.input_validation import WITH_LOSS, Checks
from tests.external.models import CLASSES, WIDTH, batch, build, exploded

X, Y = batch()
NAMES = ("x_eval", "y_eval")


def problems(x=X, y=Y, model=None):
    checks = Checks("here")
    network = checks.network(build() if model is None else model)
    checks.batch(network, x, y, NAMES)
    checks.classes([y], "y_eval")
    return checks.problems


class Writes(nn.Module):
    """A head that changes what it is given."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Identity()])

    def forward(self, x):
        return self.blocks[0](x.mul_(2))[:, :CLASSES]


def test_good_input_has_no_problem():
    assert problems() == [] == problems(model=exploded())


@pytest.mark.parametrize(
    ("shift", "found"), [(-1, "-1 to 1"), (1, "1 to 3"), (-100, "-100 to -98"), (2**40, f"{2**40} to {2**40 + 2}")]
)
def test_labels_the_model_has_no_output_for(shift, found):
    (problem,) = problems(y=Y + shift)
    assert problem.startswith("y_eval: expected labels 0..2,") and problem.endswith(found)


@pytest.mark.parametrize(
    ("x", "y", "doubt"),
    [
        (
            X,
            torch.ones_like(Y),
            "y_eval: found labels of only one class, 1; the gradient over samples of one class is a poor reference",
        ),
        (X[:1], Y[:1], "y_eval: found only one sample, so every median is the value of this sample"),
    ],
)
def test_one_class_and_one_sample_are_doubts_and_no_problems(x, y, doubt):
    checks = Checks("here")
    checks.batch(checks.network(build()), x, y, NAMES)
    checks.classes([y], "y_eval")
    assert (checks.problems, checks.doubts) == ([], [doubt])
    with pytest.warns(EvidenceWarning, match=f"^here: {doubt}$"):
        checks.finish()


def test_what_is_refused_does_not_warn_too():
    checks = Checks("here")
    checks.classes([Y[:1]], "y_eval")
    checks.limits(limit=math.nan)
    with pytest.raises(InvalidFields):
        checks.finish()


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int32, torch.bool])
def test_labels_of_another_type(kind):
    hint = WITH_LOSS if kind.is_floating_point else ""
    expected = f"y_eval: expected int64 labels of shape (N,), or (N, T) for tokens, found {kind} of shape (16,){hint}"
    assert problems(y=Y.to(kind)) == [expected]


def test_labels_of_another_shape():
    onehot = nn.functional.one_hot(Y)
    (problem,) = problems(y=onehot)
    assert problem.startswith("model:") and problem.endswith(WITH_LOSS)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_input_that_is_not_finite(value):
    x = X.clone()
    x[3, 1] = value
    assert [one.split(":")[0] for one in problems(x=x)] == ["x_eval"]


@pytest.mark.parametrize(("rows", "labels"), [(3, 16), (16, 3), (0, 0), (0, 16)])
def test_rows_and_labels_of_two_lengths(rows, labels):
    expected = f"x_eval: expected one row per label, found {rows} rows for {labels} labels"
    assert expected in problems(x=X[:rows], y=Y[:labels])


@pytest.mark.parametrize("x", [X.numpy(), X.tolist(), None, torch.tensor(1.0)], ids=["numpy", "list", "None", "scalar"])
def test_input_that_is_no_tensor_of_rows(x):
    (problem,) = problems(x=x)
    assert problem.startswith("x_eval: expected a tensor")


def test_input_the_model_cannot_read_is_named_with_the_message_of_torch():
    (problem,) = problems(x=X[:, :2])
    assert problem.startswith("x_eval:") and "RuntimeError: mat1" in problem
    tokens = torch.full((16, 4), 11)
    (problem,) = problems(x=tokens, model=build(tokens=True))
    assert problem.startswith("x_eval:") and "IndexError" in problem
    with pytest.raises(InvalidFields) as caught:
        checks = Checks("here")
        checks.batch(checks.network(build(tokens=True)), tokens, Y, NAMES)
        checks.finish()
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize(("width", "found"), [(1, "(16, 1)"), (0, "(16, 0)")])
def test_an_output_that_is_no_row_of_logits(width, found):
    model = build()
    model.out_head = nn.Linear(WIDTH, width) if width else SliceHead()
    (problem,) = problems(model=model)
    assert problem.startswith("model:") and problem.endswith(found)


class SliceHead(nn.Module):
    def forward(self, state):
        return state[:, :0]


def test_checking_leaves_input_and_mode_as_they_were():
    before, model = X.clone(), build().train()
    assert problems(model=model) == [] and model.training
    problems(model=Writes())
    assert torch.equal(X, before)


def test_a_model_without_blocks():
    assert problems(model=nn.Linear(5, CLASSES))[0].startswith("sites:")
    shallow = Network(nn.Linear(5, WIDTH), [], None, nn.Linear(WIDTH, CLASSES))
    assert [one.split(":")[0] for one in problems(model=shallow)] == ["model"]


def test_what_is_no_model():
    (problem,) = problems(model=SimpleNamespace())
    assert problem.startswith("model:") and problem.endswith("a SimpleNamespace")


@pytest.mark.parametrize("value", [-0.1, 61, math.nan, math.inf, 1.0001, "0.5", True])
def test_an_accuracy_that_is_no_fraction(value):
    checks = Checks("here")
    checks.fractions(test_acc=value, frozen=0.5)
    assert len(checks.problems) == 1 and checks.problems[0].startswith("test_acc: expected a fraction")


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5), np.float64(0.25), None])
def test_an_accuracy_that_is_one(value):
    checks = Checks("here")
    checks.fractions(test_acc=value)
    checks.finish()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["eval_batches:"]),
        (None, ["eval_batches:"]),
        (X, ["eval_batches:"]),
        (
            (X, Y),
            [f"eval_batches[{index}]: expected a pair (x, y), found a Tensor" for index in (0, 1)],
        ),
        ([(X, Y), (X, Y, Y)], ["eval_batches[1]:"]),
        ([(X, Y), batch(seed=9), (X.clone(), Y)], ["eval_batches:"]),
    ],
    ids=["none", "None", "tensor", "one pair", "triple", "repeated"],
)
def test_batches_that_are_none(given, expected):
    checks = Checks("here")
    checks.batches(given)
    assert len(checks.problems) == len(expected)
    assert all(map(str.startswith, checks.problems, expected))


def test_batches_keep_their_place():
    checks = Checks("here")
    assert list(checks.batches(iter([(X, Y), None, list(batch(seed=9))]))) == [0, 2]


def test_all_problems_are_raised_together_and_none_when_there_is_none():
    checks = Checks("here")
    checks.finish()
    checks.limits(one=math.nan, two=3, three="x")
    with pytest.raises(InvalidFields, match="^here: 2 problems\n  - one: .* found nan\n  - three: .* found 'x'$"):
        checks.finish()
