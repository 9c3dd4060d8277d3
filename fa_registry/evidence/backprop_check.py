"""Check that a method is not backpropagation, at any site, unless its card declares backpropagation.

The conformance suite measures small networks. A method could recognise these networks and behave differently on them. Therefore
this check uses the run's final weights and feedback state, in float32 and in float64. It runs on the run's eval batch, and on
training samples in batches of two sizes.

At each site, the check computes three cosines with backpropagation and uses the largest:

- of the credit and the gradient, over the whole batch;
- the median over samples of the cosine of credit and gradient, because one sample with a huge credit changes the first cosine;
- of two updates of the weights of the block below the site, one from the credit and one from the gradient.

The counted sites are the sites 0..L whose credit is not exact by construction, if the part below the site has weights.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fa_registry import methods
from fa_registry.architectures.base import Network, part_of
from fa_registry.conformance.credit_check import (
    Gradients,
    Trial,
    cosine,
    gradients_by_credits,
    measured_credits,
    names_in_readout,
)
from fa_registry.methods.base import CreditedStates, MethodCard
from fa_registry.records import CREDIT_CHECK, Check, RunSpec
from fa_registry.seeding import generator
from fa_registry.training.probe_context import stream, with_fresh_weights
from fa_registry.training.run_setup import EVAL_SAMPLES, RunSetup, network_shape

ANOTHER_NAME = "the method is backpropagation at some sites, although its card does not declare these sites exact"
BEFORE_LEARNING = "the method is backpropagation at some sites before its feedback can have learned"
NO_FEEDBACK_LEARNS = "the card declares may_reach_bp, but the method has no feedback state that could learn"
DECLARED = "the method's card declares that its credit may reach that of backpropagation"
# Limits of the cosine at a counted site. Built-in code is trusted, and its feedback may align honestly at one site: dtp reaches
# .977 on linear_lq, all other methods that declare nothing at most .78. So a built-in method is above the first limit only if every
# counted site is. The second is the conformance suite's limit at initialisation (credit.md §5.2).
NEAR, NEAR_UNDER_FRESH_DRAWS = 0.99, 0.9
LEARNING_TIME = 0.1  # fraction of the epochs in which a card's may_reach_bp does not hold yet
SHOWN = 8  # greatest number of sites that a message lists; the other sites are only counted

Cosines = Mapping[int, float]  # by site


def backprop_check(setup: RunSetup, no_feedback: str = "", in_training: str = "") -> Check | None:
    """Compare the method's credits and updates with those of backpropagation, site by site.

    Args:
        setup: the setup of the run, with the run's final weights and feedback state.
        no_feedback: the reason why the feedback state is missing, or an empty string.
        in_training: the result of `early_objection` in the replayed steps.

    Returns:
        The result. It is None for a control and for a method whose credit is exact at all sites. The outcome is "not possible" if
        the method cannot be distinguished from backpropagation at a counted site or if the feedback state is missing.
    """
    card = setup.method.card
    if setup.spec.control != "none" or card.exact_sites == "all":
        return None
    if no_feedback:
        return Check(CREDIT_CHECK, "not possible", no_feedback)
    trial = Trial.copy_of(setup, generator(setup.spec.seed, "noise", setup.device))
    cosines: dict[int, float] = {}
    for each in (trial, in_double(trial)):
        for batch in _batches(setup):
            cosines = _largest(cosines, site_cosines(each, *batch))
    if objections := [text for text in (in_training, _objection(setup, cosines)) if text]:
        return Check(CREDIT_CHECK, "not possible", "; ".join(objections))
    declared = DECLARED if card.reaches_bp else f"backpropagation would have a cosine above {NEAR}"
    return Check(CREDIT_CHECK, "agrees", f"{_text(cosines)}; {declared}")


def early_objection(trial: Trial, images: Tensor, labels: Tensor, progress: float) -> str:
    """Return why a method counts as backpropagation in a training step, or an empty string if it does not.

    Args:
        trial: copy of the setup before the step.
        progress: trained fraction of the run.
    """
    card = trial.method.card
    if card.reaches_bp and not (card.may_reach_bp and progress < LEARNING_TIME):
        return ""
    reason = BEFORE_LEARNING if card.reaches_bp else ANOTHER_NAME
    return _near(trial.spec, site_cosines(trial, images, labels), reason)


def in_double(trial: Trial) -> Trial:
    """Return a copy of the trial in float64."""
    spec = dataclasses.replace(trial.spec, precision=RunSpec.precision)
    network, feedback = (copy.deepcopy(module).double() for module in (trial.network, trial.feedback))
    return dataclasses.replace(trial, spec=spec, network=network, feedback=feedback)


def _objection(setup: RunSetup, cosines: Cosines) -> str:
    """Return why the method counts as backpropagation, or an empty string if it does not."""
    card, has_state = setup.method.card, bool(setup.feedback.state_dict())
    if not card.reaches_bp and (found := _near(setup.spec, cosines, ANOTHER_NAME)):
        return found
    if "approaches_bp" in card.properties or _is_built_in(setup.spec):
        return ""
    if card.may_reach_bp and not has_state and (found := _near(setup.spec, cosines, NO_FEEDBACK_LEARNS)):
        return found
    drawn = _with_fresh_feedback(setup) if has_state else with_fresh_weights(setup, "backprop_fresh_weights")
    fresh = "newly drawn feedback" if has_state else "newly drawn weights, because the method has no feedback state"
    trial = Trial.copy_of(drawn, generator(setup.spec.seed, "noise", setup.device))
    fresh_cosines = site_cosines(trial, *setup.eval_batch)
    return _above(fresh_cosines, NEAR_UNDER_FRESH_DRAWS, f"{ANOTHER_NAME}: with {fresh}")


def _is_built_in(spec: RunSpec) -> bool:
    return methods.CATALOG.location(spec.method).is_builtin


def _near(spec: RunSpec, cosines: Cosines, reason: str) -> str:
    """Return a text with the sites above NEAR, or an empty string. See NEAR for built-in methods."""
    if _is_built_in(spec) and min(cosines.values(), default=0.0) <= NEAR:
        return ""
    return _above(cosines, NEAR, reason)


def _above(cosines: Cosines, limit: float, reason: str) -> str:
    """Return a text with the sites whose cosine is above the limit, or an empty string if there is none."""
    above = {site: value for site, value in cosines.items() if value > limit}
    return f"{reason}: {_text(above)}; expected at most {limit}" if above else ""


def _with_fresh_feedback(setup: RunSetup) -> RunSetup:
    shape = network_shape(setup.network, setup.splits.test_images[:1], setup.card.classes)
    fresh_feedback = setup.method.feedback(shape, setup.spec.method_options, stream(setup, "backprop_fresh_feedback"))
    return dataclasses.replace(setup, feedback=fresh_feedback.to(setup.device))


def counted_sites(network: Network, card: MethodCard) -> list[int]:
    """Return the sites at which credits are compared with gradients, by the rule in the module docstring."""
    parts, blocks = {part_of(name) for name, _ in network.named_parameters()}, len(network.blocks)
    below = ["embed", *(f"blocks.{block}" for block in range(blocks))]
    return [site for site, part in enumerate(below) if part in parts and not card.is_exact(site, blocks)]


def _batches(setup: RunSetup) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the eval batch and two batches of training samples, as (images, labels).

    The second batch of training samples has the batch size of the run, because a method could recognise the size of the first.
    """
    yield setup.eval_batch
    splits, indices = setup.splits, stream(setup, "backprop_batch")
    augmentation = stream(setup, "backprop_augmentation", setup.device)
    for size in dict.fromkeys((EVAL_SAMPLES, setup.spec.recipe.batch_size)):
        chosen = torch.randperm(len(splits.train_labels), generator=indices)[:size].to(setup.device)
        yield splits.augment(splits.train_images[chosen], augmentation), splits.train_labels[chosen]


