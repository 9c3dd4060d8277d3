"""The probe: which runs are of one kind, what it stands in for missing files, when it stops. No test looks at a clock."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry import datasets
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer
from fa_registry.workflows import dry_run
from fa_registry.workflows.dry_run import EVAL_SAMPLES, FEW, Probe, Speed, kind, probe, random_splits

FIELDS = {"method": "dfa", "architecture": "resmlp", "dataset": "digits", "seed": 1, "epochs": 5, "device": "cpu"}
SMALL = {"d_hidden": 8, "num_blocks": 2}


def spec(**fields):
    return parse_spec({**FIELDS, "architecture_options": SMALL, **fields})


def test_runs_that_take_as_long_an_epoch_are_of_one_kind():
    one = kind(spec())
    for other in ({"seed": 2}, {"epochs": 9}, {"penalty": 0.1}, {"control": "ladder_1"}):
        assert kind(spec(**other)) == one, other
    for other in ({"method": "fa"}, {"dataset": "digits_centred"}, {"batch_size": 64}, {"architecture_options": {}}):
        assert kind(spec(**other)) != one, other
    assert kind(spec(method="bp", control="frozen")) != kind(spec(method="bp"))


def test_every_kind_is_probed_once_and_every_run_has_a_cost():
    specs = [spec(), spec(seed=2), spec(penalty=0.1), spec(method="bp"), spec(method="bp", control="frozen", epochs=3)]
    found = probe(specs)
    assert set(found.speeds) == {kind(one).identity for one in specs} and len(found.speeds) == 3
    assert all(found.seconds(one) > 0 for one in specs)
    assert not (found.random or found.failures or found.unprobed)


def test_a_cost_is_of_all_epochs_and_one_final_measurement():
    one = spec()
    found = Probe(speeds={kind(one).identity: Speed(epoch=2.0, final=0.5)})
    assert found.seconds(one) == 5 * 2.0 + 0.5
    assert found.seconds(spec(method="fa")) is None


def test_without_its_files_a_data_set_is_probed_with_random_images_of_its_shape(tmp_path):
    one = spec(dataset="cifar10", architecture_options={"d_hidden": 4, "num_blocks": 1})
    found = probe([one])
    assert found.random == {"cifar10"} and found.seconds(one) > 0


def test_random_images_are_of_the_cards_shape_and_classes():
    card = dataclasses.replace(datasets.get("cifar100").card, train_samples=1000)
    splits = random_splits(card, torch.device("cpu"))
    assert splits.train_images.shape[1:] == splits.test_images.shape[1:] == (3, 32, 32)
    assert len(splits.test_labels) == 200 and len(splits.train_labels) == 400
    assert splits.train_labels.max() == 99 and splits.train_labels.dtype == torch.int64


def test_when_the_time_is_used_up_the_rest_is_named():
    found = probe([spec(), spec(dataset="digits_centred")], budget=-1.0)
    assert found.unprobed == ["resmlp-8x2 · digits", "resmlp-8x2 · digits_centred"] and not found.speeds


@pytest.mark.parametrize(("seconds", "sizes"), [(1.0, {FEW}), (0.0, {FEW, 128})])
def test_a_step_that_takes_long_is_reckoned_from_a_few_samples(monkeypatch, seconds, sizes):
    seen = set()
    genuine = Trainer.step
    monkeypatch.setattr(
        Trainer, "step", lambda self, images, labels: seen.add(len(labels)) or genuine(self, images, labels)
    )
    monkeypatch.setattr(dry_run, "_timed", lambda work, task: (work(), seconds)[1])
    card = datasets.get("digits").card
    task = dry_run._task(spec(), card, random_splits(card, torch.device("cpu")))
    assert dry_run.step_seconds(Trainer(task)) == seconds * 128 / FEW
    assert seen == sizes


@pytest.mark.parametrize(("step", "samples"), [(0.01, EVAL_SAMPLES), (0.2, 16), (2.0, 2)])
def test_the_longer_a_step_the_fewer_samples_are_measured(monkeypatch, step, samples):
    seen = set()
    monkeypatch.setattr(dry_run, "measure", lambda task, moments=(): seen.add(len(task.eval_batch[1])))
    card = datasets.get("digits").card
    task = dry_run._task(spec(), card, random_splits(card, torch.device("cpu")))
    dry_run._measuring_seconds(task, step)
    assert seen == {samples}
