"""fa: distribution of B, exact top site, the reference implementation, and FA ≡ DFA."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.methods import dfa, fa
from fa_registry.methods.base import CreditInputs, FixedMatrices, NetworkShape
from tests.helpers import numpy_checks
from tests.helpers.numpy_resmlp import Arrays, local_gradients


def fa_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_L = g_L, c_{l-1} = c_l B_l, normalised as those of the mean loss."""

    def credit(states, error, top_gradient):
        credits = [top_gradient]
        for block in range(len(states) - 1, 0, -1):
            credits.insert(0, credits[0] @ feedback[f"B_{block:02d}"])
        return credits

    return local_gradients(w, x, y, credit, penalty, kind, held=len(x))


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("fa", fa_reference, penalty, credit_norm)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_optimiser_equals_the_reference(penalty):
    numpy_checks.check_optimiser("fa", fa_reference, penalty, "rms")


def test_feedback_has_variance_one_over_width():
    shape = NetworkShape((200, 300, 400), 10)
    state = fa.PLUGIN.feedback(shape, {}, torch.Generator().manual_seed(0)).state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == {"B_01": (300, 200), "B_02": (400, 300)}
    assert state["B_01"].var().item() == pytest.approx(1 / 300, rel=0.03)  # 60,000 entries: the std of this is 0.6 %
    assert state["B_02"].var().item() == pytest.approx(1 / 400, rel=0.03)
    assert abs(state["B_02"].mean().item()) < 4 * (1 / 400) ** 0.5 / 120_000**0.5


def random_inputs(blocks: int, output_gradient: torch.Tensor, error: torch.Tensor) -> CreditInputs:
    hidden = [torch.zeros_like(output_gradient) for _ in range(blocks + 1)]
    return CreditInputs(hidden, error, torch.zeros_like(error), output_gradient)


@pytest.mark.parametrize("blocks", [1, 3])
def test_fa_equals_dfa_with_the_composed_feedback(blocks):
    """With c_L = g_L = e W (head W, no LayerNorm), FA's credit at site l is e (W B_L … B_{l+1}): DFA's, once its matrix is that
    product transposed. At one hidden block this says: DFA's B_1 is FA's feedback into that block, Wᵀ, "the same B". DFA shares
    B_1 between block 1 and the embedding, so site 0 coincides only if FA's own B_1 passes the credit on unchanged.
    """
    stream = torch.Generator().manual_seed(5)
    width, classes, samples = 6, 4, 7
    head = torch.randn(classes, width, generator=stream, dtype=torch.float64)
    error = torch.randn(samples, classes, generator=stream, dtype=torch.float64)
    matrices = [torch.randn(width, width, generator=stream, dtype=torch.float64) for _ in range(blocks)]
    matrices[0] = torch.eye(width, dtype=torch.float64)
    composed = [head]
    for matrix in reversed(matrices[1:]):
        composed.insert(0, composed[0] @ matrix)
    inputs = random_inputs(blocks, error @ head, error)
    chained = fa.PLUGIN.credits(FixedMatrices(matrices), inputs)
    direct = dfa.PLUGIN.credits(FixedMatrices([matrix.T for matrix in composed]), inputs)
    assert len(chained) == len(direct) == blocks + 1
    for left, right in zip(chained, direct, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_the_card_calls_the_last_site_exact():
    assert [fa.PLUGIN.card.is_exact(site, 3) for site in range(4)] == [False, False, False, True]
