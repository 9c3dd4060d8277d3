"""Claims follow from findings: one test a rule, fires and does not."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.evidence_rules import METHOD
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.rule_evaluation import UNDECIDED
from fa_registry.protocol.rules import Edition, Rule, load_edition, shipped
from fa_registry.records import AuditReport, Reading, RunAudit, Verdict
from fa_registry.reporting.claims import claims, gamma_answer, state_claims
from fa_registry.reporting.claims_reference import KEYS, reference_claims
from tests.reporting.judged_runs import SOUND, a_run, depth, null, over_seeds
from tests.reporting.report_changes import changed, run_of
from tests.reporting.runs import SEEDS, THREE_SEEDS, full, make_record
from tests.reporting.sample_reports import a_finding, make_report

HEALTHY = {"accuracy": 0.9, "scale": 3.0, "gradient": 0.1, "gamma": 0.2}


@pytest.fixture
def statements(record, judged):
    """The claims of one dfa run, as one text; frozen accuracy .80."""

    def claim_text(status="complete", frozen=True, **changes):
        run = dataclasses.replace(record("dfa", 42, **{**HEALTHY, **changes}), status=status)
        control = [record("bp", 42, 0.80, 1.0, 0.4, 0.0, control="frozen")] if frozen else []
        return " ".join(f"{claim.kind}: {claim.text}" for claim in claims(judged([run, *control]).runs[:1]))

    return claim_text


def test_an_unchecked_method_has_one_claim_and_it_comes_after_the_labelled_claims():
    unchecked = a_finding(METHOD, "warn", quantity=METHOD, state="UNCHECKED", observed=Reading(None, "own loop"))
    found = claims([a_run(CLEARS, unchecked, verdict="warn")])
    assert [claim.key for claim in found if "own loop" in claim.text] == ["method not measured"]
    assert "other warns" not in [claim.key for claim in found]
    topics = [bool(claim.topic) for claim in found if claim.kind != "note"]
    assert topics == sorted(topics, reverse=True)


def test_a_claim_about_some_of_the_judged_seeds_names_them():
    under = depth("UNDERCUT", "fail", -3.0, (-4.0, -2.0), seeds=3)
    runs = [a_run(under, seed=seed, verdict="fail") for seed in (1, 2, 3)]
    assert not any("seeds: " in claim.text for claim in claims(runs))
    broken = changed(runs[2], integrity="mismatch")
    found = {claim.key: claim.text for claim in claims([*runs[:2], broken])}
    assert found["undercut"].endswith("seeds: 1, 2).")
    assert found["differs from its seal"].endswith("of 3 seeds: 3).")


def test_without_the_evidence_no_gamma_is_specific():
    unverified = a_finding("metrics", "warn", quantity="metrics", observed=Reading(None, "why"), state="NOT RECOMPUTED")
    sound = a_run(*SOUND, null("SPECIFIC", "pass"), verdict="warn")
    seeds = over_seeds([sound])
    assert (gamma_answer(seeds, {}), gamma_answer(seeds[:2], {})) == ("may", "open")
    doubted = dataclasses.replace(sound, findings=(*sound.findings, unverified))
    assert gamma_answer([doubted, *seeds[1:]], {}) == "open"
    assert gamma_answer([changed(sound, integrity="mismatch")], {}) == "not"


def test_one_run_of_several_seeds_says_nothing_of_one_seed(report):
    assert not any("only one seed" in claim.text for claim in claims(report.runs[:1], has_all_runs=False))


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
ABOUT = (
    "feedback used in training",
    "frozen random blocks|trained blocks|training of the blocks",
    "interpreted as (credit )?alignment",
    "stream|scale",
)


@pytest.mark.parametrize("ranks", [[0.048] * 5, [0.048] * 4 + [0.095], [None] * 5])
@pytest.mark.parametrize("edition", ["2026-04", "2026-05", "2026-12"])
def test_no_method_may_claim_what_a_seed_of_it_has_to_walk_back(report, rich, edition, ranks):
    """In every audit, and in one where all passes but the null of one seed's Γ, or one seed's stream: one answer a subject."""
    null = tuple(Reading(rank, "" if rank else "learned") for rank in ranks)
    healthy = [full(make_record("dfa", seed, 0.97, 3.0, 0.1, 0.2)) for seed in SEEDS]
    mixed = [changed_row(healthy[0], "gamma_null_p", null), *healthy[1:]]
    exploded = [full(make_record("dfa", SEEDS[0], 0.5, 5e8, 1e-9, 0.2)), *healthy[1:]]
    frozen = [full(make_record("bp", seed, 0.80, 1.02, 0.4, 0.0, control="frozen")) for seed in SEEDS]
    audits = [make_report([*runs, *frozen], edition) for runs in (mixed, exploded)]
    for audit in (report, rich, *audits):
        for group in groups(audit):
            statements = claims(group.runs)
            for about in ABOUT:
                kinds = {one.kind for one in statements if re.search(about, one.text)}
                assert not {"may", "not"} <= kinds, (group.method, about, statements)


def test_what_weighs_most_stands_first_and_a_pass_begins_with_the_pass(rich):
    """A form is read from its top: first what voids the rest or the pass, then what is taken back, last how to read figures."""
    for group in groups(rich):
        keys = [claim.key for claim in claims(group.runs)]
        assert keys == sorted(keys, key=list(KEYS).index)
    dfa = [run for run in rich.runs if run.record.spec.method == "dfa" and run.record.spec.control == "none"]
    passing = [dataclasses.replace(run, findings=(CLEARS,), verdict=Verdict("pass", "PASS")) for run in dfa]
    assert claims(passing)[0].key == "trained depth"
    failing = [dataclasses.replace(run, verdict=Verdict("fail", "FAIL(D1+D3)")) for run in dfa]
    assert claims(failing)[0].kind == "not" and not any(claim.kind == "may" for claim in claims(failing))


def test_a_tick_is_about_the_method_and_no_choice_among_its_seeds(rich_of_three):
    """What two of three seeds earn, the method does not."""
    bp = [run for run in rich_of_three.runs if run.record.spec.method == "bp" and run.record.spec.control == "none"]
    for seeds in (bp, [*bp, dataclasses.replace(bp[0], verdict=Verdict("warn", "WARN"))]):
        ticks = {claim.key for claim in claims(seeds) if claim.kind == "may"}
        assert ("trained depth" in ticks) == (seeds is bp)


def changed_row(record, name, row):
    sites = {**record.measurements.sites, name: row}
    return dataclasses.replace(record, measurements=dataclasses.replace(record.measurements, sites=sites))


def test_what_a_verdict_does_not_look_at_makes_no_protocol_incomplete(rich):
    run = next(run for run in rich.runs if run.verdict.outcome == "incomplete")
    reported = a_finding("D4", "not_applicable", gating=False, sentence="D4 has no null")
    (claim,) = [
        claim
        for claim in claims([dataclasses.replace(run, findings=(*run.findings, reported))])
        if "could not be completed" in claim.text
    ]
    assert "the diagnostic crashed" in claim.text and "D4 has no null" not in claim.text


def states_of(rule: Rule) -> list[tuple[str, str]]:
    """(state, outcome) of everything a rule can report about a run."""
    known = [(rule.fired, rule.outcome), (rule.clear, "pass")]
    known += [(also.clear, "pass") for also in rule.also]
    if rule.judge == "seeds_margin":
        known += [(UNDECIDED, "warn")]
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
        observed=Reading(
            3.0 if seeds or rule.threshold is None else rule.threshold
        ),  # a limit belongs to both of its sides
        threshold=rule.threshold,
        state=state,
        gating=rule.gating,
        interval=(1.0, 5.0) if seeds else None,
        seeds=3 if seeds else 1,
    )


@pytest.mark.parametrize(("rule", "state", "outcome"), EVERY)
def test_every_state_of_every_shipped_edition_ends_in_text(rich, rule, state, outcome):
    dfa = next(run for run in rich.runs if run.record.spec.method == "dfa")
    bare = dataclasses.replace(dfa, findings=(), verdict=dataclasses.replace(dfa.verdict, outcome="warn"))
    silent = {claim.text for claim in claims(over_seeds([bare]))}
    judged = over_seeds([dataclasses.replace(bare, findings=(as_found(rule, state, outcome),))])
    statements = [claim for claim in claims(judged) if claim.text not in silent]
    assert statements and all(set(claim.run_ids) == {dfa.record.run_id} for claim in statements)
    assert (outcome == "fail") <= any(claim.kind == "not" for claim in statements)
    # a Γ that is specific is no evidence without D1 to D3, which this run lacks
    kinds = {claim.kind for claim in statements if claim.key != "no evidence"}
    assert (outcome == "pass") <= (kinds <= {"may", "note"})
    general = ("is there (", "must not be claimed (", "support no conclusion")
    assert not any(text in statements[0].text for text in general), f"no sentence for {state!r} of {rule.quantity}"


@pytest.mark.parametrize(("outcome", "kind"), [("fail", "not"), ("warn", "open"), ("pass", "note")])
def test_the_wording_of_a_users_edition_is_passed_on(rich, outcome, kind):
    run = dataclasses.replace(rich.runs[0], findings=(a_finding("Z", outcome, quantity="rho", state="ODD"),))
    (claim,) = state_claims([run])
    assert claim.kind == kind and "(ODD)" in claim.text and "Z: required, observed" in claim.text


def test_a_limit_of_the_gain_says_nothing_of_the_gradients_floor(rich):
    """They have one subject, and a user's edition may call both clear in the same word."""
    run = dataclasses.replace(rich.runs[0], findings=(a_finding("D5", "pass", quantity="gain", state="OK"),))
    (claim,) = state_claims([run])
    assert "The requirement of D5" in claim.text and "floor" not in claim.text


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        ("growth", 51.0, "keeps its scale"),
        ("stability_mid", 51.0, "do not share one direction"),
        ("g_norm", 49.0, "times its floor|well above its floor"),
    ],
)
def test_a_word_that_an_edition_uses_on_the_other_side_of_its_limit_is_stated_in_general(rich, quantity, value, text):
    """A limit below which a rule fires may clear as OK too, where OK above one is our own word."""

    def statements(observed):
        found = a_finding("D6", "pass", quantity=quantity, state="OK", threshold=50.0, observed=Reading(observed))
        (claim,) = state_claims([dataclasses.replace(rich.runs[0], findings=(found,))])
        return claim.text

    assert "The requirement of D6" in statements(value) and not re.search(text, statements(value))
    assert re.search(text, statements(50.0)) and "The requirement of D6" not in statements(50.0)


