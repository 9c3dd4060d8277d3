"""What the paper says of architectures, on small digits twins: which rule fires where, epoch by epoch, by the published limits."""

from __future__ import annotations

import pytest

from fa_registry.protocol.rules import load_edition
from fa_registry.training.task import EVAL_SAMPLES
from tests.helpers.small import trained

RULES = {rule.code: rule for rule in load_edition("2026-05").rules}
EPOCHS = 40


def extremes(**changes) -> tuple[float, float]:
    """Largest growth and smallest reference gradient (mean cross entropy, site L) over all epochs."""
    _, recorder, _ = trained(**{"epochs": EPOCHS, **changes})
    rows = [row.measurements.sites for row in recorder.rows]
    growth = max(reading.value for row in rows for reading in row["growth"] if reading.value is not None)
    return growth, min(row["g_norm"][-1].value for row in rows) / EVAL_SAMPLES


@pytest.mark.parametrize("terminal_ln", [True, False])
def test_bp_never_fires(terminal_ln):
    growth, reference = extremes(method="bp", architecture_options={"d_hidden": 64, "terminal_ln": terminal_ln})
    assert growth < RULES["D1"].threshold / 10
    assert reference > RULES["D2"].threshold * 10


def test_without_a_terminal_layer_norm_dfas_stream_grows_but_its_reference_stays():
    """z = W h_L: the gradient at h_L is e W, whatever the size of h_L; the LayerNorm is what divides it by that size."""
    growth, reference = extremes(method="dfa", architecture_options={"d_hidden": 64, "terminal_ln": False})
    with_growth, with_reference = extremes(method="dfa", architecture_options={"d_hidden": 64})
    assert growth > 5 and with_growth > 5  # of one block; at full width and length D1 fires (projects/architectures)
    assert reference > 20 * with_reference
    assert reference > RULES["D2"].threshold * 1000
