"""What adopt refuses before a run exists, and what it says of a run that is already there."""

from __future__ import annotations

import json

import pytest
import torch

from fa_registry.tracking import schema
from fa_registry.training.checkpoint import load_tensors, save_tensors
from tests.workflows.adoption import SPEC, artifact, stored
from tests.workflows.conftest import TRAIN


def refused(registry, *arguments, code=2):
    result = registry("adopt", *arguments)
    assert result.exit_code == code, result.output
    return result.stderr


def test_the_same_file_is_adopted_once_and_again_only_by_force(registry, adopt, elsewhere):
    first, _ = adopt(elsewhere.weights, "--frozen-accuracy", "0.5")
    again = registry("adopt", elsewhere.weights, *SPEC, "--frozen-accuracy", "0.50")
    assert again.exit_code == 0 and f"run {first}: already adopted (--force adopts it again)" in again.stdout
    printed = adopt(elsewhere.weights, "--frozen-accuracy", "0.5")[1]
    assert (printed["run_id"], printed["adopted"], len(stored())) == (first, False, 1)
    assert adopt(elsewhere.weights, "--frozen-accuracy", "0.5", "--force")[0] != first


def test_already_adopted_does_not_drop_evidence_that_is_given_now(registry, adopt, elsewhere):
    first, _ = adopt(elsewhere.weights, "--frozen-accuracy", "0.5")
    for more in ((), ("--frozen-accuracy", "0.6"), ("--frozen-accuracy", "0.5", "--feedback", elsewhere.feedback)):
        message = refused(registry, elsewhere.weights, *SPEC, *more)
        assert (
            f"already adopted as run {first}, with other evidence: feedback none given, frozen accuracy 0.5" in message
        )
    assert len(stored()) == 1


def test_another_specification_of_the_same_file_is_another_run(adopt, elsewhere):
    first, _ = adopt(elsewhere.weights)
    assert adopt(elsewhere.weights, "--epochs", "2")[0] != first


def test_all_that_is_wrong_is_named_at_once_and_nothing_is_written(registry):
    message = refused(
        registry,
        *("nowhere.pt", "--method", "dfaa", "--epochs", "many", "--device", "cpu"),
        *("--feedback", "B.bin", "--frozen-accuracy", "64", "--set", "colour=red"),
    )
    for words in (
        "adopt: 7 problems",
        "unknown method 'dfaa' (did you mean 'dfa'?)",
        "epochs: expected a whole number, found 'many'",
        "seed: missing",
        "unknown field 'colour'",
        "weights: nowhere.pt: no such file",
        "feedback: B.bin: expected a file ending in .safetensors, .pt, .pth",
        "frozen_accuracy: expected a fraction of the test set in 0..1, found 64",
    ):
        assert words in message
    assert stored() == []


@pytest.mark.parametrize("text", ["nan", "-0.1", "1.01", "64%", "inf"])
def test_a_frozen_accuracy_that_is_no_fraction_is_refused(registry, elsewhere, text):
    message = refused(registry, elsewhere.weights, *SPEC, "--frozen-accuracy", text)
    assert f"frozen_accuracy: expected a fraction of the test set in 0..1, found {text}" in message


def test_weights_of_another_architecture_are_named_tensor_by_tensor(registry, elsewhere):
    message = refused(registry, elsewhere.weights, *SPEC, "--set", "architecture.num_blocks=3,architecture.d_hidden=8")
    assert "weights: missing: blocks.2.ln.weight, blocks.2.ln.bias" in message
    assert "weights: embed.weight: expected shape (8, 144), found (16, 144)" in message
    assert "weights: out_head.weight: expected shape (10, 8), found (10, 16)" in message
    assert stored() == []


def test_a_pickled_model_is_refused(registry, elsewhere):
    weights = elsewhere.saved("model.pt", torch.nn.Linear(2, 2))
    assert "a pickle may run any program while it is read" in refused(registry, weights, *SPEC)


def test_feedback_for_a_method_that_has_none_is_refused(registry, elsewhere):
    message = refused(registry, elsewhere.weights, *SPEC, "--method", "bp", "--feedback", elsewhere.feedback)
    assert "feedback: expected none, the method 'bp' has no feedback state" in message


def test_a_registry_feedback_file_must_be_the_one_its_card_tells_of(registry, elsewhere):
    run_id = json.loads(registry(*TRAIN, "--json").stdout)["run_id"]
    here = (artifact(run_id, schema.FINAL), *TRAIN[1:], "--feedback", artifact(run_id, schema.FEEDBACK))
    first, second = (str(part) for part in here[:1]), [str(part) for part in here[1:]]
    assert "says it is of method 'dfa', not 'fa'" in refused(registry, *first, *second, "--method", "fa")
    arguments = [str(part) for part in here]
    assert "says it is of the run with seed" in refused(registry, *arguments, "--seed", "77")
    assert registry("adopt", *arguments).exit_code == 0
    path = artifact(run_id, schema.FEEDBACK)
    save_tensors(path, {name: value * 2 for name, value in load_tensors(path).items()})
    message = refused(registry, *arguments, "--force", code=3)
    assert "state.safetensors: card.json beside it tells of a file with SHA-256" in message
    (path.parent / "card.json").write_text("{")
    assert "cannot be read as JSON" in refused(registry, *arguments, "--force", code=3)
    (path.parent / "card.json").write_text('{"title": "of somebody else"}')
    assert registry("adopt", *arguments, "--force").exit_code == 0


def test_controls_and_endless_epochs_are_refused(registry, elsewhere):
    message = refused(registry, elsewhere.weights, *SPEC, "--method", "bp", "--set", "control=frozen")
    assert "control: a control is trained here, not adopted; found 'frozen': see --frozen-accuracy" in message
    assert "epochs: expected at most 100,000, found 1,000,000" in refused(
        registry, elsewhere.weights, *SPEC, "--epochs", "1000000"
    )


def test_adopting_that_breaks_leaves_no_run_that_says_running(registry, elsewhere, monkeypatch):
    monkeypatch.setattr("fa_registry.tracking.writer.RunWriter.complete", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        registry("adopt", elsewhere.weights, *SPEC)
    assert [(run.state, run.tags[schema.TAG_STATUS]) for run in stored()] == [("FAILED", "failed")]


def test_help_shows_examples(registry):
    result = registry("adopt", "--help")
    assert result.exit_code == 0 and "fa-registry adopt dfa.pt --method dfa" in result.stdout
    assert "WEIGHTS: a .safetensors file" in result.stdout
