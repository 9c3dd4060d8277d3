"""Claims of what is measured: Γ, as what it may be read and whether it is the training feedback's own; and the margin over frozen
blocks, decided, undecided or resting on a stated figure."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Reading, Verdict
from fa_registry.reporting.claims import claims
from fa_registry.reporting.claims_depth import depth_claims, is_above_frozen, seeds_needed
from fa_registry.reporting.claims_gamma import count_draws_reaching, gamma_claims
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.pages.notes import note_context
from fa_registry.reporting.report_index import Sources
from fa_registry.statistics import seeds_to_plan, std_factors, t_interval
from tests.reporting.judged_runs import over_seeds
from tests.reporting.report_changes import changed, run_of
from tests.reporting.sample_reports import a_finding


@pytest.fixture
def claims_of_gamma(rich):
    """[(kind, text)] of three seeds of dfa that pass, with a finding in this state about their null."""

    def of(state="", rank=1.0, **changes):
        finding = a_finding(
            "any name",
            "warn",
            quantity="gamma_null_p",
            state=state,
            gating=False,
            observed=Reading(rank),
            threshold=0.05,
        )
        run = dataclasses.replace(
            changed(run_of(rich), **changes), findings=(finding,) if state else (), verdict=Verdict("pass", "PASS")
        )
        return [(claim.kind, claim.text) for claim in gamma_claims(over_seeds([run]))]

    return of


@pytest.mark.parametrize(
    ("ranks", "above"),
    [
        ([0.01, 0.01, 0.01, 0.02, 0.08], [0, 1, 2, 3]),  # .05, .05, .05, .05, .08 adjusted: the level itself is above
        ([0.02, 0.02, 0.02, 0.02, 0.08], []),  # each keeps 5 %, together none
        ([0.05, 0.05, 0.05, 0.05, 0.05], [0, 1, 2, 3, 4]),  # all of them do: none was picked
        ([0.01, 0.04, 0.08, None, None], [0]),
    ],
)
def test_the_sites_that_lie_above_their_null_are_those_that_stand_together(claims_of_gamma, ranks, above):
    state = "NOT SPECIFIC" if max(filter(None, ranks)) > 0.05 else "SPECIFIC"
    ((_, text),) = claims_of_gamma(state, sites={"gamma_null_p": ranks})
    where = {0: "at no site (", 1: "at site 0, not", 4: "at sites 0 to 3, not", 5: "at all 5 tested sites"}
    assert f"of fresh feedback {where[len(above)]}" in text


@pytest.mark.parametrize("verdict", ["fail", "warn"])
@pytest.mark.parametrize("state", ["SPECIFIC", "NOT SPECIFIC"])
@pytest.mark.parametrize("fault", ["EXPLODED", "AT FLOOR", "UNDERCUT", "UNDECIDED", "waived"])
def test_a_gamma_of_a_method_that_lacks_one_of_d1_to_d3_is_never_ticked(rich, fault, state, verdict):
    """No author may quote `✔ Γ is specific` of a method whose blocks do worse than frozen ones."""
    outcome = {"UNDECIDED": "warn", "waived": "waived"}.get(fault, "fail")
    quantity = {"EXPLODED": "growth", "AT FLOOR": "g_norm"}.get(fault, "margin_pp")
    sound = {"growth": "OK", "g_norm": "OK", "margin_pp": "CLEARS"}
    findings = [a_finding("D", "pass", quantity=name, state=word) for name, word in sound.items() if name != quantity]
    findings += [a_finding("D", outcome, quantity=quantity, state=fault)]
    findings += [a_finding("D4", "warn", quantity="gamma_null_p", state=state, threshold=0.05, gating=False)]
    ranks = [0.01, 0.01, 0.01, 0.01, 0.08 if state == "NOT SPECIFIC" else 0.01]
    run = changed(run_of(rich), sites={"gamma_null_p": ranks})
    run = dataclasses.replace(run, findings=tuple(findings), verdict=Verdict(verdict, verdict.upper()))
    about_gamma = list(gamma_claims([run]))
    assert len(about_gamma) == 1 and about_gamma[0].kind in ("not", "open")
    assert "of fresh feedback at" in about_gamma[0].text


@pytest.mark.parametrize(
    ("ranks", "draws", "text"),
    [
        ([1 / 21], 20, "0 of 20 fresh draws reach this Γ"),
        ([2 / 21, 8 / 21], 20, "between 1 and 7 of 20 fresh draws reach this Γ"),
        ([1.0], 20, "20 of 20"),
        ([0.5], None, "the record does not state how many fresh draws reach this Γ"),
    ],
)
def test_a_rank_tells_how_many_draws_reach_it(ranks, draws, text):
    assert count_draws_reaching(ranks, draws).startswith(text)


ABOUT_ALIGNMENT = {"aligned by feedback", "aligned, null unknown", "specific"}
# As measured in float64; as rounding of a half-precision run leaves it; with a site whose gradient is zero.
GAMMAS_OF_BP = ([1.0] * 5, [1.0, 0.999, 0.998, 1.0, 1.0], [1.0, None, 1.0, 1.0, 1.0])


def of_bp(report, row, **spec):
    """The report with every run of bp passing and Γ of these values at its sites."""
    runs = tuple(
        dataclasses.replace(
            changed(run, sites={"gamma": row}, scalars={"gamma_deep_mean": 0.9995}, spec=spec),
            verdict=Verdict("pass", "PASS"),
        )
        if (run.record.spec.method, run.record.spec.control) == ("bp", "none")
        else run
        for run in report.runs
    )
    return dataclasses.replace(report, runs=runs)


@pytest.mark.parametrize("row", GAMMAS_OF_BP, ids=["exact", "rounded", "a site without a gradient"])
@pytest.mark.parametrize("spec", [{}, {"penalty": 0.01}, {"precision": "bf16"}], ids=["bp", "penalised", "bf16"])
def test_a_method_whose_credit_is_the_gradient_is_never_claimed_to_be_aligned(rich, row, spec):
    """Γ = 1 by construction is no evidence of alignment, regardless of rounding."""
    report = of_bp(rich, row, **spec)
    sources = Sources.of(report)
    (form,) = [form_context(group, link, sources) for group, link in sources.forms if group.method[:2] == "bp"]
    notes = [note_context(run, sources) for run in report.runs if run.record.spec.method == "bp"]
    for listed in (form.claims, *(note.claims for note in notes)):
        assert not {claim.key for claim in listed} & ABOUT_ALIGNMENT
        assert not any("Γ compares" in claim.text for claim in listed)
    assert [claim.key for claim in form.claims if claim.topic == "Γ"] == ["gamma not applicable"]


@pytest.mark.parametrize(("reference", "kind"), [("none", "note"), ("bp", "open")])
def test_a_gamma_that_has_no_meaning_for_the_method_is_not_an_open_item(rich, reference, kind):
    run = changed(run_of(rich), scalars={"gamma_deep_mean": Reading(None, "no meaning")})
    (about_gamma,) = [claim for claim in claims([run], card={"gamma_reference": reference}) if claim.topic == "Γ"]
    assert about_gamma.kind == kind and "no meaning" in about_gamma.text


def test_a_control_and_a_ladder_claim_nothing(rich):
    for control in ("frozen", "ladder_2"):
        report = of_bp(rich, GAMMAS_OF_BP[1], control=control)
        for group in groups(report):
            assert not group.control or claims(group.runs) == ()


def test_what_every_site_shows_to_be_the_gradient_is_no_alignment_without_a_card_either(claims_of_gamma):
    ((kind, text),) = claims_of_gamma(sites={"gamma": 1.0})
    assert kind == "note" and "Γ = 1" in text
    assert claims_of_gamma(sites={"gamma": [1.0, 1.0, 1.0, 1.0, 0.99]})[0][0] == "may"
    assert claims_of_gamma(sites={"gamma": 1 - 1e-6})[0][0] == "note"  # from there on
    assert claims_of_gamma(sites={"gamma": 1 - 2e-6})[0][0] == "may"


def margin(values, limit=2.0, **changes):
    """The finding of a rule over seeds with these margins, in percentage points."""
    interval = t_interval(values)
    return a_finding(
        "D3",
        quantity="margin_pp",
        observed=Reading(sum(values) / len(values)),
        interval=(interval.low, interval.high),
        seeds=len(values),
        threshold=limit,
        **changes,
    )


@pytest.fixture
def claims_of_depth(report):
    """The claims on two seeds that share a finding."""

    def of(finding):
        runs = [dataclasses.replace(run, findings=(finding,)) for run in report.runs[:2]]
        return list(depth_claims(runs))

    return of


@pytest.mark.parametrize("values", [[1.0, 4.0, 5.5], [0.0, 9.0], [-8.0, 1.0, 6.0, 3.0]])
def test_the_study_named_is_one_of_this_mean_and_spread(values):
    """For every level of the interval from which the spread is computed."""
    finding = margin(values)
    low, high = (factor * statistics.stdev(values) for factor in std_factors(len(values)))
    planned = tuple(seeds_to_plan(abs(statistics.mean(values) - 2), spread) for spread in (low, high))
    wide = t_interval(values, 0.975)
    second = dataclasses.replace(finding, interval=(wide.low, wide.high), confidence=0.975, look=2)
    assert seeds_needed(finding) == seeds_needed(second) == planned
    assert planned[0] > 1 and (planned[1] is None or planned[1] > len(values))


@pytest.mark.parametrize(
    "change", [{"interval": None}, {"threshold": None}, {"observed": Reading(None, "x")}, {"seeds": 1}]
)
def test_without_a_figure_no_number_of_seeds_is_named(change):
    assert seeds_needed(dataclasses.replace(margin([1.0, 4.0, 5.5]), **change)) == (None, None)


def test_no_number_of_seeds_removes_the_error_of_the_test_set():
    """Three values with a mean 1.5 above the limit, whose error is the test set's."""
    finding = dataclasses.replace(margin([3.4, 3.5, 3.6]), interval=(-1.5, 8.5), df=500.0, error_shares=(0.0, 0.98))
    assert seeds_needed(finding) == (None, None)
    more = dataclasses.replace(finding, interval=(2.6, 4.4))
    assert all(count and count < 10 for count in seeds_needed(more))


