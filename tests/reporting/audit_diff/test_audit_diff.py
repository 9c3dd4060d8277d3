"""Two audits side by side: the same, judged otherwise, trained again, measured otherwise, with other terms."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.rules import load_edition
from fa_registry.records import Exclusion, FurtherLimit, Integrity, Reading, Waiver
from fa_registry.reporting.diff import audit_diff
from tests.reporting.runs import SEEDS, diverged, make_record
from tests.reporting.sample_reports import make_report

FROZEN = [make_record("bp", seed, 0.80, 1.02, 0.4, 0.0, control="frozen") for seed in SEEDS]
DFA = [make_record("dfa", seed, 0.90, 3.0, 0.1, 0.1) for seed in SEEDS]
RUNS = (*DFA, *FROZEN)
WAIVER = Waiver("D3", "known", "A. Person", "2026-05-01", "2026-12-31", method="dfa")


def changes(a, b) -> dict[str, tuple[str, str]]:
    """What is reported about the audits as a whole."""
    return {one.what: (one.before, one.after) for one in audit_diff(a, b).report}


def with_first(record):
    """The audit with another record for its first run."""
    return make_report([record, *RUNS[1:]])


def again(record):
    """The run trained again: another id, nothing else."""
    return dataclasses.replace(record, run_id=record.run_id[::-1])


@pytest.fixture(scope="module")
def before():
    return make_report(RUNS)


def test_an_audit_is_the_same_as_itself(before, rich):
    for audit in (before, rich):
        found = audit_diff(audit, audit)
        assert found.same and found.a == found.b and found.matched == len(audit.runs)
        assert not (found.report or found.rules or found.runs or found.only_a or found.only_b)


def test_the_order_of_the_runs_is_no_difference(before):
    found = audit_diff(before, dataclasses.replace(before, runs=before.runs[::-1]))
    assert found.same and found.a.digest != found.b.digest


def test_runs_that_were_trained_again_are_found_by_their_specification(before):
    found = audit_diff(before, make_report([again(record) for record in RUNS]))
    assert found.same and found.trained_again == found.matched == len(RUNS)


def test_each_of_several_runs_of_one_specification_is_matched_once(before):
    twice = make_report([*map(again, RUNS), dataclasses.replace(DFA[0], run_id="8" * 32)])
    found = audit_diff(before, twice)
    assert [run.run_id for run in found.only_b] == ["8" * 32] and found.only_a == () and not found.same


def test_runs_in_one_audit_alone_are_named(before):
    found = audit_diff(make_report(RUNS[1:]), dataclasses.replace(before, runs=before.runs[:1]))
    assert [run.run_id for run in found.only_a] == [record.run_id for record in RUNS[1:]]
    assert [(run.run_id, run.method, run.seed) for run in found.only_b] == [(DFA[0].run_id, "dfa", SEEDS[0])]


def test_a_run_that_exploded_is_reported_by_verdict_finding_figure_and_field(before):
    found = audit_diff(before, with_first(diverged(DFA[0])))
    (run,) = [run for run in found.runs if run.run_id_a == DFA[0].run_id]
    assert run.verdict_a != run.verdict_b
    assert {
        finding.rule: (finding.before.outcome, finding.after.outcome) for finding in run.findings if finding.decided
    }["D1"] == (
        "pass",
        "fail",
    )
    figures = {figure.name: (figure.before, figure.after) for figure in run.figures}
    assert figures["h_L"] == (DFA[0].measurements.scalars["h_L"], Reading.of(float("inf")))
    assert figures["h_norm[2]"][1] == Reading.of(float("inf")) and "accuracy" not in figures
    assert {change.what: (change.before, change.after) for change in run.changes}["status"] == ("complete", "diverged")


def test_a_rule_says_whose_outcome_moved(before):
    found = audit_diff(before, with_first(diverged(DFA[0])))
    (rule,) = [rule for rule in found.rules if rule.rule == "D1"]
    assert rule.moved == (DFA[0].run_id,) and rule.outcomes_a == {"pass": 4} and rule.required_a == rule.required_b
    assert rule.outcomes_b == {"fail": 1, "pass": 3}


def test_the_last_digit_of_a_figure_counts(before):
    scalars = {**DFA[0].measurements.scalars, "accuracy": Reading(0.90000000000000013)}
    measured = dataclasses.replace(DFA[0].measurements, scalars=scalars)
    found = audit_diff(before, with_first(dataclasses.replace(DFA[0], measurements=measured)))
    (run,) = found.runs
    assert [figure.name for figure in run.figures] == ["accuracy"] and not found.same
    assert not any(finding.decided for finding in run.findings) and run.verdict_a == run.verdict_b


@pytest.mark.parametrize(
    ("changed", "decided"),
    [({"observed": Reading(9.0)}, False), ({"first_fire": 3}, False), ({"state": "NOISY"}, True)],
)
def test_a_finding_that_is_not_equal_is_reported_and_whether_it_was_judged_otherwise(changed, decided, before):
    first, *rest = before.runs[0].findings
    run = dataclasses.replace(before.runs[0], findings=(dataclasses.replace(first, **changed), *rest))
    found = audit_diff(before, dataclasses.replace(before, runs=(run, *before.runs[1:])))
    assert [(finding.rule, finding.decided) for finding in found.runs[0].findings] == [(first.rule, decided)]
    assert found.rules == () and not found.same


def test_a_figure_in_one_audit_alone_is_a_change(before):
    scalars = {name: value for name, value in DFA[0].measurements.scalars.items() if name != "gamma_spread"}
    measured = dataclasses.replace(DFA[0].measurements, scalars=scalars)
    (run,) = audit_diff(before, with_first(dataclasses.replace(DFA[0], measurements=measured))).runs
    assert [(figure.name, figure.after.value) for figure in run.figures] == [("gamma_spread", None)]


def with_reading(reading):
    """The audit whose first run has this Γ spread."""
    scalars = {**DFA[0].measurements.scalars, "gamma_spread": reading}
    return with_first(
        dataclasses.replace(DFA[0], measurements=dataclasses.replace(DFA[0].measurements, scalars=scalars))
    )


@pytest.mark.parametrize(
    ("a", "b", "is_changed"),
    [
        (Reading(None, "no feedback"), Reading(None, "the feedback is missing"), False),
        (Reading(None, "not finite: every sample"), Reading(None, "not finite: all samples"), False),
        (Reading(None, "no feedback"), Reading.of(float("inf")), True),
        (Reading(None, "no feedback"), Reading(1.0), True),
    ],
)
def test_another_reason_of_a_missing_number_is_no_change(a, b, is_changed):
    found = audit_diff(with_reading(a), with_reading(b))
    assert found.same is not is_changed
    assert [figure.name for run in found.runs for figure in run.figures] == ["gamma_spread"] * is_changed


def with_findings(report, **changes):
    """The audit with other fields in every finding of D1 and D3."""
    runs = tuple(
        dataclasses.replace(
            run,
            findings=tuple(
                dataclasses.replace(one, **changes) if one.rule in ("D1", "D3") else one for one in run.findings
            ),
        )
        for run in report.runs
    )
    return dataclasses.replace(report, runs=runs)


WORDING = {"title": "a", "required": "b", "sentence": "c", "limit": "d", "basis": "e"}


def test_another_wording_of_a_finding_and_its_rule_is_no_change(before):
    assert audit_diff(before, with_findings(before, **WORDING)).same
    assert audit_diff(before, with_findings(before, **WORDING)).rules == ()
    opinions = make_report(RUNS, others=("2026-04",))
    (opinion,) = opinions.opinions
    judgements = tuple(
        dataclasses.replace(one, findings=tuple(dataclasses.replace(found, **WORDING) for found in one.findings))
        for one in opinion.judgements
    )
    other = dataclasses.replace(opinions, opinions=(dataclasses.replace(opinion, judgements=judgements),))
    assert audit_diff(opinions, other).same


@pytest.mark.parametrize(
    ("a", "b", "changed"),
    [
        ({"threshold": 1.0}, {"threshold": 2.0}, True),
        ({"crossed": "above"}, {"crossed": "below"}, True),
        ({"crossed": "above"}, {"crossed": ""}, False),
        ({"interval": (0.0, 1.0), "confidence": 0.95}, {"interval": (0.0, 1.0), "confidence": 0.975}, True),
        ({"further": (FurtherLimit("growth", 10.0),)}, {"further": (FurtherLimit("growth", 20.0),)}, True),
    ],
)
def test_a_rule_changes_with_its_limit_operator_or_level(a, b, changed, before):
    """A rule that does not fire has no operator."""
    found = audit_diff(with_findings(before, **a), with_findings(before, **b))
    assert [rule.rule for rule in found.rules] == ["D1", "D3"] * changed
    assert all(rule.moved == () for rule in found.rules)


OTHERS = {
    "name": "renamed",
    "setting": "elsewhere",
    "integrity": Integrity("mismatch", ("a file changed",)),
    "digests": {"spec.json": "ff"},
    "feedback": {},
    "provenance": {},
    "trajectory": {},
}


@pytest.mark.parametrize("field", OTHERS)
def test_every_other_field_of_a_record_counts(field, before):
    first = dataclasses.replace(before.runs[0], record=dataclasses.replace(DFA[0], **{field: OTHERS[field]}))
    (run,) = audit_diff(before, dataclasses.replace(before, runs=(first, *before.runs[1:]))).runs
    assert {change.what.split(" ")[0] for change in run.changes} == {field}


def test_another_control_counts_but_not_the_same_one_trained_again(before):
    assert audit_diff(before, make_report([*DFA, *map(again, FROZEN)])).same
    other = dataclasses.replace(before.runs[0], frozen_run_id="f" * 32)
    (run,) = audit_diff(before, dataclasses.replace(before, runs=(other, *before.runs[1:]))).runs
    assert [(change.what, change.after) for change in run.changes] == [("frozen control", "f" * 32)]


def test_another_level_of_proof_is_another_verdict(before):
    first = before.runs[0]
    proven = dataclasses.replace(first, verdict=dataclasses.replace(first.verdict, proof="replayed"))
    (run,) = audit_diff(before, dataclasses.replace(before, runs=(proven, *before.runs[1:]))).runs
    assert (run.verdict_a.label, run.verdict_a.proof) == (run.verdict_b.label, "started")
    assert run.verdict_b.proof == "replayed" and not (run.findings or run.changes)


def test_another_threshold_is_reported_by_edition_and_rule(before):
    strict = make_report(RUNS)
    edition = load_edition("2026-05")
    assert strict.edition == edition.reference
    overridden = dataclasses.replace(
        before, edition=dataclasses.replace(before.edition, overrides={"D1.threshold": 1.0})
    )
    assert changes(before, overridden) == {"edition override D1.threshold": ("", "1.0")}


def test_another_edition_is_reported_rule_by_rule(before):
    found = audit_diff(before, make_report(RUNS, "2026-12"))
    assert {one.what for one in found.report} >= {"edition name", "edition digest"}
    rules = {rule.rule: rule for rule in found.rules}
    assert rules["D4"].required_a == () and rules["D4"].required_b and rules["D4"].outcomes_a == {}
    assert rules["D2"].required_a != rules["D2"].required_b


def test_further_editions_are_compared_where_both_have_them(before):
    first = make_report(RUNS, others=("2026-04", "2026-12"))
    assert {what: after for what, (_, after) in changes(before, first).items()} == {
        f"further edition {opinion.edition.name} {field}": getattr(opinion.edition, field)
        for opinion in first.opinions
        for field in ("name", "title", "source", "digest")
    }
    found = audit_diff(first, make_report([diverged(DFA[0]), *RUNS[1:]], others=("2026-04",)))
    run = next(run for run in found.runs if run.run_id_a == DFA[0].run_id)
    assert {"verdict by 2026-04", "findings by 2026-04"} <= {change.what for change in run.changes}


def test_judging_options_and_remarks_are_reported(before):
    after = dataclasses.replace(
        before,
        title="another",
        waivers=(WAIVER,),
        excluded=(Exclusion("e" * 32, "dfa-9", "broken"),),
        remarks=("note",),
        cards={**before.cards, "methods/bp": {**before.cards["methods/bp"], "rule": "another"}},
    )
    waiver = f"waiver of {WAIVER.rule} for {WAIVER.method}"
    assert changes(before, after) == {
        "title": (before.title, "another"),
        waiver: ("", f"{WAIVER.date} to {WAIVER.expiry} by {WAIVER.author}: {WAIVER.reason}"),
        f"not judged dfa-9 ({'e' * 32})": ("", "broken"),
        "remark note": ("", "present"),
        "card methods/bp: rule": ("c_l = g_l", "another"),
    }
    renewed = dataclasses.replace(after, waivers=(dataclasses.replace(WAIVER, expired=True),))
    assert list(changes(after, renewed)) == [waiver]


def test_a_long_value_stands_as_its_digest(before):
    found = changes(before, dataclasses.replace(before, title="x" * 1000))
    assert found["title"][1].startswith("SHA-256 ") and len(found["title"][1]) == 72
