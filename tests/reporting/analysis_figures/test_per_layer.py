"""The twin of per-layer: a row a site, and what a figure of very many settings leaves out."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.reporting.figures.analyses import analysis_numbers, analysis_png
from tests.analyses.builders import SEEDS, analysed, run


def numbers(records):
    analysis = analysed("per-layer", records)
    return analysis, analysis_numbers(analysis, ())


def test_both_panels_hold_every_site_with_its_interval():
    runs = [
        run("fa", seed, sites={"gamma": (0.1, 0.2 + seed / 1e4, 1.0)}, g=10.0**-place)
        for place, seed in enumerate(SEEDS)
    ]
    _, frame = numbers(runs)
    gamma = frame[frame["panel"] == "gamma"]
    assert gamma["site"].tolist() == [0.0, 1.0, 2.0]
    assert gamma["counts"].tolist() == ["yes", "yes", "exact by construction"]
    assert frame[frame["panel"] == "g"]["value"].tolist() == pytest.approx([0.1] * 3)
    assert gamma["low"].iloc[1] < gamma["value"].iloc[1] < gamma["high"].iloc[1]


def test_the_words_say_what_is_left_out():
    records = [dataclasses.replace(run("dfa", spec={"epochs": 3 + place}), setting=f"{place}") for place in range(9)]
    analysis, frame = numbers(records)
    assert frame["setting"].nunique() == 9
    assert analysis_png(analysis, ()) != analysis_png(numbers(records[:6])[0], ())
