"""Properties that a card may declare by name. A declared name that is not in DECLARED fails: nobody could hold it to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from fa_registry.methods.base import CreditInputs, UpdatesFeedback
from fa_registry.records import Recipe
from fa_registry.seeding import generator
from fa_registry.testing import (
    declared_energy,
    declared_matrices,
    declared_targets,
    declared_weights,
)
from fa_registry.testing.cases import Case, Setting
from fa_registry.testing.outcomes import Outcome, failed, passed
from fa_registry.training.asking import held

STEPS = 60  # at most
FALL = 0.9  # of the loss before


def feedback_learns(setting: Setting) -> Outcome:
    """On one batch and with the network at rest, the feedback's own loss falls by a tenth and more under the default recipe."""
    case = setting.case()
    inputs = case.inputs(measuring=False)
    learning = [parameter for parameter in case.feedback.parameters() if parameter.requires_grad]
    if not learning:
        return failed("declared, but the feedback state holds no parameter that learns")
    optimizer = torch.optim.AdamW(learning, lr=Recipe().learning_rate)
    first = _feedback_loss(case, inputs, setting)
    loss, share, taken = first, 1.0, 0
    while share >= FALL and taken < STEPS:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if isinstance(case.method, UpdatesFeedback):
            with torch.no_grad():
                case.method.update_feedback(case.feedback, dataclasses.replace(inputs, progress=1.0))
        loss, taken = _feedback_loss(case, inputs, setting), taken + 1
        share = (loss / first).item()
    figure = f"its loss is {share:.2f} of what it was after {taken} steps, expected below {FALL} after {STEPS} at most"
    return passed(figure) if share < FALL else failed(figure)


def _feedback_loss(case: Case, inputs: CreditInputs, setting: Setting) -> torch.Tensor:
    """The feedback's loss on these inputs, with the same draws every time."""
    seen = dataclasses.replace(inputs, generator=generator(setting.seed, "method"))
    with held(case.network):
        return case.method.feedback_loss(case.feedback, seen)


CHECKS: tuple[Callable[[Setting], Outcome], ...] = (
    declared_matrices.exact,
    declared_matrices.approaches_bp,
    declared_matrices.feedback_fixed,
    declared_matrices.block_jacobian_gives_bp,
    declared_matrices.output_jacobian_gives_bp,
    declared_matrices.transposed_weights_give_bp,
    declared_weights.feedback_follows_sign,
    declared_weights.usf_on_sign_weights_gives_bp,
    declared_weights.kolen_pollack_converges,
    declared_weights.mirror_converges,
    feedback_learns,
    declared_energy.prediction_errors_give_bp,
    declared_energy.fixed_prediction_gives_bp,
    declared_targets.drtp_ignores_error,
    declared_targets.output_jacobian_gives_target_slope,
    declared_targets.modulation_gives_bp_at_the_input,
    declared_targets.credit_ignores_blocks_above,
)
DECLARED = {check.__name__: check for check in CHECKS}
