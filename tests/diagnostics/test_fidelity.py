"""fidelity: float32 against float64, direction only."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
import torch

from fa_registry.diagnostics import Unavailable, observe
from fa_registry.diagnostics.base import LEAST_ERROR
from fa_registry.diagnostics.fidelity import ALL_FITTED, NO_DIRECTION
from fa_registry.diagnostics.fidelity import PLUGIN as FIDELITY
from fa_registry.diagnostics.gamma import LEAST_FIDELITY
from fa_registry.diagnostics.gamma import PLUGIN as GAMMA
from fa_registry.diagnostics.stability import BATCH, BATCHES, mean_pairwise_cosine
from fa_registry.diagnostics.stability import PLUGIN as STABILITY
from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import load_edition
from fa_registry.records import NOT_FINITE
from fa_registry.training.loop import train
from fa_registry.training.measuring import measure
from fa_registry.training.probe_context import conventions_of_setup
from fa_registry.training.trainer import Trainer
from tests.builders import record
from tests.helpers.closed_form_tasks import CLASSES, KINDS, SIZE, hand_task, lifted, pooling
from tests.helpers.probes import one_site
from tests.helpers.tiny_tasks import Recorder, observation, scaling_network, tiny_task

EVERY_ERROR = -1.0  # every sample counts
GRADIENTS = [[[1, 0], [0, 2], [3, 4]], [[0, 1], [2, 0], [0, 6]]]


def test_mean_cosine_over_samples_and_the_lowest_site():
    doubled = [[[2, 0], [0, 9], [3, 4]], [[1, 0], [2, 0], [0, 6]]]
    measured = FIDELITY.measure(observation(gradients=GRADIENTS, gradients_double=doubled))
    assert [reading.value for reading in measured.sites["fidelity"]] == pytest.approx([1.0, 2 / 3])
    assert measured.scalars["fidelity_min"].value == pytest.approx(2 / 3)


def test_a_sample_below_float32s_resolution_is_left_out_and_counted():
    doubled = [[[2, 0], [0, 9], [3, 4]], [[1, 0], [2, 0], [0, 6]]]
    fitted = [[LEAST_ERROR, 0], [1, 0], [float("nan"), 1]]
    measured = FIDELITY.measure(observation(gradients=GRADIENTS, gradients_double=doubled, error=fitted))
    assert [reading.value for reading in measured.sites["fidelity"]] == [1.0, 1.0]
    assert measured.scalars["fidelity_left_out"].value == 1
    ratio = 4 + 36, ((1 + 4 + 36) * (1 + 4 + 36)) ** 0.5  # of site 1: the first sample's gradients are orthogonal
    assert measured.sites["fidelity_batch"][1].value == pytest.approx(ratio[0] / ratio[1])
    counted = dataclasses.replace(
        observation(gradients=GRADIENTS, gradients_double=doubled, error=fitted), least_error=EVERY_ERROR
    )
    assert FIDELITY.measure(counted).sites["fidelity"][1].value == pytest.approx(2 / 3)
    assert FIDELITY.measure(counted).scalars["fidelity_left_out"].value == 0


def test_where_every_sample_is_fitted_fidelity_and_gamma_have_no_value_and_the_batch_has():
    seen = observation(gradients_double=GRADIENTS, credits=GRADIENTS, error=[[1e-7, 0]] * 3)
    measured = FIDELITY.measure(seen)
    assert {reading.reason for reading in measured.sites["fidelity"]} == {ALL_FITTED}
    assert measured.scalars["fidelity_min"].reason == ALL_FITTED
    assert measured.scalars["fidelity_left_out"].value == 3
    assert [reading.value for reading in measured.sites["fidelity_batch"]] == pytest.approx([1.0, 1.0])
    assert {reading.reason for reading in GAMMA.measure(seen).sites["gamma"]} == {ALL_FITTED}


@pytest.mark.parametrize(
    ("value", "reason"), [(0.0, NO_DIRECTION), (float("inf"), NOT_FINITE), (float("nan"), NOT_FINITE)]
)
def test_a_batch_without_a_direction_has_no_fidelity(value, reason):
    rows = [[[value, 0.0]] * 3, GRADIENTS[1]]
    measured = FIDELITY.measure(observation(gradients=rows, gradients_double=rows))
    assert measured.sites["fidelity_batch"][0].reason.startswith(reason)
    assert measured.sites["fidelity_batch"][1].value == pytest.approx(1.0)


@pytest.mark.long
def test_bp_that_fits_samples_to_the_last_bit_is_no_noise():
    """Trained until 20 of 128 samples are fitted to float32's resolution: their cosines pull the plain mean to .98."""
    size = {"d_hidden": 256, "num_blocks": 1}
    recipe = {"learning_rate": 0.01, "weight_decay": 0.0, "batch_size": 32, "schedule": "constant"}
    task = tiny_task(method="bp", architecture="mlp", architecture_options=size, epochs=40, **recipe)
    train(Trainer(task), Recorder())
    measured = measure(task)
    plain = measure(task, conventions=dataclasses.replace(conventions_of_setup(task), least_error=EVERY_ERROR))
    assert plain.sites["fidelity"][-1].value < LEAST_FIDELITY
    assert measured.sites["fidelity"][-1].value > 0.999999
    assert measured.sites["fidelity_batch"][-1].value == pytest.approx(1.0, abs=1e-9)
    assert 4 <= measured.scalars["fidelity_left_out"].value < 64
    assert judged(plain, task, "2026-12") == judged(measured, task, "2026-12") == "OK"


