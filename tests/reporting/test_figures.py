"""Figures are the same bytes every time, leave matplotlib as it was, and survive any numbers."""

from __future__ import annotations

import dataclasses
import io
import math
import sys
from urllib.parse import quote, unquote
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from fa_registry.metrics import DECLARED, HEADLINES
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Measurements, Reading, Series
from fa_registry.reporting.figures.canvas import IN_URI, compact_svg, thinned
from fa_registry.reporting.figures.page import LEAST_ROOM, PAGE, bytes_left, setting_figures, size_of
from fa_registry.reporting.figures.style import CONTROL, PALETTE, colours, styled
from fa_registry.reporting.figures.trajectories import (
    PANELS,
    SHOWN_EPOCHS,
    Panel,
    curves,
    frozen_range,
    heights,
    panel_limit,
    panels,
    table_epochs,
    table_rows,
    trajectory_figure,
)
from fa_registry.reporting.view_models import Truncated

GROWTH, ACCURACY = f"{DECLARED['growth_max'].title} per block", DECLARED["accuracy"].title
PANEL = {panel.quantity: panel for panel in (*PANELS, *map(Panel.of, HEADLINES.values()))}


def picture(panel, groups_of_setting, shades):
    with styled():
        return trajectory_figure(panel, groups_of_setting, shades)


def test_the_picture_carries_no_metadata_and_is_small(report):
    ordered = groups(report)
    svg = picture(PANEL["h_L"], ordered, colours(ordered))
    assert b"<metadata" not in svg and b"<g>" not in svg
    assert len(svg) < 25_000


def test_matplotlib_is_left_as_it_was(report):
    ordered = groups(report)
    with matplotlib.rc_context({"lines.linewidth": 7.0, "font.size": 31.0}):
        before = dict(matplotlib.rcParams)
        picture(PANEL["h_L"], ordered, colours(ordered))
        assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_the_users_own_settings_do_not_change_the_picture(report):
    ordered = groups(report)
    plain = picture(PANEL["accuracy"], ordered, colours(ordered))
    with matplotlib.rc_context(
        {"lines.linewidth": 9.0, "axes.facecolor": "red", "savefig.dpi": 30, "figure.facecolor": "blue"}
    ):
        assert picture(PANEL["accuracy"], ordered, colours(ordered)) == plain


def test_methods_keep_their_colour_and_controls_are_grey(report):
    ordered = groups(report)
    shades = colours(ordered)
    assert [shades[name][0] for name in ("bp", "dfa", "frozen")] == [PALETTE[0], PALETTE[1], CONTROL]
    many = [dataclasses.replace(ordered[0], method=f"m{index}") for index in range(2 * len(PALETTE))]
    assert len(set(colours(many).values())) == 2 * len(PALETTE)


def test_the_line_has_the_methods_colour(report):
    ordered = [group for group in groups(report) if group.method == "dfa"]
    drawn = picture(PANEL["h_L"], ordered, {"dfa": ("#00ff00", "-")})
    pixels = np.asarray(Image.open(io.BytesIO(drawn.saved("png"))).convert("RGB"), dtype=int)
    green = (pixels[..., 1] > 200) & (pixels[..., 0] < 90) & (pixels[..., 2] < 90)
    assert green.sum() > 200
    curve = green[30:]  # below the legend
    rows, columns = (np.flatnonzero(curve.any(axis=axis)) / curve.shape[axis - 1] for axis in (1, 0))
    assert columns.min() < 0.2 and columns.max() > 0.93 and rows.min() < 0.1 and rows.max() > 0.75  # all of it in view


@pytest.mark.parametrize(
    "values",
    [
        (Reading.of(float("inf")),) * 4,
        (Reading(0.0),) * 4,
        (Reading(1.0),),
        (Reading(1e-300), Reading(1e300)),
    ],
    ids=["nothing finite", "zeros", "one point", "the whole range"],
)
@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel.log], ids=lambda panel: panel.quantity)
def test_any_numbers_can_be_drawn(report, panel, values):
    run = report.runs[0]
    spec = dataclasses.replace(run.record.spec, method="$\\frac{$")
    record = dataclasses.replace(run.record, spec=spec, trajectory={panel.quantity: Series(values)})
    ordered = groups(dataclasses.replace(report, runs=(dataclasses.replace(run, record=record),)))
    assert picture(panel, ordered, colours(ordered)).startswith(b"<svg ")


