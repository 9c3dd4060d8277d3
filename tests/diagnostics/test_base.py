"""Norms and cosines in float64 without any clamp."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry import jsonio
from fa_registry.diagnostics.base import (
    DiagnosticCard,
    cosine_table,
    missing,
    readings,
    sample_cosines,
    sample_norms,
    table,
)
from fa_registry.errors import PluginError
from fa_registry.quantities import Quantity
from tests.helpers.small import observation


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


def test_what_was_not_observed_is_none():
    seen = observation()
    assert seen.credit_norms is seen.alignments is seen.fidelities is None


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
    mine = Quantity("mine", "M", "what M is", unit="metres", where="site")
    card = DiagnosticCard(**{**CARD, "quantities": (mine, "mine_L"), "needs_credit": ("mine",)})
    assert card.names == ("mine", "mine_L")
    assert card.described == (mine, Quantity("mine_L", "mine_L", "what it is", unit="ratio"))
    assert DiagnosticCard(**{**CARD, "quantities": ("mine",)}).described[0].symbol == "m"
    written = jsonio.encode(card)
    assert written["quantities"] == ["mine", "mine_L"] and written["described"][0]["words"] == "what M is"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": ""}, "lacks: source"),
        ({"cannot_tell": "", "unit": ""}, "lacks: unit, cannot_tell"),
        ({"when": "sometimes"}, r"when \(one of epoch, final, found 'sometimes'\)"),
        ({"needs_credit": ("other",)}, "the quantity 'other', which needs_credit names"),
    ],
)
def test_an_incomplete_card_is_refused_with_what_it_lacks(changes, words):
    with pytest.raises(PluginError, match=f"the card of diagnostic 'mine' .*{words}"):
        DiagnosticCard(**{**CARD, **changes})
