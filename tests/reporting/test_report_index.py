"""Editions side by side: a sentence where they differ, naming the findings that make the difference."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry import jsonio
from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import load_edition
from fa_registry.records import (
    Check,
    EditionReference,
    Exclusion,
    Integrity,
    Judgement,
    Reading,
    SecondOpinion,
    Verdict,
)
from fa_registry.reporting.claims import exclusion_claim
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.report_index import (
    MOST_STATEMENT,
    SAME_FINDINGS,
    Sources,
    differences,
    evidence,
    integrity_states,
    not_intact,
)
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from tests.builders import record
from tests.reporting.page import text_of, written
from tests.reporting.report_changes import with_record, with_runs
from tests.reporting.sample_reports import a_finding, small_report

pytestmark = pytest.mark.usefixtures("undrawn")

OURS, THEIRS = (EditionReference(name, name, "test", "0" * 64, shipped=False) for name in ("ours", "theirs"))


@pytest.fixture
def compared(group_of):
    def row(report, method):
        sources = Sources.of(report)
        return sources.compared(group_of(sources, method), "forms/x.html")

    return row


def clauses_by_subject(ours, theirs):
    return {difference.subject: difference.clauses for difference in differences([(OURS, ours), (THEIRS, theirs)], {})}


def test_one_subject_is_compared_by_different_figures():
    margin = a_finding("D3", "warn", quantity="margin_pp", observed=Reading(2.5), state="UNDECIDED")
    accuracy = a_finding("d", "fail", quantity="accuracy", observed=Reading(0.81), state="UNDERCUT")
    first, second = clauses_by_subject([margin], [accuracy])["depth"]
    assert first.startswith("ours, mine") and second.startswith("theirs, mine")
    assert "UNDECIDED, warns" in first and first.endswith("observed +2.5\u00a0pp.")
    assert "UNDERCUT, fires" in second and second.endswith("observed 81.0\u00a0%.")


def test_what_only_one_edition_judges_or_gates_is_stated():
    stability = a_finding("c", "fail", quantity="stability_mid", observed=Reading(0.4), state="HIGH")
    assert "does not judge" in clauses_by_subject([], [stability])["stability"][0]
    reported = dataclasses.replace(stability, outcome="warn", gating=False)
    assert "does not count for" in clauses_by_subject([reported], [stability])["stability"][0]


def test_the_worst_seeds_are_counted_with_the_range_of_their_figures():
    fires = [a_finding("D1", observed=Reading(value)) for value in (60.0, 80.0)]
    clauses = clauses_by_subject([*fires, a_finding("D1", "pass", observed=Reading(3.0))], [a_finding("D1", "pass")])[
        "scale"
    ]
    assert "observed 60.0 to 80.0" in clauses[0] and "(2 of 3 seeds)" in clauses[0]


def test_a_figure_that_is_missing_is_reported_with_its_reason():
    absent = a_finding("D3", "not_applicable", quantity="accuracy", observed=Reading(None, "no control"))
    infinite = a_finding("D1", observed=Reading.of(float("inf")))
    clauses = clauses_by_subject([absent, infinite], [])
    assert "observed N/A (no control)." in clauses["depth"][0]
    assert "observed not finite (inf)." in clauses["scale"][0]


def test_editions_that_only_weigh_the_same_findings_otherwise_say_so():
    alike = [a_finding("D1", state="EXPLODED")]
    assert clauses_by_subject(alike, alike) == {"verdict": (SAME_FINDINGS,)}


def test_an_edition_that_left_a_run_out_is_no_error(report, compared):
    other = Judgement(report.runs[0].record.run_id, (), Verdict("pass", "fine"))
    row = compared(dataclasses.replace(report, opinions=(SecondOpinion(THEIRS, (other,)),)), "dfa")
    assert [verdict.label for verdict in row.verdicts] == [row.verdicts[0].label, "not judged"]


NOT_INCLUDED = "not included in these metrics"


def missing(report, method, **changes):
    """An exclusion of a further seed of the method."""
    spec = next(run.record.spec for run in report.runs if run.record.spec.method == method)
    setting = report.runs[0].record.setting
    given = {"method": method, "setting": setting, "spec": dataclasses.replace(spec, seed=9), **changes}
    return Exclusion("d" * 32, f"{method} s9", "integrity failure: feedback: expected SHA-256 1, found 2", **given)


def pages(report):
    """method → its form as HTML and Markdown, when these exclusions belong to the report."""
    sources, written = Sources.of(report), TemplateRenderer()
    return {
        group.method: [
            written.render(f"form.{kind}.j2", variables(form_context(group, link, sources))) for kind in ("html", "md")
        ]
        for group, link in sources.forms
    }


@pytest.mark.parametrize("changes", [{}, {"spec": None}])
def test_a_run_that_was_not_judged_is_shown_next_to_the_headline_and_opens_a_claim(report, changes):
    made = pages(dataclasses.replace(report, excluded=(missing(report, "dfa", **changes),)))
    for text in made["dfa"]:
        assert NOT_INCLUDED in text and "SHA-256 1, found 2" in text and "was not judged" in text
        assert ("seed 9" in text) == (not changes)
    assert all(NOT_INCLUDED not in text for text in made["bp"])


def test_another_variant_of_the_method_is_not_meant_where_the_specification_is_known(report):
    one = missing(report, "dfa")
    other = dataclasses.replace(one, spec=dataclasses.replace(one.spec, method_options={"scale": 2.0}))
    group = next(group for group in Sources.of(report).groups if group.method == "dfa")
    changed = dataclasses.replace(report, excluded=(one, other, dataclasses.replace(other, spec=None)))
    assert [exclusion.spec for exclusion in Sources.of(changed).excluded(group)] == [one.spec, None]


def test_a_claim_about_what_was_not_judged_is_open_and_names_its_runs(report):
    one = missing(report, "dfa")
    claim = exclusion_claim([one, dataclasses.replace(one, run_id="", spec=None)])
    assert (claim.key, claim.kind, claim.run_ids) == ("not judged", "open", (one.run_id,))


def test_an_exclusion_without_a_specification_belongs_to_no_form(report):
    bare = jsonio.decode(Exclusion, {"run_id": "a", "name": "b", "reason": "c", "failure": ""})
    sources = Sources.of(dataclasses.replace(report, excluded=(bare,)))
    assert bare.spec is None and not any(map(sources.excluded, sources.groups))


def run(run_id, *checks):
    held = dataclasses.replace(record(run_id), integrity=Integrity("verified", (), checks))
    return judge(held, None, load_edition("2026-12"))


def gone(run_id, *checks):
    return Exclusion(
        run_id, "dfa 9", "integrity failure: x", kind="integrity", integrity=Integrity("mismatch", (), checks)
    )


def test_one_line_a_subject_with_the_runs_of_each_outcome_worst_first():
    fine, strange = Check("code", "agrees", "as recorded"), Check("a third-party check", "not possible", "no GPU")
    rows = evidence(
        [run("r1", fine), run("r2", fine, strange)], [gone("r3", Check("code", "differs", "another dfa.py"))]
    )
    assert [(row.subject, row.counts, row.outcome) for row in rows] == [
        ("code", {"differs": 1, "not possible": 0, "agrees": 2}, "differs"),
        ("a third-party check", {"differs": 0, "not possible": 1, "agrees": 0}, "not possible"),
    ]
    assert [(one.outcome, one.detail, one.run_ids.shown) for one in rows[0].said.shown] == [
        ("differs", "another dfa.py", ("r3",)),
        ("agrees", "as recorded", ("r1", "r2")),
    ]


def test_many_findings_are_cut_and_counted():
    runs = [run(f"r{index}", Check("tables", "differs", f"tag {index}")) for index in range(MOST_STATEMENT + 3)]
    (row,) = evidence(runs)
    assert (len(row.said.shown), row.said.left, row.counts["differs"]) == (MOST_STATEMENT, 3, MOST_STATEMENT + 3)


def test_runs_that_no_audit_checked_have_no_evidence():
    assert evidence([run("r1")], [Exclusion("r2", "n", "half-written")]) == ()


def test_a_run_whose_file_was_changed_is_a_mismatch_of_the_page():
    changed = Exclusion("r2", "dfa 2", "integrity failure: spec.json: expected …", kind="integrity")
    others = [Exclusion("", "dfa 3", "no run of this specification yet", kind="not trained"), gone("r4")]
    states = [(row.run_id, row.state) for row in integrity_states([run("r1")], [changed, *others])]
    assert states == [("r2", "mismatch"), ("r4", "mismatch"), ("r1", "verified")]
    assert [one.run_id for one in not_intact([changed, *others])] == ["r2", "r4"]


def test_the_pages_of_a_run_that_was_compared_with_its_manifest(tmp_path):
    checks = (Check("figures", "agrees", "bit-equal"), Check("first steps", "not possible", "a step takes too long"))
    report = small_report()
    pages = written(
        with_runs(
            report, lambda run: with_record(run, integrity=dataclasses.replace(run.record.integrity, checks=checks))
        ),
        tmp_path,
    )
    assert f"first steps006not possible: {checks[1].detail}" in text_of(pages["index.html"])
    forms = {name: text for name, text in pages.items() if name.startswith("forms/")}
    for name, text in forms.items():
        assert "first steps" in text and checks[1].detail in text, name
