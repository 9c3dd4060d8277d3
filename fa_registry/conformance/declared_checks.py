"""Properties that are tested only if the card of a method declares them by name.

If a card declares a name that is not in DECLARED, the property fails.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fa_registry.conformance.contract_checks import AUTOGRAD_TOLERANCE, SITE_TOLERANCE, compare, cosines_with_bp
from fa_registry.conformance.outcomes import CheckOutcome, failed, inapplicable, passed, relative_error, within
from fa_registry.conformance.small_networks import CLASSES, NetworkCase, Setting, draw_feedback, linear_case
from fa_registry.datasets.base import tensors_digest
from fa_registry.diagnostics import eval_mode
from fa_registry.diagnostics.base import sample_cosines
from fa_registry.methods._backward_weights import backward_std, key, layer_weights
from fa_registry.methods.base import CreditInputs, HasFeedbackRule
from fa_registry.records import Recipe, Scalar
from fa_registry.seeding import generator
from fa_registry.training.method_calls import credits_and_states_of, frozen_weights
from fa_registry.training.run_setup import network_shape

SIGN_STEPS = 20
RATE, DECAY, DECAY_STEPS = 0.05, 1.0, 20
DECAY_TOLERANCE = 1e-9
NUMBERED = re.compile(r"B_\d+")  # names of the matrices in methods.base.FixedMatrices
MIRROR = {"mirror_rate": 0.05, "mirror_batch": 256}  # faster and less noisy than the default
MIRROR_STEPS = 120  # six times 1/d: exp(−6) of the initial difference between B and W remains
FORWARD_STEPS, FASTER = 150, 5  # five times the default rate: exp(−7) of the initial B of fdfa remains
ALIGNED = 0.95
NOISE_FACTOR = 2.0  # ‖B − W‖² of one layer of 16 features varies by about 15 % around its expectation


def feedback_follows_sign(setting: Setting) -> CheckOutcome:
    """Check that sign(B) = sign(W) in every layer, before and after training.

    W is the weight of a layer, and B replaces W in the backward pass. Training must change the sign of at least one weight. If the
    feedback state contains no tensors, all |B| of a layer must be equal.
    """
    case = setting.case()
    start = {name: weight.sign() for name, weight in _weights(case).items()}
    if violation := _off_sign(case):
        return failed(f"at init: {violation}")
    case.train(SIGN_STEPS)
    if violation := _off_sign(case):
        return failed(f"after {SIGN_STEPS} steps: {violation}")
    sign_changes = sum(int((weight.sign() != start[name]).sum()) for name, weight in _weights(case).items())
    if not sign_changes:
        return failed(
            f"expected a weight that changes its sign within {SIGN_STEPS} steps, found none; the check could not test the "
            "feedback B"
        )
    return passed(
        f"{sign_changes} weights changed their sign within {SIGN_STEPS} steps, and so did the same entries of B"
    )


def usf_on_sign_weights_gives_bp(setting: Setting) -> CheckOutcome:
    """Check that one step equals backpropagation if |W| = 1/√out for every entry of W.

    `out` is the number of outputs that depend on one input of the layer. Credits and parameter gradients are compared.
    """
    case = setting.case()
    for weight in _weights(case).values():
        weight.copy_(weight.sign() * backward_std(weight.shape))
    return gives_bp(case)


def kolen_pollack_converges(setting: Setting) -> CheckOutcome:
    """Check that W − B decays under SGD as (1 − ηλ)^t (W_0 − B_0).

    Weights and feedback are trained with the same learning rate η and weight decay λ.
    """
    case = setting.case()
    start = _gaps(case)
    learning = [*case.network.parameters(), *case.feedback.parameters()]
    optimizer = torch.optim.SGD(learning, lr=RATE, weight_decay=DECAY)
    for _ in range(DECAY_STEPS):
        case.step(credit_norm="rms")
        optimizer.step()
    remaining = (1 - RATE * DECAY) ** DECAY_STEPS
    return within(list(start), list(_gaps(case).values()), [gap * remaining for gap in start.values()], DECAY_TOLERANCE)


def direct_kolen_pollack_converges(setting: Setting) -> CheckOutcome:
    """Check that W − B_Lᵀ decays under SGD as (1 − ηλ)^t in a linear network.

    W (C, D_L) is the weight of the head, which reads h_L without a LayerNorm. Weights and feedback are trained with the same
    learning rate η and weight decay λ.
    """
    case, jacobians, _ = linear_case(setting)
    learning = [*case.network.parameters(), *case.feedback.parameters()]
    optimizer = torch.optim.SGD(learning, lr=RATE / 10, weight_decay=DECAY)
    gaps = []
    for step in range(DECAY_STEPS + 1):
        gaps.append((case.network.out_head.weight - case.feedback.matrix(len(jacobians)).T).detach().clone())
        if step < DECAY_STEPS:
            case.step(credit_norm="rms")
            optimizer.step()
    remaining = (1 - RATE / 10 * DECAY) ** DECAY_STEPS
    return within(["W − B_Lᵀ"], [gaps[-1]], [gaps[0] * remaining], DECAY_TOLERANCE)


def forward_estimates_converge(setting: Setting) -> CheckOutcome:
    """Check that the feedback of a constant linear network turns to the Jacobians of the logits.

    After many updates without training, the cosine of B_l (D_l, C) with (∂z/∂h_l)ᵀ must be near 1 in every column, at every site
    1..L. The check detects a wrong site, sign, transposition and noise that is shared by sites.
    """
    rate = setting.method.card.options["feedback_rate"].default * FASTER
    case, _, outputs = linear_case(dataclasses.replace(setting, method_options={"feedback_rate": rate}))
    inputs = dataclasses.replace(case.inputs(measuring=False), generator=generator(setting.seed, "method"))
    with torch.no_grad():
        for _ in range(FORWARD_STEPS):
            setting.method.update_feedback(case.feedback, inputs)
    cosines = [
        sample_cosines(case.feedback.matrix(site).T, output).min().item()
        for site, output in enumerate(outputs, start=1)
    ]
    figure = (
        f"smallest cosine of a column of B_l with the Jacobian at sites 1, …: {', '.join(f'{c:.3f}' for c in cosines)}"
    )
    return passed(figure) if min(cosines) > ALIGNED else failed(f"{figure}; expected above {ALIGNED:g}")


def mirror_converges(setting: Setting) -> CheckOutcome:
    """Check that weight mirroring with a constant W moves B to W, except for noise.

    One estimate of W from n samples has the noise E‖W ξᵀξ/n − W‖² = ‖W‖² (in + 1)/n, where `in` is the number of inputs. B is a
    running average of these estimates with the rate d. The average multiplies the noise by d²Σ_k (1−d)^{2k}.
    """
    case = setting.case()
    shape = network_shape(case.network, case.images[:1], CLASSES)
    feedback = setting.method.feedback(shape, MIRROR, generator(setting.seed, "feedback"))
    case = dataclasses.replace(case, feedback=feedback.double())
    rate, samples = MIRROR["mirror_rate"], MIRROR["mirror_batch"]
    remaining = (1 - rate) ** (2 * MIRROR_STEPS)
    noise_gain = rate**2 * (1 - remaining) / (1 - (1 - rate) ** 2)
    starts, weights = _gaps(case), _weights(case)
    expected = sum(
        remaining * _square(starts[name]) + noise_gain * _square(weight) * (weight.shape[1] + 1) / samples
        for name, weight in weights.items()
    )
    inputs = dataclasses.replace(case.inputs(measuring=False), generator=generator(setting.seed, "method"))
    with torch.no_grad():
        for _ in range(MIRROR_STEPS):
            setting.method.update_feedback(case.feedback, inputs)
    ratio = sum(map(_square, _gaps(case).values())) / expected
    figure = f"‖B − W‖² / its expected value: allowed 1/{NOISE_FACTOR:g} to {NOISE_FACTOR:g}, found {ratio:.2f}"
    return passed(figure) if 1 / NOISE_FACTOR <= ratio <= NOISE_FACTOR else failed(figure)


def gives_bp(case: NetworkCase) -> CheckOutcome:
    """Compare the credits and the gradients of one step with backpropagation."""
    inputs = case.inputs()
    names = [f"site {site}" for site in range(len(inputs.hidden))]
    credits = within(names, case.credits(inputs), inputs.gradients, AUTOGRAD_TOLERANCE)
    return credits if credits.outcome != "pass" else compare(case.step(), case.true_step())


def _off_sign(case: NetworkCase) -> str:
    """Return a text about the first layer whose B is wrong, or an empty string.

    B is wrong if its signs differ from those of W, or if |B| is not constant although the feedback state has no tensors.
    """
    matrices = case.method.backward_weights(case.feedback, case.network)
    for name, weight in _weights(case).items():
        matrix = matrices[name]
        if mismatches := int((matrix.sign() != weight.sign()).sum()):
            return f"layer {name}: {mismatches} of {weight.numel()} entries of B do not have the sign of the weight"
        if not case.feedback.state_dict() and (matrix.abs() != matrix.abs().max()).any():
            return f"layer {name}: expected the same |B| for every entry, found different values"
    return ""


def _weights(case: NetworkCase) -> dict[str, Tensor]:
    """Return the detached weight W of every layer in which B replaces W."""
    return layer_weights(case.network, case.feedback.layers)


def _gaps(case: NetworkCase) -> dict[str, Tensor]:
    matrices = case.method.backward_weights(case.feedback, case.network)
    return {name: weight - matrices[name] for name, weight in _weights(case).items()}


def _square(tensor: Tensor) -> float:
    return tensor.square().sum().item()


TRAINED_STEPS = 5
NEAR = 0.5


def exact(setting: Setting) -> CheckOutcome:
    """Check that c_l = g_l at every site."""
    case = setting.case()
    inputs = case.inputs()
    credits = case.credits(inputs)
    return within([f"site {site}" for site in range(len(credits))], credits, inputs.gradients, SITE_TOLERANCE)


def feedback_fixed(setting: Setting) -> CheckOutcome:
    """Check that training does not change the feedback state."""
    case = setting.case()
    state = case.feedback.state_dict()
    if not state:
        return failed("the card declares this property, but the feedback state has no tensor")
    digests = {name: tensors_digest(value) for name, value in state.items()}
    case.train(TRAINED_STEPS)
    changed = [name for name, value in case.feedback.state_dict().items() if tensors_digest(value) != digests[name]]
    return (
        failed(f"{', '.join(changed)} changed within {TRAINED_STEPS} steps")
        if changed
        else passed(f"the feedback is unchanged after {TRAINED_STEPS} steps")
    )


def approaches_bp(setting: Setting) -> CheckOutcome:
    """Check that the credits are close to the gradients in an untrained network.

    At the last site whose credit is not exact, the cosine must be above 0.5. At lower sites, the cosine must only be positive,
    because the errors of the rule multiply from site to site.
    """
    cosines = [value for name, value in cosines_with_bp(setting.case()).items() if name.startswith("the credit")]
    figure = (
        f"cosines with the gradient, in the order of sites from 0: {', '.join(f'{value:.2f}' for value in cosines)}"
    )
    return passed(figure) if cosines[-1] > NEAR and min(cosines) > 0 else failed(figure)


def block_jacobian_gives_bp(setting: Setting) -> CheckOutcome:
    """Check that the credits are exact in a linear network if B_l is the Jacobian of block l.

    B_l = ∂h_l/∂h_{l-1} has the shape (D_l, D_{l-1}).
    """
    case, jacobians, _ = linear_case(setting)
    return _with_feedback(case, jacobians, first_site=0)


def output_jacobian_gives_bp(setting: Setting) -> CheckOutcome:
    """Check that the credits are exact in a linear network if B_l is the Jacobian of the logits.

    B_l = (∂z/∂h_l)ᵀ has the shape (D_l, C). The feedback state contains the matrices B_01, B_02, …, one per site 0..L or one per
    block. If there is one matrix per block, the embedding uses the matrix of block 1, and site 0 is not checked.
    """
    case, jacobians, outputs = linear_case(setting)
    matrices = [output.T for output in outputs]
    if len(_drawn_matrices(case)) <= case.blocks:
        return _with_feedback(case, matrices, first_site=1)
    return _with_feedback(case, [(outputs[0] @ jacobians[0]).T, *matrices], first_site=0)


def transposed_weights_give_bp(setting: Setting) -> CheckOutcome:
    """Check that one step equals backpropagation if every B equals its W.

    W is the weight of a layer. B replaces W in the backward pass: dx = dy B. Credits and parameter gradients are compared.
    """
    case = setting.case()
    weights = layer_weights(case.network, case.feedback.layers)
    case.feedback.load_state_dict({key(name): weight for name, weight in weights.items()}, strict=False)
    return gives_bp(case)


def _with_feedback(case: NetworkCase, matrices: list[Tensor], first_site: int) -> CheckOutcome:
    """Set the feedback matrices B_01, B_02, …, and compare the credits with the exact gradients."""
    new_state = {f"B_{index:02d}": matrix for index, matrix in enumerate(matrices, start=1)}
    if (drawn_names := _drawn_matrices(case)) != sorted(new_state):
        return failed(
            f"expected the matrices {', '.join(new_state)} in the feedback state, as in FixedMatrices, found "
            f"{', '.join(drawn_names or case.feedback.state_dict()) or 'none'}"
        )
    case.feedback.load_state_dict(new_state, strict=False)  # the state may also contain options
    inputs = case.inputs()
    sites = range(first_site, len(inputs.hidden))
    credits = case.credits(inputs)
    names = [f"site {site}" for site in sites]
    return within(
        names, [credits[site] for site in sites], [inputs.gradients[site] for site in sites], AUTOGRAD_TOLERANCE
    )


def _drawn_matrices(case: NetworkCase) -> list[str]:
    return sorted(name for name in case.feedback.state_dict() if NUMBERED.fullmatch(name))


# Each step of the descent multiplies the distance to the minimum by at most 1 − η λ_min. For two blocks with Jacobians near 1,
# λ_min is 0.2, so e^-20 of the distance remains.
GENTLE = {"w2_std": 0.05, "num_blocks": 2}
NOT_GENTLE = (
    "the check needs blocks with small branches: this is impossible without skips, because LayerNorm rescales the branch, and "
    "with attention, which has no option for the scale of its branch"
)
RELAXED: dict[str, Scalar] = {"steps": 500, "step_size": 0.2}
NUDGES = (1e-3, 1e-5)
NUDGE_TOLERANCE = 1e-4  # the error is β times a curvature, which is below 10 here
NUDGED_SAMPLES = 8


def prediction_errors_give_bp(setting: Setting) -> CheckOutcome:
    """Check that −ε_l/β of the relaxed states converges to g_l at every site for β → 0.

    The loss with weight β nudges the states of the network. The nudged states are the states s_l that the method
    returns. If the method returns no states, they are h_l − β c_l. ε_l is the prediction error of the nudged states. If the method
    returns states, c_l must converge to g_l too. The check applies to methods whose credit is a displacement of the states. It
    detects a wrong sign, a wrong factor and a wrong site.
    """
    options = setting.architecture.card.options
    if not setting.options.get("residual", True) or "heads" in options:
        return inapplicable(NOT_GENTLE)
    changes = {name: min(value, setting.options.get(name, value)) for name, value in GENTLE.items() if name in options}
    gentle = dataclasses.replace(setting, options={**setting.options, **changes})
    worst = [_prediction_error_gap(gentle, nudge) for nudge in NUDGES]
    figure = f"relative error {worst[0]:.1e} at β = {NUDGES[0]:g}, {worst[1]:.1e} at {NUDGES[1]:g}"
    if worst[1] > NUDGE_TOLERANCE:
        return failed(f"{figure}; expected at most {NUDGE_TOLERANCE:g} at the smaller β")
    return passed(figure) if worst[1] < worst[0] / 10 else failed(f"{figure}: the error must decrease with β")


def fixed_prediction_gives_bp(setting: Setting) -> CheckOutcome:
    """Check that c_l = g_l at every site if the predictions are fixed.

    The method makes L+1 steps of size 1. Its option `fixed_prediction` is true.
    """
    case = setting.case()
    case = _with_options(setting, case, {"fixed_prediction": True, "step_size": 1.0, "steps": case.blocks + 1})
    inputs = case.inputs()
    credits = case.credits(inputs)
    return within([f"site {site}" for site in range(len(credits))], credits, inputs.gradients, AUTOGRAD_TOLERANCE)


def _prediction_error_gap(setting: Setting, nudge: float) -> float:
    """Return the largest relative difference between −ε_l/β and g_l over all sites.

    If the method returns states, the differences between c_l and g_l count too.
    """
    case = _with_options(setting, setting.case(), {**RELAXED, "beta": nudge})
    inputs = case.inputs(count=NUDGED_SAMPLES)
    with eval_mode(case.network):
        credited = credits_and_states_of(case.method, case.feedback, inputs)
    credits, states, has_own_states = credited.credits, credited.states, credited.states is not None
    if not has_own_states:
        states = [state - nudge * credit for state, credit in zip(inputs.hidden, credits, strict=True)]
    network, errors = case.network, [states[0] - inputs.hidden[0]]  # ε_l: a state minus its prediction from site l−1
    with torch.no_grad(), eval_mode(network):
        for block, below, above in zip(network.blocks, states[:-1], states[1:], strict=True):
            errors.append(above - network.step(below, block(below)))
    estimates = [-error / nudge for error in errors] + (credits if has_own_states else [])
    exact = inputs.gradients * (1 + has_own_states)
    return max(relative_error(estimate, gradient) for estimate, gradient in zip(estimates, exact, strict=True))


def _with_options(setting: Setting, case: NetworkCase, changes: dict[str, Scalar]) -> NetworkCase:
    """Return the case with a new feedback state for changed options of the method."""
    shape = network_shape(case.network, case.images[:1], case.labels.max().item() + 1)
    feedback = draw_feedback(setting.method, shape, setting.seed, {**setting.method_options, **changes})
    return dataclasses.replace(case, feedback=feedback.double())


SHAKE = 0.5
TIED = "the head and the token embedding share one weight"


def drtp_ignores_error(setting: Setting) -> CheckOutcome:
    """Check that the updates of embedding and blocks do not depend on the logits.

    These updates depend on the labels. If the weights of the head change, the updates of embedding and blocks must stay bitwise
    equal, and the update of the head must change.
    """
    if setting.options.get("tied"):
        return inapplicable(TIED)
    case = setting.case()
    original = case.step()
    shake(case.network.out_head, setting.seed)
    shaken = case.step()
    heads = [name for name in original if name.startswith("out_head.")]
    if any(torch.equal(original[name], shaken[name]) for name in heads):
        return failed(
            "the update of the head did not change when its weights changed, so the check could not test the blocks"
        )
    changed = [
        name for name in original if not name.startswith("out_") and not torch.equal(original[name], shaken[name])
    ]
    if changed:
        worst = max(relative_error(shaken[name], original[name]) for name in changed)
        return failed(
            f"after a change of the head's weights, the update of {', '.join(changed)} changed by up to {worst:.1e}"
        )
    return passed("a change of the head's weights does not change the updates of embedding and blocks")


def output_jacobian_gives_target_slope(setting: Setting) -> CheckOutcome:
    """Check that c_l = ∂(Σ_i z_{i,y_i})/∂h_l at sites 1..L of a linear network.

    z_{i,y_i} is the logit of the true class of sample i. The feedback is B_l = (∂z/∂h_l)ᵀ with the shape (D_l, C). Site 0 is not
    checked, as in output_jacobian_gives_bp. The check detects a wrong sign, site or transposition. Training cannot detect these
    errors, because B and −B are equally probable.
    """
    case, _, outputs = linear_case(setting)
    case.feedback.load_state_dict({f"B_{index:02d}": matrix.T for index, matrix in enumerate(outputs, start=1)})
    logits, hidden = case.forward(case.images)
    target_sum = logits.gather(-1, case.labels.unsqueeze(-1)).sum()
    slopes = torch.autograd.grad(target_sum, hidden[1:])
    names = [f"site {site}" for site in range(1, len(hidden))]
    return within(names, case.credits(case.inputs())[1:], slopes, AUTOGRAD_TOLERANCE)


def modulation_gives_bp_at_the_input(setting: Setting) -> CheckOutcome:
    """Check that c_0 = g_0 in a linear network if the feedback is F = −E⁺ (∂z/∂h_0)ᵀ.

    E⁺ is the pseudoinverse of the embedding E. At the other sites, c_l must equal (∂h_l/∂h_{l−1}) c_{l−1}. The check detects a
    wrong sign, a wrong site and a wrong forward pass. Training cannot detect a wrong sign, because F and −F are equally probable.
    """
    case, jacobians, outputs = linear_case(setting)
    embedding = case.network.embed[1].weight.detach()  # (hidden, inputs)
    to_output = outputs[0] @ jacobians[0]  # ∂z/∂h_0 (classes, hidden)
    case.feedback.load_state_dict({"F": -torch.linalg.pinv(embedding) @ to_output.T})
    inputs = case.inputs()
    expected = [inputs.gradients[0]]
    for jacobian in jacobians:
        expected.append(expected[-1] @ jacobian.T)
    credits = case.credits(inputs)
    return within([f"site {site}" for site in range(len(credits))], credits, expected, AUTOGRAD_TOLERANCE)


def credit_ignores_blocks_above(setting: Setting) -> CheckOutcome:
    """Check that c_l does not depend on the weights above site l if the error is kept constant.

    If the weights of the head and of blocks l+1..L change, c_l must stay bitwise equal.
    """
    if setting.options.get("tied"):
        return inapplicable(TIED)
    case = setting.case()
    inputs = case.inputs()
    original = case.credits(inputs)
    modules_above = [*case.network.blocks, case.network.out_head]
    for site in range(case.blocks, -1, -1):  # from the top down, so that each iteration adds the next block below
        shake(modules_above[site], setting.seed)
        with eval_mode(case.network):
            hidden = [state.detach() for state in case.network.hidden(case.images)]  # unchanged up to this site
        shaken = case.credits(dataclasses.replace(inputs, hidden=hidden))
        if not torch.equal(shaken[site], original[site]):
            worst = relative_error(shaken[site], original[site])
            return failed(f"site {site}: a change of the weights above this site changes the credit by {worst:.1e}")
    return passed(f"at all {case.blocks + 1} sites, the credit does not depend on the weights above the site")


def shake(module: nn.Module, seed: int) -> None:
    """Add random noise from the seed to every weight of a module."""
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += SHAKE * torch.randn(parameter.shape, generator=stream, dtype=parameter.dtype)


STEPS = 60  # greatest number of training steps
FALL = 0.9  # the loss must fall below this fraction of its first value


def feedback_learns(setting: Setting) -> CheckOutcome:
    """Check that training of the feedback alone, on one batch, reduces its loss by at least a tenth."""
    case = setting.case()
    inputs = case.inputs(measuring=False)
    learning = [parameter for parameter in case.feedback.parameters() if parameter.requires_grad]
    if not learning:
        return failed("the card declares this property, but the feedback state has no trainable parameter")
    optimizer = torch.optim.AdamW(learning, lr=Recipe().learning_rate)
    first = _feedback_loss(case, inputs, setting)
    loss, share, steps = first, 1.0, 0
    while share >= FALL and steps < STEPS:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if isinstance(case.method, HasFeedbackRule):
            with torch.no_grad():
                case.method.update_feedback(case.feedback, dataclasses.replace(inputs, progress=1.0))
        loss, steps = _feedback_loss(case, inputs, setting), steps + 1
        share = (loss / first).item()
    figure = f"after {steps} steps the feedback loss is {share:.2f} of its first value, expected below {FALL} within {STEPS} steps"
    return passed(figure) if share < FALL else failed(figure)


def _feedback_loss(case: NetworkCase, inputs: CreditInputs, setting: Setting) -> torch.Tensor:
    """Return the loss of the feedback. Every call uses the same random numbers."""
    seeded_inputs = dataclasses.replace(inputs, generator=generator(setting.seed, "method"))
    with frozen_weights(case.network):
        return case.method.feedback_loss(case.feedback, seeded_inputs)


CHECKS: tuple[Callable[[Setting], CheckOutcome], ...] = (
    exact,
    approaches_bp,
    feedback_fixed,
    block_jacobian_gives_bp,
    output_jacobian_gives_bp,
    transposed_weights_give_bp,
    feedback_follows_sign,
    usf_on_sign_weights_gives_bp,
    kolen_pollack_converges,
    direct_kolen_pollack_converges,
    forward_estimates_converge,
    mirror_converges,
    feedback_learns,
    prediction_errors_give_bp,
    fixed_prediction_gives_bp,
    drtp_ignores_error,
    output_jacobian_gives_target_slope,
    modulation_gives_bp_at_the_input,
    credit_ignores_blocks_above,
)
DECLARED = {check.__name__: check for check in CHECKS}
