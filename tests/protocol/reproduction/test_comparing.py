"""Every outcome a published figure can have, and that no figure is passed over."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.reproduction import reproduction
from fa_registry.protocol.rules import load_edition
from fa_registry.records import REPRODUCTION_OUTCOMES, Integrity, Published, Reference
from tests.analyses.builders import report_of, run
from tests.protocol.reproduction.builders import figure, row, seeds

SMALL, WIDE = (0.61, 0.615, 0.62), (0.3, 0.6, 0.9)


@pytest.mark.parametrize(
    ("accuracies", "outcome"),
    [
        (SMALL, "reproduced"),
        (WIDE, "not shown"),
        ((0.3, 0.301, 0.299), "differs"),
        ((0.615,), "not shown"),
        (("lost", "lost", "lost"), "not measured"),
        ((0.61, 0.62, "lost"), "not shown"),
    ],
)
def test_the_outcomes_of_an_accuracy(accuracies, outcome):
    found = row(figure(Published(mean=0.615, std=0.004, n=3)), seeds(*accuracies))
    assert found.outcome == outcome and found.outcome in REPRODUCTION_OUTCOMES
    assert len(found.measured) == len(accuracies)


def test_why_says_one_seed_and_which_number_is_missing():
    assert row(figure(0.6), seeds(0.6)).reason == "one run has no spread to test with: train two seeds or more"
    assert row(figure(0.6), seeds(0.6, "crashed", 0.6)).reason == "1 of 3 runs have no number: crashed"
    assert row(figure(0.6), seeds("crashed", "crashed")).reason == "crashed"


def test_another_data_set_length_or_option_is_shown_but_not_tested():
    setting = {"dataset": "cifar10", "epochs": 100, "architecture_options": {"d_hidden": 256, "num_blocks": 2}}
    found = row(figure(0.615, setting=setting), seeds(*SMALL))
    assert found.outcome == "not comparable" and found.interval_90 is None and found.margin == 0
    assert found.reason == (
        "data set: published on cifar10, here digits; epochs: published after 100, here 3; "
        "d_hidden: published with 256, here 16"
    )
    assert found.mean.value == pytest.approx(0.615) and found.difference.reason == "not tested"


def test_no_run_is_not_measured():
    assert row(figure(0.3, method="dfa"), seeds(*SMALL)).reason == "no run of dfa on resmlp is in this audit"
    assert row(figure(0.3, penalty=0.01), seeds(*SMALL)).outcome == "not measured"
    assert row(figure(0.3, control="frozen"), seeds(*SMALL)).outcome == "not measured"


def test_what_runs_cannot_yield_says_why():
    found = row(figure(0.3, not_measured="it counts methods"), seeds(*SMALL))
    assert (found.outcome, found.reason, found.measured) == ("not measured", "it counts methods", ())


def test_a_tampered_run_is_no_evidence():
    good = seeds(*SMALL)
    bad = dataclasses.replace(good[0], integrity=Integrity("mismatch"))
    found = row(figure(0.615), [bad, *good[1:]])
    assert found.outcome == "not shown" and "do not come out again" in found.reason


def test_every_figure_has_one_row_in_order():
    several = tuple(figure(value, method=method) for value in (0.1, 0.2) for method in ("bp", "ep", "nobody"))
    report = report_of(seeds(*SMALL), load_edition("2026-05"))
    found = reproduction(Reference("study", "title", "digest", several, ("a remark",)), report)
    assert tuple(one.figure for one in found.rows) == several
    assert (found.reference, found.digest, found.remarks) == ("study", "digest", ("a remark",))
    assert [one.outcome for one in found.rows[:3]] == ["differs", "not measured", "not measured"]


def test_mean_and_deviation_are_those_of_the_runs():
    found = row(figure(0.615), seeds(*SMALL))
    assert (found.mean.value, found.std.value) == pytest.approx((0.615, 0.005))
    assert found.run_ids == ("bp-42", "bp-123", "bp-456")


def test_a_norm_is_compared_in_decades():
    runs = [run("bp", seed, h_L=value) for seed, value in ((42, 1e8), (123, 1e9))]
    found = row(figure(4e8, 4.0, quantity="h_L", scale="log10"), runs)
    assert found.outcome == "reproduced" and found.mean.value == pytest.approx(10**8.5)
    assert found.difference.value == pytest.approx(8.5 - 8.602060)
    assert row(figure(4e8, 0.5, quantity="h_L", scale="log10"), runs).outcome == "not shown"


def test_the_published_edition_says_when_a_rule_first_fires():
    """2026-11 asks of D2 that the gain is low too; the published first fires know no gain."""
    lines = {"g_norm_mean_ce_L": (1e-3, 1e-8, 1e-8), "growth_max": (1.0, 2.0, 2.0)}
    runs = [run("bp", seed, lines=lines) for seed in (42, 123)]
    found = row(figure(Published(values=(1, 1)), 5, quantity="first_fire", rule="D2"), runs)
    assert [one.reading.value for one in found.measured] == [1.0, 1.0] and found.outcome == "reproduced"
