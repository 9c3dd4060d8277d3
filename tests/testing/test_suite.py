"""check_method on the methods of the catalog, its command, and the credit reproduced in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fa_registry import diagnostics, jsonio, methods
from fa_registry.architectures.resmlp import PLUGIN as RESMLP
from fa_registry.errors import UnknownName, UsageError
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.methods.ep import EquilibriumPropagation
from fa_registry.records import RunSpec
from fa_registry.testing import PropertyResult, assert_method, check_method
from fa_registry.testing.__main__ import main
from fa_registry.testing.cases import Setting, forms, variants
from fa_registry.testing.declared import DECLARED
from fa_registry.testing.suite import UNIVERSAL
from fa_registry.training.bench import credits_under
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.task import Task
from tests.helpers.small import supported, trained

ROOT = Path(__file__).parents[2]

IN_A_NEW_PROCESS = """
import sys
from pathlib import Path
from tests.testing.test_suite import credits_of, read_spec
from fa_registry.training.checkpoint import load_into, save_tensors
from fa_registry.training.task import prepare
import torch

torch.set_num_threads(1)
for folder in map(Path, sys.argv[1:]):
    task = prepare(read_spec(folder), torch.device("cpu"))
    for tensor in task.feedback.state_dict().values():
        tensor.zero_()  # the seed alone must not bring them back: the file does
    for name in ("network", "feedback"):
        load_into(getattr(task, name), folder / f"{name}.safetensors")
    save_tensors(folder / "credits.safetensors", credits_of(task))
"""


def read_spec(folder: Path) -> RunSpec:
    return jsonio.decode(RunSpec, json.loads((folder / "spec.json").read_text()))


def credits_of(task: Task) -> dict[str, torch.Tensor]:
    """c_0, c_1, … of a task on its eval batch."""
    credits = credits_under(task, task.feedback, diagnostics.look(task.network, *task.eval_batch, double=False))
    return {f"c_{site}": credit.clone() for site, credit in enumerate(credits)}


def test_assert_method_accepts_a_name_an_object_and_architecture_objects():
    assert assert_method("dfa", ["resmlp"], seed=3) is None
    assert assert_method(DirectFeedbackAlignment(), [RESMLP]) is None


def test_the_outcome_does_not_depend_on_the_global_generator():
    torch.manual_seed(1)
    first = check_method("fa")
    torch.manual_seed(2)
    assert check_method("fa") == first
    assert isinstance(first[0], PropertyResult)


def test_unknown_names_are_refused():
    with pytest.raises(UnknownName, match="did you mean 'dfa'"):
        check_method("dfaa")
    with pytest.raises(UnknownName, match="unknown architecture 'resmpl'"):
        check_method("dfa", ["resmpl"])


def test_no_architecture_at_all_is_an_error_and_no_silent_pass():
    with pytest.raises(UsageError, match="no architecture to check it on"):
        check_method("dfa", [])


def test_variants_cover_depths_and_every_flag():
    settings = [Setting(DirectFeedbackAlignment(), RESMLP, options, 0) for options in variants(RESMLP)]
    labels = {setting.label for setting in settings}
    assert len(labels) == len(settings) == 4
    assert any("terminal_ln=False" in label for label in labels)
    assert any("residual=False" in label for label in labels)
    assert {setting.case().blocks for setting in settings} == {1, 3}


class WrongByChoice(EquilibriumPropagation):
    """Right at its default, and with contrast=state a step the wrong way."""

    def credits_and_states(self, feedback, inputs):
        credits, states = super().credits_and_states(feedback, inputs)
        return ([-credit for credit in credits] if feedback.contrast == "state" else credits), states


def test_every_word_of_a_choice_is_measured():
    assert list(forms(methods.CATALOG.get("ep"))) == [{"contrast": "state"}]
    assert list(forms(methods.CATALOG.get("dfa"))) == []
    failed = {one.property: one.detail for one in check_method(WrongByChoice(), ["mlp"]) if one.outcome == "fail"}
    assert failed.keys() == {"approaches_bp", "prediction_errors_give_bp"}
    assert all(detail.startswith("contrast=state, mlp(") for detail in failed.values())


class AskedForBoth(EquilibriumPropagation):
    """Its `credits` could show anything: nobody asks for credits without the states, in training and while measuring."""

    def credits(self, feedback, inputs):
        raise AssertionError("a method that moves states is never asked for credits alone")


def test_what_is_measured_of_a_method_that_moves_states_is_what_trained_it():
    case = Setting(AskedForBoth(), RESMLP, {"d_hidden": 8, "num_blocks": 2}, 0).case()
    expected, _ = case.method.credits_and_states(case.feedback, case.inputs())
    assert all(map(torch.equal, case.credits(case.inputs()), expected))


def test_the_command_prints_a_line_a_property(capsys):
    assert main(["dfa", "--architecture", "resmlp"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(UNIVERSAL) + len(DECLARED)
    assert any(line.startswith("pass") and "not_secretly_bp" in line for line in lines)


def test_the_command_fails_when_a_property_does(capsys, monkeypatch):
    failing = [PropertyResult("exact", "fail", "by 1e-3")]
    monkeypatch.setattr("fa_registry.testing.__main__.check_method", lambda *arguments: failing)
    assert main(["dfa"]) == 1
    assert "fail" in capsys.readouterr().out


def test_the_command_refuses_an_unknown_method(capsys):
    assert main(["dfaa"]) == 2
    assert "did you mean 'dfa'" in capsys.readouterr().err


def test_a_new_process_recomputes_bit_equal_credits(tmp_path):
    """credit.md §5.7: spec, weights and feedback state are all it takes."""
    tasks = {method: trained(**supported(method), epochs=1)[0].task for method in methods.CATALOG.names()}
    for method, task in tasks.items():
        (tmp_path / method).mkdir()
        (tmp_path / method / "spec.json").write_text(jsonio.canonical(task.spec))
        save_tensors(tmp_path / method / "network.safetensors", task.network.state_dict())
        save_tensors(tmp_path / method / "feedback.safetensors", task.feedback.state_dict())
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IN_A_NEW_PROCESS, *(str(tmp_path / method) for method in tasks)]
    subprocess.run(command, check=True, env=environment, timeout=120)
    for method, task in tasks.items():
        found, expected = load_tensors(tmp_path / method / "credits.safetensors"), credits_of(task)
        assert found.keys() == expected.keys() == {"c_0", "c_1", "c_2"}
        assert all(torch.equal(found[name], expected[name]) for name in expected), method
        assert all(credit.abs().max() > 0 for credit in expected.values()), method
