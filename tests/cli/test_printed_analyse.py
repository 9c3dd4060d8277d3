"""What a cell of an analysis looks like in the terminal."""

from __future__ import annotations

import pytest

from fa_registry.analyses import Cell, Column
from fa_registry.cli.analysing import cell_text
from fa_registry.records import Reading

COUNT = Column("D3", "decision of D3, and how many runs it rejects", "runs", "count")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(Reading(2.0), text="rejects", n=3), "rejects 2 of 3"),
        (Cell(Reading(0.0), text="accepts", n=3), "accepts"),  # `accepts 0/3` would read as none accepted
        (Cell(Reading(0.0), text="warns", n=3), "warns"),
        (Cell(text="never"), "never"),
        (Cell(Reading(None, "not measured")), "N/A (1)"),
        (Cell(Reading(2.0), interval=(1.0, 3.0)), "2 [1, 3]"),
    ],
)
def test_a_cell_reads_as_it_is_meant(cell, text):
    assert cell_text(cell, COUNT, {}) == text
