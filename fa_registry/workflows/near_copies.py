"""Find runs whose final weights are almost equal: one run may be a copy with some numbers changed.

Only trained tensors are compared, that is, tensors that training changed. The distance of two runs is compared with the
smallest distance that was measured between two honest runs. Distances are medians, so large changes of a few numbers or of a small
tensor have no effect.

The number of pairs grows with the square of the number of runs. Therefore two runs are compared only if their random samples of
weights are close.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from fa_registry import methods
from fa_registry.architectures.base import part_of
from fa_registry.errors import RegistryError
from fa_registry.records import RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.controls import depth
from fa_registry.training.run_setup import build_network
from fa_registry.training.spec_plugins import find_plugins

# NEAREST_HONEST is the smallest measured `distance` of two honest runs of different methods, seeds or controls. A distance up to
# LIMIT is a finding. Measured after 12 steps on digits with seed 1, for every method with the controls none, frozen and ladder_1.
# On mlp 16x2, the distance is 0.0081 for kolen_pollack and weight_fa with ladder_1, and 0.018 for bp frozen and dfa with ladder_1.
# On resmlp, it is at least 0.0096 for 16x2 and 0.048 for 256x4. After only 3 steps, it is at least 0.0026. A test measures the
# honest runs of tests/security.
NEAREST_HONEST = 0.008
LIMIT = NEAREST_HONEST / 7
LEFT_OUT = 0.1  # tensors with at most this fraction of all entries are left out of the comparison
SHORT = 0.07  # change of the weights in the 12 steps above, as a fraction of the initial weights
# Least change of a trained tensor, as a fraction of its norm and without weight decay. After a smaller change, float32 cannot
# distinguish two methods.
MOVED = 1e-3
SAMPLED = 64  # entries of a run's weights that are compared before all entries are compared
KEYS = 8  # sampled entries by which runs are sorted
NEIGHBOURS = 32  # number of neighbours in the sorted order with which each run is compared
ALIKE = 0.4  # fraction of the sample that must be near, because a copy may have up to half of its numbers changed
LEAST_ENTRIES = 8  # equality of a smaller tensor is no evidence
LEAST_STEPS = 3  # in fewer steps, two methods may move the readout equally
MOST_CANDIDATES = 20_000  # pairs that are compared entry by entry


@dataclass(frozen=True)
class _Trained:
    """A run with digests of its trained tensors and a sample of its weights.

    Args:
        scale: Median absolute change during training, over the sampled weights that changed.
    """

    record: RunRecord
    digests: Mapping[str, str]
    shapes: str
    sample: np.ndarray
    scale: float


def near_copies(tracker: Tracker, records: Sequence[RunRecord]) -> dict[str, dict[str, str]]:
    """Return the pairs of runs with almost equal weights: run id → id of the other run → description.

    Weights are compared relative to the initial weights that both runs have in common. If one run is an adopted run, or its
    initial weights cannot be computed on this machine, the initial weights of the other run are used.
    """
    ordered = sorted(records, key=lambda record: (record.spec.architecture, record.spec.seed, record.run_id))
    runs = [run for record in ordered if (run := _trained(tracker, record))]
    pairs: dict[str, dict[str, str]] = {}
    for first, second, text in (*_near(tracker, runs), *_shared_tensors(runs)):
        for run, similar_run in ((first, second), (second, first)):
            pairs.setdefault(run.record.run_id, {}).setdefault(similar_run.record.run_id, text)
    return pairs


def _trained(tracker: Tracker, record: RunRecord) -> _Trained | None:
    weights = _held(tracker, record.run_id)
    if not weights or not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        return None
    initial = initial_weights(record.spec)
    names = trained_names(weights, initial)
    large = [name for name in names if weights[name].numel() >= LEAST_ENTRIES]
    steps = record.spec.epochs * (schema.sealed_step(record.digests) or LEAST_STEPS)
    compared = large if initial and steps >= LEAST_STEPS else []
    digests = {name: hashlib.sha256(weights[name].contiguous().numpy().tobytes()).hexdigest() for name in compared}
    shapes = hashlib.sha256(repr([(name, tuple(weights[name].shape)) for name in sorted(weights)]).encode()).hexdigest()
    sample = _sampled(weights, shapes)
    # it is not known how far the weights of an adopted run have moved
    changes = np.abs(sample - _sampled(initial, shapes)) if initial.keys() == weights.keys() else np.abs(sample) / 10
    scale = float(np.median(changes[changes > 0])) if changes.any() else 0.0
    return _Trained(record, digests, shapes, sample, scale)


def _sampled(tensors: Mapping[str, Tensor], shapes: str) -> np.ndarray:
    """Return SAMPLED weights at pseudorandom positions, which depend only on `shapes`."""
    all_weights = torch.cat([tensors[name].reshape(-1) for name in sorted(tensors)])
    generator = torch.Generator().manual_seed(int(shapes[:15], 16))
    return all_weights[torch.randint(len(all_weights), (SAMPLED,), generator=generator)].double().numpy()


def _held(tracker: Tracker, run_id: str) -> dict[str, Tensor]:
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
    nonzero = [name for name in sorted(final) if initial[name].any()]
    changed = [name for name in nonzero if _has_moved(final[name].reshape(-1), initial[name].reshape(-1))]
    # a tensor that begins at zero has no direction, so every other final value counts as a change
    return changed and sorted([*changed, *(name for name in final if name not in nonzero and final[name].any())])


def _has_moved(final: Tensor, initial: Tensor) -> bool:
    """Return whether the direction of a tensor changed; weight decay alone changes only the length."""
    final, initial = final.double(), initial.double()
    shrunk = initial * (final @ initial / (initial @ initial))
    return bool((final - shrunk).norm() > MOVED * final.norm())


def distance(
    first: Mapping[str, Tensor],
    second: Mapping[str, Tensor],
    initial: Mapping[str, Tensor],
    same_method: bool = False,
) -> float:
    """Return the distance of two runs over all tensors that both runs trained.

    The distance of a tensor is median |a − b| / median |a − a₀|, where a and b are the final weights of the two runs and a₀ are the
    initial weights. The tensors with the largest distances are left out, as long as they have at most the fraction LEFT_OUT of all
    entries. The result is the largest distance of the other tensors. So a change of small tensors does not hide a copy.

    If the median |a − a₀| is less than SHORT times the median |a₀|, the distance is multiplied by the quotient of these two
    numbers, which is larger than 1. Without this factor, two methods with an equal first step would be too close shortly after this
    step. The distance is infinite if the tensors that both runs trained have fewer than SAMPLED entries in total.

    Args:
        first, second, initial: final weights of two runs and their initial weights, by tensor name.
        same_method: whether method and seed are equal. Two controls of one method may train most entries equally, so no tensor is
            left out.
    """
    names = [name for name in trained_names(first, initial) if name in trained_names(second, initial)]
    entries = sum(first[name].numel() for name in names)
    if entries < SAMPLED:
        return float("inf")
    apart = sorted((_apart(first[name], second[name], initial[name]), first[name].numel()) for name in names)
    needed = entries if same_method else (1 - LEFT_OUT) * entries
    counts = accumulate(count for _, count in apart)
    return next(value for (value, _), count in zip(apart, counts, strict=True) if count >= needed)


def _apart(first: Tensor, second: Tensor, initial: Tensor) -> float:
    difference, movement, size = (tensor.abs().median().item() for tensor in (first - second, first - initial, initial))
    if not difference:
        return 0.0
    return difference / movement * max(1.0, SHORT * size / movement) if movement else float("inf")


def may_be_near(first: RunSpec, second: RunSpec) -> bool:
    """Return whether two honest runs of these specifications may have almost equal weights.

    Such pairs of runs are not reported. Honest runs may have almost equal weights if:

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


