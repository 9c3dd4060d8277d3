"""An architecture whose layers have their own backward pass: its reference gradient is checked, not assumed."""

from __future__ import annotations

import pytest

from fa_registry.records import NOT_ITS_GRADIENT
from tests.helpers.plugins import installed_member
from tests.security.conftest import judged

# A residual MLP whose first block sends its error back through half of its weights.
HALF_BACK = """
import dataclasses, torch
from fa_registry.architectures.resmlp import ResMLP

class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * FACTOR

class HalfBack(ResMLP):
    card = dataclasses.replace(ResMLP.card, name="half_back")

    def build(self, options, image_shape, classes, generator):
        network = super().build(options, image_shape, classes, generator)
        block = network.blocks[0]
        block.__class__ = type("HalfBlock", (Halving, type(block)), {})
        return network

class Halving:
    def forward(self, state):
        return Half.apply(super().forward(state))

PLUGIN = HalfBack()
"""
GRID = {
    "methods": ["dfa"],
    "architectures": ["half_back"],
    "datasets": ["digits"],
    "seeds": [1],
    "architecture_options": {"d_hidden": 16, "num_blocks": 2},
}


# Right for the samples that epochs are checked on: the end is checked on all.
LATE = "torch.where(torch.arange(len(gradient))[:, None] < 8, 1.0, 0.5)"


@pytest.mark.parametrize("factor", ["0.5", LATE])
def test_what_rests_on_a_wrong_reference_gradient_has_no_value_and_the_run_is_incomplete(tmp_path, study, factor):
    with installed_member(tmp_path / "site", "architectures", "half_back", HALF_BACK.replace("FACTOR", factor)):
        report = study(epochs=2, **GRID)
    (run,) = judged(report, control="none")
    sites, scalars = run.record.measurements.sites, run.record.measurements.scalars
    assert run.record.integrity.state == "verified" and run.verdict.outcome == "incomplete"
    assert sites["reference_check"][0].value > 0.01 and sites["reference_check"][2].value < 1e-6
    for name in ("g_norm", "gain", "fidelity", "gamma"):
        assert all(reading.value is None for reading in sites[name])
    assert sites["gamma"][1].reason.startswith(f"{NOT_ITS_GRADIENT} at site 0")
    assert scalars["gamma_deep_mean"].value is None and scalars["accuracy"].value is not None
    assert all(reading.value is not None for reading in sites["h_norm"])


def test_a_backward_pass_that_is_the_gradient_loses_nothing(tmp_path, study):
    with installed_member(tmp_path / "site", "architectures", "half_back", HALF_BACK.replace("FACTOR", "1.0")):
        report = study(epochs=2, **GRID)
    (run,) = judged(report, control="none")
    sites = run.record.measurements.sites
    assert run.record.integrity.state == "verified"
    assert max(reading.value for reading in sites["reference_check"]) < 1e-6
    assert all(reading.value is not None for reading in (*sites["g_norm"], *sites["gamma"]))