def test_seeds_on_both_sides_of_a_limit_are_distinguished(rich):
    """A further condition may clear in the same word what is beyond the leading one."""
    found = [a_finding("D1", "pass", state="OK", threshold=50.0, observed=Reading(value)) for value in (10.0, 200.0)]
    runs = [dataclasses.replace(run, findings=(one,)) for run, one in zip(rich.runs, found, strict=False)]
    for order in (runs, runs[::-1]):
        general, keeps = sorted((claim.text, claim.run_ids) for claim in state_claims(order))
        assert "keeps its scale" in keeps[0] and keeps[1] == (runs[0].record.run_id,)
        assert "The requirement of D1" in general[0] and general[1] == (runs[1].record.run_id,)


@pytest.mark.parametrize("outcome", ["waived", "skipped", "not_applicable", "error"])
def test_what_other_claims_state_is_not_stated_twice(rich, outcome):
    run = dataclasses.replace(rich.runs[0], findings=(a_finding("D1", outcome, state="OK"),))
    assert list(state_claims([run])) == []


def with_other_wording(edition: Edition) -> Edition:
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
    return {
        (claim.key, claim.run_ids) for group in groups(report) for claim in claims(group.runs) if claim.kind == "not"
    }


@pytest.mark.parametrize("name", shipped())
def test_a_copied_edition_with_other_wording_walks_back_what_the_edition_does(name):
    """Otherwise an author who renames a word of a copy publishes what the edition takes back."""
    edition = load_edition(name)
    whole, shared = {"gain": [0.3] * 5}, {"stability_mid": 0.6, "gamma_centred_mid": 0.01}
    records = [
        record
        for seed in THREE_SEEDS
        for record in (
            full(make_record("bp", seed, 0.80, 1.02, 0.4, 0.0, control="frozen"), **whole),
            full(make_record("fa", seed, 0.70, 5e8, 1e-5, 0.25), gain=[1e-5] * 5),
            full(make_record("drtp", seed, 0.84, 3.0, 1e-6, 0.1), fidelity=[0.4] * 5, **whole),
            full(make_record("dfa", seed, 0.95, 3.0, 0.1, 0.2), shared, gamma_null_p=[0.5] * 5, **whole),
            full(make_record("ep", seed, 0.95, 3.0, 0.1, 0.2), gamma=[0.9, 0.01, 0.01, 0.01, 0.01], **whole),
        )
    ]
    expected = walked_back(records, edition)
    assert walked_back(records, with_other_wording(edition)) == expected
    newest_alone = {"at floor", "noisy", "stability high", "not specific", "carried by one end"}
    assert name != "2026-12" or newest_alone <= {key for key, _ in expected}


