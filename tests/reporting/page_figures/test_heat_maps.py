"""Heat maps: the mean over seeds of every site and epoch, and nothing breaks them."""

from __future__ import annotations

import math

import pytest

from fa_registry.metrics import DECLARED
from fa_registry.protocol.grouping import groups
from fa_registry.records import Reading, Series, SiteSeries
from fa_registry.reporting.figures import heat_maps
from fa_registry.reporting.figures.canvas import styled
from fa_registry.reporting.figures.heat_maps import BY_SITE, draw, heat_numbers, layer_map
from tests.reporting.page_figures.sample_runs import EPOCHS, broken, followed
from tests.reporting.report_changes import with_record, with_runs

GROWTH, GRADIENT, GAMMA = BY_SITE


def heat_panels(ordered, cards):
    return layer_map(ordered, cards)[1]


def test_the_dataframe_has_the_mean_over_seeds_and_says_whose_it_is(report):
    ordered = groups(followed(report))
    frame = heat_numbers(GROWTH, ordered, report.cards)
    bp = next(group for group in ordered if group.method == "bp")
    seeds = [run.record.by_site["growth"].sites[2][3].value for run in bp.runs]
    cell = frame[(frame["method"] == "bp") & (frame["site"] == 2) & (frame["epoch"] == 30)].iloc[0]
    assert cell["value"] == pytest.approx(math.sqrt(seeds[0] * seeds[1])) and seeds[0] != seeds[1]
    assert cell["run_ids"].split() == [run.record.run_id for run in bp.runs]
    assert set(frame["method"]) == {"bp", "dfa"}  # controls are not trained
    first = frame[frame["site"] == 0]
    assert first["value"].isna().all() and first["reason"].str.contains("no block").all()


def test_gamma_leaves_out_what_is_exact_by_construction(report):
    frame = heat_numbers(GAMMA, groups(followed(report)), report.cards)
    assert set(frame["method"]) == {"dfa"} and not frame["exact"].any()
    last = {"methods/dfa": {"exact_sites": "last"}}
    frame = heat_numbers(GAMMA, groups(followed(report)), last)
    assert set(frame.loc[frame["exact"], "site"]) == {4}


def test_a_seed_that_is_not_finite_leaves_no_mean(report):
    first = report.runs[0].record.run_id
    scene = with_runs(
        followed(report),
        lambda run: with_record(run, by_site={"growth": broken()}) if run.record.run_id == first else run,
    )
    frame = heat_numbers(GROWTH, groups(scene), report.cards)
    later = frame[(frame["method"] == "bp") & (frame["epoch"] > 0)]
    assert later["value"].isna().all() and set(later["reason"]) == {"not finite (inf)"}


def test_panels_are_drawn_in_text_and_numbers_the_same_every_time(report):
    ordered = groups(followed(report))
    with styled():
        panels = heat_panels(ordered, report.cards)
        assert panels == heat_panels(ordered, report.cards)
    growth, gradient, _ = panels
    assert gradient.title.startswith("Reference gradient by") and growth.alt.startswith(DECLARED["growth"].title)
    assert "bp ends between" in growth.alt
    assert [line.name for line in growth.groups[0].rows] == ["1", "2", "3", "4"]
    assert growth.columns == tuple(f"epoch {epoch}" for epoch in EPOCHS)
    assert all(number.run_ids for group in growth.groups for line in group.rows for number in line.cells)
    assert growth.drawn.startswith(b"\x89PNG")


def test_another_number_is_another_picture(report):
    frame = heat_numbers(GROWTH, groups(followed(report)), report.cards)
    changed = frame.copy()
    changed.loc[frame["value"].first_valid_index(), "value"] *= 1e6
    with styled():
        assert draw(GROWTH, frame, 50.0) != draw(GROWTH, changed, 50.0)


@pytest.mark.parametrize(
    "series",
    [
        SiteSeries((0,), (Series([Reading(1.0)]),)),
        SiteSeries((0, 1), (Series([Reading(0.0), Reading(-1.0)]),) * 25),
        SiteSeries((0, 1), (Series([Reading(1e-300), Reading(1e300)]),) * 2),
        broken(),
    ],
    ids=["one site, one epoch", "not positive", "the whole range", "diverged"],
)
def test_any_numbers_can_be_drawn(report, series):
    ordered = groups(followed(report, growth=series, gamma=series, g_norm_mean_ce=series))
    drawn = [
        f"{panel.title} by site and epoch"
        for panel in BY_SITE
        if heat_numbers(panel, ordered, {})["value"].notna().any()
    ]
    with styled():
        assert [figure_panel.title for figure_panel in heat_panels(ordered, {})] == drawn


def test_runs_without_series_have_no_figure(report):
    nothing = SiteSeries((0,), (Series([Reading(None, "not measured")]),))
    assert heat_panels(groups(report), report.cards) == ()
    assert heat_panels((), {}) == ()
    assert heat_panels(groups(followed(report, growth=nothing, gamma=nothing, g_norm_mean_ce=nothing)), {}) == ()


def test_the_scale_turns_orange_exactly_at_the_limit():
    scale = heat_maps.growth([0.5, 1e6], 50.0)
    blue = set(heat_maps.ramp(heat_maps.WHITE, heat_maps.BLUE, heat_maps.STEPS_BELOW))
    assert scale.colour(49.9) in blue and scale.colour(50.0) in blue and scale.colour(50.1) not in blue
    assert len(scale.edges) == len(scale.colours) + 1
    tame = heat_maps.growth([0.5, 3.0], 50.0)
    assert set(tame.colours) == blue and tame.limit == pytest.approx(math.log10(50))


def test_the_scale_of_signs_is_white_around_zero_and_as_long_on_either_side():
    scale = heat_maps.signed([-0.2, 0.31])
    middle = len(scale.colours) // 2
    assert scale.edges[0] == -scale.edges[-1] == -0.4 and scale.colour(0.0) == scale.colours[middle]
    assert scale.colour(-0.4) == scale.colours[0] != scale.colour(0.4) == scale.colours[-1]
    assert len(set(scale.colours)) == len(scale.colours) == len(scale.edges) - 1


def test_lightness_alone_orders_the_colours():
    def light(colour: str) -> float:
        red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    scale = heat_maps.growth([1e6], 50.0)
    below, above = scale.colours[: heat_maps.STEPS_BELOW], scale.colours[heat_maps.STEPS_BELOW :]
    for ramp in (below, above):
        lights = [light(colour) for colour in ramp]
        assert lights == sorted(lights, reverse=True)
