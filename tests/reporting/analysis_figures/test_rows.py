"""The numbers that are shown next to a figure with one row per network or ladder control."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from fa_registry.reporting.figures import by_site
from fa_registry.reporting.figures.analyses import analysis_numbers, figure_of
from fa_registry.reporting.pages.comparison import SITE_COLUMNS
from tests.analyses.builders import analysed, frozen, run
from tests.analyses.test_methods import ladder_run
from tests.analyses.test_sites import records


def test_the_margins_with_their_verdicts():
    frame = analysis_numbers(analysed("cross-architecture", list(records())), ()).set_index("architecture")
    assert frame["value"].to_dict() == pytest.approx({"resmlp": 41.5, "vit_mini": -18.5})
    assert frame.loc["vit_mini", "verdict"].startswith("FAIL")
    assert (frame["low"] < frame["value"]).all() and (frame["value"] < frame["high"]).all()


def ladder(*records):
    return analysis_numbers(analysed("ladder", records), ())


def test_bare_ends_are_drawn_only_where_no_ladder_is_whole():
    ends = (frozen(accuracy=0.3), run("bp", accuracy=0.9))
    assert ladder(*ends)["method"].unique().tolist() == ["bp"]
    whole = ladder(*ends, ladder_run(0, 0.3), ladder_run(1, 0.4), run("dfa", accuracy=0.6))
    assert whole["method"].unique().tolist() == ["dfa"] and whole["blocks"].tolist() == [0.0, 1.0, 2.0]


def test_depths_have_a_panel_with_the_frozen_control():
    def deep(blocks, **given):
        made = run("dfa", spec={"architecture_options": {"num_blocks": blocks}}, **given)
        return dataclasses.replace(made, setting=f"resmlp-16x{blocks}")

    frame = ladder(
        deep(2, accuracy=0.5), deep(4, accuracy=0.6), frozen(accuracy=0.3, architecture_options={"num_blocks": 4})
    )
    depth = frame[frame["panel"] == "depth"]
    assert depth["method"].tolist() == ["dfa by depth"] * 2 and depth["value"].tolist() == [0.5, 0.6]
    assert depth["frozen"].isna().tolist() == [True, False]


@pytest.mark.long
def test_the_figure_by_site_shows_that_settings_are_left_out():
    rows = [
        ("gamma", "dfa", str(setting), site, 0.1, 0.0, 0.2, "", False) for setting in range(9) for site in (0.0, 1.0)
    ]
    frame = pd.DataFrame(rows, columns=list(SITE_COLUMNS))
    shown = frame[frame["setting"].astype(int) < by_site.MOST_SETTINGS]
    assert figure_of(by_site.draw, frame) != figure_of(by_site.draw, shown)
