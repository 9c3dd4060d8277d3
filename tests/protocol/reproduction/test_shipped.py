"""The references that ship: every name in them is one this package knows, and the published figures are all there."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry import architectures, diagnostics, methods, resources
from fa_registry.protocol.reproduction import FILE, load_reference, reproduction
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Integrity, Measurements, Recipe, RunRecord
from fa_registry.studies.study import load_study
from fa_registry.training.controls import control_name
from fa_registry.workflows.audit import cards
from tests.analyses.builders import report_of

STUDIES = sorted(path.parent.name for path in resources.projects().glob(f"*/{FILE}"))
BY_THE_LOOP = {"accuracy", "first_fire"}  # not a diagnostic's


def reference(study):
    return load_reference(resources.projects() / study)


def published(study, **wanted):
    """The forms of all figures with these fields."""
    return [
        one.published
        for one in reference(study).figures
        if all(getattr(one, name) == value for name, value in wanted.items())
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
            assert "a task of unknown sizes" in row.reason, row.figure


def test_figures_of_the_specification_by_example():
    full = "paper-full"
    (bp,) = [one for one in published(full, quantity="accuracy", method="bp", control="none") if one.mean == 0.615]
    assert (bp.std, bp.n) == (0.004, 3)
    gradients = [
        one.published.value
        for one in reference(full).figures
        if one.quantity == "g_norm_mean_ce" and one.method == "fa" and one.site.isdigit()
    ]
    assert gradients == [1.79e-5, 1.21e-6, 8.85e-7, 8.89e-7, 8.89e-7]
    fires = published(full, quantity="first_fire", method="dfa", rule="D1")
    assert {one.values for one in fires} == {(8.0, 11.0, 8.0), (1.0, 1.0, 1.0), (18.0, 14.0, 25.0)}
    assert [one.mean for one in published("toy_lq")] == [0.001, 0.945, 0.944]
    assert any("EP is published as trustworthy" in remark for remark in reference(full).remarks)
