"""Files that others wrote: what is read, how names are found, what is refused, and that no pickle is ever run."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fa_registry.errors import InvalidFields
from fa_registry.external.checkpoint_import import (
    feedback_tensors,
    load_foreign_weights,
    match_tensors,
    read_foreign,
)
from fa_registry.external.weight_names import find_weights
from fa_registry.training.measuring import NOT_GIVEN
from tests.helpers.tiny_tasks import tiny_task, weights_equal

STATE = {"embed.weight": torch.arange(6.0).reshape(2, 3), "embed.bias": torch.ones(2)}


def same(found, expected=STATE):
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


class Trap:
    """Unpickled, it would write a file: what any program might do instead."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pt", "weights.pth"])
def test_the_same_tensors_come_out_of_every_kind_of_file(tmp_path, name):
    path = tmp_path / name
    save_file(STATE, path) if path.suffix == ".safetensors" else torch.save(STATE, path)
    assert same(find_weights(read_foreign(path), STATE))


def prefixed(prefix, state=STATE):
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


MOMENTS = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(2, 3)}}, "param_groups": [{"lr": 0.1}]}


@pytest.mark.parametrize(
    "held",
    [
        {"state_dict": STATE, "epoch": 3},
        {"model": STATE, "optimizer": {"lr": 0.1}},
        {"model_state_dict": STATE},
        {"net": prefixed("module."), "acc": 93.1, "epoch": 7},
        {"network": {"weights": STATE}},
        prefixed("module."),
        prefixed("_orig_mod."),
        prefixed("module._orig_mod."),
        prefixed("_orig_mod.module."),
        prefixed("model._orig_mod.module.model."),
        {"embed._orig_mod.weight": STATE["embed.weight"], "embed.module.bias": STATE["embed.bias"]},
        {"state_dict": prefixed("module.")},
        {"state_dict": prefixed("model."), "optimizer_states": [MOMENTS], "hyper_parameters": {"lr": 0.1}},
        {"ema_state_dict": STATE, "optimizer": MOMENTS},
        {"n_averaged": torch.tensor(4), **prefixed("module.")},
        {"ema": {"decay": torch.tensor(0.9), "module": prefixed("module._orig_mod.")}},
    ],
)
def test_tensors_are_found_where_training_scripts_put_them(tmp_path, held):
    torch.save(held, tmp_path / "checkpoint.pt")
    assert same(find_weights(read_foreign(tmp_path / "checkpoint.pt"), STATE))


@pytest.mark.parametrize(
    ("wrap", "counted"),
    [
        (lambda net: torch.compile(nn.DataParallel(net)), False),
        (lambda net: nn.DataParallel(torch.compile(net)), False),
        (torch.optim.swa_utils.AveragedModel, True),
        (lambda net: torch.optim.swa_utils.AveragedModel(torch.compile(net)), True),
    ],
)
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_the_names_of_real_wrappers_are_those_of_the_network(wrap, counted):
    net = nn.ModuleDict({"embed": nn.Linear(3, 2)})
    wrapped = wrap(net).state_dict()
    assert ("n_averaged" in wrapped) == counted
    assert same(find_weights(wrapped, net.state_dict()), net.state_dict())


def test_a_part_of_a_name_that_the_network_has_itself_is_no_wrapper():
    held = {"module.a": torch.ones(1), "b": torch.ones(1)}
    assert find_weights(held, held).keys() == held.keys()
    assert find_weights(prefixed("module.", held), held).keys() == held.keys()


@pytest.mark.parametrize(
    ("held", "places"),
    [
        ({"model": STATE, "state_dict": STATE | {"embed.bias": torch.zeros(2)}}, ["model", "state_dict"]),
        ({**prefixed("online."), **prefixed("ema_model.")}, ["online.", "ema_model."]),
        ({"state_dict": prefixed("model."), "ema": prefixed("module.")}, ["state_dict", "ema"]),
    ],
)
def test_two_sets_of_tensors_are_not_chosen_between(held, places):
    with pytest.raises(ValueError, match="found several") as caught:
        find_weights(held, STATE)
    assert all(place in str(caught.value) for place in places)


def test_tensors_beside_the_network_are_not_left_out_silently():
    """They may be layers that the built-in network does not have."""
    with pytest.raises(ValueError, match=r"found also criterion\.weight; .*state_dict\(\)"):
        find_weights({**prefixed("model."), "criterion.weight": torch.ones(3)}, STATE)