@pytest.mark.parametrize("ends", [(-1.0, 0.0), (0.0, 1.0)])
def test_an_interval_that_ends_at_0_shows_neither_better_nor_worse(claims_of_depth, ends):
    """An end belongs to the interval: no difference is among what it holds."""
    finding = dataclasses.replace(margin([-1.0, 0.0, 1.0], state="UNDERCUT"), interval=ends)
    (claim,) = claims_of_depth(finding)
    assert claim.key == "undercut" and "not shown" in claim.text
    (claim,) = claims_of_depth(dataclasses.replace(finding, outcome="pass", state="CLEARS", threshold=-15.0))
    assert (claim.key, claim.kind) == ("within limit", "note") and "not shown" in claim.text


@pytest.mark.parametrize("state", ["UNDERCUT", "UNDECIDED"])
def test_every_claim_about_a_stated_figure_says_so_and_no_other_does(claims_of_depth, state):
    outcome = "fail" if state == "UNDERCUT" else "warn"
    (stated,) = claims_of_depth(margin([1.0, 4.0, 5.5], outcome=outcome, state=state, stated=True))
    (measured,) = claims_of_depth(margin([1.0, 4.0, 5.5], outcome=outcome, state=state))
    assert "stated by the author" in stated.text and "stated" not in measured.text


