"""The index shows every group, finding and missing number, worst first."""

from __future__ import annotations

import dataclasses

from fa_registry.records import Reading
from fa_registry.reporting.build_index import FINDING_ORDER, index_context


def test_counts_are_of_methods_worst_first(report):
    counts = index_context(report).counts
    assert [(count.outcome, count.count, [link.text for link in count.links]) for count in counts] == [
        ("fail", 1, ["dfa"]),
        ("pass", 1, ["bp"]),
    ]


def test_the_table_has_methods_then_controls_with_every_seed(report):
    (part,) = index_context(report).settings
    assert [(row.method, row.control, row.verdict.label) for row in part.rows] == [
        ("bp", False, "PASS"),
        ("dfa", False, "FAIL(D1+D2+D3)"),
        ("frozen", True, "CONTROL"),
    ]
    assert [seed.verdict.label for seed in part.rows[1].seeds] == ["FAIL(D1+D2+D3)", "DIVERGED(D1+D2+D3)"]
    assert part.rows[0].href.startswith("forms/bp-") and part.rows[2].href == ""


def test_footnotes_name_the_reason_once_with_all_its_runs(report):
    context = index_context(report)
    dfa = context.settings[0].rows[1]
    notes = {note.mark: note for note in context.footnotes}
    assert [notes[mark].reason for mark in dfa.gamma.marks] == [
        "the feedback file is missing: credit cannot be recomputed"
    ]
    assert [notes[mark].reason for mark in dfa.h_norm.marks] == ["not finite (inf)"]
    assert dfa.h_norm.marks == dfa.growth.marks
    assert notes[dfa.gamma.marks[0]].run_ids == (report.runs[2].record.run_id,)
    assert not any("control" in note.reason for note in context.footnotes)


def test_findings_are_sorted_by_severity_and_add_up(report):
    run = report.runs[0]
    crashed = dataclasses.replace(run.findings[2], outcome="error", observed=Reading(None, "the rule crashed"))
    changed = dataclasses.replace(
        report, runs=(dataclasses.replace(run, findings=(*run.findings[:2], crashed)), *report.runs[1:])
    )
    context = index_context(changed)
    outcomes = [row.outcome for row in context.findings]
    assert outcomes == sorted(outcomes, key=FINDING_ORDER.index) and outcomes[0] == "error"
    skipped = sum(finding.outcome == "skipped" for run in report.runs for finding in run.findings)
    assert len(outcomes) + context.passed + skipped == sum(len(run.findings) for run in report.runs)


def test_integrity_shows_what_does_not_stand_first(report):
    context = index_context(report)
    assert context.integrity[0].details == ("feedback/state.safetensors is missing",)
    assert [(count.outcome, count.count) for count in context.integrity_counts] == [
        ("unverifiable", 1),
        ("verified", 5),
    ]


def test_an_overridden_threshold_is_named(report):
    edition = dataclasses.replace(report.edition, overrides={"D1": 40.0})
    (entry,) = index_context(dataclasses.replace(report, edition=edition)).overrides
    assert (entry.term, entry.values[0].text) == ("D1", "40.0")
