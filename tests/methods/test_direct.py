"""dfa and drtp: distribution of B, c_0 from B_1, and their reference implementations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fa_registry.architectures.resmlp import PLUGIN as RESMLP
from fa_registry.conformance.small_networks import Setting
from fa_registry.methods.base import CreditInputs, FixedMatrices, NetworkShape
from fa_registry.methods.dfa import PLUGIN as DFA
from fa_registry.methods.drtp import PLUGIN as DRTP
from tests.helpers import numpy_checks
from tests.helpers.numpy_resmlp import Arrays, local_gradients


def dfa_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_l = e B_lᵀ; c_0 uses B_1."""

    def credit(states, error, top_gradient):
        return [error @ feedback[f"B_{max(site, 1):02d}"].T for site in range(len(states))]

    return local_gradients(w, x, y, credit, penalty, kind)


def drtp_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """c_l = onehot(y) B_lᵀ: row y of B_lᵀ; c_0 uses B_1."""

    def credit(states, error, top_gradient):
        return [feedback[f"B_{max(site, 1):02d}"][:, y].T for site in range(len(states))]

    return local_gradients(w, x, y, credit, penalty, kind)


REFERENCES = {"dfa": dfa_reference, "drtp": drtp_reference}


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
@pytest.mark.parametrize("method", REFERENCES)
def test_step_equals_the_reference(method, penalty, credit_norm):
    numpy_checks.check_step(method, REFERENCES[method], penalty, credit_norm)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("method", REFERENCES)
def test_optimiser_equals_the_reference(method, penalty):
    numpy_checks.check_optimiser(method, REFERENCES[method], penalty, "rms")


def test_feedback_has_variance_one_over_classes():
    state = DFA.feedback(NetworkShape((2000, 2000, 3000), 25), {}, torch.Generator().manual_seed(0)).state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == {"B_01": (2000, 25), "B_02": (3000, 25)}
    assert state["B_01"].var().item() == pytest.approx(1 / 25, rel=0.03)  # 50,000 entries: the std of this is 0.6 %
    assert state["B_02"].var().item() == pytest.approx(1 / 25, rel=0.03)


def test_a_site_zero_of_another_width_has_its_own_matrix_and_the_others_stay_what_they_were():
    own = DFA.feedback(NetworkShape((7, 6, 5), 4), {}, torch.Generator().manual_seed(0))
    shared = DFA.feedback(NetworkShape((6, 6, 5), 4), {}, torch.Generator().manual_seed(0))
    assert own.B_00.shape == (7, 4) and not hasattr(shared, "B_00")
    assert torch.equal(own.B_01, shared.B_01) and torch.equal(own.B_02, shared.B_02)
    error = torch.tensor([[1.0, -1.0, 0.0, 2.0]])
    hidden = [torch.zeros(1, width) for width in (7, 6, 5)]
    credits = DFA.credits(own, CreditInputs(hidden, error, error, hidden[-1]))
    assert torch.equal(credits[0], error @ own.B_00.T) and torch.equal(credits[1], error @ own.B_01.T)


def test_site_zero_shares_the_first_matrix():
    matrices = [torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])]
    error = torch.tensor([[1.0, -1.0], [0.5, 0.0]])
    hidden = [torch.zeros(2, 3)] * 3
    zero, one, two = DFA.credits(FixedMatrices(matrices), CreditInputs(hidden, error, error, hidden[0]))
    assert zero.tolist() == one.tolist() == [[-1.0, -1.0, -1.0], [0.5, 1.5, 2.5]]
    assert two.tolist() == [[-1.0, 1.0, 0.0], [0.0, 0.5, 0.5]]


def test_the_card_calls_no_site_exact():
    assert not any(DFA.card.is_exact(site, 3) for site in range(4))


def test_feedback_is_dfas():
    shape = NetworkShape((7, 20, 30), 5)
    own, dfas = (method.feedback(shape, {}, torch.Generator().manual_seed(4)).state_dict() for method in (DRTP, DFA))
    assert own.keys() == dfas.keys() == {"B_01", "B_02", "B_00"}
    assert all(torch.equal(own[name], dfas[name]) for name in own)


def test_each_class_has_one_credit_a_site():
    matrices = [torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[0.0, 1.0], [-1.0, 0.0], [1.0, 1.0]])]
    onehot, error = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[9.0, 9.0], [9.0, 9.0]])
    hidden = [torch.zeros(2, 3)] * 3
    zero, one, two = DRTP.credits(FixedMatrices(matrices), CreditInputs(hidden, error, onehot, hidden[0]))
    assert zero.tolist() == one.tolist() == [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
    assert two.tolist() == [[0.0, -1.0, 1.0], [1.0, 0.0, 1.0]]


def test_samples_of_one_class_get_one_credit_whatever_their_images():
    case = Setting(DRTP, RESMLP, {"d_hidden": 16, "num_blocks": 3, "w2_std": 0.5}, 0).case()
    for credit in case.credits(case.inputs()):
        assert len(credit.unique(dim=0)) == len(case.labels.unique()) == 5