@pytest.mark.parametrize(("threshold", "above"), [(None, False), (0.0, False), (2.0, True)])
def test_a_rule_without_an_interval_asks_for_more_than_frozen_blocks_by_a_limit_above_0_alone(rich, threshold, above):
    judged = a_finding("D3", "pass", quantity="margin_pp", state="CLEARS", threshold=threshold)
    assert is_above_frozen(dataclasses.replace(run_of(rich), findings=(judged,))) == above


@pytest.mark.parametrize(
    ("ends", "above"), [((0.1, 2.0), True), ((0.0, 2.0), False), ((-0.1, 2.0), False), ((-2.0, -1.0), False)]
)
def test_a_rule_over_seeds_asks_for_more_than_frozen_blocks_where_its_whole_interval_lies_above_0(rich, ends, above):
    judged = a_finding("D3", "pass", quantity="margin_pp", state="CLEARS", threshold=-15.0, interval=ends)
    assert is_above_frozen(dataclasses.replace(run_of(rich), findings=(judged,))) == above
    unknown = dataclasses.replace(judged, outcome="not_applicable", interval=None, threshold=2.0)
    assert not is_above_frozen(dataclasses.replace(run_of(rich), findings=(unknown,)))
    depth = a_finding("d", "pass", quantity="accuracy", state="CLEARS", threshold=2.0)
    assert is_above_frozen(dataclasses.replace(run_of(rich), findings=(depth, judged))) == above


@pytest.mark.parametrize("state", ["", "SPECIFIC", "NOT SPECIFIC"])
def test_without_a_sentence_on_fresh_feedback_a_claim_has_no_empty_sentence(claims_of_gamma, monkeypatch, state):
    monkeypatch.setattr("fa_registry.reporting.claims_gamma._null_text", lambda *_: "")
    texts = [text for _, text in claims_of_gamma(state, sites={"gamma_null_p": [0.08] * 5})]
    assert texts and not any(". ." in text or ".." in text for text in texts)
