"""Check that a method is not backpropagation unless its card declares backpropagation.

The conformance suite measures small networks. A method could recognise these networks and behave differently on them. Therefore
this check uses the run's final weights and feedback state. The check runs on the run's eval batch and on a batch of training data.

At each site, the check computes two cosines over the whole batch. The first cosine compares the credit with the gradient. The
second cosine compares two updates of the weights of the block below the site: the update from the credit and the update from the
gradient. The check uses the larger cosine. The counted sites are the sites 1..L whose block has weights and whose
credit is not exact by construction. If fewer than two sites are counted and the embedding has weights, site 0 is counted too,
unless its credit is exact.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fa_registry import methods
from fa_registry.architectures.base import part_of
from fa_registry.records import CREDIT_CHECK, Check
from fa_registry.seeding import generator
from fa_registry.training.credit_check import Gradients, Trial, cosine, gradients_by_credits, measured_credits
from fa_registry.training.probe_context import stream
from fa_registry.training.run_setup import EVAL_SAMPLES, RunSetup, network_shape

ANOTHER_NAME = "the method is backpropagation, although its card does not declare it"
DECLARED = "the method's card declares that its credit may reach that of backpropagation"
# Limits of the cosine at every counted site. At some counted site, every built-in method whose card does not declare
# backpropagation is below the first limit. The second is the conformance suite's limit at initialisation (credit.md §5.2).
NEAR, NEAR_UNDER_FRESH_FEEDBACK = 0.99, 0.9
SHOWN = 8  # greatest number of sites that a message lists; the other sites are only counted

Cosines = Mapping[int, float]  # by site


def backprop_check(setup: RunSetup, no_feedback: str = "") -> Check | None:
    """Compare the method's credits and updates with those of backpropagation.

    Args:
        setup: the setup of the run, with the run's final weights and feedback state.
        no_feedback: the reason why the feedback state is missing, or an empty string.

    Returns:
        The result. It is None for a control and for a method whose credit is exact at all sites. The outcome is "not possible" if
        the method cannot be distinguished from backpropagation or if the feedback state is missing.
    """
    card = setup.method.card
    if setup.spec.control != "none" or card.exact_sites == "all":
        return None
    if no_feedback:
        return Check(CREDIT_CHECK, "not possible", no_feedback)
    sites = counted_sites(setup)
    cosines: dict[int, float] = {}
    for batch in _batches(setup):
        for site, value in _cosines(setup, sites, *batch).items():
            cosines[site] = max(value, cosines.get(site, -1.0))
    if objection := _objection(setup, sites, cosines):
        return Check(CREDIT_CHECK, "not possible", f"{ANOTHER_NAME}: {objection}")
    declared = DECLARED if card.reaches_bp else f"backpropagation would have cosines above {NEAR} at every counted site"
    return Check(CREDIT_CHECK, "agrees", f"{_text(cosines)}; {declared}")


def _objection(setup: RunSetup, sites: Sequence[int], cosines: Cosines) -> str:
    """Return why the method counts as backpropagation, or an empty string if it does not."""
    card = setup.method.card
    if cosines and min(cosines.values()) > NEAR and not card.reaches_bp:
        return f"{_text(cosines)}, above {NEAR} at every counted site"
    is_built_in = methods.CATALOG.location(setup.spec.method).is_builtin
    if "approaches_bp" in card.properties or is_built_in or not setup.feedback.state_dict():
        return ""
    shape = network_shape(setup.network, setup.splits.test_images[:1], setup.card.classes)
    fresh_feedback = setup.method.feedback(shape, setup.spec.method_options, stream(setup, "backprop_fresh_feedback"))
    fresh_setup = dataclasses.replace(setup, feedback=fresh_feedback.to(setup.device))
    fresh_cosines = _cosines(fresh_setup, sites, *setup.eval_batch)
    if fresh_cosines and max(fresh_cosines.values()) >= NEAR_UNDER_FRESH_FEEDBACK:
        limit = f"expected below {NEAR_UNDER_FRESH_FEEDBACK} at every counted site"
        return f"with newly drawn feedback, {_text(fresh_cosines)}; {limit}"
    return ""


def counted_sites(setup: RunSetup) -> list[int]:
    """Return the sites at which credits are compared with gradients, by the rule in the module docstring."""
    parts = {part_of(name) for name, _ in setup.network.named_parameters()}
    sites = [
        site for site in range(1, setup.blocks + 1) if not setup.exact_sites[site] and f"blocks.{site - 1}" in parts
    ]
    return [0, *sites] if len(sites) < 2 and "embed" in parts and not setup.exact_sites[0] else sites


def _batches(setup: RunSetup) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the eval batch and a batch of training samples, both as (images, labels)."""
    yield setup.eval_batch
    splits = setup.splits
    indices = torch.randperm(len(splits.train_labels), generator=stream(setup, "backprop_batch"))[:EVAL_SAMPLES]
    indices = indices.to(setup.device)
    augmentation = stream(setup, "backprop_augmentation", setup.device)
    yield splits.augment(splits.train_images[indices], augmentation), splits.train_labels[indices]


def _cosines(setup: RunSetup, sites: Sequence[int], images: Tensor, labels: Tensor) -> Cosines:
    """Return a mapping: site → cosine between the method and backpropagation.

    Each site has two cosines, one of the credit and one of the update. The larger of them is returned. Sites where both cosines
    are nan are omitted.
    """
    # the penalty is left out, because its gradient is the same under every method
    without_penalty = dataclasses.replace(setup, spec=dataclasses.replace(setup.spec, penalty=0.0))
    noise = generator(setup.spec.seed, "noise", setup.device)
    inputs, credits, states = measured_credits(Trial.copy_of(without_penalty, noise), images, labels)
    method_gradients = gradients_by_credits(Trial.copy_of(without_penalty, noise), images, labels, credits, states)
    exact_gradients = gradients_by_credits(
        Trial.copy_of(without_penalty, noise), images, labels, inputs.gradients, with_backward_weights=False
    )
    cosines = {}
    for site in sites:
        credit = setup.network.spread(credits[site], inputs.hidden[site])
        candidates = (cosine(credit, inputs.gradients[site]), _update_cosine(method_gradients, exact_gradients, site))
        if finite_values := [value for value in candidates if math.isfinite(value)]:
            cosines[site] = max(finite_values)
    return cosines


def _update_cosine(method_gradients: Gradients, exact_gradients: Gradients, site: int) -> float:
    """Return the cosine of two updates of the block below `site`, or of the embedding for site 0."""
    part = f"blocks.{site - 1}" if site else "embed"
    names = [
        name
        for name in method_gradients
        if part_of(name) == part and method_gradients[name] is not None and exact_gradients[name] is not None
    ]
    if not names:
        return math.nan
    return cosine(
        *(torch.cat([side[name].flatten() for name in names]) for side in (method_gradients, exact_gradients))
    )


def _text(cosines: Cosines) -> str:
    if not cosines:
        return "at every counted site the credit or the gradient is zero"
    site_texts = [f"{value:.5f} at site {site}" for site, value in cosines.items()]
    omitted = f" (and {len(site_texts) - SHOWN} more sites)" if len(site_texts) > SHOWN else ""
    return f"the cosine of the method's credit or update with that of backpropagation is {', '.join(site_texts[:SHOWN])}{omitted}"
