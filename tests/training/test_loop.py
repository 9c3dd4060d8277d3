"""The loop: schedule, determinism, pairing, controls, divergence, stopping."""

from __future__ import annotations

import math

import pytest
import torch

from fa_registry.errors import Interrupted
from fa_registry.metrics import FIDELITY
from fa_registry.records import NOT_DUE, Measurements, Reading
from fa_registry.training.devices import pinned_threads
from fa_registry.training.loop import has_diverged, train
from fa_registry.training.measuring import measure
from fa_registry.training.trainer import Trainer, learning_rate
from tests.helpers.tiny_tasks import SEED, Recorder, tiny_spec, tiny_task, trained, weights_equal

METHODS = ("bp", "fa", "dfa")


class Watching(Trainer):
    """Keeps the batches it was given, in order."""

    def __init__(self, task):
        super().__init__(task)
        self.images, self.labels = [], []

    def step(self, images, labels):
        self.images.append(images)
        self.labels.append(labels)
        return super().step(images, labels)


def test_cosine_schedule_falls_from_the_full_rate_towards_zero():
    spec = tiny_spec(epochs=4, learning_rate=0.2)
    rates = [learning_rate(spec, epoch) for epoch in range(4)]
    assert rates == pytest.approx([0.1 * (1 + math.cos(math.pi * epoch / 4)) for epoch in range(4)])
    assert rates[0] == 0.2
    assert rates[2] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("recipe", "rates"),
    [
        ({"schedule": "constant", "warmup_epochs": 2}, [1 / 3, 2 / 3, 1, 1, 1, 1]),
        ({"schedule": "cosine", "warmup_epochs": 2}, [1 / 3, 2 / 3, 1, (1 + 0.5**0.5) / 2, 1 / 2, (1 - 0.5**0.5) / 2]),
        ({"schedule": "step", "step_epochs": 2}, [1, 1, 0.1, 0.1, 0.01, 0.01]),
        ({"schedule": "step", "step_epochs": 3, "step_factor": 0.5, "warmup_epochs": 1}, [1 / 2, 1, 1, 1, 0.5, 0.5]),
        ({"warmup_epochs": 6}, [1 / 7, 2 / 7, 3 / 7, 4 / 7, 5 / 7, 6 / 7]),
    ],
)
def test_schedules(recipe, rates):
    spec = tiny_spec(epochs=6, learning_rate=0.2, **recipe)
    assert [learning_rate(spec, epoch) / 0.2 for epoch in range(6)] == pytest.approx(rates, rel=1e-12)


def test_the_schedule_of_the_longer_control_is_stretched():
    recipe = {"method": "bp", "schedule": "step", "step_epochs": 2, "warmup_epochs": 1}
    spec = tiny_spec(epochs=8, control="frozen_long", **recipe)
    rates = [learning_rate(spec, epoch) / 1e-3 for epoch in range(8)]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1, 0.1, 0.1], rel=1e-12)
    assert spec.setting == tiny_spec(epochs=4, **recipe).setting


def test_constant_schedule_stays():
    spec = tiny_spec(epochs=4, schedule="constant", learning_rate=0.2)
    assert {learning_rate(spec, epoch) for epoch in range(4)} == {0.2}


def test_the_optimiser_uses_the_schedule():
    trainer = Trainer(tiny_task(epochs=2, learning_rate=0.01))
    seen = []
    for _ in range(2):
        trainer.run_epoch()
        seen.append(trainer.optimizer.param_groups[0]["lr"])
    assert seen == pytest.approx([0.01, 0.005])


@pytest.mark.parametrize("method", METHODS)
def test_the_same_spec_twice_gives_bit_equal_weights(method):
    first, _, _ = trained(method=method)
    torch.manual_seed(99)  # the global generator must not matter
    second, _, _ = trained(method=method)
    assert weights_equal(first.setup.network, second.setup.network)


def test_another_seed_gives_other_weights():
    first, _, _ = trained()
    second, _, _ = trained(seed=SEED + 1)
    assert not weights_equal(first.setup.network, second.setup.network)


def test_methods_with_one_seed_are_paired():
    """Same initial weights, and the same batches in the same order: the first epoch's images are equal bit by bit."""
    trainers = [Watching(tiny_task(method=method)) for method in METHODS]
    for trainer in trainers:
        assert weights_equal(trainer.setup.network, tiny_task().network)
        trainer.run_epoch()
        assert torch.equal(torch.cat(trainer.images), torch.cat(trainers[0].images))
        assert torch.equal(torch.cat(trainer.labels), torch.cat(trainers[0].labels))


def test_an_epoch_sees_every_sample_once_the_last_short_batch_included():
    trainer = Watching(tiny_task(batch_size=100))
    trainer.run_epoch()
    assert [len(labels) for labels in trainer.labels] == [100] * 14 + [37]
    assert torch.equal(torch.cat(trainer.labels).bincount(), trainer.setup.splits.train_labels.bincount())


