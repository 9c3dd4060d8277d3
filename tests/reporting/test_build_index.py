"""The index shows every group, finding and missing number, worst first."""

from __future__ import annotations

import dataclasses

from fa_registry.records import Reading
from fa_registry.reporting.lookups import SEVERITY
from fa_registry.reporting.pages import index as build_index
from fa_registry.reporting.pages.index import index_context
from fa_registry.reporting.sources import Sources


def index(report):
    return index_context(Sources.of(report))


def test_counts_are_of_methods_worst_first(report):
    counts = index(report).counts
    assert [(count.outcome, count.count, [link.text for link in count.links]) for count in counts] == [
        ("fail", 1, ["dfa"]),
        ("pass", 1, ["bp"]),
    ]


def test_the_table_has_methods_then_controls_with_every_seed(report):
    (part,) = index(report).settings
    assert [(row.method, row.control, row.verdict.label) for row in part.rows] == [
        ("bp", False, "PASS"),
        ("dfa", False, "FAIL(D1+D2+D3)"),
        ("frozen", True, "CONTROL"),
    ]
    assert [seed.verdict.label for seed in part.rows[1].seeds] == ["FAIL(D1+D2+D3)", "DIVERGED(D1+D2+D3)"]
    assert part.rows[0].href.startswith("forms/bp-") and part.rows[2].href == ""


def test_footnotes_name_the_reason_once_with_all_its_runs(report):
    context = index(report)
    dfa = context.settings[0].rows[1]
    notes = {note.mark: note for note in context.footnotes}
    assert [notes[mark].reason for mark in dfa.gamma.marks] == [
        "the feedback file is missing: credit cannot be recomputed"
    ]
    assert [notes[mark].reason for mark in dfa.h_norm.marks] == ["not finite (inf)"]
    assert dfa.h_norm.marks == dfa.growth.marks
    assert notes[dfa.gamma.marks[0]].run_ids.shown == (report.runs[2].record.run_id,)
    assert not any("control" in note.reason for note in context.footnotes)


def test_findings_are_sorted_by_severity_and_add_up(report):
    run = report.runs[0]
    crashed = dataclasses.replace(run.findings[2], outcome="error", observed=Reading(None, "the rule crashed"))
    changed = dataclasses.replace(
        report, runs=(dataclasses.replace(run, findings=(*run.findings[:2], crashed)), *report.runs[1:])
    )
    context = index(changed)
    outcomes = [row.outcome for row in context.findings.shown]
    assert outcomes == sorted(outcomes, key=SEVERITY.index) and outcomes[0] == "error"
    skipped = sum(finding.outcome == "skipped" for run in report.runs for finding in run.findings)
    shown = sum(len(row.seeds) for row in context.findings.shown)
    assert shown + context.passed + skipped == sum(len(run.findings) for run in report.runs)


def test_integrity_shows_what_does_not_stand_first(report):
    context = index(report)
    assert context.integrity.shown[0].details == ("feedback/state.safetensors is missing",)
    assert [(count.outcome, count.count) for count in context.integrity_counts] == [
        ("unverifiable", 1),
        ("verified", 5),
    ]


def test_an_overridden_threshold_is_named_under_its_edition(rich):
    ours = dataclasses.replace(rich.edition, overrides={"D1.threshold": 40.0})
    theirs = dataclasses.replace(rich.opinions[0].edition, overrides={"D2.threshold": 1e-6})
    opinions = (dataclasses.replace(rich.opinions[0], edition=theirs), *rich.opinions[1:])
    entries = index(dataclasses.replace(rich, edition=ours, opinions=opinions)).overrides
    assert [(entry.term, entry.values[0].text) for entry in entries] == [
        ("D1.threshold", "40.0"),
        ("2026-05 D2.threshold", "1e-06"),
    ]


def test_several_editions_are_compared_where_they_differ_first(rich, report):
    comparison = index(rich).comparison
    assert [bool(row.why) for row in comparison.rows.shown] == [True, True, True, False]
    assert {row.method for row in comparison.rows.shown} == {"bp", "fa", "dfa", "drtp"}  # a control is judged by none
    assert index(report).comparison is None


def test_stability_has_its_column_where_any_run_measured_it(rich, report):
    assert index(rich).shows_stability and not index(report).shows_stability
    (part,) = index(rich).settings
    assert part.rows[0].stability.mean.reading.value == 0.1


def test_a_large_registry_is_cut_and_counted(report, monkeypatch):
    monkeypatch.setattr(build_index, "MOST", 2)
    monkeypatch.setattr(build_index, "MOST_NAMES", 1)
    whole, context = index(report), index(dataclasses.replace(report, excluded=report.excluded * 2))
    assert (len(context.findings.shown), context.findings.left) == (2, whole.findings.total - 2)
    assert (context.excluded.left, context.integrity.left, context.commands.left) == (2, 4, 4)
    assert not context.details and all(len(count.links) == 1 for count in context.counts)
    assert all(len(note.run_ids.shown) == 1 for note in context.footnotes)
