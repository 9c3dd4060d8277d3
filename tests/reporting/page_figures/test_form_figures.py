"""The three small figures of a form: what they draw, their ranges, and what is never joined to a line."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest
from matplotlib.axes import Axes

from fa_registry.protocol.grouping import groups
from fa_registry.records import Reading, Series
from fa_registry.reporting.figures import by_site
from fa_registry.reporting.figures.analyses import figure_of
from fa_registry.reporting.figures.canvas import Canvas, styled
from fa_registry.reporting.figures.gamma_null import draw, gamma_numbers
from fa_registry.reporting.figures.page import form_figures
from fa_registry.reporting.pages.comparison import compared_setting, layer_numbers
from fa_registry.reporting.report_index import Sources
from tests.reporting.claims_of_tokens import of_tokens
from tests.reporting.page import written
from tests.reporting.report_changes import with_record, with_runs

LAST = {"methods/fa": {"exact_sites": "last"}}


def figures(report, method, cards=None):
    sources = Sources.of(report)
    group = next(group for group in sources.groups if group.method == method)
    return tuple(form_figures(group, sources.controls(group), report.cards if cards is None else cards).values())


@pytest.fixture
def lines(monkeypatch) -> list[list[tuple[float, float]]]:
    """The lines that are drawn on sheets."""
    drawn, line = [], Canvas.lines
    monkeypatch.setattr(
        Canvas, "lines", lambda self, pieces, *rest, **look: (drawn.extend(pieces), line(self, pieces, *rest, **look))
    )
    return drawn


def test_a_form_has_accuracy_with_its_frozen_band_growth_with_its_limit_and_gamma_with_its_null(rich):
    gamma, accuracy, growth = figures(rich, "fa")
    assert [one.title.split()[0] for one in (gamma, accuracy, growth)] == ["Γ", "Test", "Largest"]
    assert "fa seed 42 from" in accuracy.alt and "to 70.0\u00a0%" in accuracy.alt and "frozen seed 42" in accuracy.alt
    assert "the frozen controls" in accuracy.caption and "D1, 50." in growth.caption and "dfa" not in growth.alt
    assert "is one seed" in gamma.caption and "2, 3, 4." in gamma.alt
    assert all(
        one.drawn.uri.startswith("data:image/png;base64,") and len(one.drawn.uri) < 25_000
        for one in (accuracy, growth, gamma)
    )
    assert not accuracy.groups and not gamma.groups  # the form has the numbers in its tables


def test_the_band_is_that_of_the_paired_controls_alone(rich):
    sources = Sources.of(rich)
    drtp = next(group for group in sources.groups if group.method == "drtp")  # one seed of two
    (control,) = sources.controls(drtp)
    assert [run.record.run_id for run in control.runs] == [run.frozen_run_id for run in drtp.runs]
    assert len(control.runs) < len(next(group for group in sources.groups if group.control).runs)


def test_a_task_of_tokens_shows_its_loss_and_runs_without_epochs_show_dots(rich):
    def with_loss(run):
        run = of_tokens(run)
        losses = Series([Reading(4.0), Reading(1.2)])
        return with_record(run, trajectory={**run.record.trajectory, "token_loss": losses})

    assert figures(with_runs(rich, with_loss), "fa")[1].title == "Test loss per token"
    bare = with_runs(rich, lambda run: with_record(run, trajectory={}))
    gamma, dots = figures(bare, "fa")
    assert dots.title == "Accuracy of every seed" and "the frozen controls" in dots.caption
    assert gamma.title.startswith("Γ")


def test_what_was_not_measured_has_no_figure(report, rich):
    assert [one.title for one in figures(report, "dfa")] == ["Test accuracy", "Largest growth per block"]
    everywhere = {"methods/fa": {"exact_sites": "all"}}
    assert len(figures(rich, "fa", everywhere)) == 2
    empty = with_runs(
        rich,
        lambda run: with_record(
            run, trajectory={}, measurements=dataclasses.replace(run.record.measurements, scalars={}, sites={})
        ),
    )
    assert figures(empty, "fa") == ()


def test_gamma_has_a_linear_axis_with_all_its_values_and_exact_sites_are_not_joined(rich, lines):
    fa = [group for group in groups(rich) if group.method == "fa"]
    numbers = gamma_numbers(fa, LAST)
    with styled():
        draw(numbers, 3.3)
    (curve,) = [line for line in lines if len(line) == 4]  # sites 0..3 of 0..4
    heights = [y for _, y in curve]
    means = numbers[~numbers["exact"]].groupby("site")["gamma"].mean()
    steps = np.diff(heights) / np.diff(means)
    assert steps == pytest.approx(np.full(3, steps[0]))  # linear
    assert len(means) == 4 and not any(len(line) == 5 for line in lines)


@pytest.mark.parametrize("name", ["gamma", "g"])
def test_gamma_by_site_is_never_logarithmic_and_leaves_exact_sites_alone(rich, monkeypatch, name):
    plotted = []
    plot = Axes.plot
    monkeypatch.setattr(
        Axes, "plot", lambda self, *given, **look: (plotted.append((self, given, look)), plot(self, *given, **look))[1]
    )
    tiny = tuple(Reading(10.0**-site) for site in range(5))

    def change(run):
        sites = {**run.record.measurements.sites, "gamma": tiny, "g_norm_mean_ce": tiny}
        return with_record(run, measurements=dataclasses.replace(run.record.measurements, sites=sites))

    sources = Sources.of(dataclasses.replace(with_runs(rich, change), cards=LAST))
    fa = [group for group in sources.groups if group.method == "fa"]
    figure_of(by_site.draw, layer_numbers(compared_setting(fa, (), sources)))
    curves = [
        (axes, list(given[1])) for axes, given, look in plotted if look.get("linewidth") == 1.3 and len(given[1]) == 5
    ]
    scales = {axes.get_yscale(): values for axes, values in curves}
    assert set(scales) == {"log", "linear"}
    values = scales["linear" if name == "gamma" else "log"]
    assert math.isnan(values[-1]) == (name == "gamma") and not any(map(math.isnan, values[:-1]))


def test_each_answer_of_the_page_has_its_figure(rich_pages):
    (page,) = [text for name, text in rich_pages.items() if name.startswith("forms/fa-") and name.endswith(".html")]
    answers = re.findall(r"<article.*?</article>", page, re.DOTALL)
    assert [len(re.findall("<figure>", answer)) for answer in answers] == [1, 1, 1] and page.count("<img ") == 3


def test_the_figure_of_the_scale_shows_the_growth_that_was_judged(rich, tmp_path):
    """Blocks that keep their scale and a stream that explodes since initialisation: the second one is drawn."""

    def fires(run):
        findings = tuple(
            dataclasses.replace(one, quantity="growth_init_max", outcome="fail") if one.rule == "D1" else one
            for one in run.findings
        )
        grown = Series([Reading(1.0), Reading(2.0), Reading(900.0)])
        run = with_record(run, trajectory={**run.record.trajectory, "growth_init_max": grown})
        return dataclasses.replace(run, findings=findings)

    pages = written(with_runs(rich, fires), tmp_path)
    (page,) = [text for name, text in pages.items() if name.startswith("forms/fa-") and name.endswith(".html")]
    scale = next(one for one in re.findall(r"<article.*?</article>", page, re.DOTALL) if 'aria-label="Scale"' in one)
    assert "to 900" in re.search('alt="([^"]*)"', scale).group(1)
