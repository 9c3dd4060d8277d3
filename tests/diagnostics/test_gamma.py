"""Γ: values, unclamped; and every reason why there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.diagnostics.gamma import PLUGIN
from fa_registry.training.measuring import measure
from tests.helpers.small import observation, tiny_task

GRADIENTS = [[[1, 0], [0, 2], [3, 4]], [[0, 1], [2, 0], [0, 6]]]
CREDITS = [[[0, 1], [0, 2], [4, 3]], [[0, 1], [0, 1], [0, -1]]]  # cosines 0, 1, .96 and 1, 0, −1


def values(measured, name: str) -> list[float]:
    return [reading.value for reading in measured.sites[name]]


def test_mean_quartiles_and_batch_cosine():
    measured = PLUGIN.measure(observation(gradients=GRADIENTS, credits=CREDITS))
    assert values(measured, "gamma") == pytest.approx([1.96 / 3, 0.0])
    assert values(measured, "gamma_median") == pytest.approx([0.96, 0.0])
    assert values(measured, "gamma_q25") == pytest.approx([0.48, -0.5])
    assert values(measured, "gamma_q75") == pytest.approx([0.98, 0.5])
    assert values(measured, "gamma_samples") == [3.0, 3.0]
    assert values(measured, "gamma_batch") == pytest.approx([28 / 30, (1 - 6) / (41 * 3) ** 0.5])


@pytest.mark.parametrize("size", [1e-12, 1e-30])
def test_a_tiny_gradient_is_still_a_direction(size):
    seen = observation(gradients=(np.array(GRADIENTS) * size).tolist(), credits=CREDITS)
    assert values(PLUGIN.measure(seen), "gamma") == pytest.approx([1.96 / 3, 0.0], abs=1e-12)
    assert values(PLUGIN.measure(seen), "gamma_batch")[0] == pytest.approx(28 / 30)


def test_samples_without_a_direction_are_left_out_and_counted():
    credits = [[[0, 0], [0, 2], [4, 3]], CREDITS[1]]
    measured = PLUGIN.measure(observation(gradients=GRADIENTS, credits=credits))
    assert values(measured, "gamma")[0] == pytest.approx(0.98)
    assert values(measured, "gamma_samples") == [2.0, 3.0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"gradients": [[[0, 0]] * 3, GRADIENTS[1]], "credits": CREDITS},
            "the reference gradient is exactly zero for every sample",
        ),
        (
            {"gradients": GRADIENTS, "credits": [[[0, 0]] * 3, CREDITS[1]]},
            "credit or gradient is zero or not finite for every sample",
        ),
        (
            {"gradients": [[[float("nan"), 0]] * 3, GRADIENTS[1]], "credits": CREDITS},
            "not finite: the reference gradient, for every sample",
        ),
        (
            {"gradients": [[[float("inf"), 0]] * 3, GRADIENTS[1]], "credits": CREDITS},
            "not finite: the reference gradient, for every sample",
        ),
        (
            {"gradients": GRADIENTS, "credits": CREDITS, "gradients_double": [[[0, 1], [2, 0], [4, -3]], GRADIENTS[1]]},
            "the reference gradient is noise: fidelity 0.0000 < 0.99",
        ),
        ({"gradients": GRADIENTS, "no_credits": "the feedback file is gone"}, "the feedback file is gone"),
    ],
    ids=["zero gradient", "zero credit", "nan gradient", "inf gradient", "noise", "no feedback"],
)
def test_there_is_no_gamma_and_the_reason_is_said(changes, reason):
    measured = PLUGIN.measure(observation(**changes))
    for name in PLUGIN.card.names:
        assert measured.sites[name][0].value is None, name
        assert measured.sites[name][0].reason == reason
    if "credits" in changes:
        assert measured.sites["gamma"][1].value is not None


def test_a_missing_feedback_file_makes_every_gamma_na_never_a_number():
    measured = measure(tiny_task(method="fa"), no_feedback="the feedback file is gone")
    names = [name for name in (*measured.sites, *measured.scalars) if name.startswith(("gamma", "norm_ratio"))]
    assert len(names) > 10
    for name in names:
        found = measured.sites.get(name, (measured.scalars.get(name),))
        assert {reading.reason for reading in found} == {"the feedback file is gone"}, name
    assert measured.sites["g_norm"][0].value > 0


def test_bp_is_one_everywhere_and_fa_at_its_last_site():
    assert values(measure(tiny_task(method="bp")), "gamma") == pytest.approx([1.0] * 3)
    gamma = values(measure(tiny_task(method="fa")), "gamma")
    assert gamma[-1] == pytest.approx(1.0)
    assert max(map(abs, gamma[:-1])) < 0.9


def test_gamma_is_read_at_the_site_where_the_credit_acts():
    """FA's credit at site L−1 against g_L would be another number: the published reading, one site too early."""
    task = tiny_task(method="fa")
    torch.nn.init.eye_(task.feedback.B_02)  # c_1 = c_2 = g_2
    gamma = values(measure(task), "gamma")
    assert gamma[2] == pytest.approx(1.0)
    assert gamma[1] < 0.99
