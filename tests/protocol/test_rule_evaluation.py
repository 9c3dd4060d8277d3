"""The sentences and figures of findings, alone and over seeds."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry.metrics import symbol_of
from fa_registry.protocol.engine import judge, judge_all
from fa_registry.protocol.grouping import seeds_key
from fa_registry.protocol.rule_evaluation import decide, fires_now, first_fire, required
from fa_registry.protocol.rules import load_edition
from fa_registry.records import NOT_DUE, Flag, Reading, Series
from tests.builders import frozen, measurements, over_seeds, reading, record, series
from tests.protocol.test_paired_runs import given, sized

PUBLISHED, OURS = load_edition("2026-05"), load_edition("2026-12")
CONTROLS = {1: 0.80, 2: 0.80, 3: 0.80}


def depth(accuracies, controls=CONTROLS):
    """D3 of the first run."""
    return judge_all(over_seeds(accuracies, controls), OURS)[0].findings[2]


def test_a_finding_names_site_run_reference_and_both_numbers():
    audit = judge(record("run1", measurements(growth=60.0, accuracy=0.4)), frozen("control1"), PUBLISHED)
    d1, _, d3 = audit.findings
    assert (d1.site, d1.observed, d1.run_id) == (2, Reading(60.0), "run1")
    assert d3.reference_run_id == audit.frozen_run_id == "control1"
    assert "(-10.00 pp)" in d3.sentence


@pytest.mark.parametrize(
    ("figures", "rule", "crossed", "guard"),
    [
        ({"growth": 60.0}, 0, "above", None),
        ({"growth": 40.0}, 0, "", None),
        ({"g_norm": 1e-6, "gain": 1e-4}, 1, "below", None),
        ({"g_norm": 1e-6, "gain": 0.29}, 1, "", None),  # the further condition does not hold: it does not fire
        ({"g_norm": 1e-6, "gain": 1e-4, "fidelity": 0.5}, 1, "", ("fidelity", "below", Reading(0.5))),
        ({"stability": 0.6, "gamma_centred_mid": 0.0}, 4, "above", None),
    ],
)
def test_a_finding_says_which_limit_was_crossed_and_what_its_guard_saw(figures, rule, crossed, guard):
    finding = judge(record(measured=measurements(**figures)), None, OURS).findings[rule]
    seen = finding.guard and (finding.guard.quantity, finding.guard.crossed, finding.guard.observed)
    assert (finding.crossed, seen) == (crossed, guard)
    assert finding.required == f"{finding.limit} ({OURS.rules[rule].unit})"
    assert finding.quantities == tuple(condition.quantity for condition in OURS.rules[rule].conditions)


def test_a_compound_finding_gives_every_figure():
    figures = dict(g_norm=128e-8, gain=0.29, fidelity=0.999999)
    d2 = judge(record(measured=measurements(**figures)), None, OURS).findings[1]
    assert (d2.observed, d2.threshold, d2.site) == (Reading(1e-8), 1e-7, 2)


def test_exactly_two_points_above_frozen_clears_although_binary_fractions_say_less():
    assert 0.82 - 0.80 < 0.02  # the trap
    audit = judge(record(measured=measurements(accuracy=0.82)), frozen(accuracy=0.80), PUBLISHED)
    assert audit.findings[2].outcome == "pass"


@pytest.mark.parametrize("edition", [PUBLISHED, load_edition("2026-04"), OURS], ids=lambda edition: edition.name)
def test_a_frozen_accuracy_given_by_hand_is_used_and_labelled_so(edition):
    run = given(record(measured=measurements(accuracy=0.9)), Reading(0.5))
    finding = next(finding for finding in judge(run, None, edition).findings if finding.rule in ("D3", "d"))
    assert (finding.outcome, finding.state) == ("warn", "UNDECIDED" if edition is OURS else "STATED")
    assert (finding.reference_run_id, finding.stated) == ("", True)
    with_frozen = judge(run, frozen(), edition).findings
    assert "stated" not in with_frozen[2].sentence and not any(one.stated for one in with_frozen)


@pytest.mark.parametrize("edition", [PUBLISHED, load_edition("2026-04"), OURS], ids=lambda edition: edition.name)
@pytest.mark.parametrize("stated", [(0.5,) * 3, (0.50, 0.52, 0.48)], ids=["one number", "three numbers"])
def test_nothing_passes_against_a_stated_figure(edition, stated):
    runs = over_seeds({1: 0.90, 2: 0.91, 3: 0.89}, {})
    audits = judge_all([given(run, Reading(one)) for run, one in zip(runs, stated, strict=True)], edition)
    state = "UNDECIDED" if edition is OURS else "STATED"
    for audit in audits:
        finding = next(finding for finding in audit.findings if finding.rule in ("D3", "d"))
        assert (finding.outcome, finding.state, finding.stated) == ("warn", state, True)
        assert finding.undecided == (("control unproven",) if edition is OURS else ())
        assert audit.verdict.flags == (Flag(finding.rule, state.lower(), "above" if edition is OURS else ""),)


@pytest.mark.parametrize("edition", [PUBLISHED, load_edition("2026-04")], ids=lambda edition: edition.name)
def test_what_fails_against_a_stated_figure_fails(edition):
    runs = [given(run, Reading(0.95)) for run in over_seeds({1: 0.90, 2: 0.91, 3: 0.89}, {})]
    for audit in judge_all(runs, edition):
        finding = next(finding for finding in audit.findings if finding.rule in ("D3", "d"))
        assert (finding.outcome, finding.state, finding.stated) == ("fail", "UNDERCUT", True)
        assert "stated by the author" in finding.sentence


def test_one_stated_figure_in_the_group_keeps_every_seed_from_passing():
    runs = over_seeds({1: 0.90, 2: 0.91, 3: 0.89}, {1: 0.5, 2: 0.51})
    runs[2] = given(runs[2], Reading(0.5))
    audits = [audit for audit in judge_all(runs, OURS) if audit.record.spec.control == "none"]
    assert {(audit.findings[2].undecided, audit.findings[2].stated) for audit in audits} == {
        (("control unproven",), True)
    }
    assert [audit.findings[2].reference_run_id for audit in audits] == ["f1", "f2", ""]


@pytest.mark.parametrize("edition", [PUBLISHED, load_edition("2026-04"), OURS], ids=lambda edition: edition.name)
@pytest.mark.parametrize(("accuracy", "right"), [(115 / 128, False), (324 / 360, True)], ids=["eval batch", "test set"])
def test_an_accuracy_of_another_set_than_the_test_set_passes_nothing(edition, accuracy, right):
    """115 of 128 samples of the eval batch are no whole number of 360 test samples."""
    runs = over_seeds({1: 0.9, 2: accuracy, 3: 0.9}, {1: 0.5, 2: 0.5, 3: 0.5})
    runs[1] = sized(runs[1], 360)
    audit = judge_all(runs, edition)[1]
    finding = next(finding for finding in audit.findings if finding.rule in ("D3", "d"))
    assert (finding.outcome, finding.state == "OTHER SET") == (("pass", False) if right else ("warn", True))
    assert ("360 test samples" in finding.sentence) is not right
    assert audit.verdict.outcome == ("pass" if right else "warn")
    assert right or audit.verdict.label == f"WARN({finding.rule} other set)"
    low = judge_all([*runs[:3], *over_seeds({}, {1: 0.99, 2: 0.99, 3: 0.99})], edition)[1]
    assert low.verdict.outcome == "fail"


def test_a_control_is_not_judged_against_itself():
    for edition in (PUBLISHED, OURS):
        audit = judge(frozen(), frozen(), edition)
        assert [finding.outcome for finding in audit.findings[:3]] == ["pass", "pass", "skipped"]


@pytest.mark.parametrize(
    ("accuracies", "outcome", "state", "flag"),
    [
        ({1: 0.90, 2: 0.91, 3: 0.89}, "pass", "CLEARS", "PASS"),
        ({1: 0.80, 2: 0.81, 3: 0.79}, "warn", "UNDECIDED", "WARN(D3 undecided, below)"),  # low, but so is its certainty
        ({1: 0.801, 2: 0.802, 3: 0.800}, "fail", "UNDERCUT", "FAIL(D3)"),
        ({1: 0.82, 2: 0.83, 3: 0.84}, "warn", "UNDECIDED", "WARN(D3 undecided, above)"),
        ({1: 0.99}, "warn", "UNDECIDED", "WARN(D3 undecided, above)"),
        ({1: 0.10}, "warn", "UNDECIDED", "WARN(D3 undecided, below)"),
    ],
)
def test_depth_utility_over_seeds(accuracies, outcome, state, flag):
    audits = judge_all(over_seeds(accuracies, CONTROLS), OURS)[: len(accuracies)]
    for audit in audits:
        finding = audit.findings[2]
        assert (finding.outcome, finding.state, audit.verdict.label) == (outcome, state, flag)
        assert (finding.seeds, finding.threshold, finding.quantity) == (len(accuracies), 2.0, "margin_pp")
        assert finding.crossed == ("below_reference_plus" if state == "UNDERCUT" else "")
        assert (finding.interval is None) == (len(accuracies) == 1)


def test_the_interval_has_to_lie_wholly_on_one_side():
    runs = over_seeds({1: 0.90, 2: 0.91, 3: 0.89}, CONTROLS)
    low, high = judge_all(runs, OURS)[0].findings[2].interval
    for threshold, state in (
        (low, "CLEARS"),
        (low + 1e-6, "UNDECIDED"),
        (high, "UNDECIDED"),
        (high + 1e-6, "UNDERCUT"),
    ):
        finding = judge_all(runs, load_edition("2026-12", {"D3": threshold}))[0].findings[2]
        assert (finding.state, finding.interval) == (state, (low, high))
        assert finding.undecided == (("margin at the limit",) if state == "UNDECIDED" else ())
        assert finding.side == {low + 1e-6: "above", high: "below"}.get(threshold, "")


def test_every_run_of_a_group_carries_the_same_finding_under_its_own_names():
    audits = judge_all(over_seeds({1: 0.90, 2: 0.93, 3: 0.88}, CONTROLS), OURS)[:3]
    findings = [audit.findings[2] for audit in audits]
    assert [finding.run_id for finding in findings] == ["r1", "r2", "r3"]
    assert [finding.reference_run_id for finding in findings] == ["f1", "f2", "f3"]
    assert len({dataclasses.replace(finding, run_id="", reference_run_id="") for finding in findings}) == 1
    low, high = findings[0].interval
    assert f"{low:+.2f} to {high:+.2f} pp" in findings[0].sentence


@pytest.mark.parametrize("margin", [-0.7, 0.19, 0.02])
@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_seeds_decide_nothing(count, margin):
    """Also not if they are equal, and far from the limit."""
    finding = depth({seed: 0.80 + margin for seed in range(1, count + 1)})
    assert (finding.outcome, finding.state, finding.undecided[0]) == ("warn", "UNDECIDED", "too few seeds")
    assert finding.seeds == count and finding.observed.value == pytest.approx(100 * margin)
    alone = judge(over_seeds({1: 0.9}, {})[0], frozen(accuracy=0.8, seed=1), OURS)
    assert (alone.findings[2].state, alone.verdict.label) == ("UNDECIDED", "WARN(D3 undecided, above)")


@pytest.mark.parametrize("others", [0.90, 0.70])
def test_seeds_without_a_control_are_left_out_and_reported(others):
    """A selection of the seeds decides nothing, for the method or against it."""
    accuracies = {1: others, 2: others + 0.01, 3: others, 4: 0.10}
    finding = depth(accuracies, {1: 0.80, 2: 0.80, 3: 0.80})
    assert (finding.outcome, finding.undecided, finding.seeds) == ("warn", ("seeds left out",), 3)
    assert "seed 4" in finding.sentence


def test_a_run_without_its_own_control_does_not_pass_on_the_margins_of_the_others():
    audits = judge_all(over_seeds({1: 0.90, 2: 0.91, 3: 0.10}, {1: 0.80, 2: 0.80}), OURS)
    by_seed = {audit.record.spec.seed: audit for audit in audits if audit.record.spec.control == "none"}
    assert [by_seed[seed].findings[2].outcome for seed in (1, 2, 3)] == ["warn", "warn", "not_applicable"]
    assert by_seed[3].verdict.outcome == "incomplete"


def test_without_any_control_nothing_can_be_decided():
    audit = judge_all(over_seeds({1: 0.90, 2: 0.91}, {}), OURS)[0]
    assert (audit.findings[2].outcome, audit.verdict.label) == ("not_applicable", "INCOMPLETE")
    assert audit.findings[2].observed.reason.startswith("seed 1")


def test_other_methods_settings_and_adopted_runs_are_no_further_seeds():
    others = [
        record("penalty", seed=2, penalty=0.1),
        record("method", seed=2, method="fa"),
        record("options", seed=2, method_options={"std": 1.0}),
        record("epochs", seed=2, epochs=9),
        record("adopted", seed=2, weights="ab" * 32),
    ]
    audits = judge_all([*over_seeds({1: 0.9}, CONTROLS), *others], OURS)
    assert {audit.findings[2].seeds for audit in audits if audit.record.spec.control == "none"} == {1, 0}
    assert audits[0].findings[2].state == "UNDECIDED"


def test_a_further_look_is_judged_at_a_higher_level_and_says_so():
    """The limit is between the lower ends of the first two intervals."""
    runs = over_seeds({1: 0.8245, 2: 0.8285, 3: 0.8345}, CONTROLS)
    key = seeds_key(runs[0].spec)

    def judged(edition):
        return [judge_all(runs, edition, interim_analyses={key: look})[0].findings[2] for look in (1, 2, 3)]

    limit = sum(finding.interval[0] for finding in judged(OURS)[:2]) / 2
    edition = load_edition("2026-12", {"D3": limit})
    first, second, third = judged(edition)
    assert (first.state, first.confidence, first.look) == ("CLEARS", 0.95, 1)
    assert (second.state, second.confidence, second.look) == ("UNDECIDED", 0.975, 2)
    assert third.interval[0] < second.interval[0] < first.interval[0]
    assert "97.5 %" in second.required and "97.5 %" in second.sentence
    assert " 95 %" in first.required and "interim" not in first.sentence
    assert judge_all(runs, edition, interim_analyses={"another group": 2})[0].findings[2] == first


def test_one_seed_has_no_level_and_a_limit_knows_the_limits_of_its_further_conditions():
    findings = judge(record(measured=measurements(accuracy=0.9)), frozen(), OURS).findings
    assert findings[2].confidence is None and findings[2].look == 1
    assert [(one.quantity, one.threshold) for one in findings[1].further] == [
        ("gain", 0.01),
        ("fidelity", 0.99),
        ("fidelity_batch", 0.99),
    ] and [one.quantity for one in findings[0].further] == ["growth_init"]


D2 = load_edition("2026-12").rules[1]
SMALL, LARGE = 1e-8, 1.0


@pytest.mark.parametrize(
    ("g_norm", "gain", "fidelity", "outcome", "state"),
    [
        (LARGE, 0.5, 1.0, "pass", "OK"),
        (LARGE, None, 1.0, "pass", "OK"),  # what distinguishes a small reference is not needed for one that is not
        (LARGE, 0.5, None, "not_applicable", ""),  # it may be noise: nothing clears it
        (LARGE, 1e-9, 1.0, "pass", "OK"),
        (LARGE, 0.5, 0.98, "warn", "NOISY"),  # the guard speaks first
        (SMALL, 0.5, 1.0, "pass", "CONVERGED"),
        (SMALL, 1e-5, 1.0, "fail", "AT FLOOR"),
        (SMALL, 1e-5, 0.98, "warn", "NOISY"),
        (SMALL, 1e-5, None, "not_applicable", ""),  # nor condemns it
        (SMALL, 0.5, None, "not_applicable", ""),
        (SMALL, None, 1.0, "not_applicable", ""),
        (None, 1e-5, 0.98, "not_applicable", ""),
        (0.0, 0.0, None, "not_applicable", ""),  # exactly zero is no small reference: nothing reaches the site
    ],
)
def test_small_reference_gain_and_fidelity(g_norm, gain, fidelity, outcome, state):
    decision = decide(D2, [reading(g_norm), reading(gain), reading(fidelity)])
    assert (decision.outcome, decision.state) == (outcome, state)
    assert decision.fires == {"fail": True, "not_applicable": None}.get(outcome, False)
    assert bool(decision.reason) == (decision.fires is None)


@pytest.mark.parametrize(
    ("g_norm", "gain", "kinds", "fires"),
    [
        (LARGE, 1e-9, (NOT_DUE,), False),  # it does not fire, whatever the guard says
        (SMALL, 0.5, (NOT_DUE,), False),
        (SMALL, 1e-5, (NOT_DUE,), None),
        (SMALL, None, (NOT_DUE,), None),
        (None, 1e-5, (NOT_DUE,), None),
        (LARGE, 1e-9, ("",), None),  # a guard that is missing for another reason
        (LARGE, 1e-9, (NOT_DUE, ""), None),
        (LARGE, 1e-9, (NOT_DUE, NOT_DUE), False),
    ],
)
def test_a_guard_that_is_not_due_at_an_epoch_leaves_open_only_whether_a_rule_fires(g_norm, gain, kinds, fires):
    rule = D2 if len(kinds) == 1 else D2_BATCH
    readings = [reading(g_norm), reading(gain), *(Reading(None, "why", kind) for kind in kinds)]
    decision = decide(rule, readings, at_epoch=True)
    assert decision.fires is fires and bool(decision.reason) == (fires is None)
    assert decide(rule, readings).fires is None  # at the end of training, every guard is due


D2_BATCH = load_edition("2026-12").rules[1]


@pytest.mark.parametrize(
    ("g_norm", "fidelity", "batch", "outcome", "state"),
    [
        (LARGE, 0.98, 1.0, "pass", "OK"),  # single samples are fitted, the gradient of the batch is exact
        (LARGE, 1.0, 0.98, "pass", "OK"),
        (LARGE, 0.98, 0.98, "warn", "NOISY"),
        (SMALL, 0.98, 0.98, "warn", "NOISY"),
        (SMALL, 0.98, 1.0, "fail", "AT FLOOR"),
        (LARGE, None, 1.0, "pass", "OK"),  # every sample is fitted: the batch decides
        (LARGE, None, 0.98, "warn", "NOISY"),
        (LARGE, 0.98, None, "warn", "NOISY"),  # a run of a release that did not measure the batch
        (LARGE, 1.0, None, "pass", "OK"),
        (LARGE, None, None, "not_applicable", ""),
    ],
)
def test_a_guard_of_two_conditions_fires_where_all_known_conditions_hold(g_norm, fidelity, batch, outcome, state):
    decision = decide(D2_BATCH, [reading(g_norm), reading(1e-5), reading(fidelity), reading(batch)])
    assert (decision.outcome, decision.state) == (outcome, state)
    assert bool(decision.guard) == (state == "NOISY")


def test_further_limits_are_shown_by_the_symbols_of_what_they_limit():
    rule = dataclasses.replace(D2, also=tuple(dataclasses.replace(one, quantity="norm_ratio") for one in D2.also))
    symbol = symbol_of("norm_ratio")
    assert f" or {symbol} at least 0.01" in required(rule)
    assert (
        decide(rule, [reading(1e-8), reading(None, "no credit"), reading(1.0)]).reason
        == f"1e-08, but {symbol} is N/A: no credit"
    )


def test_the_reason_names_what_is_missing_and_what_is_there():
    decision = decide(D2, [reading(1e-8), reading(None, "no output error"), reading(1.0)])
    assert "1e-08" in decision.reason and "no output error" in decision.reason


def test_a_leading_figure_that_is_not_finite_may_come_with_a_missing_one():
    rule = dataclasses.replace(D2, fires="above", guard=None, guard_also=None)
    assert "not measured" in decide(rule, [reading(math.inf), reading(None)]).reason
    assert decide(rule, [reading(math.inf), reading(1e-9)]).fires


def first_fires(edition, **lines):
    run = record(trajectory={name: series(*values) for name, values in lines.items()})
    return {rule.code: first_fire(rule, run) for rule in edition.rules}


def test_the_first_epoch_over_the_limit():
    found = first_fires(PUBLISHED, growth_max=(1.0, 49.0, 51.0, 20.0, 99.0), g_norm_mean_ce_L=(1e-3, 1e-4))
    assert found == {"D1": 2, "D2": None, "D3": None}


def test_initialisation_is_epoch_zero_and_an_absent_epoch_fires_nothing():
    assert first_fires(PUBLISHED, growth_max=(51.0, 1.0))["D1"] == 0
    assert first_fires(PUBLISHED, growth_max=(None, 1.0, math.inf))["D1"] == 2
    assert first_fires(PUBLISHED, growth_max=())["D1"] is None


def test_when_an_adopted_run_first_fired_is_unknown():
    """It was measured once, at its end."""
    lines = {"growth_max": series(1.0, 99.0)}
    assert first_fire(PUBLISHED.rules[0], record(trajectory=lines)) == 1
    assert first_fire(PUBLISHED.rules[0], record(trajectory=lines, weights="ab" * 32)) is None


def test_a_compound_rule_needs_all_its_conditions_in_one_epoch():
    small = (1.0, 1e-8, 1e-8, 1e-8)
    lines = dict(g_norm_mean_ce_L=small, gain_L=(1e-6, 0.5, 1e-6, 1e-6), fidelity_L=(1.0, 1.0, 0.5, 1.0))
    assert first_fires(OURS, **lines)["D2"] == 3  # 0: not small, 1: healthy gain, 2: noise
    not_due = Reading(None, "not due", NOT_DUE)
    due_twice = dict(fidelity_L=Series([not_due, not_due, Reading(1.0), not_due]))
    trajectory = {name: series(*values) for name, values in lines.items()} | due_twice
    assert first_fire(D2_BATCH, record(trajectory=trajectory)) == 2
    assert first_fires(OURS, g_norm_mean_ce_L=small)["D2"] is None
    assert first_fires(OURS, g_norm_mean_ce_L=small, gain_L=(1e-6,) * 4)["D2"] is None


def test_rules_over_seeds_or_with_a_reference_or_without_a_line_never_first_fire():
    lines = dict(accuracy=(0.0, 0.0), gamma_null_p_max=(1.0, 1.0))
    assert first_fires(OURS, **lines) == dict.fromkeys(("D1", "D2", "D3", "D4", "S"))
    assert first_fires(load_edition("2026-04:first-release"), growth_max=(99.0,), h_L=(99.0,))["a"] is None


@pytest.mark.parametrize(
    ("edition", "figures", "expected"),
    [
        (PUBLISHED, dict(growth=51.0), [True, False, None]),
        (PUBLISHED, dict(g_norm=1e-6), [False, True, None]),
        (PUBLISHED, dict(growth=None, g_norm=None), [None, None, None]),
        (OURS, dict(g_norm=1e-6, gain=1e-6), [False, True, None, None, False]),
        (OURS, dict(g_norm=1e-6, gain=1e-6, fidelity=0.5), [False, False, None, None, False]),
        (OURS, dict(g_norm=1e-6, gain=0.5, stability=0.9, gamma_centred_mid=0.0), [False, False, None, None, True]),
        (OURS, dict(g_norm=1e-6, gain=None), [False, None, None, None, False]),
    ],
)
def test_live_on_one_epochs_figures(edition, figures, expected):
    assert [fires_now(rule, measurements(**figures)) for rule in edition.rules] == expected
