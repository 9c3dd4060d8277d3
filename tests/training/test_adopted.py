"""Weights and feedback from elsewhere in a task: loaded bit by bit, or every misfit named and nothing loaded."""

from __future__ import annotations

import pytest
import torch

from fa_registry.errors import InvalidFields
from fa_registry.training.foreign import feedback_tensors, put_into
from fa_registry.training.measuring import NOT_GIVEN
from tests.helpers.small import tiny_task, weights_equal

NAMES = ["B_01", "B_02"]
FIRST, SECOND = torch.full((16, 10), 1.0), torch.full((16, 10), 2.0)


def stream(seed):
    return torch.Generator().manual_seed(seed)


def other(task, seed=5):
    """Weights and feedback of the task's shapes with other values."""
    draw = stream(seed)
    return tuple(
        {name: torch.randn(value.shape, generator=draw) for name, value in module.state_dict().items()}
        for module in (task.network, task.feedback)
    )


def problems(task, weights, feedback):
    with pytest.raises(InvalidFields) as caught:
        put_into(task, weights, feedback)
    return list(caught.value.problems)


def test_weights_and_feedback_are_loaded_bit_by_bit():
    task = tiny_task()
    weights, feedback = other(task)
    assert put_into(task, weights, feedback) == ""
    for module, given in ((task.network, weights), (task.feedback, feedback)):
        assert all(torch.equal(value, given[name]) for name, value in module.state_dict().items())


def test_without_feedback_the_credits_are_not_to_be_computed():
    task = tiny_task()
    assert put_into(task, other(task)[0], None) == NOT_GIVEN


def test_a_method_without_feedback_state_needs_none_and_takes_none():
    task = tiny_task(method="bp")
    weights, _ = other(task)
    assert put_into(task, weights, None) == ""
    assert problems(task, weights, {"B_01": FIRST}) == [
        "feedback: expected none, the method 'bp' has no feedback state"
    ]


def test_all_misfits_of_both_files_are_named_and_nothing_is_loaded():
    task, untouched = tiny_task(), tiny_task()
    weights, feedback = other(task)
    weights["blocks.0.w1.weight"] = torch.zeros(3, 3)
    weights["blocks.9.w1.weight"] = weights.pop("out_ln.bias")
    feedback["B_02"] = torch.zeros(10, 16)
    assert problems(task, weights, feedback) == [
        "weights: missing: out_ln.bias",
        "weights: unexpected: blocks.9.w1.weight",
        "weights: blocks.0.w1.weight: expected shape (16, 16), found (3, 3)",
        "feedback: B_02: expected shape (16, 10), found (10, 16); its transpose would fit",
    ]
    assert weights_equal(task.network, untouched.network) and weights_equal(task.feedback, untouched.feedback)


def test_feedback_that_is_not_finite_is_refused():
    task = tiny_task()
    weights, feedback = other(task)
    feedback["B_02"][0, 0] = torch.nan
    assert problems(task, weights, feedback) == ["feedback: B_02: expected finite numbers, found inf or nan"]


@pytest.mark.parametrize(
    "held",
    [
        {"B_01": FIRST, "B_02": SECOND},
        {"feedback": {"B_02": SECOND, "B_01": FIRST}},
        [FIRST, SECOND],
        (FIRST, SECOND),
        {"B": [FIRST, SECOND]},
        {"B.1": SECOND, "B.0": FIRST},
        {"feedback.1": FIRST, "feedback.2": SECOND},
        {"module.Bs.0": FIRST, "module.Bs.1": SECOND},
        {"blocks.0.B": FIRST, "blocks.1.B": SECOND},
    ],
    ids=["ours", "ours, nested", "list", "tuple", "list, nested", "from 0", "from 1", "parallel", "inside"],
)
def test_matrices_are_found_by_our_names_or_in_their_order(held):
    found = feedback_tensors(held, NAMES)
    assert torch.equal(found["B_01"], FIRST) and torch.equal(found["B_02"], SECOND)


def test_numbers_are_ordered_as_numbers_not_as_text():
    matrices = {f"B.{index}": torch.tensor(float(index)) for index in range(12)}
    found = feedback_tensors(matrices, [f"B_{index:02d}" for index in range(1, 13)])
    assert [value.item() for value in found.values()] == list(range(12))


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ([FIRST], "expected 2 matrices, B_01 to B_02, found 1"),
        ({"B.0": FIRST, "B.1": SECOND, "B.2": FIRST}, "expected 2 matrices, B_01 to B_02, found 3"),
        ({"B.0": FIRST, "B.2": SECOND}, r"numbered from 0 or 1 without a gap, found B\.0, B\.2"),
        ({"B.2": FIRST, "B.3": SECOND}, r"numbered from 0 or 1 without a gap, found B\.2, B\.3"),
        (FIRST, "expected tensors by name, found a Tensor"),
        ({"B": [FIRST], "feedback": [SECOND]}, r"several sets of tensors \(feedback, B\)"),
    ],
)
def test_matrices_whose_order_is_not_certain_are_refused(held, message):
    with pytest.raises(ValueError, match=message):
        feedback_tensors(held, NAMES)


def test_names_of_two_kinds_are_no_order():
    held = {"B.0": FIRST, "C.1": SECOND}
    assert feedback_tensors(held, NAMES) == held  # and so reported as unexpected


def test_a_feedback_state_that_is_no_row_of_matrices_is_taken_by_name_alone():
    names = ["net.0.weight", "net.0.bias"]
    with pytest.raises(ValueError, match=r"expected tensors by name \(net\.0\.weight, net\.0\.bias\), found a list"):
        feedback_tensors([FIRST, SECOND], names)
    assert feedback_tensors({"B.0": FIRST, "B.1": SECOND}, names).keys() == {"B.0", "B.1"}