def test_epochs_differ_in_order_and_placement():
    trainer = Watching(tiny_task(batch_size=1437))
    trainer.run_epoch()
    trainer.run_epoch()
    assert not torch.equal(trainer.labels[0], trainer.labels[1])
    ordered = [
        images[labels.argsort(stable=True)] for images, labels in zip(trainer.images, trainer.labels, strict=True)
    ]
    assert not torch.equal(*ordered)


def test_training_figures_are_means_over_the_epochs_samples():
    trainer = Trainer(tiny_task(method="bp", penalty=0.1, learning_rate=0.0))
    losses = trainer.run_epoch()
    assert set(losses) == {"loss_train", "accuracy_train", "penalty"}
    assert 1.5 < losses["loss_train"].value < 4  # ln 10 = 2.3 for an untrained net, not × batch or ÷ batch
    assert 0 <= losses["accuracy_train"].value <= 1
    hidden = trainer.setup.network(trainer.setup.eval_batch[0], return_hidden=True)[1]
    branches = [above - below for below, above in zip(hidden[:-1], hidden[1:], strict=True)]
    expected = 0.1 * sum(f.square().sum(1).mean().item() for f in branches)
    assert losses["penalty"].value == pytest.approx(expected, rel=0.2)  # of 128 other images of the same distribution


@pytest.mark.parametrize("method", METHODS)
def test_one_row_an_epoch_the_initialisation_included(method):
    _, recorder, outcome = trained(method=method, epochs=3)
    assert [row.epoch for row in recorder.rows] == [0, 1, 2, 3]
    assert (outcome.status, outcome.epochs) == ("complete", 3)
    assert "loss_train" not in recorder.rows[0].measurements.scalars
    last = recorder.rows[-1].measurements
    assert last.scalars.items() <= outcome.final.scalars.items() and last.sites.items() <= outcome.final.sites.items()
    assert all("rho" not in row.measurements.sites for row in recorder.rows)  # no epoch pays for the costlier ones
    assert "rho" in outcome.final.sites and outcome.final.scalars["blocks_trained"].value == 2
    assert outcome.final.conventions["threads"] == 1


@pytest.mark.parametrize(
    ("epochs", "select", "due"),
    [(12, {}, {0, 10, 12}), (2, {"select": "best validation", "validation": 0.2}, {0, 1, 2})],
)
def test_the_float64_pass_is_made_at_the_epochs_that_are_due(epochs, select, due):
    trainer, recorder, outcome = trained(method="bp", epochs=epochs, **select)
    for row in recorder.rows:
        measured = row.measurements
        others = {**measured.scalars, **measured.sites}.keys() - set(FIDELITY)
        fidelity = [measured.scalars["fidelity_min"], *measured.sites["fidelity"], *measured.sites["fidelity_batch"]]
        assert {reading.kind for reading in fidelity} == ({""} if row.epoch in due else {NOT_DUE})
        assert NOT_DUE not in {measured.scalars[name].kind for name in others & measured.scalars.keys()}
        assert trainer.setup.spec.is_due(row.epoch) == (row.epoch in due)
    assert outcome.final.scalars["fidelity_min"].value > 0.99


def test_a_run_that_ends_between_two_due_epochs_measures_its_last_state_in_float64():
    trainer, recorder = Trainer(tiny_task(method="dfa", epochs=12)), Recorder()
    ends = iter([*[""] * 3, "D1 at epoch 3", ""])
    outcome = train(trainer, recorder, end=lambda: next(ends))
    row = recorder.rows[-1].measurements
    assert (outcome.status, outcome.epochs) == ("stopped_early", 3) and row.scalars["fidelity_min"].kind == NOT_DUE
    assert outcome.final.scalars["fidelity_min"].value > 0.99
    kept = {name: reading for name, reading in row.scalars.items() if reading.kind != NOT_DUE}
    assert kept.items() <= outcome.final.scalars.items() and "rho" in outcome.final.sites


def test_a_small_reference_is_measured_in_float64_after_every_epoch():
    """As after an explosion: a rule that fires on a small gradient knows at once whether it is noise."""
    task = tiny_task(method="dfa", epochs=12)
    with torch.no_grad():
        task.network.out_head.weight.mul_(1e-6)
    assert measure(task, is_due=False).scalars["fidelity_min"].value > 0.99
    with torch.no_grad():
        task.network.out_head.weight.mul_(1e6)
    assert measure(task, is_due=False).scalars["fidelity_min"].kind == NOT_DUE


def test_bp_learns():
    _, recorder, _ = trained(
        method="bp", epochs=3, learning_rate=0.01, batch_size=32, architecture_options={"d_hidden": 32}
    )
    accuracies = [row.measurements.scalars["accuracy"].value for row in recorder.rows]
    assert accuracies[-1] > accuracies[0] + 0.2, f"seed {SEED}: {accuracies}"


