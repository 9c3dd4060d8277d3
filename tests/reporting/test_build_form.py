"""The form's context: what people wrote, every aggregate, the other editions, and what is said of the margin."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.reporting.lookups import Frozen
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.pages.notes import note_context
from fa_registry.reporting.sources import Sources
from fa_registry.reporting.text.environment import Pages, variables
from tests.reporting.asking import changed


@pytest.fixture
def form():
    """The form of a method in a report."""

    def made(report, method, written=()):
        sources = Sources.of(report)
        group, link = next((group, link) for group, link in sources.forms if group.method == method)
        return form_context(group, link, sources, dict(written))

    return made


def test_the_form_carries_all_aggregates_and_the_spread(form, report):
    context = form(report, "dfa")
    names = [metric.name for metric in context.aggregates]
    assert len(names) == len(set(names)) == 9 and names[-1] == "gamma_spread"
    assert set(names) <= set(report.runs[2].record.measurements.scalars)


def test_the_form_keeps_what_people_wrote(form, report):
    context = form(report, "dfa", {"claim": "ours"})
    assert {blank.key: blank.text for blank in context.blanks}["claim"] == "ours"


def test_every_edition_gives_its_verdict_the_leading_one_first(form, rich):
    context = form(rich, "bp")
    assert [(edition.name, verdict.label) for edition, verdict in context.opinions] == [
        ("2026-11", "PASS"),
        ("2026-05", "WARN(D2)"),
        ("2026-04", "needs walk-back: b"),
    ]
    assert [one.subject for one in context.differences] == ["reference"]
    alone = form(rich, "fa")
    assert alone.differences == () and {verdict.outcome for _, verdict in alone.opinions} == {"fail"}


def test_what_a_rule_says_of_the_margin_stands_once_for_all_seeds(form, rich, report):
    (row,) = form(rich, "dfa").depth
    (said,) = row.said
    assert (row.state, said.seeds) == ("UNDECIDED", (42, 123))
    assert said.interval[0] < said.observed.reading.value < said.interval[1] and said.observed.kind == "pp"
    older = form(report, "bp").depth
    assert [(row.state, row.seeds, [said.interval for said in row.said]) for row in older] == [
        ("CLEARS", (42, 123), [None, None])
    ]


def test_a_note_speaks_of_its_run_alone(report):
    run = report.runs[3]
    note = note_context(run, report, Frozen.of(report))
    assert (note.run_id, note.seed, note.verdict.label) == (run.record.run_id, 123, "DIVERGED(D1+D2+D3)")
    assert {run_id for metric in note.headline for run_id in metric.estimate.mean.run_ids} == {
        note.run_id,
        run.frozen_run_id,
    }
    assert {claim.run_ids for claim in note.claims} == {(note.run_id,)}


def test_a_note_leaves_the_explanations_to_the_form(form, rich):
    fa = next(run for run in rich.runs if run.record.spec.method == "fa")
    assert "note" in {claim.kind for claim in form(rich, "fa").claims}
    assert "note" not in {claim.kind for claim in note_context(fa, rich, Frozen.of(rich)).claims}


def test_every_further_edition_says_its_rules_in_full(form, rich, report):
    first, second = form(rich, "bp").others
    assert (first.edition.name, first.verdict.label) == ("2026-05", "WARN(D2)")
    assert (second.edition.name, second.verdict.label) == ("2026-04", "needs walk-back: b")
    assert {row.rule for row in second.findings} == {"a", "b", "c", "d"}
    assert all(said.run_ids and "required" in said.sentence for row in second.findings for said in row.said)
    assert form(report, "bp").others == ()


def test_all_editions_that_judged_are_cited(form, rich):
    found = form(rich, "bp").bibliography
    used = " ".join(use for entry in found.entries for use in entry.uses)
    assert all(f"edition {name}" in used for name in ("2026-11", "2026-05", "2026-04"))
    assert "diagnostic rho" not in used  # no rule looks at it


def test_the_checklist_is_answered(form, rich):
    assert [one.number for one in form(rich, "dfa").pitfalls] == list(range(1, 13))


def test_the_headline_says_what_the_size_of_the_test_set_leaves_open(report):
    """In all three forms, beside the seeds' interval; nothing where a run did not write the size down."""
    sized = [changed(run, conventions={"test_samples": 360}) for run in report.runs]
    for runs, said in ((tuple(sized), True), (report.runs, False)):
        sources, written = Sources.of(dataclasses.replace(report, runs=runs)), Pages()
        group, link = next(pair for pair in sources.forms if pair[0].method == "bp")
        context = form_context(group, link, sources, {})
        assert (context.sampling is not None) == said
        for kind in ("html", "md", "tex"):
            text = written.render(f"form.{kind}.j2", variables(context))
            assert ("by the sampling of 360 test samples alone" in text) == said
