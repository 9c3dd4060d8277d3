"""No finding without a word: every state of every shipped edition leads to a claim, and an edition's own words do too."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.engine import judge, judge_all
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.judges import PROVISIONAL, UNDECIDED
from fa_registry.protocol.rules import Edition, Rule, load_edition, shipped
from fa_registry.records import AuditReport, GuardReading, Reading
from fa_registry.reporting.claims import claims, state_claims
from tests.reporting.asking import changed, run_of
from tests.reporting.runs import full, make_record
from tests.reporting.scenes import a_finding


def states_of(rule: Rule) -> list[tuple[str, str]]:
    """(state, outcome) of everything a rule can say of a run."""
    known = [(rule.fired, rule.outcome), (rule.clear, "pass")]
    known += [(also.clear, "pass") for also in rule.also]
    if rule.judge == "seeds_margin":
        known += [(UNDECIDED, "warn"), (PROVISIONAL, "warn")]
    if rule.judge == "limit" and rule.guard:
        known.append((rule.guard.fired, "warn"))
    return known


EVERY = [
    pytest.param(rule, state, outcome, id=f"{name}-{rule.code}-{state}")
    for name in shipped()
    for rule in load_edition(name).rules
    for state, outcome in states_of(rule)
]


def as_found(rule: Rule, state: str, outcome: str):
    seeds = rule.judge == "seeds_margin"
    return a_finding(
        rule.code,
        outcome,
        title=rule.title,
        quantity="margin_pp" if seeds else rule.quantity,
        observed=Reading(3.0),
        threshold=rule.threshold,
        state=state,
        gating=rule.gating,
        interval=(1.0, 5.0) if seeds and state != PROVISIONAL else None,
        seeds=3 if seeds else 1,
    )


@pytest.mark.parametrize(("rule", "state", "outcome"), EVERY)
def test_every_state_of_every_shipped_edition_ends_in_words(rich, rule, state, outcome):
    dfa = next(run for run in rich.runs if run.record.spec.method == "dfa")
    bare = dataclasses.replace(dfa, findings=(), verdict=dataclasses.replace(dfa.verdict, outcome="fail"))
    silent = {claim.text for claim in claims([bare])}
    said = [
        claim
        for claim in claims([dataclasses.replace(bare, findings=(as_found(rule, state, outcome),))])
        if claim.text not in silent
    ]
    assert said and all(claim.run_ids == (dfa.record.run_id,) for claim in said)
    assert (outcome == "fail") <= any(claim.kind == "not" for claim in said)
    assert (outcome == "pass") <= all(claim.kind in ("may", "note") for claim in said)
    shipped_words = "is there (" not in said[0].text and "may not be claimed (" not in said[0].text
    assert shipped_words  # a state of a shipped edition has a sentence of its own


@pytest.mark.parametrize(("outcome", "kind"), [("fail", "not"), ("warn", "open"), ("pass", "note")])
def test_the_words_of_a_users_edition_are_passed_on(rich, outcome, kind):
    run = dataclasses.replace(rich.runs[0], findings=(a_finding("Z", outcome, quantity="rho", state="ODD"),))
    (claim,) = state_claims([run])
    assert claim.kind == kind and "(ODD)" in claim.text and "Z: required, observed" in claim.text


@pytest.mark.parametrize("outcome", ["waived", "skipped", "not_applicable", "error"])
def test_what_other_claims_tell_is_not_told_twice(rich, outcome):
    run = dataclasses.replace(rich.runs[0], findings=(a_finding("D1", outcome, state="OK"),))
    assert list(state_claims([run])) == []


def test_a_collapse_of_the_aggregation_is_walked_back_beside_a_specific_gamma(rich):
    guard = GuardReading("gamma", "above", Reading(0.8), 0, mean=0.2)
    finding = a_finding("D4", "warn", quantity="gamma_null_p", state="SPECIFIC", gating=False, guard=guard)
    said = {claim.kind: claim.text for claim in claims([dataclasses.replace(rich.runs[4], findings=(finding,))])}
    assert (
        "The mean Γ may not stand for the whole network: without site 0 the mean gamma over all sites that count, +0.2000, "
        "changes by 80% of itself"
    ) in said["not"]
    quiet = dataclasses.replace(finding, guard=None)
    assert not list(state_claims([dataclasses.replace(rich.runs[4], findings=(quiet,))]))


def in_other_words(edition: Edition) -> Edition:
    """The edition with every title and every word that it has for a rule that fires changed; not a number in it."""
    rules = [
        dataclasses.replace(
            rule,
            title=f"my {rule.title}",
            fired=f"{rule.code} speaks",
            guard=rule.guard and dataclasses.replace(rule.guard, fired=f"{rule.code} guards"),
        )
        for rule in edition.rules
    ]
    return dataclasses.replace(edition, rules=tuple(rules))


def walked_back(records, edition):
    """{(key, runs)} of everything that must be walked back, form by form."""
    report = AuditReport("", "", edition.reference, judge_all(records, edition))
    return {(one.key, one.run_ids) for group in groups(report) for one in claims(group.runs) if one.kind == "not"}


@pytest.mark.parametrize("name", shipped())
def test_a_copied_edition_with_other_words_walks_back_what_the_edition_does(name):
    """Else whoever renames a word of a copy publishes what the edition takes back."""
    edition = load_edition(name)
    frozen = make_record("bp", 42, 0.80, 1.02, 0.4, 0.0, control="frozen")
    whole = {"gain": [0.3] * 5}
    records = [
        full(frozen, **whole),
        full(make_record("fa", 42, 0.70, 5e8, 1e-5, 0.25), gain=[1e-5] * 5),
        full(make_record("drtp", 42, 0.84, 3.0, 1e-6, 0.1), fidelity=[0.4] * 5, **whole),
        full(make_record("dfa", 42, 0.95, 3.0, 0.1, 0.2), {"stability_mid": 0.6}, gamma_null_p=[0.5] * 5, **whole),
        full(make_record("ep", 42, 0.95, 3.0, 0.1, 0.2), gamma=[0.9, 0.01, 0.01, 0.01, 0.01], **whole),
    ]
    expected = walked_back(records, edition)
    assert walked_back(records, in_other_words(edition)) == expected
    of_2026_11 = {"at floor", "noisy", "stability high", "not specific", "carried by one end"}
    assert name != "2026-11" or of_2026_11 <= {key for key, _ in expected}


def test_a_report_of_an_older_release_that_kept_the_guard_in_its_sentence_is_walked_back_too():
    """It holds the figures and the limit: what the guard saw is computed again."""
    edition = load_edition("2026-11")
    record = full(make_record("ep", 42, 0.95, 3.0, 0.1, 0.2), gamma=[0.9, 0.01, 0.01, 0.01, 0.01], gain=[0.3] * 5)
    run = judge(record, None, edition)
    older = tuple(dataclasses.replace(one, guard=None, limit="", crossed="") for one in run.findings)
    collapse = [one.text for one in claims([run]) if one.key == "carried by one end"]
    assert collapse == [
        one.text for one in claims([dataclasses.replace(run, findings=older)]) if one.key == "carried by one end"
    ]
    assert len(collapse) == 1
    even = changed(dataclasses.replace(run, findings=older), sites={"gamma": 0.2})
    assert not [one for one in claims([even]) if one.key == "carried by one end"]


def test_figures_are_looked_up(rich):
    run = dataclasses.replace(rich.runs[0], findings=(a_finding("S", "warn", quantity="stability_mid", state="HIGH"),))
    (claim,) = state_claims([run])
    assert "mean cosine 0.100" in claim.text and claim.kind == "not"


def told(run, *findings):
    (claim,) = state_claims([dataclasses.replace(run, findings=findings)])
    return claim.text


OK_REFERENCE = a_finding("D2", "pass", quantity="g_norm", state="OK", threshold=0.01)
EXPLODED = a_finding("D1", "fail", quantity="growth", state="EXPLODED")
STEADY = a_finding("S", "pass", quantity="stability_mid", state="OK", threshold=0.3)
ABSENT = {"scalars": {"gamma_deep_mean": None}}


def test_a_reference_is_of_scale_only_where_the_stream_keeps_it_and_a_gamma_compares_with_it(rich):
    run = run_of(rich)
    assert "so that Γ compares with something of scale" in told(run, OK_REFERENCE)
    for other, findings in ((run, (OK_REFERENCE, EXPLODED)), (changed(run, **ABSENT), (OK_REFERENCE,))):
        text = told(other, *findings)
        assert text.startswith("The reference gradient stands clear of its floor, ‖g_L‖") and "Γ" not in text


def test_the_middle_site_speaks_for_itself_and_others_above_the_limit_are_named(rich):
    run = changed(run_of(rich), sites={"stability": [0.5, 0.4, 0.1, 0.1, 0.1]})
    text = told(run, STEADY)
    assert text.startswith("At the middle site, where this is judged, no direction shared by all batches")
    assert text.endswith("; the mean cosine is above the limit of 0.3 at sites 0, 1 (seed 42) (seed 42).")
    assert "above the limit" not in told(changed(run, sites={"stability": 0.1}), STEADY)
    assert "Γ" not in told(changed(run, **ABSENT), STEADY)
    high = dataclasses.replace(STEADY, outcome="warn", state="HIGH")
    assert "Γ may not be read" in told(run, high) and "Γ" not in told(changed(run, **ABSENT), high)


def test_runs_are_told_apart_only_where_the_words_differ(rich):
    runs = [
        dataclasses.replace(changed(run_of(rich, seed=seed), **change), findings=(OK_REFERENCE,))
        for seed, change in ((42, {}), (123, ABSENT))
    ]
    assert len(list(state_claims(runs))) == 2
    scale = a_finding("D1", "pass", quantity="growth", state="OK")
    assert len(list(state_claims([dataclasses.replace(run, findings=(scale,)) for run in runs]))) == 1
