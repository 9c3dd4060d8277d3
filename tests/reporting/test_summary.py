"""What the last lines of an audit say: derived from the findings, in two sentences."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.records import AuditReport
from fa_registry.reporting.summary import CLAUSES, RESULTS, depth_summary, gamma_summary
from tests.reporting.judged_runs import CLEARS, NO_GAMMA, PART, SOUND, a_run, depth, null, over_seeds
from tests.reporting.report_changes import with_record
from tests.reporting.runs import THREE_SEEDS, full, make_record
from tests.reporting.sample_reports import make_report

BETTER, WORSE = CLEARS, depth("UNDERCUT", "fail", -5.0, (-7.0, -3.0))


def report_of(*groups) -> AuditReport:
    """A report with these runs: (name of the method, finding, other changes)."""
    runs = []
    for method, finding, *changes in groups:
        run = a_run(finding, verdict="pass" if finding.outcome == "pass" else "fail", **(changes[0] if changes else {}))
        spec = dataclasses.replace(run.record.spec, method=method)
        runs += over_seeds([with_record(run, spec=spec)])
    return dataclasses.replace(make_report([]), runs=tuple(runs))


def test_methods_that_end_below_their_frozen_blocks_come_first():
    below, above = depth_summary(report_of(("bp", BETTER), ("fa", WORSE), ("dfa", WORSE)))
    assert below.startswith("fa and dfa end") and "network worse (30 epochs," in below and "adamw 0.001" in below
    assert above.startswith("bp ends above its") and "network better (30 epochs," in above
    assert depth_summary(report_of(("fa", WORSE)))[0].startswith("fa ends below its")
    assert depth_summary(report_of()) == ()


@pytest.mark.parametrize(
    ("finding", "changes", "text"),
    [
        (depth("UNDERCUT", "fail", -0.5, (-3.0, 1.5)), {}, "dfa does not end above its own frozen blocks"),
        (
            depth("UNDERCUT", "fail", -5.0, (-7.0, -3.0), stated=True),
            {},
            "dfa does not end above its own frozen blocks",
        ),
        (depth("UNDECIDED", "warn", 1.0, (-3.0, 5.0)), {}, "dfa is undecided: the runs do not show whether"),
        (depth("AT CHANCE", "fail", -5.0, (-7.0, -3.0)), {}, "dfa is not better than chance"),
        (
            dataclasses.replace(CLEARS, outcome="not_applicable", state="", interval=None),
            {},
            "dfa was not compared with frozen blocks",
        ),
        (CLEARS, {"status": "diverged"}, "dfa allows no claim"),
        (CLEARS, {"integrity": "mismatch"}, "dfa allows no claim"),
    ],
)
def test_only_what_the_findings_show_is_stated(finding, changes, text):
    (sentence,) = depth_summary(report_of(("dfa", finding, changes)))
    assert sentence.startswith(text)
    (first, second) = depth_summary(report_of(("dfa", finding, changes), ("fa", WORSE)))
    assert first.startswith("fa ends below") and second.startswith(text)


def test_a_method_that_differs_between_settings_is_named_with_their_number():
    records = [full(make_record("bp", seed, 0.80, 1.02, 0.4, 0.0, control="frozen")) for seed in THREE_SEEDS]
    records += [full(make_record("dfa", seed, 0.60, 3.0, 0.4, 0.1)) for seed in THREE_SEEDS]
    other = [
        dataclasses.replace(one, spec=dataclasses.replace(one.spec, epochs=7), run_id=one.run_id[::-1])
        for one in records[len(THREE_SEEDS) :]
    ]
    first, second = depth_summary(make_report([*records, *other], "2026-12"))
    assert "1 of 2" in first and "ends below" in first
    assert "1 of 2" in second and "not compared" in second


def test_every_result_has_a_clause():
    assert set(RESULTS.values()) <= set(CLAUSES)


def answers(report) -> dict[str, str]:
    """What may be said of Γ → the methods of which it may be said."""
    return dict(part.split(": ") for part in gamma_summary(report).removeprefix("Γ: ").rstrip(".").split("; "))


def test_one_line_says_whose_gamma_may_be_claimed():
    report = report_of(("kp", BETTER), ("fa", WORSE), ("dfa", WORSE), ("tp", BETTER, NO_GAMMA), ("bp", BETTER))
    assert answers(report) == {"may not be claimed": "fa and dfa", "open": "tp", "may be claimed": "kp"}
    assert gamma_summary(report_of()) == ""


def test_a_gamma_of_some_sites_or_settings_is_not_stated_of_all():
    partly = a_run(*SOUND, null("NOT SPECIFIC", "warn"), verdict="warn", **PART)
    report = dataclasses.replace(make_report([]), runs=tuple(over_seeds([partly])))
    ((answer, methods),) = answers(report).items()
    assert answer.startswith("may be claimed at") and methods == "dfa"
    two = report_of(("dfa", BETTER), ("dfa", WORSE, {"spec": {"epochs": 7}}))
    assert list(answers(two)) == ["may not be claimed", "may be claimed"]
    assert all(methods.startswith("dfa (in 1 of") for methods in answers(two).values())


def test_the_summary_reads_the_card_as_the_form_does():
    report = report_of(("own", WORSE))
    exact = dataclasses.replace(report, cards={"methods/own": {"exact_sites": "all"}})
    broken = report_of(("own", WORSE, {"integrity": "mismatch"}))
    assert answers(broken) == {"may not be claimed": "own"}
    assert gamma_summary(dataclasses.replace(broken, cards=exact.cards)) == ""
    assert answers(report) == {"may not be claimed": "own"} and gamma_summary(exact) == ""
