"""Every diagnostic keeps the promises of its card, on healthy and on broken networks, with and without a bench."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry import diagnostics
from fa_registry.diagnostics.base import MOMENTS
from fa_registry.quantities import FAMILY
from fa_registry.training.measuring import measure
from tests.helpers.hand import KINDS, initial_of, sharp_task
from tests.helpers.small import observation, tiny_task

HEALTHY = [[[1, 0], [0, 2], [3, 4]], [[0, 1], [2, 0], [0, 6]]]
NAMES = diagnostics.CATALOG.names()


def cards():
    return [diagnostics.CATALOG.get(name).card for name in NAMES]


def broken(number: float):
    rows = [[[number, number]] * 3] * 2
    return observation(
        hidden=rows, gradients=rows, credits=rows, gradients_double=rows, error=[[min(number, 1.0), 0]] * 3
    )


def announced(card, measured) -> None:
    """What was measured is what the card says: every name covered, every single name there."""
    found = {*measured.sites, *measured.scalars}
    assert all(card.covers(name) for name in found), found
    assert {name for name in card.names if not name.endswith(FAMILY)} <= found
    of_a_run = "epoch" if card.when == "epoch" else "run"
    lives = {**dict.fromkeys(measured.sites, "site"), **dict.fromkeys(measured.scalars, of_a_run)}
    assert [one for one in card.described if lives.get(one.name, one.where) != one.where] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "seen",
    [
        observation(credits=HEALTHY, gradients_double=HEALTHY),
        observation(),
        *map(broken, (float("nan"), float("inf"), 0.0)),
    ],
    ids=["healthy", "no credits", "nan", "inf", "zero"],
)
def test_it_measures_exactly_the_quantities_on_its_card(name, seen):
    diagnostic = diagnostics.CATALOG.get(name)
    measured = diagnostic.measure(seen)
    announced(diagnostic.card, measured)
    assert all(len(readings) == seen.sites for readings in measured.sites.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_all_of_a_moment_are_measured_and_nothing_else(kind, moment):
    task = sharp_task(kind, 5)
    measured = measure(task, moments=(moment,), initial=initial_of(task))
    assert measured.failures == {}
    due = [card for card in cards() if card.when == moment]
    found = {*measured.sites, *measured.scalars} - {"accuracy"}
    assert {name for card in due for name in card.names if not name.endswith(FAMILY)} <= found
    assert all(any(card.covers(name) for card in due) for name in found)
    assert all(len(readings) == 3 for readings in measured.sites.values())


def test_the_costly_ones_are_those_of_the_end():
    final = {card.name for card in cards() if card.when == "final"}
    assert final == {
        "bridge_residual",
        "feature_drift",
        "gamma_null",
        "ladder",
        "nudge",
        "rho",
        "stability",
    }


def test_without_a_bench_what_needs_one_is_na_with_the_reason():
    for card in cards():
        if card.when == "final":
            measured = diagnostics.CATALOG.get(card.name).measure(observation(credits=HEALTHY))
            found = [*measured.scalars.values(), *(reading for row in measured.sites.values() for reading in row)]
            assert {reading.reason for reading in found} == {
                "the network could only be looked at once: this needs trials on it"
            }, card.name


@pytest.mark.parametrize("method", ["fa", "dfa"])
def test_what_a_card_says_needs_the_credit_is_what_is_lost_with_the_feedback_file(method):
    task = tiny_task(method=method)
    initial = initial_of(task)
    there, gone = (measure(task, absent, MOMENTS, initial) for absent in ("", "the file is gone"))
    lost = {
        name
        for table, other in ((there.sites, gone.sites), (there.scalars, gone.scalars))
        for name in table
        if table[name] != other[name]
    }
    of_nobody = {
        "bridge_residual",
        "costate_cosine",
        "costate_cosine_mean",
    }  # N/A here before and after, but for another reason
    assert lost | of_nobody == {quantity for card in cards() for quantity in card.needs_credit}
    for name in lost:
        found = gone.sites[name] if name in gone.sites else (gone.scalars[name],)
        assert {reading.reason for reading in found} == {"the file is gone"}, name


def test_no_quantity_is_measured_twice():
    names = [quantity for card in cards() for quantity in card.names]
    assert len(set(names)) == len(names)


def test_conventions_have_names_of_their_own():
    names = [name for card in cards() for name in card.conventions]
    assert len(set(names)) == len(names) and "rho_directions" in names


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.name)
def test_cards_are_data(card):
    assert dataclasses.asdict(card)["source"]
