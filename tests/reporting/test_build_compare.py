"""A comparison looks everything up in the report, and says what cannot be compared instead of comparing it."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.reporting.pages.comparison import compare_context, settings_shared
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.sources import Sources


def group(report, method):
    return next(one for one in groups(report) if one.method == method)


def moved(record, dataset="mnist"):
    """The same run on another data set."""
    spec = dataclasses.replace(record.spec, dataset=dataset)
    return dataclasses.replace(record, spec=spec, run_id=spec.identity[:32], setting=f"{dataset} · resmlp")


@pytest.fixture
def two_settings(judged, report):
    records = [run.record for run in report.runs]
    return judged([*records, *(moved(record) for record in records if record.spec.method == "dfa")])


def test_the_figures_are_those_of_the_form(report):
    sources = Sources.of(report)
    forms = {group.method: form_context(group, link, sources, {}) for group, link in sources.forms}
    ((part, _),) = compare_context(report, [group(report, "dfa"), group(report, "bp")]).parts
    assert [column.label for column in part.columns] == ["dfa", "bp"]
    for place, form in enumerate((forms["dfa"], forms["bp"])):
        shown = {quantity.name: quantity.estimates[place] for quantity in (*part.quantities, *part.aggregates)}
        assert (shown["accuracy"], shown["margin"], shown["frozen"]) == (form.accuracy, form.margin, form.frozen)
        assert [shown[metric.name] for metric in form.aggregates] == [metric.estimate for metric in form.aggregates]
        assert part.columns[place].verdict == form.verdict
        assert [row for rule in part.rules for row in rule.columns[place]] == list(form.findings)


def test_only_what_differs_is_named(rich):
    ((part, _),) = compare_context(rich, [group(rich, "dfa"), group(rich, "frozen")]).parts
    assert {field.field: field.values for field in part.fields} == {
        "method": ("dfa", "bp"),
        "control": ("none", "frozen"),
    }


def test_columns_of_a_shared_setting_stand_together_and_the_rest_is_told(two_settings):
    made = compare_context(two_settings, [one for one in groups(two_settings) if one.method in ("dfa", "bp")])
    ((part, _),) = made.parts
    assert part.comparable and [column.label for column in part.columns] == ["bp", "dfa"]
    assert made.remarks[0] == "dfa also ran in mnist · resmlp, where the others did not: left out."


def test_settings_that_differ_are_said_not_to_be_comparable(two_settings):
    bp = group(two_settings, "bp")
    other = next(one for one in groups(two_settings) if one.setting == "mnist · resmlp")
    ((part, _),) = compare_context(two_settings, [bp, other]).parts
    assert not part.comparable and part.paired == ()
    assert part.why_not.endswith("they differ in dataset.")


def test_every_setting_that_all_share_is_a_part(two_settings):
    chosen = [one for one in groups(two_settings) if one.method == "dfa"]
    parts, left_out = settings_shared(chosen)
    assert [[one.setting for one in part] for part in parts] == [[one.setting] for one in chosen] and left_out == []


def test_what_shares_no_seed_has_no_paired_difference_and_it_is_said(rich):
    dfa = group(rich, "dfa")
    alone = [dataclasses.replace(dfa, method=f"dfa {run.record.run_id[:4]}", runs=(run,)) for run in dfa.runs]
    made = compare_context(rich, alone)
    assert made.parts[0][0].paired == ()
    assert "share no seed: there is no paired difference." in made.remarks[0]


def test_first_fires_and_sites_are_one_a_column(rich):
    ((part, figures),) = compare_context(rich, [group(rich, "dfa"), group(rich, "bp"), group(rich, "fa")]).parts
    assert all(len(rule.first_fires) == len(rule.columns) == 3 for rule in part.rules)
    assert [quantity.name for quantity in part.sites] == ["gamma", "h_norm", "g_norm_mean_ce"]
    assert all(len(estimates) == 3 for quantity in part.sites for _, estimates in quantity.rows)
    assert figures.pictures and len(figures.layers) == 1
