"""Every rule of every edition: fires, does not fire, cannot be said."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry import resources
from fa_registry.protocol.engine import first_fire, judge, take
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Reading
from tests.builders import frozen, measurements, record

EDITION = load_edition("2026-05")

# (edition, rule) → figures that fire, that do not, and that leave the rule without an answer
CASES = {
    ("2026-05", "D1"): (dict(growth=50.001), dict(growth=50.0), dict(growth=None)),
    ("2026-05", "D2"): (dict(g_norm=1.27e-5), dict(g_norm=1.28e-5), dict(g_norm=None)),
    ("2026-05", "D3"): (dict(accuracy=0.5199), dict(accuracy=0.52), dict(accuracy=None)),
}


def outcome(edition: str, rule: str, figures: dict) -> str:
    audit = judge(record(measured=measurements(**figures)), frozen(), load_edition(edition))
    return next(finding.outcome for finding in audit.findings if finding.rule == rule)


@pytest.mark.parametrize(("edition", "rule"), CASES)
def test_rule_fires_clears_and_abstains(edition, rule):
    fires, clears, unknown = CASES[edition, rule]
    assert [outcome(edition, rule, figures) for figures in (fires, clears, unknown)] == [
        "fail",
        "pass",
        "not_applicable",
    ]


def test_every_rule_of_every_edition_has_its_three_cases():
    shipped = {
        (path.stem, rule.code) for path in resources.editions().glob("*.toml") for rule in load_edition(path.stem).rules
    }
    assert shipped == set(CASES)


def test_exactly_two_points_above_frozen_clears_although_binary_fractions_say_less():
    assert 0.82 - 0.80 < 0.02  # the trap
    audit = judge(record(measured=measurements(accuracy=0.82)), frozen(accuracy=0.80), EDITION)
    assert audit.findings[2].outcome == "pass"


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_scale_that_is_not_finite_fires_d1(value):
    assert outcome("2026-05", "D1", dict(growth=value)) == "fail"


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_gradient_that_is_not_finite_is_not_judged_by_d2(value):
    assert outcome("2026-05", "D2", dict(g_norm=value)) == "not_applicable"


def test_a_finding_names_site_run_reference_and_both_numbers():
    audit = judge(record("run1", measurements(growth=60.0, accuracy=0.4)), frozen("control1"), EDITION)
    d1, _, d3 = audit.findings
    assert (d1.site, d1.observed, d1.run_id) == (2, Reading(60.0), "run1")
    assert "required at most 50, observed 60" in d1.sentence
    assert d3.reference_run_id == audit.frozen_run_id == "control1"
    assert "-10.00 pp" in d3.sentence


def test_the_largest_site_is_taken_and_a_broken_one_before_it():
    rule = EDITION.rules[0]
    sites = {"growth": (Reading(None, "growth starts at site 1"), Reading(9.0), Reading(3.0))}
    measured = dataclasses.replace(measurements(), sites=sites)
    assert take(rule, measured) == (Reading(9.0), 1)
    broken = {"growth": (*sites["growth"][:2], Reading.of(math.nan))}
    assert take(rule, dataclasses.replace(measured, sites=broken))[1] == 2
    assert take(rule, dataclasses.replace(measured, sites={}))[0].reason == "growth was not measured"


def test_first_fire_is_the_first_epoch_over_the_limit():
    trajectory = {
        "growth_max": tuple(Reading.of(value) for value in (1.0, 49.0, 51.0, 20.0, 99.0)),
        "g_norm_mean_ce_L": tuple(Reading.of(value) for value in (1e-3, 1e-4)),
    }
    run = dataclasses.replace(record(), trajectory=trajectory)
    assert [first_fire(rule, run) for rule in EDITION.rules] == [2, None, None]


def test_a_control_is_not_judged_against_itself():
    audit = judge(frozen(), frozen(), EDITION)
    assert [finding.outcome for finding in audit.findings] == ["pass", "pass", "skipped"]


def test_a_rule_that_crashes_is_an_error_with_its_traceback_and_the_verdict_incomplete():
    broken = dataclasses.replace(
        EDITION, rules=(dataclasses.replace(EDITION.rules[0], fires="nonsense"), *EDITION.rules[1:])
    )
    audit = judge(record(), frozen(), broken)
    assert audit.findings[1].outcome == "pass"
    assert audit.findings[0].outcome == "error" and "KeyError" in audit.findings[0].sentence
    assert audit.verdict.outcome == "incomplete"
