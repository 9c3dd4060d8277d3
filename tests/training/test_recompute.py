"""A finished run measured again from its files gives the same figures; without its feedback no Γ."""

from __future__ import annotations

import pytest
import torch

from fa_registry.errors import IntegrityError
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.measuring import NO_FEEDBACK, remeasure
from tests.helpers.nets import of
from tests.helpers.small import tiny_task, trained

INITIAL = "init.safetensors"


@pytest.fixture(params=["fa", "dfa", "bp"])
def run(request, tmp_path):
    """(spec, checkpoint, feedback, digests, final measurements) of a short run; its initial weights lie beside."""
    return short_run(tmp_path, method=request.param)


def short_run(tmp_path, **changes):
    trainer, _, outcome = trained(**changes, epochs=1)
    paths = {"checkpoint": tmp_path / "final.safetensors", "feedback": tmp_path / "state.safetensors"}
    digests = {
        "checkpoint": save_tensors(paths["checkpoint"], trainer.task.network.state_dict()),
        "feedback": save_tensors(paths["feedback"], trainer.task.feedback.state_dict()),
        "initial": save_tensors(tmp_path / INITIAL, tiny_task(**changes).network.state_dict()),
    }
    return trainer.task.spec, paths["checkpoint"], paths["feedback"], digests, outcome.final


def test_recomputed_figures_are_bit_equal(run, tmp_path):
    spec, checkpoint, feedback, digests, final = run
    again = remeasure(spec, checkpoint, feedback, digests, initial=tmp_path / INITIAL)
    assert {"rho", "nudge", "stability", "gamma_null_p"} <= set(again.sites)
    assert again.scalars["feature_drift_blocks"].value > 0 and again.scalars["blocks_trained"].value == 2
    assert again.sites == final.sites
    assert again.conventions == final.conventions
    assert again.scalars == {
        name: reading
        for name, reading in final.scalars.items()
        if name not in ("loss_train", "accuracy_train", "penalty")
    }


@pytest.mark.parametrize("architecture", ["small_resnet", "vit_mini", "small_cnn"])
def test_tokens_maps_and_running_statistics_give_the_same_figures_again(tmp_path, architecture):
    spec, checkpoint, feedback, digests, final = short_run(tmp_path, **of(architecture, method="dfa"))
    again = remeasure(spec, checkpoint, feedback, digests, initial=tmp_path / INITIAL)
    assert again.sites == final.sites and not again.failures
    assert all(reading.value is not None for reading in again.sites["gamma"])
    tensors = load_tensors(checkpoint)
    moved = [name for name, value in tensors.items() if name.endswith("running_mean") and value.abs().max() > 0]
    assert len(moved) == (5 if architecture == "small_resnet" else 0)  # the stem's and two a block
    if moved:
        changed = {name: torch.zeros_like(value) if name in moved else value for name, value in tensors.items()}
        other = remeasure(spec, checkpoint, feedback, {**digests, "checkpoint": save_tensors(checkpoint, changed)})
        assert other.sites["g_norm"] != final.sites["g_norm"]


def test_without_the_feedback_file_every_gamma_is_na(run):
    spec, checkpoint, _, digests, _ = run
    measured = remeasure(spec, checkpoint, None, digests)
    gammas = [reading for name, row in measured.sites.items() if name.startswith("gamma") for reading in row]
    if spec.method == "bp":
        assert all(
            reading.value is not None for reading in measured.sites["gamma"]
        )  # its credit needs no feedback state
    else:
        assert {reading.reason for reading in gammas} == {NO_FEEDBACK}
        assert measured.scalars["gamma_deep_mean"].reason == NO_FEEDBACK


def test_a_changed_checkpoint_is_refused(run):
    spec, checkpoint, feedback, digests, _ = run
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"\x01")
    with pytest.raises(IntegrityError, match="final.safetensors: expected SHA-256"):
        remeasure(spec, checkpoint, feedback, digests)


@pytest.mark.parametrize("run", ["fa"], indirect=True)
def test_without_the_initial_weights_there_is_no_drift(run):
    spec, checkpoint, feedback, digests, final = run
    again = remeasure(spec, checkpoint, feedback, digests)
    lost = [name for name in again.scalars if name.startswith("feature_drift") or name == "blocks_trained"]
    assert set(lost) == {name for name in final.scalars if name.startswith("feature_drift") or name == "blocks_trained"}
    assert {again.scalars[name].reason for name in lost} == {"the run's initial weights were not saved"}
    assert again.sites == final.sites


@pytest.mark.parametrize("run", ["fa"], indirect=True)
def test_changed_initial_weights_are_refused(run, tmp_path):
    spec, checkpoint, feedback, digests, _ = run
    save_tensors(tmp_path / INITIAL, tiny_task(seed=spec.seed + 1).network.state_dict())
    with pytest.raises(IntegrityError, match="init.safetensors: expected SHA-256"):
        remeasure(spec, checkpoint, feedback, digests, initial=tmp_path / INITIAL)


@pytest.mark.parametrize("run", ["fa", "dfa"], indirect=True)
def test_another_feedback_gives_another_gamma(run):
    spec, checkpoint, feedback, digests, final = run
    stream = torch.Generator().manual_seed(0)
    fresh = {name: torch.randn(matrix.shape, generator=stream) for name, matrix in load_tensors(feedback).items()}
    other = remeasure(spec, checkpoint, feedback, {**digests, "feedback": save_tensors(feedback, fresh)})
    assert other.sites["gamma"][1] != final.sites["gamma"][1]
    assert other.sites["g_norm"] == final.sites["g_norm"]