def test_a_limit_without_a_place_on_the_axis_is_no_obstacle(report):
    ordered = groups(report)
    zero = [
        dataclasses.replace(
            group,
            runs=tuple(
                dataclasses.replace(
                    run, findings=tuple(dataclasses.replace(finding, threshold=0.0) for finding in run.findings)
                )
                for run in group.runs
            ),
        )
        for group in ordered
    ]
    assert panel_limit(PANEL["growth_max"], zero) == ("D1", 0.0)
    assert picture(PANEL["growth_max"], zero, colours(zero)).startswith(b"<svg ")


def test_the_limits_are_the_editions_thresholds(report):
    thresholds = {rule.quantity: (rule.code, rule.threshold) for rule in load_edition("2026-05").rules}
    ordered = groups(report)
    assert panel_limit(PANEL["growth_max"], ordered) == thresholds["growth"] == ("D1", 50.0)
    assert panel_limit(PANEL["g_norm_mean_ce_L"], ordered) == thresholds["g_norm_mean_ce"] == ("D2", 1e-7)
    assert panel_limit(PANEL["h_L"], ordered) is None
    assert panel_limit(PANEL["accuracy"], ordered) is None


def test_what_was_not_followed_has_no_figure_and_the_gradient_of_one_sample_does_not_stand_in(report):
    expected = ["h_L", "growth_max", "growth_init_max", "g_norm_mean_ce_L", "accuracy"]
    assert [panel.quantity for panel in panels(groups(report))] == expected
    runs = tuple(
        dataclasses.replace(
            run,
            record=dataclasses.replace(
                run.record,
                trajectory={name: row for name, row in run.record.trajectory.items() if name != "g_norm_mean_ce_L"},
            ),
        )
        for run in report.runs
    )
    without = groups(dataclasses.replace(report, runs=runs))
    assert [panel.quantity for panel in panels(without)] == [name for name in expected if name != "g_norm_mean_ce_L"]


def test_the_band_is_of_frozen_controls_alone(report):
    assert frozen_range(groups(report), "accuracy") == (0.80, 0.81)
    assert frozen_range([group for group in groups(report) if not group.control], "accuracy") is None


OF_DIGITS = [*PANELS, Panel.of(HEADLINES["accuracy"])]


@pytest.mark.parametrize("panel", OF_DIGITS, ids=lambda panel: panel.quantity)
def test_what_is_drawn_is_every_number_of_every_run(report, panel):
    ordered = groups(report)
    runs = [(group.method, run.record.trajectory[panel.quantity]) for group in ordered for run in group.runs]
    drawn = curves(panel, ordered)
    assert len(drawn) == len(report.runs)
    for (method, values), (name, readings) in zip(drawn, runs, strict=True):
        numbers = [np.nan if reading.value is None else reading.value for reading in readings]
        assert method == name
        np.testing.assert_array_equal(values, numbers)


def test_a_logarithmic_axis_has_no_place_for_what_is_not_positive():
    found = heights(PANEL["h_L"], np.array([100.0, 0.0, -1.0, np.nan]))
    assert found[0] == 2.0 and np.isnan(found[1:]).all()
    assert heights(PANEL["accuracy"], 0.0) == 0.0


def test_the_reference_gradient_has_one_scale_whichever_form_of_it_is_judged(report, rich):
    """That of the mean CE, as in every table; a user's limit on one sample's gradient is brought to it."""
    assert panel_limit(PANEL["g_norm_mean_ce_L"], groups(rich)) == ("D2", 1e-7)
    per_sample = [
        dataclasses.replace(finding, quantity="g_norm", threshold=1.28e-5) if finding.rule == "D2" else finding
        for finding in rich.runs[0].findings
    ]
    runs = (dataclasses.replace(rich.runs[0], findings=tuple(per_sample)),)
    limit = panel_limit(PANEL["g_norm_mean_ce_L"], groups(dataclasses.replace(rich, runs=runs)))
    assert limit == ("D2", pytest.approx(1e-7))


