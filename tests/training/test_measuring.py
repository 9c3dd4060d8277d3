"""measure: every diagnostic, the whole test set, and no change to the task."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from fa_registry import diagnostics
from fa_registry.diagnostics.base import MOMENTS, Diagnostic
from fa_registry.diagnostics.gamma import NUMBERS as OF_GAMMA
from fa_registry.diagnostics.gamma_null import NAMES as OF_NULL
from fa_registry.errors import IntegrityError, PluginError
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.records import CLASSES
from fa_registry.tasks import classification
from fa_registry.tasks.classification import accuracy
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.loop import train
from fa_registry.training.measuring import (
    NO_FEEDBACK,
    measure,
    remeasure,
    with_conventions,
    with_final,
)
from fa_registry.training.run_setup import RunSetup, build_setup
from fa_registry.training.trainer import Trainer
from tests.helpers.closed_form_tasks import hand_task, initial_of
from tests.helpers.covering import rest_long
from tests.helpers.nets import of, short_task
from tests.helpers.tiny_tasks import CPU, Recorder, scaling_network, tiny_task, trained


def test_an_epoch_is_its_own_diagnostics_and_the_accuracy():
    measured = measure(tiny_task())
    cards = [diagnostics.CATALOG.get(name).card for name in diagnostics.CATALOG.names()]
    names = [name for card in cards if card.when == "epoch" for name in card.names]
    assert {*measured.sites, *measured.scalars} == {"accuracy", *names}
    assert all(len(readings) == 3 for readings in measured.sites.values())


def test_the_final_measurements_are_the_epochs_and_the_costlier_ones():
    task = tiny_task()
    epoch, initial = measure(task), initial_of(task)
    final = measure(task, moments=("final",), initial=initial)
    both = with_final(epoch, task, initial=initial)
    assert not {*epoch.sites, *epoch.scalars} & {*final.sites, *final.scalars}
    assert both.sites == {**epoch.sites, **final.sites} and both.scalars == {**epoch.scalars, **final.scalars}
    assert list(both.sites) == sorted(both.sites) and list(both.scalars) == sorted(both.scalars)
    assert both == with_conventions(measure(task, moments=MOMENTS, initial=initial), task)


def test_accuracy_is_of_the_whole_test_set(monkeypatch):
    task = tiny_task()
    with torch.no_grad():
        predicted = task.network(task.splits.test_images).argmax(1)
        right = predicted == task.splits.test_labels  # fa: ok FA012 it has no such layer
    assert accuracy(task.network, task.splits.test_images, task.splits.test_labels) == right.sum().item() / 360
    assert measure(task).scalars["accuracy"].value == right.sum().item() / 360
    monkeypatch.setattr(classification, "TEST_BATCH", 7)
    assert accuracy(task.network, task.splits.test_images, task.splits.test_labels) == right.sum().item() / 360


def test_a_sample_whose_logits_are_not_finite_is_wrong():
    network = scaling_network([], torch.eye(2, dtype=torch.float64))
    images = torch.tensor([[float("nan"), 0.0], [1.0, 0.0], [float("inf"), 0.0]], dtype=torch.float64)
    assert accuracy(network, images, torch.tensor([0, 0, 0])) == pytest.approx(1 / 3)


def test_accuracy_is_measured_in_eval_mode():
    network = nn.Sequential(nn.Dropout(0.999), nn.Identity())
    images = torch.eye(4)
    assert accuracy(network, images, torch.arange(4)) == 1.0
    assert network[0].training


def test_measuring_changes_nothing_and_repeats_bit_by_bit():
    task = tiny_task()
    before = {name: value.clone() for name, value in task.network.state_dict().items()}
    random = torch.get_rng_state()
    first, second = (with_final(measure(task), task) for _ in range(2))
    assert first == second
    assert all(torch.equal(value, before[name]) for name, value in task.network.state_dict().items())
    assert all(parameter.grad is None for parameter in task.network.parameters())
    assert torch.equal(random, torch.get_rng_state())


def test_conventions_say_how_it_was_measured():
    task = tiny_task()
    conventions = with_conventions(measure(task), task).conventions
    assert conventions["eval_samples"] == 128
    assert conventions["test_samples"] == 360
    assert conventions["gradient_reduction"] == "sum"
    assert conventions["threads"] == 1
    assert len(conventions["eval_digest"]) == 64
    assert (conventions["stability_split"], conventions["stability_batches"], conventions["stability_batch_size"]) == (
        "train",
        8,
        128,
    )
    assert (conventions["rho_directions"], conventions["gamma_null_draws"], conventions["nudge_step"]) == (32, 99, 0.01)


def test_a_credit_that_fits_no_state_is_refused_while_measuring():
    class Misfit(DirectFeedbackAlignment):
        def credits(self, feedback, inputs):
            return [credit[:, :3] for credit in super().credits(feedback, inputs)]

    task = tiny_task()
    misfit = RunSetup(task.spec, CPU, task.card, task.splits, task.network, Misfit(), task.feedback)
    with pytest.raises(PluginError, match=r"site 0: expected a credit of shape \(128, 16\), found \(128, 3\)"):
        measure(misfit)


class Undefined(DirectFeedbackAlignment):
    card = dataclasses.replace(DirectFeedbackAlignment.card, gamma_reference="none")


def test_where_the_card_gives_gamma_no_meaning_there_is_none_but_rho_and_nudge_stay():
    task = tiny_task()
    task = dataclasses.replace(task, method=Undefined())
    measured = measure(task, moments=MOMENTS)
    gammas = [name for name in (*measured.sites, *measured.scalars) if name.startswith("gamma")]
    assert len(gammas) > 15
    for name in gammas:
        found = measured.sites.get(name, (measured.scalars.get(name),))
        assert all("card of dfa" in reading.reason for reading in found), name
    for name in ("rho", "nudge", "norm_ratio"):
        assert all(reading.value is not None for reading in measured.sites[name]), name


def crash(monkeypatch, name: str, error: Exception) -> None:
    def broken(self, observation):
        raise error

    kind: type[Diagnostic] = type(diagnostics.CATALOG.get(name))
    monkeypatch.setattr(kind, "measure", broken)


@pytest.mark.parametrize("name", rest_long(diagnostics.CATALOG.names(), {"gamma", "rho"}))
def test_a_diagnostic_that_crashes_costs_its_own_figures_and_nothing_else(monkeypatch, name):
    task = tiny_task()
    healthy = with_final(measure(task), task)
    crash(monkeypatch, name, ZeroDivisionError("no such luck"))
    broken = with_final(measure(task), task)
    assert list(broken.failures) == [name]
    assert "Traceback" in broken.failures[name] and "ZeroDivisionError: no such luck" in broken.failures[name]
    card = diagnostics.CATALOG.get(name).card
    for table, whole in ((broken.sites, healthy.sites), (broken.scalars, healthy.scalars)):
        assert table == {quantity: found for quantity, found in whole.items() if not card.covers(quantity)}


@pytest.mark.parametrize("name", ["h_norm", "rho"])
def test_a_diagnostic_that_crashes_does_not_stop_training(monkeypatch, name):
    crash(monkeypatch, name, ZeroDivisionError("no such luck"))
    _, recorder, outcome = trained(epochs=1)
    assert (outcome.status, outcome.epochs, list(outcome.final.failures)) == ("complete", 1, [name])
    assert [list(row.measurements.failures) for row in recorder.rows] == [[name] * (name == "h_norm")] * 2


def test_a_method_that_breaks_its_contract_is_no_crash_of_a_diagnostic(monkeypatch):
    crash(monkeypatch, "gamma_null", PluginError("credit of shape (3,)"))
    with pytest.raises(PluginError, match="credit of shape"):
        measure(tiny_task(), moments=("final",))


def test_looking_itself_may_not_fail_in_silence():
    task = tiny_task()
    task.network.out_head = nn.Linear(3, 10)
    with pytest.raises(RuntimeError):
        measure(task)


def spoiled(method: str, fault: str) -> RunSetup:
    """A task on which most figures cannot be had."""
    task = tiny_task(method=method)
    splits = task.splits
    with torch.no_grad():
        if fault == "zero head":
            task.network.out_head.weight.zero_()
        elif fault == "inf states":
            task.network.embed.weight[0, 0] = float("inf")
        elif fault == "nan weights":
            task.network.blocks[1].w1.weight.fill_(float("nan"))
        elif fault == "zero states":
            task.network.embed.weight.zero_()
            task.network.embed.bias.zero_()
        elif fault == "one class":
            splits = dataclasses.replace(splits, test_labels=torch.zeros_like(splits.test_labels))
        elif fault == "one sample":
            splits = dataclasses.replace(splits, test_images=splits.test_images[:1], test_labels=splits.test_labels[:1])
        elif fault == "no class to tell apart":
            return hand_task(
                scaling_network([0.5], torch.ones(1, 3).double()), torch.ones(4, 3).double(), torch.zeros(4).long()
            )
    return dataclasses.replace(task, splits=splits)


HARMLESS = ("one class", "one sample")


@pytest.mark.parametrize("method", rest_long(["bp", "fa", "dfa"], {"fa"}))
@pytest.mark.parametrize(
    "fault",
    ["zero head", "inf states", "nan weights", "zero states", "no class to tell apart", *HARMLESS],
)
def test_whatever_the_network_is_like_nothing_raises_and_no_number_is_made_up(method, fault):
    task = spoiled(method, fault)
    found = with_final(measure(task), task, initial=initial_of(tiny_task()))
    assert found.failures == {}
    foretelling = ("rho", "rho_samples", "rho_absolute", "rho_bp", "rho_random", "nudge", "nudge_rms", "nudge_bp")
    for name in foretelling:
        for site, reading in enumerate(found.sites[name]):
            wanted = fault in HARMLESS or (fault == "zero states" and "absolute" in name)
            if fault != "zero states":
                assert (reading.value is not None) == wanted, f"{name}[{site}] {reading}"
            assert reading.value is None or -10 < reading.value < 10
    if fault in ("zero head", "inf states", "nan weights"):
        assert {reading.value for reading in (*found.sites["gamma"], *found.sites["gamma_null_mean"])} == {None}
        assert {reading.value for reading in found.sites["stability"]} == {None}


def test_a_network_without_blocks_has_no_figure_of_blocks():
    task = tiny_task(method="bp", architecture_options={"d_hidden": 16, "num_blocks": 0})
    found = with_final(measure(task), task, initial=initial_of(task))
    assert found.failures == {}
    assert all(len(row) == 1 for row in found.sites.values())
    assert found.scalars["feature_drift_blocks"].value is None
    assert found.scalars["gamma_block_input_mean"].value is None
    assert found.scalars["blocks_trained"].value == 0
    assert found.scalars["stability_mid"] == found.sites["stability"][0]
    assert found.sites["rho"][0].value > 0.999


INITIAL = "init.safetensors"


@pytest.fixture(params=["dfa", "bp"])
def run(request, tmp_path):
    """(spec, checkpoint, feedback, digests, final measurements) of a short run; its initial weights are next to it."""
    return short_run(tmp_path, method=request.param)


def short_run(tmp_path, **changes):
    trainer, _, outcome = trained(**changes, epochs=1)
    paths = {"checkpoint": tmp_path / "final.safetensors", "feedback": tmp_path / "state.safetensors"}
    digests = {
        "checkpoint": save_tensors(paths["checkpoint"], trainer.setup.network.state_dict()),
        "feedback": save_tensors(paths["feedback"], trainer.setup.feedback.state_dict()),
    }
    save_tensors(tmp_path / INITIAL, tiny_task(**changes).network.state_dict())
    return trainer.setup.spec, paths["checkpoint"], paths["feedback"], digests, outcome.final


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "dfa"},
        {"method": "bp", "architecture": "small_resnet"},  # BatchNorm
        {"method": "bp", "architecture": "vit_mini"},
        {"method": "bp", "control": "shallow"},
    ],
)
def test_growth_since_initialisation_is_that_of_the_series(changes):
    recorder = Recorder()
    task = short_task(**{"architecture": "resmlp", "epochs": 1, **changes})
    outcome = train(Trainer(task), recorder)
    first, last = (row.measurements for row in recorder.rows)
    assert {reading.value for reading in first.sites["growth_init"]} == {1.0}
    before, after = ([reading.value for reading in one.sites["h_norm"]] for one in (first, last))
    ratios = [end / start for end, start in zip(after, before, strict=True)]
    assert [reading.value for reading in outcome.final.sites["growth_init"]] == ratios
    assert outcome.final.scalars["growth_init_max"].value == max(ratios) != 1.0
    assert outcome.final.conventions[CLASSES] == 10


ON_MLP = {"method": "weight_fa", "architecture": "mlp", "architecture_options": {"d_hidden": 16, "num_blocks": 2}}


def test_where_site_0_is_the_input_gamma_its_null_and_its_aggregates_leave_it_out(tmp_path):
    *_, final = short_run(tmp_path, **ON_MLP)
    for name in (*OF_GAMMA, *OF_NULL):
        assert "site 0" in final.sites[name][0].reason
        assert all(reading.value is not None for reading in final.sites[name][1:])
    assert final.conventions["first_credited_site"] == 1 and final.conventions["gamma_null_draws"] == 99
    means = [reading.value for reading in final.sites["gamma"][1:]]
    assert final.scalars["gamma_all_mean_mean"].value == pytest.approx(sum(means) / 2, rel=1e-12)
    assert final.scalars["gamma_all_mean_mean"] == final.scalars["gamma_deep_mean_mean"]


def test_a_run_cannot_choose_which_of_its_sites_count(tmp_path):
    spec, checkpoint, feedback, digests, final = short_run(tmp_path, method="dfa")
    initial = load_tensors(tmp_path / INITIAL)
    recorded = {**final.conventions, "first_credited_site": 2, "fidelity_least_error": 0.5}
    again = remeasure(build_setup(spec, CPU), checkpoint, feedback, digests, initial, recorded)
    assert again == remeasure(build_setup(spec, CPU), checkpoint, feedback, digests, initial)
    assert again.conventions["first_credited_site"] == 0


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["small_resnet", "vit_mini", "small_cnn"])
def test_tokens_maps_and_running_statistics_give_the_same_figures_again(tmp_path, architecture):
    spec, checkpoint, feedback, digests, final = short_run(tmp_path, **of(architecture, method="dfa"))
    again = remeasure(build_setup(spec, CPU), checkpoint, feedback, digests, initial=load_tensors(tmp_path / INITIAL))
    assert again.sites == final.sites and not again.failures
    assert all(reading.value is not None for reading in again.sites["gamma"])
    tensors = load_tensors(checkpoint)
    moved = [name for name, value in tensors.items() if name.endswith("running_mean") and value.abs().max() > 0]
    assert len(moved) == (5 if architecture == "small_resnet" else 0)  # the stem's and two a block
    if moved:
        changed = {name: torch.zeros_like(value) if name in moved else value for name, value in tensors.items()}
        other = remeasure(
            build_setup(spec, CPU), checkpoint, feedback, {**digests, "checkpoint": save_tensors(checkpoint, changed)}
        )
        assert other.sites["g_norm"] != final.sites["g_norm"]


def test_without_the_feedback_file_every_gamma_is_na(run):
    spec, checkpoint, _, digests, _ = run
    measured = remeasure(build_setup(spec, CPU), checkpoint, None, digests)
    gammas = [reading for name, row in measured.sites.items() if name.startswith("gamma") for reading in row]
    if spec.method == "bp":
        assert all(
            reading.value is not None for reading in measured.sites["gamma"]
        )  # its credit needs no feedback state
    else:
        assert {reading.reason for reading in gammas} == {NO_FEEDBACK}
        assert measured.scalars["gamma_deep_mean"].reason == NO_FEEDBACK


@pytest.mark.parametrize("run", ["dfa"], indirect=True)
def test_a_changed_checkpoint_is_refused(run):
    spec, checkpoint, feedback, digests, _ = run
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"\x01")
    with pytest.raises(IntegrityError, match="final.safetensors: expected SHA-256"):
        remeasure(build_setup(spec, CPU), checkpoint, feedback, digests)


@pytest.mark.parametrize("run", ["dfa"], indirect=True)
def test_without_the_initial_weights_there_is_no_drift(run):
    spec, checkpoint, feedback, digests, final = run
    again = remeasure(build_setup(spec, CPU), checkpoint, feedback, digests)
    lost = [name for name in again.scalars if name.startswith("feature_drift") or name == "blocks_trained"]
    assert set(lost) == {name for name in final.scalars if name.startswith("feature_drift") or name == "blocks_trained"}
    assert {again.scalars[name].value for name in lost} == {None}
    assert again.sites == final.sites


@pytest.mark.parametrize("run", ["dfa"], indirect=True)
def test_another_feedback_gives_another_gamma(run):
    spec, checkpoint, feedback, digests, final = run
    stream = torch.Generator().manual_seed(0)
    fresh = {name: torch.randn(matrix.shape, generator=stream) for name, matrix in load_tensors(feedback).items()}
    other = remeasure(
        build_setup(spec, CPU), checkpoint, feedback, {**digests, "feedback": save_tensors(feedback, fresh)}
    )
    assert other.sites["gamma"][1] != final.sites["gamma"][1]
    assert other.sites["g_norm"] == final.sites["g_norm"]
