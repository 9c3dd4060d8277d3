"""What was held against the seal, told of whatever made the checks."""

from __future__ import annotations

import dataclasses

from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Check, Exclusion, Integrity
from fa_registry.reporting.sources import MOST_SAID, evidence, integrity_states, not_intact, without_mismatches
from tests.builders import record
from tests.reporting.page import words_of, written
from tests.reporting.scenes import small_report


def run(run_id, *checks):
    held = dataclasses.replace(record(run_id), integrity=Integrity("verified", (), checks))
    return judge(held, None, load_edition("2026-11"))


def gone(run_id, *checks):
    return Exclusion(
        run_id, "dfa 9", "integrity failure: x", kind="integrity", integrity=Integrity("mismatch", (), checks)
    )


def test_one_line_a_subject_with_the_runs_of_each_outcome_worst_first():
    fine, strange = Check("code", "agrees", "as sealed"), Check("a stranger's check", "not possible", "no GPU")
    rows = evidence(
        [run("r1", fine), run("r2", fine, strange)], [gone("r3", Check("code", "differs", "another dfa.py"))]
    )
    assert [(row.subject, row.agree, row.differ, row.not_possible, row.outcome) for row in rows] == [
        ("code", 2, 1, 0, "differs"),
        ("a stranger's check", 0, 0, 1, "not possible"),
    ]
    assert [(one.outcome, one.detail, one.run_ids.shown) for one in rows[0].said.shown] == [
        ("differs", "another dfa.py", ("r3",)),
        ("agrees", "as sealed", ("r1", "r2")),
    ]


def test_many_findings_are_cut_and_counted():
    runs = [run(f"r{index}", Check("tables", "differs", f"tag {index}")) for index in range(MOST_SAID + 3)]
    (row,) = evidence(runs)
    assert (len(row.said.shown), row.said.left, row.differ) == (MOST_SAID, 3, MOST_SAID + 3)


def test_an_older_report_has_no_evidence():
    assert evidence([run("r1")], [Exclusion("r2", "n", "half-written")]) == ()


def test_a_run_whose_file_was_changed_is_a_mismatch_of_the_page():
    changed = Exclusion("r2", "dfa 2", "integrity failure: spec.json: expected …", kind="integrity")
    others = [Exclusion("", "dfa 3", "no run of this specification yet", kind="not trained"), gone("r4")]
    states = [(row.run_id, row.state) for row in integrity_states([run("r1")], [changed, *others])]
    assert states == [("r2", "mismatch"), ("r4", "mismatch"), ("r1", "verified")]
    assert [one.run_id for one in not_intact([changed, *others])] == ["r2", "r4"]


def test_a_report_without_a_mismatch_stays_as_it_is():
    report = small_report()
    assert without_mismatches(report) is report


def test_the_pages_of_a_run_that_was_held_against_its_seal(tmp_path):
    checks = (Check("figures", "agrees", "bit-equal"), Check("first steps", "not possible", "a step takes too long"))
    report = small_report()
    held = tuple(
        dataclasses.replace(
            one,
            record=dataclasses.replace(one.record, integrity=dataclasses.replace(one.record.integrity, checks=checks)),
        )
        for one in report.runs
    )
    pages = written(dataclasses.replace(report, runs=held), tmp_path)
    assert "first steps006not possible: a step takes too long" in words_of(pages["index.html"])
    forms = {name: text for name, text in pages.items() if name.startswith("forms/")}
    for name, text in forms.items():
        assert "first steps" in text and "a step takes too long" in text, name
