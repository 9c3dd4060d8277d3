"""Find runs of different methods or seeds that share a trained tensor bit by bit."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from torch import Tensor

from fa_registry import methods
from fa_registry.architectures.base import part_of
from fa_registry.errors import RegistryError
from fa_registry.records import DEEP_SUPERVISION, FROZEN_LONG, RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.training.checkpoint import is_finite, load_tensors
from fa_registry.training.controls import depth
from fa_registry.training.run_setup import build_network
from fa_registry.training.spec_plugins import find_plugins

# Least change of a trained tensor, as a fraction of its norm and without weight decay.
MOVED = 1e-3
NEIGHBOURS = 32  # runs with one equal tensor of which each pair is reported
LEAST_ENTRIES = 8  # equality of a smaller tensor is no evidence
LEAST_STEPS = 3  # in fewer steps, two methods may move the readout equally


def shared_tensors(tracker: Tracker, records: Sequence[RunRecord]) -> dict[str, dict[str, list[str]]]:
    """Return the tensors that runs share: run id → id of the other run → names.

    Only tensors that training changed are compared. Pairs of controls with the same method and seed are omitted: if the method
    learns locally, both controls train the same embedding.
    """
    ordered = sorted(records, key=lambda record: (record.spec.architecture, record.spec.seed, record.run_id))
    holders: dict[tuple[str, str], list[RunRecord]] = {}
    for record in ordered:
        for tensor in _trained_digests(tracker, record).items():
            holders.setdefault(tensor, []).append(record)
    pairs: dict[str, dict[str, list[str]]] = {}
    for (name, _), sharing in holders.items():
        # one run per method, seed, architecture and data set represents the others, which may be many
        representatives = list({_kin(dataclasses.replace(one.spec, control="none")): one for one in sharing}.values())
        for first, second in itertools.permutations(representatives[:NEIGHBOURS], 2):
            if not may_share_tensors(first.spec, second.spec):
                pairs.setdefault(first.run_id, {}).setdefault(second.run_id, []).append(name)
    return pairs


def _trained_digests(tracker: Tracker, record: RunRecord) -> dict[str, str]:
    """Return the SHA-256 of each trained tensor; empty for few steps or unreadable weights."""
    initial = initial_weights(record.spec)
    if not initial or record.spec.epochs * (schema.recorded_early_step(record.digests) or LEAST_STEPS) < LEAST_STEPS:
        return {}
    weights = _final_weights(tracker, record.run_id)
    if not all(map(is_finite, weights.values())):
        return {}
    names = [name for name in trained_names(weights, initial) if weights[name].numel() >= LEAST_ENTRIES]
    return {name: hashlib.sha256(weights[name].contiguous().numpy().tobytes()).hexdigest() for name in names}


def _final_weights(tracker: Tracker, run_id: str) -> dict[str, Tensor]:
    with contextlib.suppress(RegistryError):  # recomputing the run reports what is wrong with the file
        path = tracker.artifact(run_id, schema.FINAL)
        return _floating(load_tensors(path) if path else {})
    return {}


def _floating(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def initial_weights(spec: RunSpec) -> Mapping[str, Tensor]:
    """Return the initial weights that the specification and its seed determine.

    The result is empty for an adopted run, and if the network cannot be built on this machine.
    """
    if spec.weights:
        return {}
    options = tuple(sorted(spec.architecture_options.items()))
    return _drawn(spec.architecture, options, spec.dataset, spec.seed, spec.control == "shallow")


@lru_cache(maxsize=16)
def _drawn(architecture: str, options: tuple, dataset: str, seed: int, shallow: bool) -> Mapping[str, Tensor]:
    control = "shallow" if shallow else "none"
    spec = RunSpec("bp", architecture, dataset, seed, 1, architecture_options=dict(options), control=control)
    try:
        network = build_network(spec, find_plugins(spec).card)
    except Exception:  # third-party code: recomputing the run reports what is wrong with it
        return {}
    return _floating({name: tensor.detach() for name, tensor in network.state_dict().items()})


def trained_names(final: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that training changed.

    If `initial` has other tensor names or shapes than `final`, return all names of `final`.
    """
    if {name: tensor.shape for name, tensor in final.items()} != {n: tensor.shape for n, tensor in initial.items()}:
        return sorted(final)
    # in numpy, because torch needs ten times as long for a small tensor
    ends, starts = ({name: one.double().numpy().reshape(-1) for name, one in them.items()} for them in (final, initial))
    nonzero = [name for name in sorted(final) if starts[name].any()]
    with np.errstate(all="ignore"):
        changed = [name for name in nonzero if _has_moved(ends[name], starts[name])]
    # a tensor that begins at zero has no direction, so every other final value counts as a change
    return changed and sorted([*changed, *(name for name in final if name not in nonzero and ends[name].any())])


def _has_moved(final: np.ndarray, initial: np.ndarray) -> bool:
    """Return whether the direction of a tensor changed; weight decay alone changes only the length."""
    shrunk = initial * (final @ initial / (initial @ initial))
    return bool(np.linalg.norm(final - shrunk) > MOVED * np.linalg.norm(final))


def may_share_tensors(first: RunSpec, second: RunSpec) -> bool:
    """Return whether two honest runs of these specifications may have an equal trained tensor.

    Such pairs of runs are not reported. Honest runs may have equal tensors if:

    - both runs are adopted, because models may be fine-tuned from one file; or
    - method, seed, control, architecture and data set are equal, so only numerical options differ; or
    - the seed and the number of trained blocks are equal, and every trained part of both runs gets the exact gradient.
    """
    if (first.weights and second.weights) or _kin(first) == _kin(second):
        return True
    blocks = _exact_blocks(first) if first.seed == second.seed else None
    return blocks is not None and blocks == _exact_blocks(second)


def _kin(spec: RunSpec) -> tuple[object, ...]:
    return spec.method, spec.seed, effective_control(spec), spec.architecture, spec.dataset


def effective_control(spec: RunSpec) -> str:
    """Return the simplest name of a control that is equivalent to the control of `spec`.

    `ladder_L` trains all L blocks and is equivalent to `none`. `ladder_0` with method bp, and `frozen_long` for its own number of
    epochs, are equivalent to `frozen`.
    """
    trained = depth(spec.control)
    if trained is not None and trained == spec.architecture_options.get("num_blocks"):
        return "none"
    is_frozen = spec.control == FROZEN_LONG or (trained == 0 and spec.method == "bp")
    return "frozen" if is_frozen else spec.control


def _exact_blocks(spec: RunSpec) -> int | None:
    """Return the number of trained blocks if all trained parts got the exact gradient, else None."""
    if spec.control == DEEP_SUPERVISION:  # the losses of its heads change every gradient
        return None
    initial = initial_weights(spec)
    try:
        sites = methods.CATALOG.get(spec.method).card.exact_sites
    except RegistryError:
        return None
    parts = {part_of(name) for name in initial}
    blocks = len([part for part in parts if part.startswith("blocks.")])
    trained_blocks = spec.control.removeprefix("ladder_")
    trained = int(trained_blocks) if trained_blocks.isdigit() else blocks if spec.control == "none" else 0
    exact = sites == "all" or ("embed" not in parts and trained <= (sites == "last"))
    return trained if initial and exact else None
