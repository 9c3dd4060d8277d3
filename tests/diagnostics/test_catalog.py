"""Every diagnostic keeps the promises of its card, on healthy and on broken networks."""

from __future__ import annotations

import pytest

from fa_registry import diagnostics
from tests.helpers.small import observation

HEALTHY = [[[1, 0], [0, 2], [3, 4]], [[0, 1], [2, 0], [0, 6]]]


def broken(number: float):
    rows = [[[number, number]] * 3] * 2
    return observation(
        hidden=rows, gradients=rows, credits=rows, gradients_double=rows, error=[[min(number, 1.0), 0]] * 3
    )


@pytest.mark.parametrize("name", diagnostics.CATALOG.names())
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
    assert {*measured.sites, *measured.scalars} == set(diagnostic.card.quantities)
    assert all(len(readings) == seen.sites for readings in measured.sites.values())


def test_no_quantity_is_measured_twice():
    names = [
        quantity for name in diagnostics.CATALOG.names() for quantity in diagnostics.CATALOG.get(name).card.quantities
    ]
    assert len(set(names)) == len(names)