OK_REFERENCE = a_finding("D2", "pass", quantity="g_norm", state="OK", threshold=0.01)
EXPLODED = a_finding("D1", "fail", quantity="growth", state="EXPLODED")
CLEARS = a_finding("D3", "pass", quantity="accuracy", state="CLEARS", threshold=2.0)
ABSENT = {"scalars": {"gamma_deep_mean": None}}


def test_runs_are_distinguished_only_where_the_text_differs(rich):
    runs = [
        dataclasses.replace(changed(run_of(rich, seed=seed), **change), findings=(OK_REFERENCE,))
        for seed, change in ((42, {}), (123, ABSENT))
    ]
    assert len(list(state_claims(runs))) == 2
    scale = a_finding("D1", "pass", quantity="growth", state="OK")
    assert len(list(state_claims([dataclasses.replace(run, findings=(scale,)) for run in runs]))) == 1


def runs_of(report, method) -> list[RunAudit]:
    return [run for run in report.runs if run.record.spec.method == method and run.record.spec.control == "none"]


def kinds(runs) -> list[str]:
    return [claim.kind for claim in reference_claims(runs)]


def text(runs) -> str:
    return " ".join(claim.text for claim in reference_claims(runs))


def test_a_claim_about_an_exploded_stream_without_a_gamma_speaks_of_none(rich):
    exact = [changed(run, scalars={"gamma_deep_mean": Reading(None, "exact")}) for run in runs_of(rich, "fa")]
    back, note = reference_claims(exact)
    assert "Γ" not in back.text and "Γ of this report" not in note.text


