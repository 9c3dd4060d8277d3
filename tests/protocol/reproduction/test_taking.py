"""One run's number for a figure: where it is looked up, and why it is missing."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.reproduction.reproduced import figure_of
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Integrity
from tests.analyses.builders import run
from tests.protocol.reproduction.builders import figure

D1, D2 = load_edition("2026-05").rules[:2]
RUN = run(
    "dfa",
    accuracy=0.4,
    sites={"rho": (0.1, 0.2, 0.6)},
    lines={"g_norm_mean_ce_L": (8e-3, 1e-3, 1e-8), "growth_max": (1.0, 60.0, 70.0), "accuracy": (0.1, 0.2, 0.3)},
)


def taken(quantity, rule=None, record=RUN, **changes):
    reading = figure_of(figure(1.0, quantity=quantity, **changes), record, rule).reading
    return reading.reason or reading.value


@pytest.mark.parametrize(
    ("site", "value"), [("0", 0.1), ("2", 0.6), ("last", 0.6), ("mid", 0.2), ("deep", pytest.approx(0.4))]
)
def test_sites(site, value):
    assert taken("rho", site=site) == value


def test_scalars_epochs_and_factors():
    assert taken("accuracy") == 0.4 and taken("accuracy", epoch=1) == 0.2
    assert taken("g_norm_mean_ce", site="last", epoch=0) == 8e-3
    assert taken("accuracy", factor=0.125) == pytest.approx(0.05)


def test_first_fires():
    assert taken("first_fire", D1) == 1.0 and taken("first_fire", D2) == 2.0
    quiet = dataclasses.replace(RUN, trajectory={"growth_max": RUN.trajectory["growth_max"][:1]})
    assert taken("first_fire", D1, quiet) == "it never fires in 0 epochs"
    assert taken("first_fire", D2, quiet) == "g_norm_mean_ce was not followed by epoch"


def test_never_is_said_only_where_every_epoch_has_a_number():
    gap = run("dfa", lines={"growth_max": (1.0, "lost", 2.0)})
    assert taken("first_fire", D1, gap) == "cannot be said of every epoch: lost"
    quiet = run("dfa", lines={"growth_max": (1.0, 1.5, 2.0)})
    changed = dataclasses.replace(quiet, integrity=Integrity("mismatch"))
    fire = figure(1.0, quantity="first_fire")
    said = [figure_of(fire, record, D1).never for record in (quiet, gap, RUN, changed)]
    assert said == [True, False, False, False]


def test_what_is_missing_says_why():
    assert taken("rho", site="7") == "there is no site 7: L = 2"
    assert taken("nudge", site="last") == "nudge was not measured"
    assert taken("accuracy", epoch=9) == "accuracy was not followed to epoch 9"
    part = run("dfa", sites={"rho": (0.1, "lost", 0.6)})
    assert taken("rho", site="deep", record=part) == "lost"
