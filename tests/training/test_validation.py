"""Validation samples: training data that a run does not train on, and on which its main metric is recorded."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry.errors import Interrupted, InvalidFields
from fa_registry.evidence.replay_from_seed import replay_first_steps, replay_whole
from fa_registry.protocol.integrity import compare
from fa_registry.records import Reading
from fa_registry.tasks.classification import accuracy
from fa_registry.training.checkpoint import save_tensors
from fa_registry.training.devices import products
from fa_registry.training.loop import train
from fa_registry.training.measuring import measure
from fa_registry.training.resume import ResumeFile
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import Recorder, tiny_spec, tiny_task, trained, weights_equal
from tests.training.test_replay import recorded_run

SAMPLES, HELD_OUT = 1437, 144  # of digits; a tenth


def labels_by_image(splits):
    return {
        image.numpy().tobytes(): label.item()
        for image, label in zip(splits.train_images, splits.train_labels, strict=True)
    }


def test_the_samples_leave_the_training_data_and_all_other_samples_stay():
    whole, split = tiny_task().splits, tiny_task(validation=0.1).splits
    everything, trained_on = labels_by_image(whole), labels_by_image(split)
    assert (len(split.train_labels), len(split.validation_labels)) == (SAMPLES - HELD_OUT, HELD_OUT)
    assert trained_on.items() < everything.items() and len(everything) - len(trained_on) == HELD_OUT
    missing = [label for image, label in everything.items() if image not in trained_on]
    assert missing == split.validation_labels.tolist()
    assert torch.equal(whole.test_images, split.test_images) and whole.digest == split.digest
    assert split.validation_images.shape[1:] == split.test_images.shape[1:]
    assert whole.validation_labels is None


def test_a_method_and_its_control_have_the_same_samples_and_another_seed_has_others():
    method, control, other = (
        tiny_task(validation=0.1, **changes).splits
        for changes in ({"method": "dfa"}, {"method": "bp", "control": "frozen"}, {"seed": 8})
    )
    assert torch.equal(method.validation_images, control.validation_images)
    assert torch.equal(method.train_labels, control.train_labels)
    assert method.validation_labels.tolist() != other.validation_labels.tolist()


def test_a_method_that_predicts_by_itself_is_validated_by_its_own_prediction():
    setup = tiny_task(method="forward_forward", validation=0.1)
    held_out = setup.splits.validation_images, setup.splits.validation_labels
    measured = measure(setup).scalars["accuracy_validation"].value
    assert measured == accuracy(setup.predictor, *held_out) != accuracy(setup.network, *held_out)


def test_no_sample_of_them_is_trained_on():
    trainer = Trainer(tiny_task(validation=0.25, batch_size=400))
    seen = []
    trainer.begin_epoch(lambda batches: (seen.append(batch) or batch for batch in batches))
    trainer.end_epoch()
    assert torch.cat(seen).sort().values.tolist() == list(range(SAMPLES - round(0.25 * SAMPLES)))


def test_the_main_metric_is_recorded_after_each_epoch_and_comes_again():
    trainer, recorder, outcome = trained(validation=0.1)
    splits, network = trainer.setup.splits, trainer.setup.network.eval()
    with torch.no_grad():
        right = (network(splits.validation_images).argmax(dim=1) == splits.validation_labels).double().mean().item()
    values = [row.measurements.scalars["accuracy_validation"].value for row in recorder.rows]
    assert len(values) == 3 and values[-1] == right == outcome.final.scalars["accuracy_validation"].value
    assert all(value * HELD_OUT == pytest.approx(round(value * HELD_OUT)) for value in values)
    again = measure(trainer.setup)
    assert again.scalars["accuracy_validation"] == outcome.final.scalars["accuracy_validation"]
    assert compare(again, measure(trainer.setup)).state == "verified"
    assert "accuracy_validation" not in measure(tiny_task()).scalars


def test_tokens_have_a_loss_on_them():
    spec = {"architecture": "causal_transformer", "dataset": "markov_text", "validation": 0.1}
    options = {"d_hidden": 16, "num_blocks": 1, "heads": 2}
    scalars = measure(tiny_task(**spec, architecture_options=options)).scalars
    assert scalars["token_loss_validation"].value == pytest.approx(scalars["token_loss"].value, rel=0.1)


def test_a_run_with_them_is_replayed_to_its_end(tmp_path):
    changes = {"validation": 0.1, "epochs": 2}
    training = recorded_run(tmp_path, **changes)
    task = tiny_task(**changes)
    checks = (*replay_first_steps(task, training).checks, *replay_whole(task, training).checks)
    assert "differs" not in {one.outcome for one in checks}


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"validation": 0.9999}, "validation: the share 0.9999"),
        ({"validation": 1}, "validation: "),
        ({"validation": -0.1}, "validation: "),
        ({"validation": 0.1, "batch_size": 1400}, "batch_size: "),
    ],
)
def test_a_wrong_share_is_one_problem(changes, start):
    with pytest.raises(InvalidFields) as caught:
        tiny_spec(**changes)
    (problem,) = caught.value.problems
    assert problem.startswith(start)
    assert tiny_spec(validation=0.0).identity == tiny_spec().identity != tiny_spec(validation=0.1).identity
    assert tiny_spec(validation=0.1).setting != tiny_spec().setting


# `select`: the state of the best epoch on the validation samples is the result


BEST = {"validation": 0.1, "select": "best validation", "epochs": 4, "schedule": "constant", "learning_rate": 5.0}


def by_epoch(recorder, name):
    return [row.measurements.scalars[name].value for row in recorder.rows]


@pytest.mark.parametrize("changes", [{}, {"method": "forward_forward"}, {"method": "kolen_pollack"}], ids=str)
def test_the_result_is_the_state_of_the_first_best_epoch(changes):
    trainer, recorder, outcome = trained(**BEST, **changes)
    values = by_epoch(recorder, "accuracy_validation")
    best = max(range(1, 5), key=values.__getitem__)  # max takes the first of equal values
    assert (outcome.status, outcome.epochs, outcome.selected) == ("complete", 4, best)
    row = recorder.rows[best].measurements
    assert {name: outcome.final.scalars[name] for name in row.scalars} == row.scalars
    shorter, *_ = trained(**{**BEST, "epochs": best, "select": "last"}, **changes)
    assert weights_equal(trainer.setup.network, shorter.setup.network)
    assert weights_equal(trainer.setup.feedback, shorter.setup.feedback)
    assert compare(row, measure(trainer.setup)).state == "verified"


def test_the_best_epoch_of_a_learning_rate_that_is_too_high_is_not_the_last():
    """So that the test above compares another state than the last one."""
    *_, outcome = trained(**BEST)
    assert 0 < outcome.selected < 4


def test_a_smaller_loss_is_better():
    spec = {
        "architecture": "causal_transformer",
        "dataset": "markov_text",
        "validation": 0.1,
        "select": "best validation",
    }
    options = {"d_hidden": 16, "num_blocks": 1, "heads": 2}
    given = {"schedule": "constant", "learning_rate": 0.3, "batch_size": 512}
    _, recorder, outcome = trained(**spec, **given, epochs=3, architecture_options=options)
    values = by_epoch(recorder, "token_loss_validation")
    assert outcome.selected == min(range(1, 4), key=values.__getitem__)


@pytest.mark.parametrize("stop_at", [1, 3])
def test_a_resumed_run_selects_the_same_state(tmp_path, stop_at):
    undisturbed, expected, whole = trained(**BEST)
    trainer, before = Trainer(tiny_task(**BEST)), Recorder()
    with pytest.raises(Interrupted):
        train(trainer, before, stop=lambda: trainer.epoch == stop_at)
    ResumeFile(tmp_path, "run").write(trainer, before.rows)
    fresh, after = Trainer(tiny_task(**BEST)), Recorder()
    rows = ResumeFile(tmp_path, "run").read_into(fresh)
    assert train(fresh, after, rows=rows) == whole and [*rows, *after.rows] == expected.rows
    assert weights_equal(fresh.setup.network, undisturbed.setup.network)


def test_a_run_that_diverges_ends_with_the_state_that_shows_it():
    given = {**BEST, "optimizer": "sgd", "learning_rate": 1e20, "method": "bp"}
    trainer, _, outcome = trained(**given)
    assert outcome.status == "diverged" and outcome.selected == outcome.epochs == trainer.epoch
    assert trainer.selected is None  # so a replay on another configuration measures the diverged state too


class Poisoned(Trainer):
    """Its weights are no numbers before the second epoch."""

    def begin_epoch(self, through=None):
        if self.epoch == 1:
            with torch.no_grad():
                self.setup.network.out_head.bias.fill_(torch.nan)
        super().begin_epoch(through)


def test_a_run_that_diverges_later_does_not_end_with_its_best_epoch():
    trainer = Poisoned(tiny_task(**BEST))
    outcome = train(trainer, Recorder())
    assert (outcome.status, outcome.epochs, outcome.selected) == ("diverged", 2, 2) and trainer.selected is None
    assert trainer.setup.network.out_head.bias.isnan().all()


def test_the_score_of_an_epoch_is_its_recorded_metric_whatever_the_users_precision():
    """The audit finds the epoch by the recorded values, so selection and measurement have to count alike."""
    trainer, used = Trainer(tiny_task(**BEST)), []
    seen = lambda *_: used.append(torch.backends.cuda.matmul.fp32_precision) or {"accuracy": Reading(0.5)}  # noqa: E731
    trainer.begin_epoch()
    with products("tf32"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(trainer.setup.task), "evaluate", seen)
        trainer.end_epoch()
    assert used == ["ieee"] and trainer.selected.score == 0.5


def test_of_equal_epochs_the_first_is_selected():
    trainer = Trainer(tiny_task(**BEST))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(trainer.setup.task), "evaluate", lambda *_: {"accuracy": Reading(0.5)})
        for _ in range(2):
            trainer.run_epoch()
    assert trainer.selected.epoch == 1


def test_a_selected_state_is_replayed(tmp_path):
    training = recorded_run(tmp_path, **BEST)
    assert training.selected < training.epochs
    task = tiny_task(**BEST)
    checks = (*replay_first_steps(task, training).checks, *replay_whole(task, training).checks)
    assert {one.subject: one.outcome for one in checks}["whole training"] == "agrees"
    assert "differs" not in {one.outcome for one in checks}
    other = dataclasses.replace(training, selected=None, later={training.epochs: training.later[training.selected]})
    assert "differs" in {one.outcome for one in replay_whole(task, other).checks}


def test_the_feedback_of_the_selected_epoch_is_compared(tmp_path):
    """A feedback that learns is another one after each epoch."""
    learned = {**BEST, "method": "kolen_pollack"}
    training, task = recorded_run(tmp_path, **learned), tiny_task(**learned)
    assert training.selected < training.epochs
    assert "differs" not in {one.outcome for one in replay_whole(task, training).checks}
    trainer, *_ = trained(**{**learned, "select": "last"})
    digest = save_tensors(tmp_path / "feedback.safetensors", trainer.setup.feedback.state_dict())
    forged = dataclasses.replace(training, digests={**training.digests, "feedback": digest})
    assert "differs" in {one.outcome for one in replay_whole(task, forged).checks}


def test_on_another_configuration_the_replay_selects_by_itself(tmp_path):
    training = dataclasses.replace(recorded_run(tmp_path, **BEST), exact=False, elsewhere="another processor")
    trainer, _, outcome = trained(**BEST)
    measured = replay_whole(tiny_task(**BEST), training).measured
    assert measured.scalars["accuracy"] == outcome.final.scalars["accuracy"]


def test_without_validation_samples_no_epoch_can_be_selected():
    with pytest.raises(InvalidFields) as caught:
        tiny_spec(select="best validation")
    (problem,) = caught.value.problems
    assert problem.startswith("select: expected validation above 0")
    with pytest.raises(InvalidFields, match="select"):
        tiny_spec(select="best test", validation=0.1)
    assert tiny_spec(validation=0.1, select="last").identity == tiny_spec(validation=0.1).identity
