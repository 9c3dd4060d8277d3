"""markov_text: its entropies by another computation, its sequences against its probabilities, and the loss of a perfect model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry import datasets
from fa_registry.datasets.markov_text import (
    LENGTH,
    SYMBOLS,
    TEST,
    TRAIN,
    entropy_rate,
    sequence_entropy,
    sequences,
    stationary,
    transitions,
)
from fa_registry.tasks.token_prediction import TokenPrediction

CPU = torch.device("cpu")
DIGEST = "e9730dc755f9e04192cdef2e501c6d825e289a5c39c6792164b5fa1da614631a"


@pytest.fixture(scope="module")
def splits():
    return datasets.get("markov_text").load(CPU)


@pytest.fixture(scope="module")
def solved() -> np.ndarray:
    """The stationary distribution of pairs, (V, V), from the linear equations π (P − 1) = 0, Σ π = 1 of the chain of all pairs."""
    following, pairs = transitions(), SYMBOLS**2
    chain = np.zeros((pairs, pairs))
    for oldest in range(SYMBOLS):
        for newest in range(SYMBOLS):
            target = newest * SYMBOLS  # the pair (newest, next symbol)
            chain[oldest * SYMBOLS + newest, target : target + SYMBOLS] = following[oldest, newest]
    equations = np.vstack([(chain - np.eye(pairs)).T, np.ones(pairs)])
    solution = np.linalg.lstsq(equations, np.append(np.zeros(pairs), 1.0), rcond=None)[0]
    return solution.reshape(SYMBOLS, SYMBOLS)


def entropy(probabilities: np.ndarray) -> float:
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())


def test_the_stationary_distribution_solves_the_equations_of_the_chain(solved):
    assert (solved > -1e-12).all() and solved.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(stationary(), solved, rtol=0, atol=1e-12)


def test_the_entropy_rate_is_the_difference_of_two_block_entropies(solved):
    pairs = solved.clip(min=0)
    triples = pairs[:, :, None] * transitions()
    assert entropy_rate() == pytest.approx(entropy(triples) - entropy(pairs), abs=1e-10)
    assert (
        0.5 < entropy_rate() < math.log(SYMBOLS) - 0.5
    )  # there is something to learn, and something that cannot be learnt


def test_a_sequence_costs_its_first_target_more(solved):
    """The chain rule: T targets after the first symbol cost H(2) − H(1) + (T − 1) (H(3) − H(2))."""
    pairs = solved.clip(min=0)
    first = entropy(pairs) - entropy(pairs.sum(axis=1))
    rest = entropy(pairs[:, :, None] * transitions()) - entropy(pairs)
    assert sequence_entropy() == pytest.approx((first + (LENGTH - 1) * rest) / LENGTH, abs=1e-10)
    assert entropy_rate() < sequence_entropy() < math.log(SYMBOLS)


def test_the_transitions_are_probabilities_of_every_symbol():
    following = transitions()
    assert following.shape == (SYMBOLS,) * 3 and (following > 0).all()
    np.testing.assert_allclose(following.sum(axis=2), 1, rtol=1e-12)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> tuple[float, int]:
    """Return Σ (observed − expected)²/expected over cells with at least 5 expected counts, and the number of these cells."""
    expected = counts.sum(axis=-1, keepdims=True) * probabilities
    cells = expected >= 5
    return float(((counts - expected)[cells] ** 2 / expected[cells]).sum()), int(cells.sum())


@pytest.mark.parametrize("position", [2, 3, LENGTH])
def test_the_sequences_follow_the_transitions(position):
    text = sequences(60_000, LENGTH + 1)
    counts = np.zeros((SYMBOLS,) * 3)
    np.add.at(counts, (text[:, position - 2], text[:, position - 1], text[:, position]), 1)
    statistic, cells = chi_square(counts, transitions())
    assert cells > 500
    assert statistic < cells + 5 * math.sqrt(
        2 * cells
    )  # mean and variance of χ²; the rows lose some degrees of freedom


@pytest.mark.parametrize("position", [0, LENGTH // 2, LENGTH - 1])
def test_every_position_has_the_stationary_distribution(position):
    text = sequences(60_000, LENGTH + 1)
    counts = np.zeros(SYMBOLS**2)
    np.add.at(counts, text[:, position] * SYMBOLS + text[:, position + 1], 1)
    statistic, cells = chi_square(counts, stationary().ravel())
    assert cells > 300
    assert statistic < cells + 5 * math.sqrt(2 * cells)


def test_targets_are_the_next_tokens(splits):
    for inputs, targets, samples in (
        (splits.train_images, splits.train_labels, TRAIN),
        (splits.test_images, splits.test_labels, TEST),
    ):
        assert inputs.shape == targets.shape == (samples, LENGTH) and inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
        assert inputs.min() == 0 and inputs.max() == SYMBOLS - 1


def test_the_data_are_equal_for_every_seed_and_have_one_digest(splits):
    dataset = datasets.get("markov_text")
    other = dataset.load(CPU, None, 7)
    assert dataset.same_for_every_seed and other.digest == splits.digest == DIGEST
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(other, name), getattr(splits, name))


def test_the_card_describes_the_data(splits):
    card = datasets.get("markov_text").card
    assert (card.task, card.classes, card.image_shape, card.train_samples) == (
        "token_prediction", SYMBOLS, splits.train_images.shape[1:], len(splits.train_images),
    )  # fmt: skip
    assert splits.entropy_rate == sequence_entropy()


class TrueModel(nn.Module):
    """The logarithms of the true probabilities: given two preceding symbols, or one at position 0."""

    def forward(self, tokens):
        following, pairs = torch.from_numpy(transitions()), torch.from_numpy(stationary())
        first = (pairs / pairs.sum(dim=1, keepdim=True))[tokens[:, :1]]
        return torch.cat([first, following[tokens[:, :-1], tokens[:, 1:]]], dim=1).log()


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_model_of_the_source_has_the_smallest_expected_loss(splits, part):
    inputs, targets = getattr(splits, f"{part}_images"), getattr(splits, f"{part}_labels")
    task, model = TokenPrediction(), TrueModel()
    loss = task.evaluate(model, inputs, targets)["token_loss"].value
    per_sequence = task.sample_losses(model(inputs), targets) / LENGTH
    standard_error = per_sequence.std().item() / math.sqrt(len(inputs))
    assert abs(loss - splits.entropy_rate) < 4 * standard_error < 0.1


def test_a_model_that_sees_one_symbol_only_has_a_larger_loss(splits):
    class FirstOrder(TrueModel):
        def forward(self, tokens):
            pairs = torch.from_numpy(stationary())
            return (pairs / pairs.sum(dim=1, keepdim=True))[tokens].log()

    loss = TokenPrediction().evaluate(FirstOrder(), splits.test_images, splits.test_labels)["token_loss"].value
    assert loss > splits.entropy_rate + 0.2
