"""Pitfalls of computing a figure: norms, cosines, precision, reduction, the batch of the accuracy, the mode of the layers."""

from __future__ import annotations

from collections.abc import Iterator

from fa_registry.protocol.cases import whole
from fa_registry.reporting.filters import at_least, compact, num, sci
from fa_registry.reporting.pitfalls_words import AVOIDED, TRUSTED, UNKNOWN, VIOLATED, Asked, Said, absence, known_sites

CLAMP = 1e-8  # default eps of the usual library cosine: it stands in for every norm below it
HEADROOM = 100.0  # a median norm this far above the clamp: half of the samples lie below the median
UNDERFLOW = 6e-8  # smallest positive number of fp16 (subnormal: 2⁻²⁴)
NEAR, FAR = (
    10.0,
    1e6,
)  # a step's effect against the norms' product: agreement to a decade; the L₋₁ norm misses it by more


def norm_of_samples(asked: Asked) -> Said:
    """1: ‖·‖₂ of each sample, and not `tensor.norm(-1)`, the L₋₁ norm of the whole tensor."""
    if found := asked.mismatch("h_norm", "g_norm", "growth", "gain", "h_L", "g_L"):
        return VIOLATED, f"measured again with one L₂ norm a sample, other figures come out: {found}"
    if asked.verified:
        return AVOIDED, "measured again from the checkpoint with one L₂ norm a sample: the figures agree"
    ratios = list(_step_ratios(asked))
    if not ratios:
        return UNKNOWN, f"{TRUSTED}; nor is there a step along the gradient to check the norms by"
    by_fit = sorted(ratios, key=lambda pair: _off(pair[1]))
    (site, ratio), (farthest, worst) = by_fit[0], by_fit[-1]
    seen = f"a step along the gradient changes the loss by {num(ratio, 2)} times what ‖h‖·‖g‖ foretell at site {site}"
    if len(by_fit) > 1:
        seen += f", which fits best, and {num(worst, 2)} times at site {farthest}, which fits worst"
    if _off(ratio) <= NEAR:
        return AVOIDED, f"{seen}: so it does with one L₂ norm a sample"
    if _off(ratio) >= FAR:
        return VIOLATED, f"{seen}: these are no L₂ norms of samples"
    return UNKNOWN, f"{seen}, which decides nothing; {TRUSTED}"


def _off(ratio: float) -> float:
    """How far a ratio lies from 1, either way."""
    return max(ratio, 1 / ratio)


def _step_ratios(asked: Asked) -> Iterator[tuple[int, float]]:
    """(site, change of the loss by the step η‖h_l‖ along −g_l, as a multiple of η‖h_l‖‖g_l‖): near 1 to first order."""
    step = asked.convention("nudge_step")
    if isinstance(step, (int, float)) and step > 0:
        for site, (change, hidden, gradient) in known_sites(*map(asked.row, ("nudge_bp", "h_norm", "g_norm"))):
            if change < 0 < hidden * gradient:
                yield site, -change / (step * hidden * gradient)


def unclamped_cosine(asked: Asked) -> Said:
    """2: no clamp at eps = 1e-8 in the cosine."""
    if found := asked.mismatch("gamma"):
        return VIOLATED, f"measured again in float64 without a clamp, another Γ comes out: {found}"
    if asked.verified:
        return AVOIDED, "measured again in float64 without a clamp: the figures agree"
    credit = [(site, ratio * norm) for site, (ratio, norm) in known_sites(asked.row("norm_ratio"), asked.row("g_norm"))]
    gradient = [(site, norm) for site, (norm,) in known_sites(asked.row("g_norm"))]
    if not gradient or not credit:
        return UNKNOWN, f"{TRUSTED}; {absence('norm_ratio' if gradient else 'g_norm', asked.row('norm_ratio'))}"
    site, least = min((*credit, *gradient), key=lambda pair: pair[1])
    seen = f"the smallest median norm in a cosine is {sci(least)}, at site {site}"
    if least >= CLAMP * HEADROOM:
        return AVOIDED, f"{seen}, far above {compact(CLAMP)}: at the median a clamp would have changed nothing"
    return UNKNOWN, f"{seen}, where a clamp at {compact(CLAMP)} would tell; {TRUSTED}"


