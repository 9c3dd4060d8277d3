"""The numbers that are shown next to a figure with one row per network, ladder control or site."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.reporting.figures.analyses import analysis_numbers, analysis_png
from tests.analyses.builders import SEEDS, analysed, frozen, run
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


def per_layer(records):
    analysis = analysed("per-layer", records)
    return analysis, analysis_numbers(analysis, ())


def test_both_panels_hold_every_site_with_its_interval():
    runs = [
        run("fa", seed, sites={"gamma": (0.1, 0.2 + seed / 1e4, 1.0)}, g=10.0**-place)
        for place, seed in enumerate(SEEDS)
    ]
    _, frame = per_layer(runs)
    gamma = frame[frame["panel"] == "gamma"]
    assert gamma["site"].tolist() == [0.0, 1.0, 2.0]
    assert gamma["counts"].tolist() == ["yes", "yes", "exact by construction"]
    assert frame[frame["panel"] == "g"]["value"].tolist() == pytest.approx([0.1] * 3)
    assert gamma["low"].iloc[1] < gamma["value"].iloc[1] < gamma["high"].iloc[1]


def test_the_text_says_what_is_left_out():
    records = [dataclasses.replace(run("dfa", spec={"epochs": 3 + place}), setting=f"{place}") for place in range(9)]
    analysis, frame = per_layer(records)
    assert frame["setting"].nunique() == 9
    assert analysis_png(analysis, ()) != analysis_png(per_layer(records[:6])[0], ())
