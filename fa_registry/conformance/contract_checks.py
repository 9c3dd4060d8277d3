"""Properties that every method must have, each as a function from a Setting to a CheckOutcome."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import part_of
from fa_registry.conformance.credit_check import NEARLY_BP, changed_weights, names_in_readout
from fa_registry.conformance.outcomes import CheckOutcome, cosine, failed, inapplicable, passed, relative_error, within
from fa_registry.conformance.small_networks import SAMPLES, NetworkCase, Setting, draw_feedback, sum_gradients
from fa_registry.methods.base import CreditInputs, Method, MethodCard, NetworkShape, NoFeedback, check_credits
from fa_registry.records import Scalar
from fa_registry.token_axes import features, sum_over_positions
from fa_registry.training.checkpoint import load_into, save_tensors
from fa_registry.training.run_setup import network_shape

AUTOGRAD_TOLERANCE = 1e-10  # the same float64 sums in two different orders
SITE_TOLERANCE = 1e-11  # float64 rounding that a method with twenty or more passes accumulates
# Smallest cosine of a credit in float32 with the credit in float64. Of the built-in methods, ep has the smallest cosine, 0.89 where
# its relaxation does not converge; all others are above 0.999. The cosine of two unrelated credits is about 0.
SAME_IN_FLOAT32 = 0.5
# credit.md §5.2: at initialisation, a block gradient with at least this cosine with BP's gradient counts as BP.
NOT_BP = 0.9
TRAINED_STEPS = 3
PIECES = (1, 5, SAMPLES - 6)


class Oracle(Method):
    """Method whose credits are the true gradients. With it, a training step must equal backpropagation."""

    def __init__(self, card: MethodCard, gradients: Sequence[Tensor]):
        self.card = card
        self._gradients = list(gradients)

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return NoFeedback()

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return self._gradients


def credit_fits_state(setting: Setting) -> CheckOutcome:
    """Check that each site has one finite credit with the shape and dtype of its state.

    The credits must not be part of an autograd graph.
    """
    case = setting.case()
    inputs = case.inputs()
    credits = case.credits(inputs)
    check_credits(setting.method.card.name, credits, inputs.hidden)
    for site, (credit, state) in enumerate(zip(credits, inputs.hidden, strict=True)):
        if credit.dtype != state.dtype:
            return failed(
                f"site {site}: found a credit of {credit.dtype}, expected the dtype of the state, {state.dtype}"
            )
        if broken := int((~credit.isfinite()).sum()):
            return failed(
                f"site {site}: expected a finite credit, found inf or nan in {broken} of {credit.numel()} entries"
            )
    return passed(f"{len(credits)} sites")


def credit_is_equal_in_float32(setting: Setting) -> CheckOutcome:
    """Check that the credits in float32 are those in float64.

    Runs are trained in float32, but the other checks use float64.
    """
    case = setting.case()
    single = case.in_single()
    pairs = zip(single.credits(single.inputs()), case.credits(case.inputs()), strict=True)
    cosines = {site: cosine([credit], [expected]) for site, (credit, expected) in enumerate(pairs) if expected.any()}
    worst = min(cosines, key=lambda site: cosines[site], default=0)
    figure = f"cosine {cosines.get(worst, 1.0):.4f} at site {worst}, expected at least {SAME_IN_FLOAT32}"
    return passed(f"smallest {figure}") if cosines.get(worst, 1.0) >= SAME_IN_FLOAT32 else failed(figure)


def rows_keep_their_sum(setting: Setting) -> CheckOutcome:
    """Check that a credit keeps its sum when it is distributed over the positions of a state.

    A credit with one row per sample is distributed as c/P at every position, or as c at one position.
    """
    case = setting.case()
    draw, states = torch.Generator().manual_seed(setting.seed), case.inputs().hidden
    rows = [torch.randn(len(state), features(state), generator=draw, dtype=state.dtype) for state in states]
    sums = [sum_over_positions(case.network.spread(*pair)) for pair in zip(rows, states, strict=True)]
    return within(_sites(sums), sums, rows, SITE_TOLERANCE)


def credit_is_pure(setting: Setting) -> CheckOutcome:
    """Check that two calls give bitwise equal credits, and change neither inputs nor network nor feedback."""
    case = setting.case()
    inputs = case.inputs()
    input_copies = [state.clone() for state in (*inputs.hidden, inputs.error, inputs.onehot, inputs.output_gradient)]
    state = {name: value.clone() for name, value in case.feedback.state_dict().items()}
    network = copy.deepcopy(case.network)
    first, second = [credit.clone() for credit in case.credits(inputs)], case.credits(inputs)
    for site, pair in enumerate(zip(first, second, strict=True)):
        if not torch.equal(*pair):
            return failed(
                f"site {site}: two calls with the same inputs give credits that differ by {relative_error(*pair):.1e} (relative)"
            )
    if not all(map(torch.equal, input_copies, (*inputs.hidden, inputs.error, inputs.onehot, inputs.output_gradient))):
        return failed("credits() changed its inputs in place")
    if problem := changed_weights(network, case.network):
        return failed(problem)
    changed = [name for name, value in case.feedback.state_dict().items() if not torch.equal(value, state[name])]
    return (
        failed(f"credits() changed the feedback state: {', '.join(changed)}")
        if changed
        else passed("two calls returned bitwise equal credits")
    )


def credit_ignores_reference(setting: Setting) -> CheckOutcome:
    """Check that the credits do not depend on the exact gradients in the inputs.

    In measurements, the inputs contain the gradients g_0..g_L. In training, they do not. If a credit used the gradients, Γ (the
    cosine of credit and gradient) would compare backpropagation with itself.
    """
    if setting.method.card.exact_sites == "all":
        return inapplicable("the card declares the credit exact at every site")
    case = setting.case()
    measured, expected = case.credits(case.inputs(measuring=True)), case.credits(case.inputs(measuring=False))
    return within(_sites(measured), measured, expected, 0.0)


def feedback_is_drawn_from_the_seed(setting: Setting) -> CheckOutcome:
    """Check that the feedback state depends on the seed, but not on the global generator."""
    case = setting.case()
    shape = network_shape(case.network, case.images[:1], case.labels.max().item() + 1)
    generator_state = torch.get_rng_state()
    first, repeated, other_seed = (
        draw_feedback(setting.method, shape, setting.seed + seed_offset, setting.method_options).state_dict()
        for seed_offset in (0, 0, 1)
    )
    if not torch.equal(generator_state, torch.get_rng_state()):
        return failed("the creation of the feedback state used torch's global generator")
    for name, value in first.items():
        if not torch.equal(value, repeated[name]):
            return failed(f"two feedback states from the same seed differ in {name}")
    if first and all(torch.equal(value, other_seed[name]) for name, value in first.items()):
        return failed("two seeds give the same feedback state")
    if setting.method.card.has_feedback and not first:
        return failed("the card declares a feedback state, but the state has no tensor; expected has_feedback=False")
    return passed(f"{len(first)} tensors")


def oracle_credit_is_bp(setting: Setting) -> CheckOutcome:
    """Check that the training step computes autograd's parameter gradients if c_l = g_l.

    The check detects a wrong sign, index or scale in the training step of this package.
    """
    case = setting.case()
    logits, hidden = case.forward(case.images)
    oracle = dataclasses.replace(case, method=Oracle(setting.method.card, sum_gradients(logits, hidden, case.labels)))
    return compare(oracle.step(), case.true_step())


def not_secretly_bp(setting: Setting) -> CheckOutcome:
    """Check that credits and updates differ from those of backpropagation, in float64 and in float32.

    Sites whose credit is exact according to the card are left out. At every other site, the cosine with backpropagation must be
    below 0.9. If the card declares approaches_bp, the limit is 1 − 1e-6, because other properties test how close the credit is to
    the gradient.
    """
    if setting.method.card.exact_sites == "all":
        return inapplicable("the card declares the credit exact at every site")
    limit = NEARLY_BP if "approaches_bp" in setting.method.card.properties else NOT_BP
    case = setting.case()
    cosines = cosines_with_bp(case) | {
        f"{name} in float32": value for name, value in cosines_with_bp(case.in_single()).items()
    }
    worst = max(cosines, key=lambda name: cosines[name])
    figure = f"the cosine of {worst} with that of backpropagation is {cosines[worst]:.3g}, expected below {limit:.6g}"
    return failed(figure) if cosines[worst] >= limit else passed(figure)


def cosines_with_bp(case: NetworkCase) -> dict[str, float]:
    """Return the cosines between the method's credits and updates and those of backpropagation.

    The keys are texts such as "the credit at site 2". Sites whose credit is exact according to the card are left out. A weight
    that is also part of the readout, such as the token embedding of a tied head, is left out too, because it receives the exact
    gradient of the head. Weights with one entry are left out, because their gradient is only a sign: with a scale of 0, no other
    weight of a block has a gradient.
    """
    shared = names_in_readout(case.network)
    inputs = case.inputs()
    step_gradients, true_gradients, credits = case.step(), case.true_step(), case.credits(inputs)
    cosines = {}
    for site in (site for site in range(case.blocks + 1) if not case.exact[site]):
        part = f"blocks.{site - 1}" if site else "embed"
        names = [name for name in step_gradients if part_of(name) == part and name not in shared]
        names = [name for name in names if step_gradients[name].numel() > 1]
        if any(true_gradients[name].any() for name in names):  # an embedding may have no weights
            cosines[f"the update of {part}"] = cosine(
                [step_gradients[name] for name in names], [true_gradients[name] for name in names]
            )
        cosines[f"the credit at site {site}"] = cosine([credits[site]], [inputs.gradients[site]])
    return cosines


def head_learns_from_the_loss(setting: Setting) -> CheckOutcome:
    """Check that out_ln and out_head receive the exact gradient of the mean cross entropy."""
    case = setting.case()
    step_gradients, true_gradients = (
        {name: value for name, value in gradients.items() if name.startswith("out_")}
        for gradients in (case.step(), case.true_step())
    )
    return compare(step_gradients, true_gradients)


def exact_sites_are_exact(setting: Setting) -> CheckOutcome:
    """Check that c_l = g_l at every site that the card declares exact by construction.

    The check detects a wrong sign, a wrong scale and a wrong site.
    """
    case = setting.case()
    sites = [site for site, exact in enumerate(case.exact) if exact]
    if not sites:
        return inapplicable("the card declares no site exact")
    inputs = case.inputs()
    credits = case.credits(inputs)
    credited, expected = [credits[site] for site in sites], [inputs.gradients[site] for site in sites]
    return within([f"site {site}" for site in sites], credited, expected, SITE_TOLERANCE)


def post_hoc_equals_in_training(setting: Setting) -> CheckOutcome:
    """Check that the credits stay bitwise equal when network and feedback are saved and loaded.

    Network and feedback are trained, saved, and loaded into a case whose feedback has another seed. The check detects a matrix
    that is not a part of the feedback state.
    """
    case, third_party = setting.case(), setting.third_party()
    case.train(TRAINED_STEPS)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("network", "feedback"):
            path = Path(folder) / f"{name}.safetensors"
            load_into(getattr(third_party, name), path, save_tensors(path, getattr(case, name).state_dict()))
    loaded_credits, expected = third_party.credits(third_party.inputs()), case.credits(case.inputs())
    return within(_sites(loaded_credits), loaded_credits, expected, 0.0)


def batch_size_invariance(setting: Setting) -> CheckOutcome:
    """Check that c_l and g_l of a sample do not depend on the other samples in the batch."""
    case = setting.case()
    full_inputs = case.inputs()
    starts = [sum(PIECES[:index]) for index in range(len(PIECES))]
    pieces = [case.inputs(start, count) for start, count in zip(starts, PIECES, strict=True)]
    gradients = [torch.cat(parts) for parts in zip(*(piece.gradients for piece in pieces), strict=True)]
    credits = [torch.cat(parts) for parts in zip(*map(case.credits, pieces), strict=True)]
    names = [f"{symbol} of site {site}" for symbol in ("c", "g") for site in range(len(credits))]
    return within(names, [*credits, *gradients], [*case.credits(full_inputs), *full_inputs.gradients], SITE_TOLERANCE)


def prediction_depends_on_the_sample_only(setting: Setting) -> CheckOutcome:
    """Check the scores of a method that predicts by itself.

    Two calls give bitwise equal scores and change neither network nor feedback. The scores of a sample do not depend on the other
    samples of the batch.
    """
    case = setting.case()
    if not case.method.card.prediction:
        return failed("the card does not describe how the method predicts: expected a text in the field prediction")
    network, feedback = copy.deepcopy(case.network), copy.deepcopy(case.feedback)
    first, second = case.inputs().scores, case.inputs().scores
    if not torch.equal(first, second):
        return failed(f"two calls give scores that differ by {relative_error(first, second):.1e} (relative)")
    for name, before, after in (("network", network, case.network), ("feedback", feedback, case.feedback)):
        if not all(map(torch.equal, before.state_dict().values(), after.state_dict().values())):
            return failed(f"scores() changed the {name}")
    starts = [sum(PIECES[:index]) for index in range(len(PIECES))]
    pieces = [case.inputs(start, count).scores for start, count in zip(starts, PIECES, strict=True)]
    return within(["the scores"], [torch.cat(pieces)], [first], SITE_TOLERANCE)


def compare(observed: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> CheckOutcome:
    """Compare parameter gradients with the expected gradients of the same names."""
    return within(list(expected), [observed[name] for name in expected], list(expected.values()), AUTOGRAD_TOLERANCE)


def _sites(credits: Sequence[Tensor]) -> list[str]:
    return [f"site {site}" for site in range(len(credits))]