def no_underflow(asked: Asked) -> Said:
    """3: gradients do not underflow in fp16."""
    precision = asked.spec.precision
    if precision in ("fp32", "fp64", "bf16"):
        fidelity = asked.scalar("fidelity_min").value
        if fidelity is None:
            return AVOIDED, f"trained in {precision}, whose exponents reach far below {compact(UNDERFLOW)}"
        return (
            AVOIDED,
            f"trained in {precision}; its gradient has a cosine of at least {at_least(fidelity)} with that of float64",
        )
    smallest = min((norm for _, (norm,) in known_sites(asked.row("g_norm_mean_ce"))), default=None)
    if smallest is not None and smallest < UNDERFLOW:
        return VIOLATED, f"trained in {precision} with a gradient of {sci(smallest)}, below {compact(UNDERFLOW)}"
    return UNKNOWN, f"trained in {precision}: which of its gradients underflowed is not recorded"


def per_sample_gradients(asked: Asked) -> Said:
    """8: the gradient of each sample's own loss is told from that of the batch's mean."""
    samples = asked.convention("g_norm_mean_ce_samples")
    pairs = list(known_sites(asked.row("g_norm"), asked.row("g_norm_mean_ce")))
    reduction = asked.convention("gradient_reduction")
    if not pairs:
        return (
            UNKNOWN,
            "one of ‖g_l‖ per sample and of the mean loss was not measured: which of them it is cannot be told",
        )
    if not isinstance(samples, int) or reduction is None:
        return UNKNOWN, "the run did not write down how its gradients were reduced"
    wrong = [site for site, (own, mean) in pairs if abs(own - samples * mean) > 1e-4 * abs(own)]
    if reduction == "sum" and not wrong:
        return AVOIDED, f"both are recorded and differ by the factor {samples} of the mean over {samples} at every site"
    if wrong:
        return VIOLATED, f"at site {wrong[0]} the two do not differ by the factor {samples} of the mean over {samples}"
    return VIOLATED, f"gradients were reduced by {reduction}: what is called per sample depends on the batch"


def accuracy_of_test_set(asked: Asked) -> Said:
    """9: accuracy is of the whole test set and not of the eval batch."""
    accuracy = asked.scalar("accuracy")
    counts = [asked.convention(name) for name in ("test_samples", "eval_samples")]
    if accuracy.value is None:
        return UNKNOWN, f"accuracy: {accuracy.reason}"
    if not all(isinstance(count, int) and count > 0 for count in counts):
        return UNKNOWN, "the run did not write down the sizes of its test set and eval batch"
    test, batch = counts
    correct, by_batch = (accuracy.value * count for count in (test, batch))
    if not whole(correct):
        return VIOLATED, f"{num(accuracy.value, 6)} is no whole number of {num(test)} test samples"
    if test == batch:
        return AVOIDED, f"the eval batch is the whole test set of {num(test)} samples"
    if not whole(by_batch):
        return (
            AVOIDED,
            f"{num(round(correct))} of {num(test)} test samples; of the eval batch of {batch} it is no whole number",
        )
    if asked.verified:
        return AVOIDED, f"measured again on all {num(test)} test samples: {num(round(correct))} are right"
    return UNKNOWN, f"{num(accuracy.value, 4)} is a whole number of {num(test)} and of {batch} samples alike; {TRUSTED}"


def eval_mode(asked: Asked) -> Said:
    """12: BatchNorm and dropout were in eval mode while it was measured."""
    if found := asked.mismatch():
        return VIOLATED, f"measured again in eval mode, other figures come out: {found}"
    if asked.verified:
        return AVOIDED, "measured again in eval mode: the figures agree"
    return UNKNOWN, TRUSTED