@pytest.mark.parametrize("state", ["OK", "ODD", ""])
@pytest.mark.parametrize("quantity", ["growth", "g_norm"])
def test_any_other_state_says_nothing(rich, quantity, state):
    run = dataclasses.replace(runs_of(rich, "fa")[0], findings=(a_finding("D1", quantity=quantity, state=state),))
    assert kinds([run]) == []


def test_a_state_of_another_quantity_says_nothing(rich):
    run = dataclasses.replace(
        runs_of(rich, "fa")[0], findings=(a_finding("D1", quantity="accuracy", state="EXPLODED"),)
    )
    assert kinds([run]) == []


def test_seeds_without_ranks_are_parted_by_what_was_found_of_them(rich_of_three):
    """Neither has sites that distinguish them, yet one is specific to its feedback and the other is not."""
    seeds = runs_of(rich_of_three, "dfa")
    found = [a_finding("D4", quantity="gamma_null_p", state=state) for state in ("SPECIFIC", "NOT SPECIFIC")]
    unranked = [
        dataclasses.replace(
            changed(run, sites={"gamma_null_p": []}), findings=(finding,), verdict=Verdict("warn", "WARN")
        )
        for run, finding in zip(seeds, [*found, found[1]], strict=True)
    ]
    (claim,) = [claim for claim in claims(unranked) if claim.key == "not specific"]
    assert "in seed 42;" in claim.text and claim.text.endswith("in seeds 123, 456.")
