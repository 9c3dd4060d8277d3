"""The null of Γ: mean, spread and rank of draws with known cosines; ≈ 0 for the real thing; and where there is none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry.diagnostics.gamma_null import CHEAP_DRAWS, COSTLY_DRAWS, EXACT, NAMES, PLUGIN
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.training.bench import bench_conventions, null_draws, stream
from fa_registry.training.measuring import measure
from fa_registry.training.task import network_shape
from tests.helpers.bench import bench_for, one_site
from tests.helpers.small import supported, tiny_task

COSINES = np.linspace(-0.9, 0.95, COSTLY_DRAWS)


def turned(cosine: float, shape: tuple[int, ...] = (2,)) -> torch.Tensor:
    """Three credits at this cosine from the gradient (1, 0)."""
    return torch.tensor([[cosine, (1 - cosine**2) ** 0.5]] * 3, dtype=torch.float64)


def seen(observed: float, fresh=lambda index: [turned(COSINES[index])], **changes):
    gradients = [[1.0, 0.0]] * 3
    return one_site([[1.0, 2.0]] * 3, gradients, turned(observed), fresh_credits=fresh, **changes)


def readings(measured, site: int = 0):
    return [measured.sites[name][site] for name in NAMES]


@pytest.mark.parametrize(("observed", "at_least"), [(0.99, 0), (0.94, 1), (0.0, 10), (-0.95, 20)])
def test_mean_std_and_rank(observed, at_least):
    mean, std, p = (reading.value for reading in readings(PLUGIN.measure(seen(observed))))
    assert mean == pytest.approx(COSINES.mean(), abs=1e-12)
    assert std == pytest.approx(COSINES.std(ddof=1), rel=1e-12)
    assert p == pytest.approx((1 + at_least) / (COSTLY_DRAWS + 1))
    assert (observed <= COSINES).sum() == at_least


def test_samples_without_a_direction_are_left_out_of_a_draws_mean():
    credits = turned(0.6)
    credits[1] = 0
    assert readings(PLUGIN.measure(seen(0.5, lambda index: [credits])))[0].value == pytest.approx(0.6)


def test_draws_are_the_methods_own_from_the_runs_seed_and_options():
    task = tiny_task(method="dfa")
    measured = measure(task, moments=("epoch", "final"))
    images, labels = task.eval_batch
    shape = network_shape(task.network, images[:1], 10)
    logits, hidden = task.network(images, return_hidden=True)
    gradients = torch.autograd.grad(nn.functional.cross_entropy(logits, labels, reduction="sum"), hidden)
    error = (logits.softmax(dim=1) - nn.functional.one_hot(labels, 10)).detach().double()
    for site, block in ((0, 1), (1, 1), (2, 2)):
        gammas = []
        for index in range(CHEAP_DRAWS):
            fresh = task.method.feedback(shape, task.spec.method_options, stream(task, f"gamma_null/{index}"))
            c, g = (error @ fresh.matrix(block).T.double()).numpy(), gradients[site].double().numpy()
            gammas.append(((c * g).sum(1) / np.sqrt((c**2).sum(1) * (g**2).sum(1))).mean())
        mean, std, p = (reading.value for reading in readings(measured, site))
        assert (mean, std) == pytest.approx((np.mean(gammas), np.std(gammas, ddof=1)), abs=1e-6)
        observed = measured.sites["gamma"][site].value
        assert p == (1 + sum(gamma >= observed for gamma in gammas)) / (CHEAP_DRAWS + 1)


@pytest.mark.parametrize(
    ("method", "draws"), [("dfa", 99), ("fa", 99), ("drtp", 99), ("weight_fa", 20), ("pepita", 20), ("ep", 20)]
)
def test_many_draws_where_a_draw_is_a_product_a_site_and_the_published_number_elsewhere(method, draws):
    task = tiny_task(**supported(method))
    assert null_draws(task) == bench_for(task).null_draws == bench_conventions(task)["gamma_null_draws"] == draws


def test_draws_are_taken_in_parts_and_each_counts_once():
    """Whatever their number is divided by: the last part is shorter."""
    asked = []

    def fresh(index):
        asked.append(index)
        return [turned(index / 200)]

    mean, _, p = (reading.value for reading in readings(PLUGIN.measure(seen(0.3, fresh, null_draws=47))))
    assert asked == list(range(47)) and mean == pytest.approx(23 / 200) and p == 1 / 48


@pytest.mark.parametrize("method", ["dfa", "fa"])
def test_under_fresh_feedback_gamma_is_nothing(method):
    measured = measure(tiny_task(method=method, architecture_options={"d_hidden": 64}), moments=("final",))
    for site in range(4):
        mean, std, p = (reading.value for reading in readings(measured, site))
        assert abs(mean) < 4 * std / CHEAP_DRAWS**0.5, f"site {site}"
        assert 0.005 < std < 0.2 and 1 / 100 <= p <= 1


def test_feedback_that_fits_stands_out_of_its_null():
    """dfa with the transposed Jacobian of the head: exact at the last site, and no fresh draw comes near."""
    task = tiny_task(method="dfa", architecture_options={"d_hidden": 16, "num_blocks": 2, "terminal_ln": False})
    task.feedback.B_02.copy_(task.network.out_head.weight.detach().T)
    measured = measure(task, moments=("epoch", "final"))
    assert measured.sites["gamma"][2].value == pytest.approx(1.0)
    assert measured.sites["gamma_null_p"][2].value == pytest.approx(1 / 100)


def test_sites_that_are_exact_have_no_null():
    measured = measure(tiny_task(method="fa"), moments=("final",))
    assert {reading.reason for reading in readings(measured, 2)} == {EXACT}
    assert all(reading.value is not None for reading in readings(measured, 1))


class Learned(DirectFeedbackAlignment):
    """Its card says that its feedback learns, as those of dni or the bridges do."""

    card = dataclasses.replace(DirectFeedbackAlignment.card, learned=True)


def test_only_fixed_random_feedback_has_a_null():
    bp = measure(tiny_task(method="bp"), moments=("final",))
    assert {reading.reason for reading in readings(bp)} == {"the method 'bp' has no feedback to draw afresh"}
    task = tiny_task(method="dfa")
    shape = network_shape(task.network, task.eval_batch[0][:1], 10)
    learned = dataclasses.replace(task, method=Learned(), feedback=Learned().feedback(shape, {}, torch.Generator()))
    found = {reading.reason for reading in readings(measure(learned, moments=("final",)))}
    assert found == {"its feedback is learned: a fresh draw would be an untrained net, not another feedback"}


def test_where_gamma_is_refused_so_is_its_null():
    zero = one_site([[1.0, 2.0]] * 3, [[0.0, 0.0]] * 3, turned(0.5), fresh_credits=lambda index: [turned(0.1)])
    assert {reading.reason for reading in readings(PLUGIN.measure(zero))} == {
        "the reference gradient is exactly zero for every sample"
    }


@pytest.mark.parametrize("number", [float("nan"), 0.0])
def test_a_draw_without_a_gamma_leaves_no_null(number):
    broken = torch.full((3, 2), number, dtype=torch.float64)
    measured = PLUGIN.measure(seen(0.5, lambda index: [broken if index == 3 else turned(0.1)]))
    assert {reading.reason for reading in readings(measured)} == {"not finite: Γ under a fresh draw"}
