"""Validation samples: training data that a run does not train on, and on which its main metric is recorded."""

from __future__ import annotations

import pytest
import torch

from fa_registry.errors import InvalidFields
from fa_registry.evidence.replay_from_seed import replay_first_steps
from fa_registry.evidence.whole_replay import replay_whole
from fa_registry.protocol.integrity import compare
from fa_registry.tasks.classification import accuracy
from fa_registry.training.measuring import measure
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import tiny_spec, tiny_task, trained
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
