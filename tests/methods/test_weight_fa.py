"""weight_fa: distribution of B, the reference implementation, FA ≡ DFA at one hidden block, chained step against local credits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry.architectures.mlp import PLUGIN as MLP
from fa_registry.architectures.resmlp import PLUGIN as RESMLP
from fa_registry.conformance.small_networks import NetworkCase, Setting, variants
from fa_registry.errors import InvalidFields
from fa_registry.methods import dfa
from fa_registry.methods._backward_weights import backward_through, replaced_credits
from fa_registry.methods.base import CreditInputs, FixedMatrices, Method, NetworkShape, NoFeedback
from fa_registry.methods.weight_fa import PLUGIN
from fa_registry.training.specs import parse_spec
from tests.helpers import numpy_checks
from tests.helpers.numpy_backward_weights import replaced_gradients, stored
from tests.helpers.numpy_resmlp import Arrays
from tests.helpers.tiny_tasks import RAW

SETTINGS = [
    Setting(PLUGIN, architecture, options, seed=4)
    for architecture in (RESMLP, MLP)
    for options in variants(architecture)
]


def weight_fa_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    return replaced_gradients(w, stored(w, feedback), x, y, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("weight_fa", weight_fa_reference, penalty, credit_norm)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_optimiser_equals_the_reference(penalty):
    numpy_checks.check_optimiser("weight_fa", weight_fa_reference, penalty, "rms")


def test_feedback_has_variance_one_over_out():
    shape = NetworkShape((300, 200), 25, weights={"blocks.0.w": (200, 300), "out_head": (25, 2000)})
    state = PLUGIN.feedback(shape, {}, torch.Generator().manual_seed(0)).state_dict()
    found = {name: tuple(value.shape) for name, value in state.items()}
    assert found == {"B_blocks_0_w": (200, 300), "B_out_head": (25, 2000)}
    assert state["B_blocks_0_w"].var().item() == pytest.approx(1 / 200, rel=0.03)  # 60,000 entries: its std is 0.6 %
    assert state["B_out_head"].var().item() == pytest.approx(1 / 25, rel=0.03)
    assert abs(state["B_out_head"].mean().item()) < 4 * (1 / 25) ** 0.5 / 50_000**0.5


def mlp_case(method: Method, blocks: int) -> NetworkCase:
    return Setting(method, MLP, {"d_hidden": 16, "num_blocks": blocks}, seed=2).case()


def test_one_hidden_block_makes_fa_and_dfa_the_same():
    """c_1 = e B_head, which is DFA's e B_1ᵀ with B_1 = B_headᵀ. On mlp site 0 is the input, where nothing learns."""
    chained = mlp_case(PLUGIN, blocks=1)
    direct = dataclasses.replace(mlp_case(dfa.PLUGIN, blocks=1), network=chained.network)
    direct.feedback.load_state_dict({"B_01": chained.feedback.B_out_head.T}, strict=False)
    assert isinstance(direct.feedback, FixedMatrices)
    left, right = (case.credits(case.inputs())[1] for case in (chained, direct))
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    for penalty, credit_norm in ((0.0, "none"), (0.05, "rms")):
        first, second = (case.step(penalty, credit_norm) for case in (chained, direct))
        assert first.keys() == second.keys() and first["blocks.0.w.weight"].abs().max() > 0
        for name, gradient in first.items():
            torch.testing.assert_close(gradient, second[name], rtol=1e-12, atol=1e-14, msg=name)


class Given(Method):
    """A local rule with weight_fa's card that hands over these credits."""

    card = PLUGIN.card

    def __init__(self, credits: list[torch.Tensor]):
        self.given = credits

    def feedback(self, shape: NetworkShape, options, generator: torch.Generator) -> nn.Module:
        return NoFeedback()

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[torch.Tensor]:
        return self.given


@pytest.mark.parametrize("credit_norm", ["none", "rms"])
@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.label)
def test_the_chained_step_equals_local_credits(setting, penalty, credit_norm):
    """The engine's one backward pass is the local rule under c_l of `replaced_credits`; out_ln and head stay exact."""
    case = setting.case()
    chained = case.step(penalty, credit_norm)
    matrices = case.feedback.matrices()
    local = dataclasses.replace(case, method=Given(replaced_credits(case.inputs(), matrices)))
    with backward_through(case.network, {name: matrix for name, matrix in matrices.items() if "blocks" in name}):
        expected = local.step(penalty, credit_norm)
    assert chained.keys() == expected.keys()
    for name, gradient in chained.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-13, msg=name)


def test_an_architecture_without_replaceable_layers_is_refused():
    with pytest.raises(InvalidFields, match="weight_fa supports resmlp, mlp, .*not linear_lq: a matrix B replaces"):
        parse_spec({**RAW, "method": "weight_fa", "architecture": "linear_lq", "architecture_options": {}})


def test_the_card_calls_no_site_exact():
    assert not any(PLUGIN.card.is_exact(site, 3) for site in range(4))
