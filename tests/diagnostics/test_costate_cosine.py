"""costate_cosine: a fake network that knows its costate by a product, not by autograd."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry.architectures.base import ExactCostate, Network
from fa_registry.training.measuring import measure
from tests.helpers.closed_form_tasks import CLASSES, KINDS, gradients, hand_task, pooling, sharp_task, tilted
from tests.helpers.tiny_tasks import scaling_network, tiny_task


class Known(Network, ExactCostate):
    """The sharp task's network: its costates are those of hand.gradients."""

    kind = "vectors"

    def costates(self, x, y):
        assert x.dtype == torch.float64 and not self.training
        return [torch.tensor(rows) for rows in gradients(self.kind, len(y))]


class Cut(Known):
    def costates(self, x, y):
        return [rows[:, :2] for rows in super().costates(x, y)]


def known_task(kind: str, count: int, network: type[Known] = Known, credits=tilted):
    task = sharp_task(kind, count)
    plain = scaling_network([0.5, 1.0], torch.eye(CLASSES, dtype=torch.float64))
    known = network(plain.embed, list(plain.blocks), None, plain.out_head, pool=pooling(kind))
    known.kind = kind
    return hand_task(known, task.splits.test_images, task.splits.test_labels, credits(kind, count))


def cosines(task):
    return measure(task).sites["costate_cosine"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 37, 128, 1024])
def test_mean_cosine_of_whole_states(kind, count):
    row = cosines(known_task(kind, count))
    assert [reading.value for reading in row] == pytest.approx([0.5**0.5] * 3, rel=1e-9)


class Turning(Known):
    """A costate that points another way from site 1 on."""

    def costates(self, x, y):
        first, *rest = super().costates(x, y)
        return [first, *(-rows for rows in rest)]


def test_every_site_is_compared_with_its_own_costate():
    half = 0.5**0.5
    assert [reading.value for reading in cosines(known_task("vectors", 4, Turning))] == pytest.approx(
        [half, -half, -half]
    )


def test_the_mean_leaves_out_the_sites_that_are_exact_by_construction():
    """Cosines 1/√2, −1/√2, −1/√2: with the card's word that the last site is exact, the mean is that of the first two."""
    task = known_task("vectors", 4, Turning)
    mean = measure(task).scalars["costate_cosine_mean"]
    assert mean.value == pytest.approx(-(0.5**0.5) / 3)
    card = dataclasses.replace(task.method.card, exact_sites="last")
    task.method.card = card
    assert measure(task).scalars["costate_cosine_mean"].value == pytest.approx(0.0, abs=1e-12)
    task.method.card = dataclasses.replace(card, exact_sites="all")
    reading = measure(task).scalars["costate_cosine_mean"]
    assert reading.value is None and "exact" in reading.reason


def test_it_is_a_mean_over_samples_however_large_their_credits_are():
    """Cosines 1/√2 and −1/√2 for a large and a small credit: the flattened batch would be nearly 1/√2."""

    def uneven(kind, count):
        sizes = torch.tensor([100.0, -0.01]).repeat(count // 2).unsqueeze(1)
        return [credit * sizes for credit in tilted(kind, count)]

    assert cosines(known_task("vectors", 4, credits=uneven))[0].value == pytest.approx(0.0, abs=1e-12)


def test_whole_states_not_class_tokens():
    """Credit on the other tokens, where the costate is zero, makes the cosine smaller; Γ does not see it."""

    def leaking(kind, count):
        credits = tilted(kind, count)
        for credit, size in zip(credits, (3.0, 2.0, 1.0), strict=True):
            credit[:, 1, 0] = size
        return credits

    task = known_task("tokens", 5, credits=leaking)
    assert cosines(task)[0].value == pytest.approx(0.5)
    assert measure(task).sites["gamma"][0].value == pytest.approx(0.5**0.5)


def test_the_sign_is_kept_and_a_zero_credit_is_na():
    against = known_task("vectors", 4, credits=lambda kind, count: [-torch.tensor(g) for g in gradients(kind, count)])
    assert [reading.value for reading in cosines(against)] == pytest.approx([-1.0] * 3)
    zero = known_task("vectors", 4, credits=lambda kind, count: [0 * credit for credit in tilted(kind, count)])
    assert "exactly zero" in cosines(zero)[0].reason
    broken = known_task("vectors", 4, credits=lambda kind, count: [credit / 0 for credit in tilted(kind, count)])
    assert cosines(broken)[0].not_finite


def test_other_networks_have_none():
    assert all("'resmlp'" in reading.reason for reading in cosines(tiny_task()))


def test_without_the_feedback_file_it_is_na():
    row = measure(known_task("vectors", 4), "the file is gone").sites["costate_cosine"]
    assert {reading.reason for reading in row} == {"the file is gone"}


def test_costates_that_fit_no_state_are_a_failure_that_says_so():
    measured = measure(known_task("vectors", 4, Cut))
    assert "[(4, 3), (4, 3), (4, 3)]" in measured.failures["costate_cosine"]
