"""A method that does not go with what it was given is refused before anything is trained or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_registry import methods
from fa_registry.errors import IntegrityError, InvalidFields
from fa_registry.training.checkpoint import load_into, save_tensors
from tests.commands.adoption import SPEC, stored
from tests.commands.conftest import fields
from tests.helpers.tiny_tasks import tiny_spec, tiny_task


@pytest.mark.parametrize("method", ["weight_fa", "pepita", "forward_forward"])
def test_a_pair_the_card_does_not_support_is_refused_with_its_reason(method):
    with pytest.raises(InvalidFields) as caught:
        tiny_spec(method=method, architecture="linear_lq", dataset="lq", architecture_options={})
    (problem,) = caught.value.problems
    assert problem.startswith("architecture: ") and methods.CATALOG.get(method).card.unsupported in problem
    assert tiny_spec(method="drtp", architecture="linear_lq", dataset="lq", architecture_options={}).method == "drtp"


@pytest.mark.parametrize("command", ["train", "study"])
def test_the_command_line_refuses_the_pair_and_writes_nothing(registry, command):
    study = Path("tiny/study.toml")
    pair = study.read_text().replace('"dfa"]', '"weight_fa"]').replace('["resmlp"]', '["linear_lq"]')
    study.write_text(pair.replace("digits", "lq"))
    typed = ["--method", "weight_fa", "--architecture", "linear_lq", "--dataset", "lq", "--seed", "1", "--epochs", "1"]
    result = registry(command, *({"train": typed, "study": ["tiny", "--jobs", "1"]}[command]), "--device", "cpu")
    assert result.exit_code == 2 and methods.CATALOG.get("weight_fa").card.unsupported in result.stderr
    assert stored() == []


def test_the_feedback_file_of_another_method_is_refused_tensor_by_tensor(registry, elsewhere):
    """Other names, and the same names with other shapes."""
    other = tiny_task(method="weight_fa").feedback.state_dict()
    file = elsewhere.folder / "weight_fa.safetensors"
    save_tensors(file, other)
    for method, feedback, names in (("dfa", str(file), other), ("fa", elsewhere.feedback, ("B_01", "B_02"))):
        spec = [method if word == "dfa" else word for word in SPEC]
        result = registry("adopt", elsewhere.weights, *spec, "--feedback", feedback)
        assert set(fields(result)) == {"feedback"} and all(name in result.stderr for name in names)
    assert stored() == []


@pytest.mark.parametrize(
    ("of", "into", "names"), [("weight_fa", "dfa", "B_01"), ("pepita", "weight_fa", "F"), ("dfa", "pepita", "B_01")]
)
def test_a_feedback_file_is_loaded_into_its_own_method_only(tmp_path, of, into, names):
    path = tmp_path / "feedback.safetensors"
    digest = save_tensors(path, tiny_task(method=of).feedback.state_dict())
    with pytest.raises(IntegrityError, match=rf'(?s)feedback.safetensors do not fit: .*"{names}"'):
        load_into(tiny_task(method=into).feedback, path, digest)
