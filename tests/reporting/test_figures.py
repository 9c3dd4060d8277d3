"""Figures are the same bytes every time, leave matplotlib as it was, and survive any numbers."""

from __future__ import annotations

import base64
import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from fa_registry.analyses import answers_of
from fa_registry.metrics import DECLARED, HEADLINES
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Measurements, Reading, Series
from fa_registry.reporting.figures import page
from fa_registry.reporting.figures.canvas import CONTROL, PALETTE, colours, styled
from fa_registry.reporting.figures.page import setting_figures
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
from fa_registry.reporting.pages.analyses import page_analyses
from fa_registry.reporting.pages.index import index_context
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from fa_registry.reporting.view_models import Truncated
from tests.reporting.page_figures.sample_runs import followed
from tests.reporting.report_changes import with_record, with_runs
from tests.reporting.sample_reports import full_report

PNG = b"\x89PNG"
GROWTH, ACCURACY = f"{DECLARED['growth_max'].title} per block", DECLARED["accuracy"].title
PANEL = {panel.quantity: panel for panel in (*PANELS, *map(Panel.of, HEADLINES.values()))}


def picture(panel, groups_of_setting, shades):
    with styled():
        return trajectory_figure(panel, groups_of_setting, shades)


def test_methods_keep_their_colour_and_controls_are_grey(report):
    ordered = groups(report)
    shades = colours(ordered)
    assert [shades[name][0] for name in ("bp", "dfa", "frozen")] == [PALETTE[0], PALETTE[1], CONTROL]
    many = [dataclasses.replace(ordered[0], method=f"m{index}") for index in range(2 * len(PALETTE))]
    assert len(set(colours(many).values())) == 2 * len(PALETTE)


def test_the_line_has_the_methods_colour(report):
    ordered = [group for group in groups(report) if group.method == "dfa"]
    drawn = picture(PANEL["h_L"], ordered, {"dfa": ("#00ff00", "-")})
    pixels = np.asarray(Image.open(io.BytesIO(drawn)).convert("RGB"), dtype=int)
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
    assert picture(panel, ordered, colours(ordered)).startswith(PNG)


def test_a_limit_without_a_place_on_the_axis_is_no_obstacle(report):
    ordered = groups(report)
    zero = [
        with_runs(
            group,
            lambda run: dataclasses.replace(
                run, findings=tuple(dataclasses.replace(finding, threshold=0.0) for finding in run.findings)
            ),
        )
        for group in ordered
    ]
    assert panel_limit(PANEL["growth_max"], zero) == ("D1", 0.0)
    assert picture(PANEL["growth_max"], zero, colours(zero)).startswith(PNG)


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
        with_record(
            run, trajectory={name: row for name, row in run.record.trajectory.items() if name != "g_norm_mean_ce_L"}
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
    rows = {
        (group.name, row.name): row.cells for group in table_rows(PANEL["h_L"], ordered, epochs) for row in group.rows
    }
    diverged = rows["dfa", "123"]
    assert diverged[0].reading.value == 16.0 and diverged[-1].reading.not_finite


def test_no_run_has_no_curve():
    assert curves(PANELS[0], ()) == []
    assert table_epochs(0) == (0,) and table_epochs(2) == (0, 1, 2)


@pytest.mark.long
def test_every_figure_has_text_numbers_and_its_own_bytes(report):
    (part,) = setting_figures(groups(report)).shown
    assert [figure.title for figure in part.figures] == [
        "Scale of the stream",
        GROWTH,
        "Growth since initialisation",
        "Reference gradient",
        ACCURACY,
        "Accuracy of every seed",
    ]
    assert len({figure.drawn for figure in part.figures}) == len(part.figures)
    for figure in part.figures[:-1]:
        assert base64.b64decode(figure.drawn.uri.removeprefix("data:image/png;base64,")) == figure.drawn
        assert "dfa seed 123 from" in figure.alt
        rows = [row for group in figure.groups for row in group.rows]
        assert len(rows) == len(report.runs) and all(len(row.cells) == len(figure.columns) for row in rows)


def test_settings_without_trajectories_show_the_end_alone_and_without_accuracy_nothing(report):
    runs = tuple(with_record(run, trajectory={}) for run in report.runs)
    (part,) = setting_figures(groups(dataclasses.replace(report, runs=runs))).shown
    assert [figure.title for figure in part.figures] == ["Accuracy of every seed"]
    bare = [dataclasses.replace(run.record, measurements=Measurements({}, {})) for run in runs]
    runs = tuple(dataclasses.replace(run, record=record) for run, record in zip(runs, bare, strict=True))
    assert setting_figures(groups(dataclasses.replace(report, runs=runs))) == Truncated((), 0)


def in_settings(report, count):
    """The groups of the report's runs, once in each of `count` settings."""
    return groups(repeated(report, count))


def repeated(report, count):
    """The report with its runs once in each of `count` settings."""
    runs = []
    for number in range(count):
        for run in report.runs:
            spec = dataclasses.replace(run.record.spec, dataset=f"set {number}")
            record = dataclasses.replace(
                run.record, spec=spec, setting=f"setting {number}", run_id=f"{number}{run.record.run_id}"
            )
            runs.append(dataclasses.replace(run, record=record))
    return dataclasses.replace(report, runs=tuple(runs), opinions=())


@pytest.mark.long
def test_a_page_shows_the_first_settings_and_no_long_table(report, monkeypatch):
    monkeypatch.setattr(page, "MOST_SETTINGS", 2)
    some = setting_figures(in_settings(report, 3))
    monkeypatch.setattr(page, "MOST_RUNS", 2 * len(report.runs) - 1)
    assert len(setting_figures(in_settings(report, 3)).shown) == 1
    monkeypatch.setattr(page, "MOST_RUNS", 0)
    assert len(setting_figures(in_settings(report, 3)).shown) == 1  # the first one always
    assert (some.total, [part.setting for part in some.shown]) == (3, ["setting 0", "setting 1"])
    figure = some.shown[0].figures[0]
    monkeypatch.setattr(page, "MOST_NUMBERS", len(report.runs) * len(figure.columns) - 1)
    (part,) = setting_figures(in_settings(report, 1)).shown
    assert [bool(one.groups) for one in part.figures] == [False] * 5 + [True]  # the last one has no epochs
    assert [one.drawn for one in part.figures] == [one.drawn for one in some.shown[0].figures]


@pytest.mark.long
def test_the_first_page_of_125_runs_is_smaller_than_one_megabyte():
    report = repeated(followed(full_report((1, 2, 3, 4, 5))), 6)
    assert len(report.runs) >= 125
    sources = Sources.of(report)
    figures, analyses = setting_figures(sources.groups, report.cards), page_analyses(answers_of(report), report)
    text = TemplateRenderer().render("index.html.j2", variables(index_context(sources, figures, analyses)))
    assert len(figures.shown) == 2 and len(text.encode()) < 1_000_000