def test_the_table_is_a_subsample_with_both_ends(report):
    ordered = groups(report)
    epochs = table_epochs(30)
    assert epochs[0] == 0 and epochs[-1] == 30 and len(epochs) == SHOWN_EPOCHS and list(epochs) == sorted(set(epochs))
    rows = table_rows(PANEL["h_L"], ordered, epochs)
    diverged = next(numbers for method, seed, numbers in rows if (method, seed) == ("dfa", 123))
    assert diverged[0].reading.value == 16.0 and diverged[-1].reading.not_finite


def test_no_run_has_no_curve():
    assert curves(PANELS[0], ()) == []
    assert table_epochs(0) == (0,) and table_epochs(2) == (0, 1, 2)


def test_every_figure_has_text_numbers_and_its_own_bytes(report):
    (part,) = setting_figures(groups(report)).shown
    assert [picture.title for picture in part.pictures] == [
        "Scale of the stream",
        GROWTH,
        "Growth since initialisation",
        "Reference gradient",
        ACCURACY,
    ]
    for picture in part.pictures:
        assert picture.uri == f"data:image/svg+xml,{quote(bytes(picture.drawn), safe=IN_URI)}"
        assert ElementTree.fromstring(unquote(picture.uri.split(",", 1)[1])).tag.endswith("svg")
        assert "dfa seed 123 from" in picture.alt
        assert len(picture.rows) == len(report.runs) and all(len(row[2]) == len(picture.epochs) for row in picture.rows)


def test_captions_name_the_limit_and_the_cross(report):
    captions = {picture.title: picture.caption for picture in setting_figures(groups(report)).shown[0].pictures}
    assert "the limit of D1, 50." in captions[GROWTH]
    assert "the limit of D2, 10⁻⁷." in captions["Reference gradient"]
    assert "A cross marks" in captions["Scale of the stream"] and "A cross marks" not in captions[ACCURACY]
    assert "the band is the range of the frozen controls" in captions[ACCURACY]


def test_settings_without_trajectories_show_the_end_alone_and_without_accuracy_nothing(report):
    runs = tuple(dataclasses.replace(run, record=dataclasses.replace(run.record, trajectory={})) for run in report.runs)
    (part,) = setting_figures(groups(dataclasses.replace(report, runs=runs))).shown
    assert part.pictures == () and [panel.title for panel in part.plates] == ["Accuracy of every seed"]
    bare = [dataclasses.replace(run.record, measurements=Measurements({}, {})) for run in runs]
    runs = tuple(dataclasses.replace(run, record=record) for run, record in zip(runs, bare, strict=True))
    assert setting_figures(groups(dataclasses.replace(report, runs=runs))) == Truncated((), 0)


def in_settings(report, count):
    """The report's runs, once in each of `count` settings."""
    runs = []
    for number in range(count):
        for run in report.runs:
            spec = dataclasses.replace(run.record.spec, dataset=f"set {number}")
            record = dataclasses.replace(
                run.record, spec=spec, setting=f"setting {number}", run_id=f"{number}{run.record.run_id}"
            )
            runs.append(dataclasses.replace(run, record=record))
    return groups(dataclasses.replace(report, runs=tuple(runs)))


def test_settings_are_drawn_in_order_until_the_page_is_full(report):
    every = setting_figures(in_settings(report, 3))
    assert (len(every.shown), every.left) == (3, 0)
    room = sum(len(one.uri) for one in (*every.shown[0].pictures, *every.shown[0].plates))
    some = setting_figures(in_settings(report, 3), room=int(2.1 * room))
    assert (some.total, [part.setting for part in some.shown]) == (3, ["setting 0"])  # their tables take room too


