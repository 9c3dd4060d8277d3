"""Properties that a card of the weight feedback family may declare: what its B has to do with the weights W it stands in for."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fa_registry.methods._replaced import backward_std, layer_weights
from fa_registry.seeding import generator
from fa_registry.testing.cases import CLASSES, Case, Setting
from fa_registry.testing.outcomes import Outcome, failed, passed, within
from fa_registry.testing.universal import AUTOGRAD_TOLERANCE, compare
from fa_registry.training.task import network_shape

SIGN_STEPS = 20
RATE, DECAY, DECAY_STEPS = 0.05, 1.0, 20
DECAY_TOLERANCE = 1e-9
MIRROR = {"mirror_rate": 0.05, "mirror_batch": 256}  # faster and less noisy than the default
MIRROR_STEPS = 120  # six times 1/d: of the start exp(−6) is left
NOISE_FACTOR = 2.0  # ‖B − W‖² of one layer of 16 features scatters by some 15 % about its expectation


def feedback_follows_sign(setting: Setting) -> Outcome:
    """sign(B) = sign(W) in every layer, at init and when training has turned some signs; |B| is one number a layer where the
    feedback state holds no tensor that could hold magnitudes."""
    case = setting.case()
    start = {name: weight.sign() for name, weight in _weights(case).items()}
    if wrong := _off_sign(case):
        return failed(f"at init: {wrong}")
    case.train(SIGN_STEPS)
    if wrong := _off_sign(case):
        return failed(f"after {SIGN_STEPS} steps: {wrong}")
    turned = sum(int((weight.sign() != start[name]).sum()) for name, weight in _weights(case).items())
    if not turned:
        return failed(f"no weight changed its sign within {SIGN_STEPS} steps, so nothing was there to follow")
    return passed(f"{turned} signs turned within {SIGN_STEPS} steps and were followed")


def usf_on_sign_weights_gives_bp(setting: Setting) -> Outcome:
    """On a network whose own weights are out^(-1/2) sign(W), credits and one step's gradients are backpropagation's."""
    case = setting.case()
    for weight in _weights(case).values():
        weight.copy_(weight.sign() * backward_std(weight.shape))
    return gives_bp(case)


def kolen_pollack_converges(setting: Setting) -> Outcome:
    """Under SGD with rate η and weight decay λ on weights and feedback alike, W − B = (1 − ηλ)^t (W − B at the start)."""
    case = setting.case()
    start = _gaps(case)
    learning = [*case.network.parameters(), *case.feedback.parameters()]
    optimizer = torch.optim.SGD(learning, lr=RATE, weight_decay=DECAY)
    for _ in range(DECAY_STEPS):
        case.step(credit_norm="rms")
        optimizer.step()
    left = (1 - RATE * DECAY) ** DECAY_STEPS
    return within(list(start), list(_gaps(case).values()), [gap * left for gap in start.values()], DECAY_TOLERANCE)


def mirror_converges(setting: Setting) -> Outcome:
    """With W at rest, mirroring takes B to W within the noise of its average.

    The estimate W ξᵀξ/n has E‖W ξᵀξ/n − W‖² = ‖W‖² (in + 1)/n, and an average with rate d keeps d²Σ_k (1−d)^{2k} of it.
    """
    case = _mirroring(setting)
    rate, samples = MIRROR["mirror_rate"], MIRROR["mirror_batch"]
    left = (1 - rate) ** (2 * MIRROR_STEPS)
    kept = rate**2 * (1 - left) / (1 - (1 - rate) ** 2)
    starts, weights = _squares(_gaps(case)), _weights(case)
    expected = sum(
        left * starts[name] + kept * _square(weight) * (weight.shape[1] + 1) / samples
        for name, weight in weights.items()
    )
    inputs = dataclasses.replace(case.inputs(measuring=False), generator=generator(setting.seed, "method"))
    with torch.no_grad():
        for _ in range(MIRROR_STEPS):
            setting.method.update_feedback(case.feedback, inputs)
    ratio = sum(_squares(_gaps(case)).values()) / expected
    figure = f"‖B − W‖² is {ratio:.2f} of its expectation, allowed 1/{NOISE_FACTOR:g} to {NOISE_FACTOR:g}"
    return passed(figure) if 1 / NOISE_FACTOR <= ratio <= NOISE_FACTOR else failed(figure)


def _mirroring(setting: Setting) -> Case:
    """The setting's case, its feedback drawn with the options of MIRROR."""
    case = setting.case()
    shape = network_shape(case.network, case.images[:1], CLASSES)
    feedback = setting.method.feedback(shape, MIRROR, generator(setting.seed, "feedback"))
    return dataclasses.replace(case, feedback=feedback.double())


def gives_bp(case: Case) -> Outcome:
    """Whether the case's credits and one step's gradients are backpropagation's."""
    inputs = case.inputs()
    names = [f"site {site}" for site in range(len(inputs.hidden))]
    credits = within(names, case.credits(inputs), inputs.gradients, AUTOGRAD_TOLERANCE)
    return credits if credits.outcome != "pass" else compare(case.step(), case.true_step())


def _off_sign(case: Case) -> str:
    """The first layer whose B has another sign than W somewhere, or two magnitudes and no state for them; empty if none."""
    matrices = case.method.backward_weights(case.feedback, case.network)
    for name, weight in _weights(case).items():
        matrix = matrices[name]
        if other := int((matrix.sign() != weight.sign()).sum()):
            return f"{other} of {weight.numel()} entries of {name} have another sign than the weight"
        if not case.feedback.state_dict() and (matrix.abs() != matrix.abs().max()).any():
            return f"|B| of {name} is not one number"
    return ""


def _weights(case: Case) -> dict[str, Tensor]:
    """W of every layer that B stands in for: the network's own tensors, detached."""
    return layer_weights(case.network, case.feedback.layers)


def _gaps(case: Case) -> dict[str, Tensor]:
    """W − B of every layer."""
    matrices = case.method.backward_weights(case.feedback, case.network)
    return {name: weight - matrices[name] for name, weight in _weights(case).items()}


def _squares(tensors: dict[str, Tensor]) -> dict[str, float]:
    return {name: _square(tensor) for name, tensor in tensors.items()}


def _square(tensor: Tensor) -> float:
    """The squared Frobenius norm."""
    return tensor.square().sum().item()
