"""A method that does not go with what it was given is refused before anything is trained or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_registry import methods
from fa_registry.errors import IntegrityError, InvalidFields
from fa_registry.training.checkpoint import load_into, save_tensors
from tests.commands.adoption import SPEC, stored
from tests.helpers.tiny_tasks import tiny_spec, tiny_task

WEIGHT_FA = methods.CATALOG.get("weight_fa").card


@pytest.mark.parametrize("method", ["weight_fa", "pepita", "forward_forward"])
def test_a_pair_the_card_does_not_support_is_refused_with_its_reason(method):
    card = methods.CATALOG.get(method).card
    with pytest.raises(InvalidFields) as caught:
        tiny_spec(method=method, architecture="linear_lq", dataset="lq", architecture_options={})
    supported = ", ".join(card.architectures)
    assert caught.value.problems == (f"architecture: {method} supports {supported}, not linear_lq: {card.unsupported}",)


def test_a_method_for_any_architecture_is_not_refused():
    assert tiny_spec(method="drtp", architecture="linear_lq", dataset="lq", architecture_options={}).method == "drtp"


def test_the_command_line_refuses_the_pair_and_writes_nothing(registry):
    arguments = (
        "--method",
        "weight_fa",
        "--architecture",
        "linear_lq",
        "--dataset",
        "lq",
        "--seed",
        "1",
        "--epochs",
        "1",
    )
    result = registry("train", *arguments, "--device", "cpu")
    assert result.exit_code == 2
    supported = ", ".join(WEIGHT_FA.architectures)
    assert f"architecture: weight_fa supports {supported}, not linear_lq: {WEIGHT_FA.unsupported}" in result.stderr
    assert stored() == []


def test_a_study_that_holds_such_a_pair_trains_nothing(registry):
    study = Path("tiny/study.toml")
    study.write_text(
        study.read_text()
        .replace('"dfa"]', '"weight_fa"]')
        .replace('["resmlp"]', '["linear_lq"]')
        .replace("digits", "lq")
    )
    result = registry("study", "tiny", "--jobs", "1", "--device", "cpu")
    assert result.exit_code == 2
    assert f"not linear_lq: {WEIGHT_FA.unsupported}" in result.stderr
    assert stored() == []


def test_the_feedback_file_of_another_method_is_refused_tensor_by_tensor(registry, elsewhere):
    other = tiny_task(method="weight_fa").feedback.state_dict()
    file = elsewhere.folder / "weight_fa.safetensors"
    save_tensors(file, other)
    result = registry("adopt", elsewhere.weights, *SPEC, "--feedback", str(file))
    assert result.exit_code == 2
    assert "feedback: missing: B_01, B_02" in result.stderr
    assert all(name in result.stderr for name in other)
    assert stored() == []


def test_matrices_of_the_same_names_are_refused_by_their_shapes(registry, elsewhere):
    arguments = [word.replace("dfa", "fa") for word in SPEC]
    result = registry("adopt", elsewhere.weights, *arguments, "--feedback", elsewhere.feedback)
    assert result.exit_code == 2
    for name in ("B_01", "B_02"):
        assert f"feedback: {name}: expected shape (16, 16), found (16, 10)" in result.stderr
    assert stored() == []


@pytest.mark.parametrize(
    ("of", "into", "names"), [("weight_fa", "dfa", "B_01"), ("pepita", "weight_fa", "F"), ("dfa", "pepita", "B_01")]
)
def test_a_feedback_file_is_loaded_into_its_own_method_only(tmp_path, of, into, names):
    path = tmp_path / "feedback.safetensors"
    digest = save_tensors(path, tiny_task(method=of).feedback.state_dict())
    with pytest.raises(IntegrityError, match=rf'(?s)feedback.safetensors do not fit: .*"{names}"'):
        load_into(tiny_task(method=into).feedback, path, digest)