def site_cosines(trial: Trial, images: Tensor, labels: Tensor) -> Cosines:
    """Return a mapping: counted site → largest of its three cosines with backpropagation.

    Sites where no cosine is finite are omitted. Samples are converted to the precision of the trial's network.
    """
    # the penalties are left out, because their gradients are the same under every method
    trial = dataclasses.replace(trial, spec=trial.spec.unpenalised)
    double = any(weight.dtype == torch.float64 for weight in trial.network.parameters())
    batch = [rows.double() if double and rows.is_floating_point() else rows for rows in (images, labels)]
    inputs, credited = measured_credits(trial, *batch)
    credits = credited.per_sample(len(labels))
    by_method = gradients_by_credits(trial, *batch, credited)
    by_gradient = gradients_by_credits(trial, *batch, CreditedStates(inputs.gradients), with_backward_weights=False)
    tied = dict.fromkeys(names_in_readout(trial.network))
    updates = by_method | tied, by_gradient | tied
    cosines = {}
    for site in counted_sites(trial.network, trial.method.card):
        credit, gradient = trial.network.spread(credits[site], inputs.hidden[site]), inputs.gradients[site]
        found = (cosine(credit, gradient), _median(credit, gradient), _update_cosine(*updates, site))
        if finite_values := [value for value in found if math.isfinite(value)]:
            cosines[site] = max(finite_values)
    return cosines


def _median(credit: Tensor, gradient: Tensor) -> float:
    """Return the median over samples of the cosine; nan if no sample has one or the site has one feature.

    With one feature, the cosine of a sample is only a sign.
    """
    rows, expected = credit.flatten(1).double(), gradient.flatten(1).double()
    cosines = (rows * expected).sum(dim=1) / (rows.norm(dim=1) * expected.norm(dim=1))
    cosines = cosines[cosines.isfinite()]
    return cosines.median().item() if len(cosines) and rows.shape[1] > 1 else math.nan


def _largest(first: Cosines, second: Cosines) -> dict[int, float]:
    return {site: max(found[site] for found in (first, second) if site in found) for site in sorted({*first, *second})}


def _update_cosine(by_method: Gradients, by_gradient: Gradients, site: int) -> float:
    """Return the cosine of two updates of the block below `site`, or of the embedding for site 0.

    Weights of a tied readout are left out, because they receive the exact gradient under every method. Weights with one entry are
    left out, because their gradient is only a sign.
    """
    part = f"blocks.{site - 1}" if site else "embed"
    names = [name for name, value in by_method.items() if part_of(name) == part and value is not None]
    names = [name for name in names if by_gradient[name] is not None and by_gradient[name].numel() > 1]
    if not names:
        return math.nan
    return cosine(*(torch.cat([side[name].flatten() for name in names]) for side in (by_method, by_gradient)))


def _text(cosines: Cosines) -> str:
    if not cosines:
        return "at every counted site the credit or the gradient is zero"
    site_texts = [f"{value:.5f} at site {site}" for site, value in cosines.items()]
    omitted = f" (and {len(site_texts) - SHOWN} more sites)" if len(site_texts) > SHOWN else ""
    return f"the cosine of the method's credit or update with that of backpropagation is {', '.join(site_texts[:SHOWN])}{omitted}"