def _method_and_seed(run: _Trained) -> tuple[object, ...]:
    """Return what is equal for all controls of a run."""
    return _kin(dataclasses.replace(run.record.spec, control="none"))


def effective_control(spec: RunSpec) -> str:
    """Return the simplest name of a control that is equivalent to the control of `spec`.

    `ladder_L` trains all L blocks and is equivalent to `none`. `ladder_0` with method bp is equivalent to `frozen`.
    """
    trained = depth(spec.control)
    if trained is not None and trained == spec.architecture_options.get("num_blocks"):
        return "none"
    return "frozen" if trained == 0 and spec.method == "bp" else spec.control


def _exact_blocks(spec: RunSpec) -> int | None:
    """Return the number of trained blocks if all trained parts got the exact gradient, else None."""
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


def _near(tracker: Tracker, runs: Sequence[_Trained]) -> Iterator[tuple[_Trained, _Trained, str]]:
    """Yield the candidate pairs whose `distance` is at most LIMIT, with a description."""
    groups: dict[str, list[_Trained]] = {}
    for run in runs:
        groups.setdefault(run.shapes, []).append(run)
    candidates = [pair for group in groups.values() for pair in _candidates(group)]
    for first, second in candidates[:MOST_CANDIDATES]:
        initial = initial_weights(first.record.spec) or initial_weights(second.record.spec)
        weights = [_held(tracker, run.record.run_id) for run in (first, second)]
        if not initial or any(tensors.keys() != initial.keys() for tensors in weights):
            continue
        ratio = distance(*weights, initial, same_method=_method_and_seed(first) == _method_and_seed(second))
        if ratio <= LIMIT:
            changed = sum(int((weights[0][name] != weights[1][name]).sum()) for name in weights[0])
            total = sum(tensor.numel() for tensor in weights[0].values())
            text = (
                f"except for {changed:,} of {total:,} numbers: the distance between the two runs is {ratio:.2g} times their "
                f"distance from the initial weights. After 12 steps, it was at least {NEAREST_HONEST:g} in all measured pairs of "
                "honest runs"
            )
            yield first, second, text


