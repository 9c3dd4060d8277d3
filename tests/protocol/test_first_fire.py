"""When a rule first fires, afterwards and live."""

from __future__ import annotations

import math

import pytest

from fa_registry.protocol.judges import fires_now, first_fire
from fa_registry.protocol.rules import load_edition
from tests.builders import measurements, record, series

PUBLISHED, OURS = load_edition("2026-05"), load_edition("2026-11")


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


def test_a_compound_rule_needs_all_its_conditions_in_one_epoch():
    small = (1.0, 1e-6, 1e-6, 1e-6)
    lines = dict(g_norm_L=small, gain_L=(1e-6, 0.5, 1e-6, 1e-6), fidelity_L=(1.0, 1.0, 0.5, 1.0))
    assert first_fires(OURS, **lines)["D2"] == 3  # 0: not small, 1: healthy gain, 2: noise
    assert first_fires(OURS, g_norm_L=small)["D2"] is None
    assert first_fires(OURS, g_norm_L=small, gain_L=(1e-6,) * 4)["D2"] is None


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
        (OURS, dict(g_norm=1e-6, gain=0.5, stability=0.9), [False, False, None, None, True]),
        (OURS, dict(g_norm=1e-6, gain=None), [False, None, None, None, False]),
    ],
)
def test_live_on_one_epochs_figures(edition, figures, expected):
    assert [fires_now(rule, measurements(**figures)) for rule in edition.rules] == expected
