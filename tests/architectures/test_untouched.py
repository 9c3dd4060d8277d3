"""States and gradients at every site equal autograd through a model written the usual way, wherever its skip is."""

from __future__ import annotations

import pytest
import torch

from fa_registry.architectures import adapt
from fa_registry.diagnostics import look
from fa_registry.errors import UsageError
from tests.architectures.drawing import CLASSES, normal
from tests.architectures.plain_models import DEPTH, PLAIN, SHAPE, autograd_figures, pair

SAMPLES = 6
LABELS = torch.arange(SAMPLES) % CLASSES
INSIDE = ("small_resnet", "vit_mini")


def images() -> torch.Tensor:
    return normal(SAMPLES, *SHAPE)


def agree(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-10, atol=1e-10 * expected.abs().max().item())


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("looked_at", ["ours", "adapted"])
def test_logits_states_and_gradients_are_autograds(name, looked_at):
    both = pair(name)
    network = both.ours if looked_at == "ours" else adapt(both.plain, skip=both.plain.skip)
    seen = look(network, images(), LABELS, double=False).single
    logits, states, gradients = autograd_figures(both.plain, images(), LABELS)
    assert agree(both.plain(images()), logits)  # run block by block it is still the untouched model
    assert agree(seen.logits, logits)
    assert len(seen.hidden) == len(states) == DEPTH + 1
    for site in range(DEPTH + 1):
        assert agree(seen.hidden[site], states[site]), f"state {site}"
        assert agree(seen.gradients[site], gradients[site]), f"gradient {site}"


@pytest.mark.parametrize("name", INSIDE)
def test_the_published_heuristic_measures_another_network(name):
    """It always answers "no internal skip" and adds h to a block's output, which has it already: other states, other gradients."""
    plain = pair(name).plain
    _, states, true = autograd_figures(plain, images(), LABELS)
    _, twice, wrong = autograd_figures(plain, images(), LABELS, skip="outside")
    assert agree(twice[0], states[0]) and not agree(twice[1], states[1])
    for site in range(DEPTH + 1):
        assert (wrong[site] - true[site]).norm() > 0.2 * true[site].norm(), f"gradient {site}"


@pytest.mark.parametrize("name", INSIDE)
def test_a_skip_inside_that_is_declared_outside_is_refused(name):
    with pytest.raises(UsageError, match="declare skip='inside'"):
        look(adapt(pair(name).plain, skip="outside"), images(), LABELS, double=False)


def test_a_skip_outside_that_is_declared_inside_is_refused():
    with pytest.raises(UsageError, match="declare skip='outside'"):
        look(adapt(pair("resmlp").plain, skip="inside"), images(), LABELS, double=False)
