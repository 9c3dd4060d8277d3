"""What is tested and how: equivalence, ranges, bounds, epochs and silence, each against hand-made numbers."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry import architectures, bundled_files, diagnostics, methods
from fa_registry.evidence.third_party import cards
from fa_registry.protocol.reproduction import FILE, load_reference, reproduction
from fa_registry.protocol.reproduction.figure_verdicts import ONE_RUN, outcome_of
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Integrity, MeasuredFigure, Measurements, Published, Reading, Recipe, RunRecord
from fa_registry.statistics import Reported, tost
from fa_registry.studies.study import load_study
from fa_registry.training.controls import control_name
from tests.analyses.builders import report_of
from tests.protocol.reproduction.builders import figure

SILENT = MeasuredFigure(42, "r", Reading(None, "no epoch"), never=True)


def judged(published, *values, margin=1.0, **changes):
    readings = [value if isinstance(value, (Reading, MeasuredFigure)) else Reading(value) for value in values]
    measured = [
        reading if isinstance(reading, MeasuredFigure) else MeasuredFigure(42, "r", reading) for reading in readings
    ]
    return outcome_of(figure(published, margin, **changes), measured)


def test_a_mean_with_its_spread_is_the_equivalence_test():
    found = judged(Published(mean=10.0, std=0.2, n=3), 10.1, 10.2, 10.3)
    expected = tost([10.1, 10.2, 10.3], Reported(10.0, 0.2, 3), 1.0)
    assert (found.outcome, found.margin) == (expected.outcome, 1.0) == ("reproduced", 1.0)
    assert found.interval_90 == (expected.interval_90.low, expected.interval_90.high)


def test_values_by_seed_are_their_own_spread():
    expected = tost([4.0, 5.0, 6.0], Reported(9.0, 3**0.5, 3), 5.0)
    found = judged(Published(values=(8.0, 11.0, 8.0)), 4.0, 5.0, 6.0, margin=5.0)
    assert found.interval_90 == pytest.approx((expected.interval_90.low, expected.interval_90.high))
    assert found.outcome == "not shown"


def test_a_number_without_spread_is_exact_and_labelled_so():
    assert "exact" in judged(10.0, 10.0, 10.1).reason


def test_a_range_is_a_margin_around_its_middle():
    inside = judged(Published(low=1.0, high=3.0), 2.9, 2.95, 3.0, margin=0.2)
    assert inside.outcome == "reproduced" and inside.margin == pytest.approx(1.2)
    assert judged(Published(low=1.0, high=3.0), 3.5, 3.51, 3.52, margin=0.2).outcome == "differs"
    assert judged(2.0, 2.9, 2.95, 3.0, margin=0.2).outcome == "differs"  # without the range it would not do


@pytest.mark.parametrize(
    ("published", "values", "outcome"),
    [
        (Published(below=5.0), (1.0, 1.1, 1.2), "reproduced"),
        (Published(below=5.0), (1.0, 4.0, 6.0), "not shown"),
        (Published(below=5.0), (7.0, 7.1, 7.2), "differs"),
        (Published(above=5.0), (7.0, 7.1, 7.2), "reproduced"),
        (Published(above=5.0), (4.0, 6.0, 9.0), "not shown"),
        (Published(above=5.0), (1.0, 1.1, 1.2), "differs"),
    ],
)
def test_a_bound_is_one_sided(published, values, outcome):
    assert judged(published, *values, margin=0.0).outcome == outcome


def test_decades():
    found = judged(1e3, 1e3, 2e3, margin=2.0, scale="log10")
    assert found.outcome == "reproduced" and found.difference.value == pytest.approx(0.150515)
    assert "decades" in found.reason
    refused = judged(1e3, 1e3, 0.0, scale="log10")
    assert refused.outcome == "not shown" and "logarithm" in refused.reason


@pytest.mark.parametrize(
    ("silent", "fires", "margin", "outcome"),
    [
        (3, 0, 2 / 3, "reproduced"),  # 1 − .05^(1/3) = .632
        (3, 0, 0.6, "not shown"),
        (2, 0, 2 / 3, "not shown"),
        (2, 1, 2 / 3, "differs"),
    ],
)
def test_silence_is_counted(silent, fires, margin, outcome):
    found = judged(Published(never=True), *[SILENT] * silent, *[5.0] * fires, margin=margin)
    assert found.outcome == outcome
    assert f"of {silent + fires} runs" in found.reason


def test_epochs_against_runs_that_never_fire():
    published = Published(values=(8.0, 11.0, 8.0))
    assert judged(published, SILENT, SILENT).outcome == "differs"
    some = judged(published, SILENT, 8.0)
    assert some.outcome == "not shown" and "1 of 2 runs" in some.reason


def test_one_run_is_never_tested():
    for one in (10.0, SILENT):
        assert judged(Published(never=True) if one is SILENT else 10.0, one).reason == ONE_RUN


def test_numbers_beyond_the_statistics_are_reported_not_swallowed():
    found = judged(10.0, 1e200, 1e201)
    assert found.outcome == "not shown" and "finite values" in found.reason


STUDIES = sorted(path.parent.name for path in bundled_files.projects().glob(f"*/{FILE}"))
BY_THE_LOOP = {"accuracy", "first_fire"}  # not a diagnostic's


def reference(study):
    return load_reference(bundled_files.projects() / study)


def published(study, **wanted):
    """The forms of all figures with these fields."""
    return [
        figure.published
        for figure in reference(study).figures
        if all(getattr(figure, name) == value for name, value in wanted.items())
    ]


def test_the_studies_of_the_paper_have_one():
    assert set(STUDIES) >= {"paper", "paper-full", "penalty", "ladder", "synthetic", "toy_lq"}


@pytest.mark.parametrize("study", STUDIES)
def test_every_quantity_method_and_network_exists(study):
    quantities = {name for card in diagnostics.CATALOG.names() for name in diagnostics.CATALOG.get(card).card.names}
    for one in reference(study).figures:
        if one.not_measured:
            continue
        assert one.quantity in quantities | BY_THE_LOOP
        assert one.method in methods.CATALOG.names() and control_name(one.control)
        known = architectures.CATALOG.get(one.setting.architecture).card.options
        assert set(one.setting.architecture_options) <= set(known)
        assert set(one.setting.recipe) <= {field.name for field in dataclasses.fields(Recipe)}
        assert one.margin.why and one.source


def test_a_figure_that_stands_in_two_files_is_the_same_in_both():
    whole = reference("paper-full").figures
    assert set(map(repr, reference("ladder").figures)) <= set(map(repr, whole))
    assert len(set(map(repr, whole))) == len(whole)


def test_every_figure_finds_its_runs_in_paper_full():
    """The study that claims to be the paper trains, for every figure, the very runs that the figure is about."""
    specs = load_study("paper-full").specs
    nothing = Measurements({}, {})
    records = [RunRecord(spec.identity, "", "", "complete", spec, nothing, {}, Integrity("trusted")) for spec in specs]
    report = report_of(records, load_edition("2026-05"), cards=cards(records))
    for row in reproduction(reference("paper-full"), report).rows:
        assert not row.reason.startswith("no run of"), row.figure
        if row.outcome == "not comparable":
            assert "unknown sizes" in row.reason, row.figure


@pytest.mark.parametrize("study", ["makrout_mnist", "fmnist_2x1000", "fmnist_5x256"])
def test_a_study_from_outside_the_paper_trains_what_its_reference_describes(study):
    """An epoch, option or recipe field that differs between study.toml and reference.toml makes every row untestable."""
    specs = load_study(study).specs
    nothing = Measurements({}, {})
    records = [RunRecord(spec.identity, "", "", "complete", spec, nothing, {}, Integrity("trusted")) for spec in specs]
    report = report_of(records, load_edition("2026-05"), cards=cards(records))
    for row in reproduction(reference(study), report).rows:
        if not row.figure.not_measured:
            assert len(row.measured) == 3 and row.outcome != "not comparable", row.reason
            at_hand = "not measured" in row.reason or f"epoch {row.figure.epoch}" in row.reason
            assert at_hand or row.figure.not_at_hand and row.figure.not_at_hand in row.reason


def test_figures_of_the_specification_by_example():
    full = "paper-full"
    (bp,) = [one for one in published(full, quantity="accuracy", method="bp", control="none") if one.mean == 0.615]
    assert (bp.std, bp.n) == (0.004, 3)
    gradients = [
        figure.published.value
        for figure in reference(full).figures
        if figure.quantity == "g_norm_mean_ce" and figure.method == "fa" and figure.site.isdigit()
    ]
    assert gradients == [1.79e-5, 1.21e-6, 8.85e-7, 8.89e-7, 8.89e-7]
    fires = published(full, quantity="first_fire", method="dfa", rule="D1")
    assert {one.values for one in fires} == {(8.0, 11.0, 8.0), (1.0, 1.0, 1.0), (18.0, 14.0, 25.0)}
    assert [one.mean for one in published("toy_lq")] == [0.001, 0.945, 0.944]
    (bp, later) = published("fmnist_2x1000")
    assert (bp.mean, bp.std, bp.n, later.n) == (0.8921, 0.005, 3, 122)
    assert set(published("fmnist_5x256")) == {Published()}  # no value from memory
    assert any("EP is" in remark for remark in reference(full).remarks)
