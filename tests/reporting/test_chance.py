"""The accuracy of a guess is a line in every plot of accuracies, and in none where it is not known."""

from __future__ import annotations

import dataclasses

import pytest
from matplotlib.axes import Axes

from fa_registry.metrics import HEADLINES
from fa_registry.protocol.grouping import groups
from fa_registry.records import BIGRAM, CHANCE, Reading, Series
from fa_registry.reporting.figures.accuracy_dots import accuracy_panel
from fa_registry.reporting.figures.analyses import analysis_figure, analysis_numbers
from fa_registry.reporting.figures.canvas import colours, styled
from fa_registry.reporting.figures.trajectories import PANELS, Panel, trajectory_figure
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from tests.analyses.builders import controlled, run
from tests.reporting.report_changes import with_record
from tests.reporting.test_analyses_pages import drawn

PANEL = {panel.quantity: panel for panel in (*PANELS, *map(Panel.of, HEADLINES.values()))}


@pytest.fixture
def lines(monkeypatch) -> list[float]:
    """Where lines across whole axes were drawn."""
    found: list[float] = []
    for name in ("axhline", "axvline"):
        usual = getattr(Axes, name)

        def spy(axes, place=0, *given, usual=usual, **looks):
            found.append(float(place))
            return usual(axes, place, *given, **looks)

        monkeypatch.setattr(Axes, name, spy)
    return found


def of_classes(report, *counts: int):
    """The report's runs on data sets of so many classes, one run after the other; 0 where that was not recorded."""
    class_counts = [counts[index % len(counts)] for index in range(len(report.runs))]
    runs = tuple(with_classes(one, count) for one, count in zip(report.runs, class_counts, strict=True))
    return groups(dataclasses.replace(report, runs=runs))


def with_classes(audit, count: int):
    conventions = {name: value for name, value in audit.record.measurements.conventions.items() if name != CHANCE}
    conventions |= {CHANCE: 1 / count} if count else {}
    measured = dataclasses.replace(audit.record.measurements, conventions=conventions)
    return with_record(audit, measurements=measured)


@pytest.mark.parametrize(("counts", "is_drawn"), [((4,), True), ((0,), False), ((4, 5), False)])
def test_the_plots_of_a_setting_have_it(report, lines, counts, is_drawn):
    ordered = of_classes(report, *counts)
    with styled():
        panel = accuracy_panel(ordered)
        in_dots = 0.25 in lines
        lines.clear()
        trajectory_figure(PANEL["accuracy"], ordered, colours(ordered))
        in_curves = 0.25 in lines
        lines.clear()
        trajectory_figure(PANEL["h_L"], ordered, colours(ordered))
    assert (in_dots, in_curves, 0.25 in lines) == (is_drawn, is_drawn, False)
    assert ("is chance, 25.0" in panel.caption) == is_drawn


@pytest.mark.parametrize("name", ["ladder", "penalty"])
def test_the_plots_of_analyses_have_it(lines, name):
    ladder = [run("dfa", seed, spec={"penalty": strength}) for seed in (1, 2) for strength in (0.0, 0.01)]
    ladder += [run("dfa", seed, spec={"control": "ladder_1"}) for seed in (1, 2)]
    analysis, runs = drawn(name, controlled(*ladder))
    for count, is_drawn in ((0, False), (4, True)):
        counted = [with_classes(one, count) for one in runs]
        lines.clear()
        assert analysis_numbers(analysis, counted)["chance"].notna().any() == is_drawn
        analysis_figure(analysis, counted)
        assert (0.25 in lines) == is_drawn


def of_tokens(audit, bigram: float):
    measured = audit.record.measurements
    scalars = {name: reading for name, reading in measured.scalars.items() if name != "accuracy"}
    conventions = {**measured.conventions, CHANCE: 3.5, BIGRAM: bigram}
    scalars["token_loss"] = Reading(2.1)
    trajectory = {**audit.record.trajectory, "token_loss": Series([Reading(3.5), Reading(2.1)])}
    measured = dataclasses.replace(measured, scalars=scalars, conventions=conventions)
    return with_record(audit, measurements=measured, trajectory=trajectory)


@pytest.mark.parametrize(("entropies", "is_shown"), [((3.19, 3.19), True), ((3.19, 3.2), False)])
def test_pages_of_token_runs_show_the_entropies_of_the_text(report, lines, entropies, is_shown):
    """Both as lines of the plots and as values of the form; not if the runs have different texts."""
    audits = tuple(of_tokens(audit, entropies[index % 2]) for index, audit in enumerate(report.runs))
    sources = Sources.of(dataclasses.replace(report, runs=audits))
    with styled():
        panel = accuracy_panel(sources.groups)
        in_dots = {3.5, 3.19} <= set(lines)
        lines.clear()
        trajectory_figure(PANEL["token_loss"], sources.groups, colours(sources.groups))
        in_curves = {3.5, 3.19} <= set(lines)
    assert (in_dots, in_curves, "bigram entropy" in panel.caption) == (is_shown,) * 3
    group, link = next(pair for pair in sources.forms if pair[0].method == "bp")
    context = form_context(group, link, sources)
    values = [row.cells[0].reading.value for row in context.text_entropies]
    assert values == ([3.5, 3.19] if is_shown else [])
    for kind in ("html", "md"):
        assert ("igram entropy" in TemplateRenderer().render(f"form.{kind}.j2", variables(context))) == is_shown
    classes = next(pair for pair in Sources.of(report).forms if pair[0].method == "bp")
    assert form_context(*classes, Sources.of(report)).text_entropies == ()