def test_no_epochs_is_the_initialisation_measured():
    trainer, recorder, outcome = trained(epochs=0)
    assert weights_equal(trainer.setup.network, tiny_task(epochs=0).network)
    assert [row.epoch for row in recorder.rows] == [0]
    assert outcome.status == "complete"


def test_frozen_keeps_its_blocks_and_trains_the_rest():
    trainer, _, _ = trained(method="bp", control="frozen")
    before, after = tiny_task().network.state_dict(), trainer.setup.network.state_dict()
    for name, value in after.items():
        assert torch.equal(value, before[name]) == name.startswith("blocks."), name


def test_the_longer_frozen_control_is_the_frozen_control_of_its_epochs_bit_for_bit():
    longer, frozen = (trained(method="bp", control=name, epochs=4)[0] for name in ("frozen_long", "frozen"))
    assert weights_equal(longer.setup.network, frozen.setup.network)


def test_shallow_has_no_blocks():
    trainer, _, outcome = trained(method="bp", control="shallow")
    assert len(trainer.setup.network.blocks) == 0
    assert len(outcome.final.sites["h_norm"]) == 1
    assert outcome.final.scalars["growth_max"].value is None


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_blows_up_is_marked_and_nothing_crashes(method):
    _, recorder, outcome = trained(method=method, epochs=4, learning_rate=1e30)
    assert outcome.status == "diverged"
    assert outcome.epochs < 4
    assert recorder.rows[-1].measurements.scalars["loss_train"].not_finite
    assert outcome.final.sites["h_norm"][-1].not_finite
    assert outcome.final.sites["gamma"][0].not_finite
    assert outcome.final.scalars["accuracy"].value == 0.0  # logits of nan are wrong, not class 0


@pytest.mark.parametrize("place", ["loss_train", "penalty", "h_norm"])
def test_divergence_is_a_loss_or_a_state_that_is_not_finite(place):
    healthy = Measurements(
        {"h_norm": (Reading(1.0),), "gamma": (Reading(None, "no feedback"),)},
        {"loss_train": Reading(1.0), "penalty": Reading(0.0), "gamma_deep_mean": Reading(None, "no feedback")},
    )
    assert not has_diverged(healthy)
    broken = Reading.of(math.inf)
    if place == "h_norm":
        assert has_diverged(Measurements({"h_norm": (Reading(1.0), broken)}, healthy.scalars))
    else:
        assert has_diverged(Measurements(healthy.sites, {**healthy.scalars, place: broken}))


def test_stop_ends_between_epochs_and_says_how_to_go_on():
    trainer, recorder = Trainer(tiny_task(epochs=5)), Recorder()
    with pytest.raises(Interrupted, match="stopped after epoch 2 of 5; to resume, run the same command again"):
        train(trainer, recorder, stop=lambda: trainer.epoch == 2)
    assert [row.epoch for row in recorder.rows] == [0, 1, 2]


def test_a_reason_to_end_ends_it_at_that_epoch_with_everything_measured():
    trainer, recorder = Trainer(tiny_task(epochs=5)), Recorder()
    outcome = train(trainer, recorder, end=lambda: "enough" if len(recorder.rows) == 3 else "")
    assert (outcome.status, outcome.epochs, outcome.ended_by) == ("stopped_early", 2, "enough")
    assert [row.epoch for row in recorder.rows] == [0, 1, 2]
    assert set(outcome.final.scalars) == set(trained(epochs=1)[2].final.scalars)


@pytest.mark.parametrize(
    ("reason_at", "changes", "status", "epochs"),
    [(0, {}, "stopped_early", 0), (2, {}, "complete", 2), (1, {"learning_rate": 1e30}, "diverged", 1)],
)
def test_it_may_end_before_the_first_step_and_lacks_nothing_at_its_last(reason_at, changes, status, epochs):
    trainer, recorder = Trainer(tiny_task(epochs=2, **changes)), Recorder()
    outcome = train(trainer, recorder, end=lambda: "enough" if trainer.epoch >= reason_at else "")
    assert (outcome.status, outcome.epochs) == (status, epochs)
    assert outcome.ended_by == ("enough" if status == "stopped_early" else "")


def test_one_that_is_resumed_at_its_end_runs_no_further_epoch():
    first, recorder = Trainer(tiny_task(epochs=5)), Recorder()
    with pytest.raises(Interrupted):
        train(first, recorder, stop=lambda: first.epoch == 2)
    outcome = train(first, recorder, rows=recorder.rows, end=lambda: "enough")
    assert (outcome.epochs, len(recorder.rows)) == (2, 3)


def test_threads_are_pinned_inside_and_restored_after():
    with pinned_threads(2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 1
