"""nudge: in closed form where the loss is linear; along the gradient it helps, against it it hurts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.diagnostics import Unavailable
from fa_registry.diagnostics._probe import SAMPLES_OF_POSITIONS
from fa_registry.diagnostics.nudge import PLUGIN
from fa_registry.training import run_setup
from fa_registry.training.measuring import measure
from tests.helpers.closed_form_tasks import KINDS, gradients, sharp_task, states, tilted
from tests.helpers.probes import one_site
from tests.helpers.tiny_tasks import tiny_task

STATES = [[3.0, 4.0], [6.0, 8.0]]  # norms 5 and 10
SLOPES = [[1.0, 0.0], [0.0, 2.0]]
CREDITS = [[0.0, 7.0], [3.0, 4.0]]  # cosines 0 and .8 with the slopes


def flat(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows).reshape(len(rows), -1)


def value(measured, name: str) -> float | None:
    return measured.sites[name][0].value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 37, 128, 1024])
def test_closed_form_of_both_forms_and_the_control(kind, count, monkeypatch):
    monkeypatch.setattr(run_setup, "EVAL_SAMPLES", 1024)
    measured = measure(sharp_task(kind, count), moments=("final",))
    for site, (state, slope, credit) in enumerate(
        zip(states(kind, count), gradients(kind, count), tilted(kind, count), strict=True)
    ):
        few = slice(None if kind == "vectors" else SAMPLES_OF_POSITIONS)
        h, g, c = flat(state)[few], flat(slope)[few], flat(credit.numpy())[few]
        sizes = np.sqrt((h**2).sum(axis=1))
        lengths = [np.sqrt((rows**2).sum(axis=1)) for rows in (c, g)]
        rms = np.sqrt((c**2).mean(axis=1))
        expected = {
            "nudge": (-0.01 * sizes * (c * g).sum(axis=1) / lengths[0]).mean(),
            "nudge_bp": (-0.01 * sizes * lengths[1]).mean(),
            "nudge_rms": (-0.01 * (c * g).sum(axis=1) / (rms + 1e-6)).mean(),
        }
        for name, figure in expected.items():
            assert measured.sites[name][site].value == pytest.approx(figure, rel=1e-9), f"{name}, site {site}"


def test_each_sample_is_nudged_by_its_own_norm():
    measured = PLUGIN.measure(one_site(STATES, SLOPES, CREDITS))
    assert value(measured, "nudge") == pytest.approx(-0.01 * (0 + 10 * 2 * 0.8) / 2)
    assert value(measured, "nudge_bp") == pytest.approx(-0.01 * (5 * 1 + 10 * 2) / 2)


def test_the_papers_form_adds_a_millionth_to_the_rms():
    credits = np.array(CREDITS) * 1e-6
    measured = PLUGIN.measure(one_site(STATES, SLOPES, credits))
    rms = np.sqrt((credits**2).mean(axis=1))
    along = (credits * np.array(SLOPES)).sum(axis=1)
    assert value(measured, "nudge_rms") == pytest.approx((-0.01 * along / (rms + 1e-6)).mean(), rel=1e-12)
    assert value(measured, "nudge") == pytest.approx(-0.08)  # its own form knows no size


@pytest.mark.parametrize("method", ["bp", "fa", "dfa"])
def test_along_the_gradient_the_loss_falls_at_every_site(method):
    measured = measure(tiny_task(method=method), moments=("final",))
    falls = [reading.value for reading in measured.sites["nudge_bp"]]
    assert max(falls) < -1e-3
    if method == "bp":
        assert [reading.value for reading in measured.sites["nudge"]] == pytest.approx(falls, rel=1e-5)


def test_against_the_gradient_it_rises():
    against = sharp_task("maps", 9, lambda kind, count: [-torch.tensor(rows) for rows in gradients(kind, count)])
    measured = measure(against, moments=("final",))
    for name in ("nudge", "nudge_rms"):
        assert min(reading.value for reading in measured.sites[name]) > 0.02


def test_samples_without_a_direction_are_left_out():
    measured = PLUGIN.measure(one_site(STATES, SLOPES, [[0.0, 0.0], [3.0, 4.0]]))
    assert value(measured, "nudge") == pytest.approx(-0.16)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"credits": [[0.0, 0.0]] * 2}, "for every sample, the credit or the state is exactly zero"),
        ({"credits": [[float("nan"), 0.0], [3.0, 4.0]]}, "not finite (nan)"),
        ({"credits": Unavailable("the file is gone")}, "the file is gone"),
        ({"gradients": [[0.0, 0.0]] * 2}, "the change of the loss is not larger than the rounding error of float64"),
    ],
    ids=["zero credit", "nan credit", "no credit", "flat loss"],
)
def test_there_is_no_nudge_and_the_reason_is_reported(changes, reason):
    measured = PLUGIN.measure(one_site(**{"states": STATES, "gradients": SLOPES, "credits": CREDITS, **changes}))
    for name in ("nudge", "nudge_rms"):
        assert measured.sites[name][0].reason == reason, name
    assert (value(measured, "nudge_bp") is None) == ("gradients" in changes)


def test_the_control_is_the_same_bit_by_bit_without_a_credit():
    task = tiny_task(method="fa")
    there, gone = (measure(task, absent, ("final",)) for absent in ("", "the file is gone"))
    assert there.sites["nudge_bp"] == gone.sites["nudge_bp"]