def judged(measured, task, edition):
    """The state of D2."""
    run = dataclasses.replace(record(measured=measured), spec=task.spec)
    return next(one.state for one in judge(run, None, load_edition(edition)).findings if one.rule == "D2")


def test_without_the_second_pass_it_is_na():
    measured = FIDELITY.measure(observation())
    assert all("float64" in reading.reason for reading in measured.sites["fidelity"])
    assert "float64" in measured.scalars["fidelity_min"].reason


def test_a_zero_gradient_has_none():
    zero = [[[0, 0]] * 3, GRADIENTS[1]]
    measured = FIDELITY.measure(observation(gradients=zero, gradients_double=zero))
    assert "zero or not" in measured.sites["fidelity"][0].reason
    assert measured.scalars["fidelity_min"].value == pytest.approx(1.0)


def test_a_healthy_network_is_exact_and_a_tiny_gradient_stays_so():
    task = tiny_task()
    images, labels = task.eval_batch
    with torch.no_grad():
        task.network.out_head.weight.mul_(1e-9)
    lowest = FIDELITY.measure(observe(task.network, images, labels)).scalars["fidelity_min"]
    assert lowest.value == pytest.approx(1.0, abs=1e-6)


SHARES = (128, 100, 64, 30, 0, 128, 77, 5)  # samples of type (0, 1) in each batch; the rest is (2, 1)


def in_batches(kind: str):
    """1,024 samples, batch k with SHARES[k] of the first type: its mean gradient is the mixture of the two d."""
    shown = np.concatenate([np.where(np.arange(BATCH) < share, 0, 2) for share in SHARES])
    labels = np.ones(len(shown), dtype=np.int64)
    network = scaling_network([0.5, 1.0], torch.eye(CLASSES, dtype=torch.float64))
    network.pool = pooling(kind)
    images = torch.tensor(lifted(SIZE * np.eye(CLASSES)[shown], kind))
    return hand_task(network, images, torch.tensor(labels))


@pytest.mark.parametrize("kind", KINDS)
def test_closed_form(kind):
    measured = measure(in_batches(kind), moments=("final",))
    means = [share / BATCH * np.array([1, -1, 0]) + (1 - share / BATCH) * np.array([0, -1, 1]) for share in SHARES]
    units = [mean / np.sqrt((mean**2).sum()) for mean in means]
    expected = np.mean([left @ right for left, right in combinations(units, 2)])
    assert [reading.value for reading in measured.sites["stability"]] == pytest.approx([expected] * 3, rel=1e-9)
    assert measured.scalars["stability_mid"] == measured.sites["stability"][1]


def test_the_pairs_are_of_different_batches_each_once():
    rows = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]], dtype=torch.float64)
    assert mean_pairwise_cosine(rows).value == pytest.approx((0 + 2 * 0.5**0.5) / 3)


def test_the_least_value_is_reached_by_a_regular_simplex():
    simplex = torch.eye(BATCHES, dtype=torch.float64) - 1 / BATCHES
    assert mean_pairwise_cosine(simplex).value == pytest.approx(-1 / (BATCHES - 1))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([[0.0, 0.0], [1.0, 0.0]], "the mean gradient of a batch is exactly zero"),
        ([[float("nan"), 0.0], [1.0, 0.0]], "the mean gradient of a batch is not finite"),
        ([[float("inf"), 0.0], [1.0, 0.0]], "the mean gradient of a batch is not finite"),
    ],
)
def test_a_batch_without_a_direction_leaves_no_figure(rows, reason):
    assert mean_pairwise_cosine(torch.tensor(rows, dtype=torch.float64)).reason == reason


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_directions_have_no_size(size):
    rows = torch.tensor([[3.0, 4.0], [4.0, 3.0]], dtype=torch.float64) * torch.tensor([[size], [1.0]])
    assert mean_pairwise_cosine(rows).value == pytest.approx(0.96)


def test_too_few_samples_is_the_benchs_reason_at_every_site_and_in_the_middle():
    seen = one_site([[1.0, 2.0]], [[1.0, 0.0]], [[1.0, 0.0]], batch_gradients=Unavailable("needs 8 disjoint batches"))
    measured = STABILITY.measure(seen)
    assert [reading.reason for reading in measured.sites["stability"]] == ["needs 8 disjoint batches"]
    assert measured.scalars["stability_mid"].reason == "needs 8 disjoint batches"


@pytest.mark.parametrize(("blocks", "middle"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_the_middle_of_l_blocks_is_site_half_l_rounded_down(blocks, middle):
    rows = [torch.tensor([[1.0, 0.0], [angle, 1.0]], dtype=torch.float64) for angle in range(blocks + 1)]
    bench = one_site([[1.0, 2.0]], [[1.0, 0.0]], [[1.0, 0.0]], batch_gradients=lambda: rows).bench
    sites = [[[1.0, 2.0]]] * (blocks + 1)
    seen = dataclasses.replace(observation(hidden=sites, gradients=sites), bench=bench)
    assert STABILITY.measure(seen).scalars["stability_mid"].value == pytest.approx(middle / (1 + middle**2) ** 0.5)
