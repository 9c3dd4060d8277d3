"""Declared properties of methods that relax states on an energy."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fa_registry.diagnostics import evaluating
from fa_registry.methods.base import CreditInputs
from fa_registry.records import Scalar
from fa_registry.testing.cases import Case, Setting, draw_feedback
from fa_registry.testing.outcomes import Outcome, failed, inapplicable, passed, relative_error, within
from fa_registry.testing.universal import AUTOGRAD_TOLERANCE
from fa_registry.training.asking import credits_and_states_of
from fa_registry.training.task import network_shape

# Descent on the energy contracts by 1 − η λ_min a step, λ_min = 0.2 for two blocks with Jacobians near 1: e^-20 is left.
GENTLE = {"w2_std": 0.05, "num_blocks": 2}
NOT_GENTLE = "without skips, LayerNorm divides by the spread of a small branch: no weights make these blocks gentle"
RELAXED: dict[str, Scalar] = {"steps": 500, "step_size": 0.2}
NUDGES = (1e-3, 1e-5)
NUDGE_TOLERANCE = 1e-4  # the error is β times a curvature, which is below 10 here
NUDGED_SAMPLES = 8


def prediction_errors_give_bp(setting: Setting) -> Outcome:
    """As β → 0 with the states at rest, −ε_l/β → g_l at every site, ε_l those of the nudged states: the s_l that the method moves
    to, or h_l − β c_l where it moves none. Where it does, c_l → g_l too.

    Sees a wrong sign, factor or site of a credit that is a displacement, although that is not itself the gradient.
    """
    gentle = _gentle(setting)
    if gentle is None:
        return inapplicable(NOT_GENTLE)
    worst = [_prediction_error_gap(gentle, nudge) for nudge in NUDGES]
    figure = f"relative error {worst[0]:.1e} at β = {NUDGES[0]:g}, {worst[1]:.1e} at {NUDGES[1]:g}"
    if worst[1] > NUDGE_TOLERANCE:
        return failed(f"{figure}, allowed {NUDGE_TOLERANCE:g} there")
    return passed(figure) if worst[1] < worst[0] / 10 else failed(f"{figure}: it must shrink with β")


def fixed_prediction_gives_bp(setting: Setting) -> Outcome:
    """With fixed predictions, step size 1 and L+1 steps, c_l = g_l at every site."""
    case = setting.case()
    case = _with_options(setting, case, {"fixed_prediction": True, "step_size": 1.0, "steps": case.blocks + 1})
    inputs = case.inputs()
    credits = case.credits(inputs)
    return within([f"site {site}" for site in range(len(credits))], credits, inputs.gradients, AUTOGRAD_TOLERANCE)


def _prediction_error_gap(setting: Setting, nudge: float) -> float:
    """Largest relative error of −ε_l/β, and of c_l where states are moved, against g_l over the sites."""
    case = _with_options(setting, setting.case(), {**RELAXED, "beta": nudge})
    inputs = case.inputs(count=NUDGED_SAMPLES)
    with evaluating(case.network):
        credits, states = credits_and_states_of(case.method, case.feedback, inputs)
    moved = states is not inputs.hidden
    if not moved:
        states = [state - nudge * credit for state, credit in zip(inputs.hidden, credits, strict=True)]
    estimates = [-error / nudge for error in _errors(case, inputs, states)] + (credits if moved else [])
    exact = inputs.gradients * (1 + moved)
    return max(relative_error(estimate, gradient) for estimate, gradient in zip(estimates, exact, strict=True))


def _errors(case: Case, inputs: CreditInputs, states: list[Tensor]) -> list[Tensor]:
    """ε_0..ε_L of these states: each against what the state below predicts of it."""
    network, errors = case.network, [states[0] - inputs.hidden[0]]
    with torch.no_grad(), evaluating(network):
        for block, below, above in zip(network.blocks, states[:-1], states[1:], strict=True):
            errors.append(above - network.step(below, block(below)))
    return errors


def _gentle(setting: Setting) -> Setting | None:
    """The same architecture with small second weights and at most two blocks; None where a variant has no skips to leave."""
    if not setting.options.get("residual", True):
        return None
    known = setting.architecture.card.options
    changes = {name: min(value, setting.options.get(name, value)) for name, value in GENTLE.items() if name in known}
    return dataclasses.replace(setting, options={**setting.options, **changes})


def _with_options(setting: Setting, case: Case, changes: dict[str, Scalar]) -> Case:
    """The case with a feedback state drawn at the setting's options but for `changes`."""
    shape = network_shape(case.network, case.images[:1], case.labels.max().item() + 1)
    feedback = draw_feedback(setting.method, shape, setting.seed, {**setting.method_options, **changes})
    return dataclasses.replace(case, feedback=feedback.double())
