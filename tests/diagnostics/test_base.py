"""Norms and cosines in float64 without any clamp."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fa_registry import diagnostics, jsonio
from fa_registry.diagnostics import Unavailable
from fa_registry.diagnostics._probe import NO_BENCH, absence, is_resolved
from fa_registry.diagnostics.base import (
    MOMENTS,
    DiagnosticCard,
    cosine_table,
    missing,
    readings,
    sample_cosines,
    sample_norms,
    table,
)
from fa_registry.errors import PluginError
from fa_registry.metrics import FAMILY, Metric
from fa_registry.training.measuring import measure
from tests.helpers.closed_form_tasks import KINDS, initial_of, sharp_task
from tests.helpers.probes import one_site
from tests.helpers.tiny_tasks import observation, tiny_task


@pytest.mark.parametrize("size", [1.0, 1e-12, 1e-30])
def test_cosine_does_not_depend_on_the_size_of_a_vector(size):
    """The library's cosine_similarity clamps norms at 1e-8: at 1e-12 it answers 1e-4 × the truth."""
    left = torch.tensor([[3.0, 4.0], [1.0, 0.0]]) * size
    right = torch.tensor([[4.0, 3.0], [-1.0, 0.0]])
    assert sample_cosines(left, right).tolist() == pytest.approx([0.96, -1.0], abs=1e-6)


def test_cosine_with_a_zero_vector_is_nan():
    assert sample_cosines(torch.zeros(1, 3), torch.ones(1, 3)).isnan().all()


def test_a_table_of_cosines_is_the_cosines_bit_by_bit():
    draw = torch.Generator().manual_seed(0)
    left, right = (torch.randn(2, 50, 7, generator=draw) for _ in range(2))
    left[0, 0], left[1, 1], right[0, 2], right[1, 3] = 0.0, float("inf"), float("nan"), 1e-30
    norms = [table(sample_norms(rows) for rows in side) for side in (left, right)]
    expected = table(sample_cosines(*pair) for pair in zip(left, right, strict=True))
    found = cosine_table(left, right.double(), *norms)
    assert np.array_equal(found, expected, equal_nan=True) and np.isnan(expected).sum() == 3


def test_norms_are_l2_over_features_in_float64():
    norms = sample_norms(torch.tensor([[3.0, 4.0], [1e30, 1e30]]))  # the square of 1e30 overflows float32
    assert norms.dtype == torch.float64
    assert norms.tolist() == pytest.approx([5.0, 2**0.5 * 1e30])


def test_tables_are_sites_by_samples():
    seen = observation(credits=[[[0, 1], [0, 2], [4, 3]], [[0, 1], [0, 1], [0, -1]]])
    assert seen.hidden_norms.tolist() == [[5.0, 1.0, 10.0], [10.0, 3.0, 5.0]]
    assert seen.gradient_norms.tolist() == [[1.0, 2.0, 5.0], [1.0, 2.0, 6.0]]
    assert seen.credit_norms.tolist() == [[1.0, 2.0, 5.0], [1.0, 1.0, 1.0]]
    assert seen.alignments == pytest.approx(np.array([[0.0, 1.0, 0.96], [1.0, 0.0, -1.0]]))
    assert seen.error_norms.tolist() == [1.0, 1.0, 2.0]
    assert (seen.sites, seen.samples) == (2, 3)


def test_readings_keep_what_is_not_finite_as_a_reason():
    first, second = readings([1.0, float("nan")])
    assert first.value == 1.0
    assert second.not_finite
    assert [reading.reason for reading in missing(2, "why")] == ["why", "why"]


CARD = {
    "name": "mine",
    "symbol": "m",
    "line": "what it is",
    "quantities": ("mine", "mine_L", "drift/*"),
    "unit": "ratio",
    "range": "0 to 1",
    "cannot_tell": "much",
    "source": "me",
}


def test_a_card_says_when_it_is_due_and_what_it_announces():
    card = DiagnosticCard(**CARD)
    assert (card.when, card.needs_credit, dict(card.conventions)) == ("epoch", (), {})
    assert [card.covers(name) for name in ("mine", "mine_L", "drift/embed.w", "drift", "mine_0", "drift/*")] == [
        True,
        True,
        True,
        False,
        False,
        True,
    ]


def test_a_card_describes_what_it_only_names_by_itself():
    mine = Metric("mine", "M", "what M is", unit="metres", where="site")
    card = DiagnosticCard(**{**CARD, "quantities": (mine, "mine_L"), "needs_credit": ("mine",)})
    assert card.names == ("mine", "mine_L")
    assert card.described == (mine, Metric("mine_L", "mine_L", "what it is", unit="ratio"))
    assert DiagnosticCard(**{**CARD, "quantities": ("mine",)}).described[0].symbol == "m"
    written = jsonio.encode(card)
    assert written["quantities"] == ["mine", "mine_L"] and written["described"][0]["words"] == "what M is"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"source": ""}, "fields: source"),
        ({"cannot_tell": "", "unit": ""}, "fields: unit, cannot_tell"),
        ({"when": "sometimes"}, r"when \(expected one of epoch, final; found 'sometimes'\)"),
        ({"needs_credit": ("other",)}, r"needs_credit \(lists 'other', which `quantities` does not contain\)"),
    ],
)
def test_an_incomplete_card_is_refused_with_what_it_lacks(changes, text):
    with pytest.raises(PluginError, match=f"the card of diagnostic 'mine' .*{text}"):
        DiagnosticCard(**{**CARD, **changes})


def test_the_reason_is_the_first_missing_parts():
    seen = one_site([[1.0]], [[1.0]], Unavailable("no credit"), weights={}, costates=Unavailable("no costate"))
    assert absence(observation()) == absence(observation(), "credits") == NO_BENCH
    assert absence(seen) == absence(seen, "weights", "states") == ""
    assert absence(seen, "weights", "costates", "credits") == "no costate"
    assert absence(seen, "credits", "costates") == "no credit"


@pytest.mark.parametrize(
    ("change", "loss", "expected"),
    [
        (1e-13, 0.5, True),
        (1e-14, 0.5, False),
        (1e-14, 1e-6, False),  # log-softmax rounds at one, however small the loss
        (0.0, 0.0, False),
        (1e-7, 1e6, True),  # of a loss of a million the last bit is 1e-10
        (1e-9, 1e6, False),
        (float("nan"), 1.0, False),
    ],
)
def test_rounding_is_relative_to_the_loss_but_never_below_one(change, loss, expected):
    assert bool(is_resolved(torch.tensor(change).double(), torch.tensor(loss).double())) == expected


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
        "centred_gamma",
        "feature_drift",
        "gamma_flat",
        "gamma_null",
        "ladder",
        "nudge",
        "rho",
        "stability",
    }


def test_without_a_bench_what_needs_one_is_na_with_the_reason():
    for card in cards():
        if card.when == "final" and card.name not in ("centred_gamma", "gamma_flat"):
            measured = diagnostics.CATALOG.get(card.name).measure(observation(credits=HEALTHY))
            found = [*measured.scalars.values(), *(reading for row in measured.sites.values() for reading in row)]
            assert all("only one pass" in reading.reason for reading in found), card.name


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
    without_readers = {
        "bridge_residual",
        "costate_cosine",
        "costate_cosine_mean",
    }  # N/A here before and after, but for another reason
    assert lost | without_readers == {quantity for card in cards() for quantity in card.needs_credit}
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
