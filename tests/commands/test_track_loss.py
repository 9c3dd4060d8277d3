"""The loss of a tracked run is recorded, and an audit recomputes with it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.evidence import user_loops
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.remeasure import remeasure_run
from fa_registry.tasks._user_loss import FUNCTION
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record

pytestmark = pytest.mark.long

SITES = ["0", "2"]
OF_GRADIENT = ("g_norm", "gain", "fidelity")


def build():
    torch.manual_seed(2)
    layers = (nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3), nn.Sigmoid())
    return nn.Sequential(*layers)


def quartic(outputs, targets):
    return (outputs - targets).pow(4).sum(1)


def build_with_loss():
    return fa_registry.adapt(build(), SITES, loss=quartic)


def build_with_another_loss():
    return fa_registry.adapt(build(), SITES, loss=lambda outputs, targets: (outputs - targets).square().sum(1))


def tracked(loss, factory="build"):
    torch.manual_seed(1)
    x, y = torch.randn(24, 5), nn.functional.one_hot(torch.arange(24) % 3).float()
    options = {"method": "mine", "factory": f"{__name__}:{factory}", "loss": loss}
    with fa_registry.track(build(), SITES, eval=(x, y), **options) as run:
        run.epoch(test_accuracy=0.6)
    tracker = MlflowTracker()
    return read_record(tracker, tracker.get(run.run_id))


def integrity(record, factory="build"):
    """The result in this process, so that a test can see what is compared."""
    tracker = MlflowTracker()
    options = RemeasureOptions(factories=(f"{__name__}:{factory}",))
    return remeasure_run(tracker, tracker.get(record.run_id), options)[0].integrity


@pytest.fixture
def compared(monkeypatch):
    """The names of the metrics that the audit compares."""
    names: list[str] = []
    genuine = user_loops.compare

    def compare(logged, recomputed):
        names.extend(logged.sites)
        return genuine(logged, recomputed)

    monkeypatch.setattr(user_loops, "compare", compare)
    return names


@pytest.mark.parametrize("loss", ["bce", "mse"])
def test_a_named_loss_is_recorded_shown_and_recomputed(loss, measured_each_time, workplace, compared):
    record = tracked(loss)
    assert record.measurements.conventions["loss"] == record.provenance["own_loop"]["loss"] == loss
    assert "loss_function" not in record.provenance["own_loop"]
    found = integrity(record)
    assert found.state == "verified", found
    assert set(OF_GRADIENT) <= set(compared)


def test_the_gradient_of_another_loss_is_a_mismatch(measured_each_time, workplace, monkeypatch):
    record = tracked("bce")
    monkeypatch.setattr(user_loops, "_loss", lambda record, given: ("mse", True))
    found = integrity(record)
    assert found.state == "mismatch" and "g_norm" in {one.quantity for one in found.differences}


def test_a_function_is_recomputed_only_if_the_factory_returns_it(measured_each_time, workplace, compared):
    record = tracked(quartic)
    assert record.measurements.conventions["loss"] == record.provenance["own_loop"]["loss"] == FUNCTION
    assert record.provenance["own_loop"]["loss_function"] == "quartic"
    assert integrity(record).state == "verified"
    assert "h_norm" in compared and not set(OF_GRADIENT) & set(compared)
    compared.clear()
    record = tracked(quartic, "build_with_loss")
    assert integrity(record, "build_with_loss").state == "verified"
    assert set(OF_GRADIENT) <= set(compared)


def test_a_factory_with_another_function_is_a_mismatch(measured_each_time, workplace):
    record = tracked(quartic, "build_with_another_loss")
    found = integrity(record, "build_with_another_loss")
    assert found.state == "mismatch" and "g_norm" in {one.quantity for one in found.differences}


def test_without_a_loss_the_cross_entropy_is_recorded(workplace):
    x, y = torch.randn(24, 5), torch.arange(24) % 3
    with fa_registry.track(build()[:-1], SITES, eval=(x, y), method="mine") as run:
        run.epoch(test_accuracy=0.6)
    tracker = MlflowTracker()
    assert read_record(tracker, tracker.get(run.run_id)).measurements.conventions["loss"] == "cross_entropy"
