"""The index shows every group, finding and missing number, worst first."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.metrics import metric_named
from fa_registry.metrics import table as metric_table
from fa_registry.protocol.grouping import groups
from fa_registry.records import FurtherLimit, Reading, Verdict, Waiver
from fa_registry.reporting.audit_rows import judged_columns
from fa_registry.reporting.pages import index as build_index
from fa_registry.reporting.pages.index import (
    headline,
    index_context,
    short_names,
    waiver_rows,
)
from fa_registry.reporting.pages.paper_table import paper_table_context
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import SEVERITY
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from fa_registry.reporting.view_models import Judged, Link
from tests.reporting.page import Page
from tests.reporting.report_changes import changed, with_record

pytestmark = pytest.mark.usefixtures("undrawn")


def index(report):
    return index_context(Sources.of(report))


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


def test_an_overridden_threshold_is_named_under_its_edition(rich):
    ours = dataclasses.replace(rich.edition, overrides={"D1.threshold": 40.0})
    theirs = dataclasses.replace(rich.opinions[0].edition, overrides={"D2.threshold": 1e-6})
    opinions = (dataclasses.replace(rich.opinions[0], edition=theirs), *rich.opinions[1:])
    entries = index(dataclasses.replace(rich, edition=ours, opinions=opinions)).overrides
    assert [(entry.term, entry.values[0].text) for entry in entries] == [
        ("D1.threshold", "40.0"),
        ("2026-05 D2.threshold", "1e-06"),
    ]


def test_a_large_registry_is_cut_and_counted(report, monkeypatch):
    monkeypatch.setattr(build_index, "MOST", 2)
    monkeypatch.setattr(build_index, "MOST_NAMES", 1)
    whole, context = index(report), index(dataclasses.replace(report, excluded=report.excluded * 2))
    assert (len(context.findings.shown), context.findings.left) == (2, whole.findings.total - 2)
    assert (context.excluded.left, context.integrity.left, context.commands.left) == (2, 4, 4)
    assert not context.details and all(len(count.links) == 1 for count in context.counts)
    assert all(len(note.run_ids.shown) == 1 for part in context.settings for note in part.footnotes)


@pytest.fixture
def table():
    return lambda report: TemplateRenderer().render(
        "audit_table.tex.j2", variables(paper_table_context(Sources.of(report)))
    )


def test_seeds_have_their_numbers_while_a_page_shows_them(report, monkeypatch):
    """Of many runs no page does, and nothing keeps them; what is in the table is the same."""
    table = index_context(Sources.of(report)).settings[0]
    monkeypatch.setattr("fa_registry.reporting.pages.index.MOST", 1)
    bare = index_context(Sources.of(report)).settings[0]
    for row, other in zip(table.rows, bare.rows, strict=True):
        assert all(seed.numbers for seed in row.seeds) and not any(seed.numbers for seed in other.seeds)
        assert row.estimates == other.estimates
    assert table.footnotes == bare.footnotes


def test_a_healthy_audit_has_no_footnote(table, judged, record):
    text = table(
        judged([record("dfa", 42, 0.9, 3.0, 0.1, 0.2), record("bp", 42, 0.8, 1.0, 0.4, 0.0, control="frozen")])
    )
    assert r"\textsuperscript" not in text.partition(r"\bottomrule")[0].partition(r"\toprule")[2]


def test_controls_alone_are_a_table_and_no_run_is_none(table, report):
    controls = tuple(run for run in report.runs if run.verdict.outcome == "control")
    assert r"\raggedright frozen}" in table(dataclasses.replace(report, runs=controls))
    text = table(dataclasses.replace(report, runs=()))
    assert "No run was judged" in text and all(line.startswith("%") for line in text.split("\n") if line)


def test_a_setting_is_a_table_of_its_own_with_footnotes_from_one(judged, record):
    first = record("dfa", 42, 0.9, 3.0, 0.1, 0.2)
    lost = dataclasses.replace(
        first.measurements, scalars={**first.measurements.scalars, "h_L": Reading(None, "the file is gone")}
    )
    other = dataclasses.replace(
        first,
        run_id="c" * 32,
        spec=dataclasses.replace(first.spec, epochs=9),
        setting="another",
        measurements=lost,
    )
    sources = Sources.of(judged([first, other]))
    tables = index_context(sources).settings
    assert [(table.number, table.setting) for table in tables] == [(1, first.setting), (2, "another")]
    assert [note.mark for table in tables for note in table.footnotes] == [1, 1, 2]
    page = Page(TemplateRenderer().render("index.html.j2", variables(index_context(sources))))
    notes = [name for name in page.ids if name.startswith("note-")]
    assert notes == ["note-1-1", "note-2-1", "note-2-2"]
    assert {name[1:] for name in page.references if name.startswith("#note-")} == {*notes}


PASS = Verdict("PASS", "pass")


def group(one, outcome):
    """A group like `one` with another verdict."""
    return dataclasses.replace(one, verdict=dataclasses.replace(one.verdict, outcome=outcome))


@pytest.mark.parametrize(
    ("outcomes", "sentence"),
    [
        ((), "No method was judged."),
        (("pass",), "The only method passes."),
        (("fail", "fail"), "All 2 methods fail."),
        (("pass", "fail"), "1 of 2 methods fails, 1 passes."),
        (("pass", "warn", "warn", "incomplete"), "1 of 4 methods is incomplete, 2 draw a warning, 1 passes."),
    ],
)
def test_one_sentence_says_every_verdict_worst_first(report, outcomes, sentence):
    model = groups(report)[0]
    found = headline([group(model, outcome) for outcome in outcomes])
    assert found.sentence == sentence


def test_a_method_in_two_settings_is_two_pairs(report):
    first = groups(report)[0]
    run = first.runs[0]
    spec = dataclasses.replace(run.record.spec, epochs=7)
    other = with_record(run, spec=spec)
    found = headline([group(first, "pass"), dataclasses.replace(group(first, "fail"), runs=(other,))])
    assert "2 method × setting" in found.sentence and found.settings == 2


def test_a_name_is_shortened_only_where_it_still_says_which_variant():
    texts = {"dtp (sigma=0.1)": "dtp", "dtp (sigma=0.3)": "dtp", "ep (beta=0.5,steps=20)": "ep", "bp": "bp"}
    links = [Link(text, name, "s", PASS, "forms/a") for text, name in texts.items()]
    assert [link.text for link in short_names(links)] == ["dtp (sigma=0.1)", "dtp (sigma=0.3)", "ep", "bp"]
    assert [link.text for link in short_names([*links[:1], *links[:1]])] == ["dtp", "dtp"]  # one variant, two settings


def test_a_column_has_its_worst_judgement_with_the_seeds_it_is_about(rich_of_three):
    columns = tuple(map(metric_named, metric_table("audit")))
    found = {group.method: judged_columns(group, columns) for group in groups(rich_of_three) if not group.control}
    assert found["fa"]["growth_max"] == Judged("D1", "fail", (42, 123, 456))
    assert found["bp"] == {}


def test_every_growth_above_its_limit_is_marked_and_a_gamma_that_may_not_be_claimed(rich):
    columns = tuple(map(metric_named, metric_table("audit")))
    (group,) = (group for group in groups(rich) if group.method == "fa" and not group.control)
    limits = (FurtherLimit("growth_init", 50.0),)

    def marked(growth):
        runs = [changed(run, sites={"growth_init": [1.0, growth]}) for run in group.runs]
        for place, run in enumerate(runs):
            findings = [
                dataclasses.replace(one, further=limits) if one.quantity == "growth" else one for one in run.findings
            ]
            runs[place] = dataclasses.replace(run, findings=tuple(findings))
        return judged_columns(dataclasses.replace(group, runs=tuple(runs)), columns).get("growth_init_max")

    assert marked(51.0) == Judged("D1", "fail", (42, 123)) and marked(50.0) is None
    rows = {
        row.name: row.answers
        for part in index_context(Sources.of(rich)).settings
        for row in part.rows
        if not row.control
    }
    assert rows["fa"] == {"gamma_deep_mean": "not"} and rows["bp"] == {}


def shown(report, *waivers):
    changed = dataclasses.replace(report, waivers=waivers)
    return [(row.waiver.rule, row.scope, row.applied) for row in waiver_rows(changed, groups(changed))]


def test_who_was_waived_is_named_and_expired_waivers_come_last(rich):
    rows = waiver_rows(rich, groups(rich))
    assert [(row.waiver.rule, row.scope, row.applied, row.waiver.expired) for row in rows] == [
        ("D3", "method fa", ("fa, seed 42", "fa, seed 123"), False),
        ("D1", f"run {rich.waivers[1].run}", (), True),
    ]
    turned = dataclasses.replace(rich, waivers=rich.waivers[::-1])
    assert waiver_rows(turned, groups(turned)) == rows


def test_a_waiver_lays_claim_to_its_own_rule_run_and_method_alone(rich):
    fa = next(run.record.run_id for run in rich.runs if run.record.spec.method == "fa")
    base = Waiver("D3", "why", "who", "2026-01-01", "2026-12-31")
    assert shown(rich, dataclasses.replace(base, run=fa[:8])) == [("D3", f"run {fa[:8]}", ("fa, seed 42",))]
    assert shown(rich, dataclasses.replace(base, rule="D2", method="fa")) == [("D2", "method fa", ())]
    assert shown(rich, dataclasses.replace(base, method="dfa")) == [("D3", "method dfa", ())]


def test_what_another_waiver_waived_is_not_laid_to_an_expired_one(rich):
    valid = Waiver("D3", "why", "who", "2026-01-01", "2026-12-31", method="fa")
    expired = dataclasses.replace(valid, reason="once", expiry="2026-01-31", expired=True)
    assert shown(rich, expired, valid) == [
        ("D3", "method fa", ("fa, seed 42", "fa, seed 123")),
        ("D3", "method fa", ()),
    ]
