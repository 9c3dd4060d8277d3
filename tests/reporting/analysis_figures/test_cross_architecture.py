"""The twin of cross-architecture: one margin a method and network."""

from __future__ import annotations

import pytest

from fa_registry.reporting.figures.analyses import analysis_numbers
from tests.analyses.builders import analysed
from tests.analyses.test_cross_architecture import records


def test_the_margins_with_their_verdicts():
    frame = analysis_numbers(analysed("cross-architecture", list(records())), ()).set_index("architecture")
    assert frame["value"].to_dict() == pytest.approx({"resmlp": 41.5, "vit_mini": -18.5})
    assert frame.loc["vit_mini", "verdict"].startswith("FAIL")
    assert (frame["low"] < frame["value"]).all() and (frame["value"] < frame["high"]).all()
