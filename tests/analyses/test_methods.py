"""Methods keep names that tell them apart, and means that hide no broken run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fa_registry.analyses._methods import mean_cell, trained
from fa_registry.protocol.rules import load_edition
from tests.analyses.builders import SEEDS, frozen, report_of, run

EDITION = load_edition("2026-05")


def methods(*runs):
    return trained(report_of(runs, EDITION))


def mean(name, *runs):
    (method,) = methods(*runs)
    return mean_cell(method.runs, name)


def test_controls_are_no_methods():
    assert [one.label for one in methods(frozen(), run("dfa"), run("bp", spec={"control": "shallow"}))] == ["dfa"]


def test_options_are_part_of_the_label():
    labels = [one.label for one in methods(run("ep"), run("ep", spec={"method_options": {"beta": 0.5, "alpha": 1}}))]
    assert labels == ["ep", "ep (alpha=1,beta=0.5)"]


def test_two_methods_of_one_name_and_setting_are_told_apart():
    """Credit normalisation is part of a method, not of its setting."""
    plain = run("dfa")
    other = run("dfa", 1, spec={"recipe": replace(plain.spec.recipe, credit_norm="none")})
    assert [one.label for one in methods(plain, other)] == ["dfa", "dfa (credit_norm=none)"]


def test_a_seed_without_a_value_is_left_out_of_n():
    cell = mean("accuracy", run("dfa", 1, accuracy=0.4), run("dfa", 2, accuracy=0.6), run("dfa", 3, accuracy="lost"))
    assert (cell.reading.value, cell.n, cell.run_ids) == (0.5, 2, ("dfa-1", "dfa-2"))


def test_a_seed_that_is_not_finite_leaves_no_mean():
    cell = mean("h_L", *(run("dfa", seed, h_L=math.inf if seed == 123 else 2.0) for seed in SEEDS))
    assert cell.reading.not_finite and cell.run_ids == ("dfa-123",)


@pytest.mark.parametrize("values", [(1e-300, 1e300), (1e308, 1e308), (1.7e308, 1.0)])
def test_scales_of_any_size_have_a_mean(values):
    cell = mean("h_L", *(run("dfa", seed, h_L=value) for seed, value in enumerate(values)))
    assert math.isclose(math.log10(cell.reading.value), sum(map(math.log10, values)) / 2, rel_tol=1e-12, abs_tol=1e-9)


def test_a_number_beyond_arithmetic_is_said_and_does_not_overflow():
    cell = mean("nudge", *(run("dfa", seed, nudge=1e200) for seed in SEEDS))
    assert cell.reading.reason == "no arithmetic mean of 1e+200 to 1e+200"
