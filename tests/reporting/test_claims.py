"""Claims follow from findings: one test a rule, fires and does not."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Reading, Verdict
from fa_registry.reporting.claims import claims
from tests.reporting.runs import SEEDS, full, make_record
from tests.reporting.scenes import a_finding, make_report

HEALTHY = {"accuracy": 0.9, "scale": 3.0, "gradient": 0.1, "gamma": 0.2}


@pytest.fixture
def said(record, judged):
    """The claims of one dfa run, as one text; frozen accuracy .80."""

    def claim_text(status="complete", frozen=True, **changes):
        run = dataclasses.replace(record("dfa", 42, **{**HEALTHY, **changes}), status=status)
        control = [record("bp", 42, 0.80, 1.0, 0.4, 0.0, control="frozen")] if frozen else []
        return " ".join(f"{claim.kind}: {claim.text}" for claim in claims(judged([run, *control]).runs[:1]))

    return claim_text


def test_a_pass_may_claim_depth_and_alignment(said):
    text = said()
    assert "may: Its accuracy may be reported" in text and "may: Γ may be read as alignment" in text
    assert "not:" not in text


def test_an_accuracy_below_frozen_takes_the_depth_back(said):
    assert "not: The trained blocks are not shown to beat frozen random ones" in said(accuracy=0.81)
    assert "not shown to beat" not in said(accuracy=0.83)


def test_without_a_frozen_control_nothing_is_decided(said):
    text = said(frozen=False)
    assert "open: The protocol could not be completed" in text and "no frozen control" in text
    assert "may:" not in text


def test_broken_runs_support_nothing(said):
    assert "not: Training diverged" in said(status="diverged")
    assert "open: The run broke off" in said(status="failed")


def test_a_missing_gamma_is_named_with_its_reason(report):
    run = next(run for run in report.runs if run.record.integrity.state == "unverifiable")
    assert any(
        claim.text.startswith("No alignment figure exists: the feedback file is missing") for claim in claims([run])
    )


def test_several_seeds_are_counted_and_named(report):
    dfa = [run for run in report.runs if run.record.spec.method == "dfa"]
    depth = next(claim for claim in claims(dfa) if "frozen random ones" in claim.text)
    assert depth.text.endswith("(in 2 of 2 seeds: 42, 123).")
    assert depth.run_ids == tuple(run.record.run_id for run in dfa)
    assert not any("One seed" in claim.text for claim in claims(dfa))


def test_one_seed_says_so_and_a_control_says_nothing(report):
    assert any("One seed" in claim.text for claim in claims(report.runs[:1]))
    control = next(run for run in report.runs if run.verdict.outcome == "control")
    assert claims([control]) == ()


def test_one_run_of_several_seeds_says_nothing_of_one_seed(report):
    assert not any("One seed" in claim.text for claim in claims(report.runs[:1], alone=False))


def test_a_rule_that_was_waived_does_not_pass_by_itself(rich):
    run = dataclasses.replace(
        next(run for run in rich.runs if run.record.spec.method == "dfa"),
        findings=(a_finding("D3", "waived", quantity="margin_pp", state="UNDERCUT"),),
        verdict=Verdict("pass", "PASS"),
    )
    assert not any(claim.kind == "may" for claim in claims([run]))
    passed = dataclasses.replace(
        run, findings=(a_finding("D3", "pass", quantity="accuracy", state="CLEARS", threshold=2.0),)
    )
    assert any(claim.key == "trained depth" for claim in claims([passed]))
    gone = [claim.key for claim in claims([dataclasses.replace(run, findings=())])]
    assert "trained depth" not in gone and "passes without depth" in gone  # nothing was compared with frozen blocks


# What a `may` and a `not` would contradict each other about.
ABOUT = ("training feedback", "frozen random ones|trained depth", "read as (credit )?alignment", "stream|scale")


@pytest.mark.parametrize("ranks", [[0.048] * 5, [0.048] * 4 + [0.095], [None] * 5])
@pytest.mark.parametrize("edition", ["2026-04", "2026-05", "2026-11"])
def test_no_run_may_claim_what_it_has_to_walk_back(report, rich, edition, ranks):
    """In every scene, and in one where all passes but the null of Γ: one claim takes back what another would grant."""
    null = tuple(Reading(rank, "" if rank else "learned") for rank in ranks)
    healthy = [full(make_record("dfa", seed, 0.97, 3.0, 0.1, 0.2)) for seed in SEEDS]
    healthy = [changed_row(record, "gamma_null_p", null) for record in healthy]
    frozen = [full(make_record("bp", seed, 0.80, 1.02, 0.4, 0.0, control="frozen")) for seed in SEEDS]
    passing = make_report([*healthy, *frozen], edition)
    assert {run.verdict.outcome for run in passing.runs} <= {"pass", "control"}
    for scene in (report, rich, passing):
        for group in groups(scene):
            said = claims(group.runs)
            for about in ABOUT:
                may, back = (
                    {
                        run_id
                        for one in said
                        if one.kind == kind and re.search(about, one.text)
                        for run_id in one.run_ids
                    }
                    for kind in ("may", "not")
                )
                assert not may & back, (group.method, about, said)


def changed_row(record, name, row):
    sites = {**record.measurements.sites, name: row}
    return dataclasses.replace(record, measurements=dataclasses.replace(record.measurements, sites=sites))


def test_what_was_waived_is_said_with_who_and_why_and_still_holds(rich):
    fa = [run for run in rich.runs if run.record.spec.method == "fa"]
    (claim,) = [claim for claim in claims(fa) if "waived by" in claim.text]
    assert claim.kind == "open" and claim.run_ids == tuple(run.record.run_id for run in fa)
    assert claim.text.startswith(
        "D3 depth utility (UNDERCUT) is not counted in the verdict, but not refuted: waived by A. Person"
    )
    assert any(claim.kind == "not" and "do worse than frozen random ones" in claim.text for claim in claims(fa))


def test_what_a_verdict_does_not_look_at_makes_no_protocol_incomplete(rich):
    run = next(run for run in rich.runs if run.verdict.outcome == "incomplete")
    reported = a_finding("D4", "not_applicable", gating=False, sentence="D4 has no null")
    (claim,) = [
        claim
        for claim in claims([dataclasses.replace(run, findings=(*run.findings, reported))])
        if "could not be completed" in claim.text
    ]
    assert "the diagnostic crashed" in claim.text and "D4 has no null" not in claim.text


def test_claims_follow_states_and_not_names(rich):
    """The same findings under other rule names support the same claims."""
    for method in ("bp", "fa", "dfa", "drtp"):
        runs = [run for run in rich.runs if run.record.spec.method == method and run.record.spec.control == "none"]
        renamed = [
            dataclasses.replace(run, findings=tuple(dataclasses.replace(one, rule="zz") for one in run.findings))
            for run in runs
        ]
        plain = [claim.text.replace("D3 depth", "zz depth") for claim in claims(runs)]
        assert [claim.text for claim in claims(renamed)] == plain
