"""Many runs at once: pairing, order, second opinions, what breaks, and how long it takes."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest

from fa_registry.protocol.engine import judge, judge_all, second_opinions
from fa_registry.protocol.rules import load_edition
from fa_registry.records import OUTCOMES, RunSpec, Waiver
from fa_registry.statistics import paired_difference
from tests.builders import frozen, measurements, over_seeds, record

PUBLISHED, OURS = load_edition("2026-05"), load_edition("2026-12")
TRACEBACK = "Traceback (most recent call last):\n  RuntimeError: no memory"


def crashed(run, *names):
    measured = dataclasses.replace(run.measurements, failures=dict.fromkeys(names, TRACEBACK))
    return dataclasses.replace(run, measurements=measured)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_scale_that_is_not_finite_explodes_and_a_gradient_that_is_not_finite_is_not_judged(value):
    audit = judge(record(measured=measurements(growth=value, g_norm=value)), frozen(), PUBLISHED)
    assert [finding.outcome for finding in audit.findings] == ["fail", "not_applicable", "pass"]


def test_runs_are_judged_in_the_order_given_each_with_its_control():
    runs = over_seeds({7: 0.9, 1: 0.9}, {1: 0.5, 7: 0.6})
    audits = judge_all([runs[2], runs[0], runs[3], runs[1]], PUBLISHED)
    assert [audit.record.run_id for audit in audits] == ["f1", "r7", "f7", "r1"]
    assert [audit.frozen_run_id for audit in audits][1::2] == ["f7", "f1"]
    assert [audit.verdict.label for audit in audits] == ["CONTROL", "PASS", "CONTROL", "PASS"]


@pytest.mark.parametrize("edition", [PUBLISHED, OURS], ids=lambda edition: edition.name)
@pytest.mark.parametrize(
    "changes",
    [dict(epochs=4), dict(seed=7), dict(dataset="other"), dict(architecture_options={"d_hidden": 8})],
    ids=lambda changes: next(iter(changes)),
)
def test_a_frozen_control_of_another_setting_or_seed_never_stands_in(edition, changes):
    audit = judge_all([record(), frozen(**changes)], edition)[0]
    assert (audit.findings[2].outcome, audit.verdict.outcome, audit.frozen_run_id) == (
        "not_applicable",
        "incomplete",
        "",
    )


def test_judging_alone_and_together_agree_where_no_seeds_are_asked_for():
    runs = over_seeds({1: 0.9, 2: 0.4}, {1: 0.5, 2: 0.5})
    assert judge_all(runs, PUBLISHED)[:2] == (judge(runs[0], runs[2], PUBLISHED), judge(runs[1], runs[3], PUBLISHED))


def test_second_opinions_judge_the_same_runs_by_each_edition():
    runs = over_seeds({1: 0.9}, {1: 0.5})
    editions = [load_edition("2026-04"), load_edition("2026-05", {"D1": 1.5}), OURS]
    opinions = second_opinions(runs, editions)
    assert [opinion.edition for opinion in opinions] == [edition.reference for edition in editions]
    assert [opinion.judgements[0].verdict.label for opinion in opinions] == [
        "trustworthy",
        "WARN(D1)",
        "WARN(D3 undecided, above)",
    ]
    for opinion, edition in zip(opinions, editions, strict=True):
        for judgement, audit in zip(opinion.judgements, judge_all(runs, edition), strict=True):
            assert (judgement.run_id, judgement.verdict) == (audit.record.run_id, audit.verdict)
            assert judgement.findings == audit.findings
    assert second_opinions(runs, []) == ()


def test_a_waiver_reaches_every_edition_that_has_the_rule():
    waiver = Waiver("D3", "known", "Ada", "2026-11-01", "2027-01-01", run="r1")
    runs = over_seeds({1: 0.1}, {1: 0.5})
    assert judge_all(runs, PUBLISHED, [waiver])[0].verdict.label == "WARN(D3 waived)"
    labels = [
        opinion.judgements[0].verdict.label
        for opinion in second_opinions(runs, [load_edition("2026-04"), OURS], [waiver])
    ]
    assert labels == ["needs walk-back: d", "WARN(D3 waived)"]


def test_a_diagnostic_that_crashed_is_an_error_and_never_a_pass():
    for edition in (PUBLISHED, OURS, load_edition("2026-04")):
        audit = judge(crashed(record(), "rho", "nudge"), frozen(), edition)
        assert [(finding.rule, finding.title, finding.outcome, finding.detail) for finding in audit.findings[-2:]] == [
            ("rho", "diagnostic crashed", "error", TRACEBACK),
            ("nudge", "diagnostic crashed", "error", TRACEBACK),
        ]
        assert audit.verdict.outcome == "incomplete"
    fails = judge(crashed(record(measured=measurements(accuracy=0.1)), "rho"), frozen(), PUBLISHED)
    assert fails.verdict.label == "FAIL(D3)"


def crashing(rule):
    """A rule with an operator that no file can name: its evaluation raises KeyError."""
    broken = copy.copy(rule)
    object.__setattr__(broken, "fires", "nonsense")
    return broken


@pytest.mark.parametrize("edition", [PUBLISHED, OURS], ids=lambda edition: edition.name)
def test_a_rule_that_crashes_is_an_error_with_its_traceback_and_the_verdict_incomplete(edition):
    broken = crashing(edition.rules[0])
    audit = judge(record(), frozen(), dataclasses.replace(edition, rules=(broken, *edition.rules[1:])))
    finding = audit.findings[0]
    assert (finding.outcome, audit.findings[1].outcome, audit.verdict.outcome) == ("error", "pass", "incomplete")
    assert "KeyError: 'nonsense'" in finding.sentence
    assert "Traceback" in finding.detail and "engine.py" in finding.detail


def test_a_rule_that_crashes_weighs_no_more_than_one_that_judges():
    """The verdict does not look at D4: neither does it where D4 crashes."""
    broken = crashing(OURS.rules[3])
    audit = judge(record(), frozen(), dataclasses.replace(OURS, rules=(*OURS.rules[:3], broken)))
    assert (audit.findings[3].outcome, audit.findings[3].gating) == ("error", False)
    assert audit.verdict == judge(record(), frozen(), dataclasses.replace(OURS, rules=OURS.rules[:3])).verdict


def test_statistics_that_crash_are_an_error_of_every_run_of_the_group(monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("no spread")

    monkeypatch.setattr("fa_registry.protocol.paired_runs.paired_difference", broken)
    audits = judge_all(over_seeds({1: 0.9, 2: 0.9}, {1: 0.5, 2: 0.5}), OURS)[:2]
    assert [audit.findings[2].outcome for audit in audits] == ["error", "error"]
    assert all("no spread" in audit.findings[2].detail for audit in audits)


def test_every_outcome_is_reached():
    waiver = Waiver("D1", "known", "Ada", "2026-11-01", "2027-01-01", run="waived")
    runs = [
        crashed(record("warns", measurements(fidelity=0.5, gain=None)), "rho"),  # warn, pass and error
        record("fails", measurements(growth=99.0, g_norm=1e-6, gain=None), seed=1),  # fail and not_applicable
        record("waived", measurements(growth=99.0), seed=2),
        frozen(),  # skipped
    ]
    found = {finding.outcome for audit in judge_all(runs, OURS, [waiver]) for finding in audit.findings}
    assert found == set(OUTCOMES)


def test_judging_takes_time_in_proportion_to_the_runs(monkeypatch):
    """Counted, not timed: digests of specifications, and judgements. A scan of all runs for each would square them."""
    counts = {}

    def counting(name, function):
        def counted(*arguments):
            counts[name] = counts.get(name, 0) + 1
            return function(*arguments)

        return counted

    identity = RunSpec.identity.func
    monkeypatch.setattr(RunSpec, "identity", property(counting("identity", identity)))
    monkeypatch.setattr("fa_registry.protocol.paired_runs.paired_difference", counting("paired", paired_difference))
    found = []
    for count in (50, 100):
        counts.clear()
        seeds = range(count)
        judge_all(over_seeds(dict.fromkeys(seeds, 0.9), dict.fromkeys(seeds, 0.5)), OURS)
        found.append(dict(counts))
    small, large = found
    assert large["identity"] <= 2 * small["identity"]
    assert large["paired"] == small["paired"] == 1