def test_if_no_set_is_complete_the_differences_are_those_of_the_most_similar():
    held = {"optimizer": MOMENTS, "net": {"module.embed.weight": STATE["embed.weight"], "module.head": torch.ones(1)}}
    _, problems = match_tensors(STATE, find_weights(held, STATE))
    assert problems == ["missing: embed.bias", "unexpected: head"]


def test_a_mapping_that_contains_itself_ends():
    held = {"a": torch.ones(1)}
    held |= {str(index): held for index in range(1000)}
    assert "a" in find_weights(held, STATE)


@pytest.mark.parametrize("held", [[torch.ones(1)], torch.ones(1), 3, {"shadow_params": [torch.ones(1)]}])
def test_what_is_no_mapping_has_no_names(held):
    with pytest.raises(ValueError, match=f"expected a mapping from names to tensors, found a {type(held).__name__}"):
        find_weights(held, STATE)


NOT_PLAIN = r"^\S+: not a file of plain tensors \(\w+\); save only the tensors as safetensors or with torch\.save"


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_is_refused_and_is_not_run(tmp_path, legacy):
    path, touched = tmp_path / "evil.pt", tmp_path / "touched"
    torch.save(Trap(touched), path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ValueError, match=NOT_PLAIN):
        read_foreign(path)
    assert not touched.exists()


def test_a_whole_saved_model_is_refused(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=NOT_PLAIN):
        read_foreign(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pt", b"", NOT_PLAIN),
        ("a.pt", b"hello world", NOT_PLAIN),
        ("a.safetensors", b"hello world", NOT_PLAIN),
        ("a.bin", b"", "a\\.bin:"),
        ("a.pt", None, "a\\.pt:"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_foreign(tmp_path / name)


@pytest.mark.parametrize("kept", [300, -300])
def test_half_a_file_is_refused(tmp_path, kept):
    torch.save(STATE, tmp_path / "a.pt")
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:kept])
    with pytest.raises(ValueError, match=NOT_PLAIN):
        read_foreign(tmp_path / "a.pt")


def test_every_misfit_is_named_at_once():
    expected = {name: torch.zeros(2, 3) for name in ("gone", "turned", "small", "text", "whole", "sparse")}
    found = {
        "extra": torch.ones(1),
        "turned": torch.zeros(3, 2),
        "small": torch.zeros(1),
        "text": [1.0],
        "whole": torch.zeros(2, 3, dtype=torch.int64),
        "sparse": torch.zeros(2, 3).to_sparse(),
    }
    tensors, problems = match_tensors(expected, found)
    assert tensors == {}
    assert [one.split(":")[0] for one in problems] == [
        "missing",
        "unexpected",
        "turned",
        "small",
        "text",
        "whole",
        "sparse",
    ]
    assert "transposed" in problems[2] and "transposed" not in problems[3]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_another_precision_is_taken_where_no_number_changes(kind):
    values = torch.tensor([0.5, -3.0, torch.inf, torch.nan], dtype=kind)
    tensors, problems = match_tensors({"a": torch.zeros(4)}, {"a": values})
    assert problems == [] and tensors["a"].dtype == torch.float32
    assert torch.equal(tensors["a"].double().nan_to_num(7), values.double().nan_to_num(7))


@pytest.mark.parametrize("value", [0.1, 1e300])
def test_weights_that_would_be_rounded_are_refused(value):
    _, problems = match_tensors({"a": torch.zeros(1)}, {"a": torch.tensor([value], dtype=torch.float64)})
    assert len(problems) == 1 and problems[0].startswith("a:") and "torch.float64" in problems[0]


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
        load_foreign_weights(task, weights, feedback)
    return list(caught.value.problems)


def test_weights_and_feedback_are_loaded_bit_by_bit():
    task = tiny_task()
    weights, feedback = other(task)
    assert load_foreign_weights(task, weights, feedback) == ""
    for module, given in ((task.network, weights), (task.feedback, feedback)):
        assert all(torch.equal(value, given[name]) for name, value in module.state_dict().items())


def test_without_feedback_the_credits_are_not_to_be_computed():
    task = tiny_task()
    assert load_foreign_weights(task, other(task)[0], None) == NOT_GIVEN


