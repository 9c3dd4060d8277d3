"""Stopped, killed, interrupted: what a run resumes from, and that it ends as if nothing had happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fa_registry.errors import Interrupted
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training import loop
from fa_registry.training.loop import in_one_go
from fa_registry.training.specs import parse_spec
from fa_registry.workflows.training import TrainingJob, training_steps
from tests.tracking.conftest import TINY

EPOCHS = 3


def job(**changes) -> TrainingJob:
    return TrainingJob(parse_spec(TINY | {"epochs": EPOCHS}), MlflowTracker().uri, **changes)


def train(stop=lambda: False, **changes) -> str:
    return in_one_go(training_steps(job(**changes), stop, lambda news: None)).run_id


def stop_after(epochs: int):
    """A stop request that comes true when `epochs` have been asked about and passed."""
    asked = iter(range(epochs))
    return lambda: next(asked, None) is None


def content(run_id: str, name: str) -> bytes:
    return MlflowTracker().artifact(run_id, name).read_bytes()


def assert_equal_runs(one: str, other: str) -> None:
    for name in (
        schema.INITIAL,
        schema.step_checkpoint(8),
        schema.FINAL,
        schema.FEEDBACK,
        schema.SERIES,
        schema.MEASUREMENTS,
    ):
        assert content(one, name) == content(other, name), name


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_stopped_after_any_epoch_it_ends_like_an_undisturbed_run(workplace, epochs):
    with pytest.raises(Interrupted, match=f"after epoch {epochs} of {EPOCHS}"):
        train(stop_after(epochs))
    resumed = train()
    assert_equal_runs(resumed, train())
    assert json.loads(content(resumed, schema.PROVENANCE))["resumed_from"] == epochs


@pytest.mark.parametrize("where", ["step", "measure"])
def test_an_interrupt_inside_an_epoch_leaves_no_half_trained_state_to_resume(workplace, monkeypatch, where):
    with monkeypatch.context() as patched:
        calls = []

        def interrupts(genuine):
            def call(*arguments, **named):
                calls.append(1)
                if len(calls) == 3:
                    raise KeyboardInterrupt
                return genuine(*arguments, **named)

            return call

        if where == "step":
            patched.setattr(loop.Trainer, "step", interrupts(loop.Trainer.step))
        else:
            patched.setattr(loop, "measure", interrupts(loop.measure))
        with pytest.raises(KeyboardInterrupt):
            train()
    assert [run.state for run in MlflowTracker().search({schema.TAG_KIND: "run"})] == ["KILLED"]
    assert_equal_runs(train(), train())


def test_an_interrupt_while_the_files_are_written_repeats_no_epoch(workplace, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("fa_registry.training.resume.SECONDS_BETWEEN", -1.0)  # a resume file after every epoch
        patched.setattr("fa_registry.workflows.training.RunWriter.complete", lambda self, outcome: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train()
    assert_equal_runs(train(), train())


def test_checkpoints_of_epochs_before_the_stop_are_not_made_up(workplace):
    with pytest.raises(Interrupted):
        train(stop_after(2), checkpoint_every=1)
    resumed, undisturbed = train(checkpoint_every=1), train(checkpoint_every=1)
    assert MlflowTracker().artifact(resumed, schema.epoch_checkpoint(1)) is None
    assert content(resumed, schema.epoch_checkpoint(3)) == content(undisturbed, schema.epoch_checkpoint(3))


def test_a_store_that_cannot_take_the_files_leaves_no_run_running(workplace, monkeypatch):
    def full(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(MlflowTracker, "upload", full)
    with pytest.raises(OSError, match="no space left"):
        train()
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run"})
    assert (run.state, run.tags[schema.TAG_STATUS]) == ("FAILED", "failed")


def test_provenance_names_the_eval_samples_and_the_conventions_their_size(workplace):
    run_id = train()
    assert json.loads(content(run_id, schema.PROVENANCE))["eval_indices"] == list(range(128))
    conventions = json.loads(content(run_id, schema.MEASUREMENTS))["conventions"]
    assert conventions["eval_samples"] == conventions["g_norm_mean_ce_samples"] == 128
    assert Path(".fa_registry/resume").is_dir() is False or not list(Path(".fa_registry/resume").iterdir())