def _candidates(runs: Sequence[_Trained]) -> list[tuple[_Trained, _Trained]]:
    """Return the pairs of runs with close samples.

    The runs are sorted by one of KEYS sampled weights at a time, and only neighbours in this order are compared.
    """
    if len(runs) < 2:
        return []
    samples = np.stack([run.sample for run in runs])
    scales = np.array([run.scale for run in runs])
    pairs: dict[tuple[int, int], None] = {}
    for key in range(KEYS):
        order = np.argsort(samples[:, key], kind="stable")
        for step in range(1, min(NEIGHBOURS, len(runs) - 1) + 1):
            first, second = order[:-step], order[step:]
            limit = 2 * LIMIT * np.minimum(scales[first], scales[second])
            is_near = (np.abs(samples[first] - samples[second]) <= limit[:, None]).mean(axis=1) >= ALIKE
            near_pairs = zip(first[is_near].tolist(), second[is_near].tolist(), strict=True)
            pairs |= dict.fromkeys(tuple(sorted(pair)) for pair in near_pairs)
    candidates = [(runs[first], runs[second]) for first, second in pairs]
    return [(run_a, run_b) for run_a, run_b in candidates if not may_be_near(run_a.record.spec, run_b.record.spec)]


def _shared_tensors(runs: Sequence[_Trained]) -> Iterator[tuple[_Trained, _Trained, str]]:
    """Yield pairs of runs that have a bitwise equal trained tensor although their method or seed differs.

    Pairs of controls with the same method and seed are omitted. If the method learns locally, both controls train the same
    embedding.
    """
    holders: dict[tuple[str, str], list[_Trained]] = {}
    for run in runs:
        for name, digest in run.digests.items():
            holders.setdefault((name, digest), []).append(run)
    shared: dict[tuple[str, str], tuple[_Trained, _Trained, list[str]]] = {}
    for (name, _), sharing_runs in holders.items():
        # one run per method, seed, architecture and data set represents the others, which may be many
        kins = map(_method_and_seed, sharing_runs)
        representatives = list(dict(zip(kins, sharing_runs, strict=True)).values())
        for index, first in enumerate(representatives[:NEIGHBOURS]):
            for second in representatives[index + 1 : NEIGHBOURS]:
                if not may_be_near(first.record.spec, second.record.spec):
                    key = first.record.run_id, second.record.run_id
                    shared.setdefault(key, (first, second, []))[2].append(name)
    for first, second, names in shared.values():
        is_plural = len(names) > 1
        text = f"in {len(names)} trained tensor{'s' if is_plural else ''}, bit by bit, e.g. {', '.join(names[:3])}"
        yield first, second, text