def test_a_method_without_feedback_state_needs_none_and_takes_none():
    task = tiny_task(method="bp")
    weights, _ = other(task)
    assert load_foreign_weights(task, weights, None) == ""
    (problem,) = problems(task, weights, {"B_01": FIRST})
    assert problem.startswith("feedback:") and "'bp'" in problem


def test_all_misfits_of_both_files_are_named_and_nothing_is_loaded():
    task, untouched = tiny_task(), tiny_task()
    weights, feedback = other(task)
    weights["blocks.0.w1.weight"] = torch.zeros(3, 3)
    weights["blocks.9.w1.weight"] = weights.pop("out_ln.bias")
    feedback["B_02"] = torch.zeros(10, 16)
    found = problems(task, weights, feedback)
    assert [one.split(": ")[:2] for one in found[:2]] == [["weights", "missing"], ["weights", "unexpected"]]
    assert ["out_ln.bias" in found[0], "blocks.9.w1.weight" in found[1]] == [True, True]
    assert [one.split(": ")[:2] for one in found[2:]] == [["weights", "blocks.0.w1.weight"], ["feedback", "B_02"]]
    assert weights_equal(task.network, untouched.network) and weights_equal(task.feedback, untouched.feedback)


def test_feedback_that_is_not_finite_is_refused():
    task = tiny_task()
    weights, feedback = other(task)
    feedback["B_02"][0, 0] = torch.nan
    assert [one.split(": ")[:2] for one in problems(task, weights, feedback)] == [["feedback", "B_02"]]


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
        ({"B.0": FIRST, "B.2": SECOND}, r"start at 0 or 1 and have no gap, found B\.0, B\.2"),
        ({"B.2": FIRST, "B.3": SECOND}, r"start at 0 or 1 and have no gap, found B\.2, B\.3"),
        (FIRST, "expected a mapping from names to tensors, found a Tensor"),
        ({"B": [FIRST], "feedback": [SECOND]}, r"one set of tensors, found several \(feedback, B\)"),
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
    with pytest.raises(
        ValueError, match=r"expected a mapping from names \(net\.0\.weight, net\.0\.bias\) to tensors, found a list"
    ):
        feedback_tensors([FIRST, SECOND], names)
    assert feedback_tensors({"B.0": FIRST, "B.1": SECOND}, names).keys() == {"B.0", "B.1"}


@pytest.mark.parametrize("name", ["pipe.safetensors", "pipe.pt"])
def test_a_pipe_is_refused_and_a_link_is_followed(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="is no regular file"):
        read_foreign(tmp_path / name)
    save_file(STATE, tmp_path / "real.safetensors")
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "real.safetensors")
    assert same(read_foreign(tmp_path / "link.safetensors"))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("numbers", [6, 1000])
def test_a_file_whose_bytes_cannot_be_mapped_is_refused(tmp_path, legacy, numbers):
    """torch maps a compressed archive without an error, and returns other numbers."""
    path = tmp_path / "a.pt"
    torch.save({"a": torch.randn(numbers)}, path, _use_new_zipfile_serialization=not legacy)
    if not legacy:
        entries = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
            for entry in entries.infolist():
                written.writestr(entry.filename, entries.read(entry))
    with pytest.raises(ValueError, match=NOT_PLAIN):
        read_foreign(path)


def test_a_tensor_that_is_not_dense_has_no_place_in_a_network(tmp_path):
    torch.save({"a": torch.eye(2).to_sparse()}, tmp_path / "a.pt")
    (problem,) = match_tensors({"a": torch.zeros(2, 2)}, read_foreign(tmp_path / "a.pt"))[1]
    assert problem.startswith("a: expected a dense")


def test_an_error_about_a_hundred_thousand_tensors_is_short():
    empty = torch.zeros(0)
    given = {f"layer.{place}": empty for place in range(100_000)}
    _, problems = match_tensors({"a": torch.zeros(2)}, {**given, "x" * 10**6: empty})
    assert problems[0] == "missing: a"
    assert problems[1] == f"unexpected: {', '.join(list(given)[:10])}, and 99,991 more"
    with pytest.raises(ValueError, match=r"have no gap, found B\.2, .*, and 99,990 more$") as caught:
        feedback_tensors({f"B.{place}": empty for place in range(2, 100_002)}, NAMES)
    assert len(str(caught.value)) < 200