def test_a_figure_gives_up_its_numbers_before_it_is_left_out_and_the_first_setting_is_always_drawn(report):
    (whole,) = setting_figures(in_settings(report, 1)).shown
    images = sum(len(one.uri) + len(one.alt.encode()) + 2000 for one in (*whole.pictures, *whole.plates))
    for room, shown in ((0, 1), (int(1.9 * images), 1), (int(2.1 * images), 2)):
        found = setting_figures(in_settings(report, 3), room=room)
        first = found.shown[0]
        assert (len(found.shown), found.total) == (shown, 3)
        assert [len(first.pictures), len(first.plates)] == [5, 1]
        assert all(one.uri for one in (*first.pictures, *first.plates))
        if not room:
            numbers = [*(picture.rows for picture in first.pictures), *(panel.groups for panel in first.plates)]
            assert not any(numbers) and not first.full


def test_what_the_rest_of_the_page_takes_the_figures_do_not_get():
    assert bytes_left(300_000) == PAGE - 300_000
    assert bytes_left(5_000_000) == bytes_left(PAGE) == LEAST_ROOM


def test_the_bytes_that_are_counted_are_about_those_that_are_written(report, tmp_path):
    from fa_registry.reporting.render import render_report

    page = render_report(report, tmp_path)[0].read_text("utf-8")
    page = page[page.index('<h2 id="figures">') :]
    page = page[: page.index("</section>")]
    written = len(page[page.index("<figure>") : page.rindex("</figure>")].encode())
    (part,) = setting_figures(groups(report), report.cards).shown
    counted = sum(map(size_of, (*part.pictures, *part.plates)))
    assert 0.85 < counted / written < 1.15


def test_figures_by_site_get_the_room_that_is_left(report):
    from tests.reporting.page_figures.scenes import followed

    ordered = groups(followed(report))
    (whole,) = setting_figures(ordered, report.cards).shown
    assert whole.full and len(whole.plates) == 1 and len(whole.map.panels) == len(whole.heat_maps) == 3
    few = sum(map(size_of, (*whole.pictures, *whole.plates))) + 4000
    (part,) = setting_figures(ordered, report.cards, room=few).shown
    assert not part.full and [picture.uri for picture in part.pictures] == [picture.uri for picture in whole.pictures]
    assert [panel.uri for panel in part.plates] == [whole.plates[0].uri] and part.map is None
    assert [one.drawn for one in part.heat_maps] == [
        one.drawn for one in whole.heat_maps
    ]  # files for papers take no room


def test_a_line_keeps_every_point_that_is_seen():
    """A line within 0.2 pt of the others' line loses its point; a peak, an upright line and a way back keep theirs."""
    peak = [(0, 0), (10, 1), (20, 0), (30, 1), (40, 50), (50, 0), (60, 0)]
    assert thinned(peak, 2) == [(0, 0), (30, 1), (40, 50), (50, 0), (60, 0)]
    square = [(0, 0), (0, 10), (10, 10), (10, 0), (0, 0)]
    assert thinned(square, 2) == square
    wave = [(x, round(300 * math.sin(x / 50))) for x in range(0, 1000, 3)]
    kept = thinned(wave, 4)
    heights = np.interp([x for x, _ in wave], *zip(*kept, strict=True))
    assert len(kept) < len(wave) / 3 and max(abs(heights - [y for _, y in wave])) <= 4


def test_a_shorter_svg_is_the_same_picture_with_the_same_letters():
    long = (
        '<?xml version="1.0"?>\n<svg width="9pt"><metadata> x </metadata><g id="figure_1"><g id="a"/>\n <g clip-path="url(#p)">'
        '<path d="M 1.2345 2 \nL 3.06 2 \nL 3.06 -1.5 \n" style="fill: none; stroke: #a40e26"/></g></g>\n'
        '<text style="font-size: 8px; font-family: \'DejaVu Sans\'; fill: #57606a" x="0.5000" y="-0.26" '
        'transform="rotate(-0 1 2)">0.1234 : -0.5; L</text></svg>'
    )
    assert compact_svg(long) == (
        """<svg style="font-family: 'DejaVu Sans',Verdana,sans-serif" width="9pt"><g clip-path="url(#p)">"""
        '<path d="m1.2 2 1.9 0 0-3.5" style="fill:none;stroke:#a40e26"/></g>'
        '<text style="font-size:8px;fill:#57606a" x=".50" y="-.26">0.1234 : -0.5; L</text></svg>'
    )
