"""Find runs whose final weights are almost equal: one run may be a copy with some numbers changed.

Only trained tensors are compared, that is, tensors that training changed. The distance of two runs is compared with the
smallest distance that was measured between two honest runs. Distances are medians, so a few large changes have no effect.

Not every pair is compared, because the number of pairs grows with the square of the number of runs. The candidate pairs
are runs whose random samples of weights are close.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fa_registry import datasets, methods
from fa_registry.architectures.base import part_of
from fa_registry.errors import RegistryError
from fa_registry.records import RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.controls import depth
from fa_registry.training.run_setup import build_network

# The smallest measured `distance` of two honest runs of different methods, seeds or controls, and the largest distance that is a
# finding. Source: digits, seed 1, 12 and 48 steps of every method and of frozen and ladder_1 controls, resmlp and mlp 16x2. After
# 12 steps kolen_pollack and weight_fa on mlp are 0.0092 apart, frozen and ladder_1 0.018; on resmlp the nearest are 0.050. After
# 48 steps two methods on resmlp are at least 0.16 apart. The honest store of tests/security is measured by a test.
NEAREST_HONEST = 0.0092
LIMIT = NEAREST_HONEST / 8
SHORT = 0.07  # distance travelled in those 12 steps, as a fraction of the initial weights
# Fraction of a tensor's norm, not counting weight decay: after less movement, float32 cannot distinguish two methods.
MOVED = 1e-3
SAMPLED = 64  # entries of a run's weights that are compared before all are
KEYS = 8  # sampled entries by which runs are sorted
NEIGHBOURS = 32  # each run is compared with so many neighbours in that order
ALIKE = 0.4  # share of the sample that must be near: fewer than half of the numbers were changed
LEAST_ENTRIES = 8  # equality of a smaller tensor is no evidence
LEAST_STEPS = 3  # in fewer steps, two methods may move the readout equally
MOST_CANDIDATES = 20_000  # pairs that are compared entry by entry


@dataclass(frozen=True)
class _Trained:
    """A run with digests of its trained tensors, a sample of its weights, and the sample's median change."""

    record: RunRecord
    digests: Mapping[str, str]
    shapes: str
    sample: np.ndarray
    scale: float


def near_copies(tracker: Tracker, records: Sequence[RunRecord]) -> dict[str, dict[str, str]]:
    """Return the pairs of runs with almost equal weights, with a description of each pair.

    Weights are compared relative to the initial weights that both runs have in common. If one run is an adopted run, or its
    initial weights cannot be computed on this machine, the initial weights of the other run are used.

    Returns:
        For each run of a pair: run id → {id of the other run → text that describes which weights are equal}.
    """
    ordered = sorted(records, key=lambda record: (record.spec.architecture, record.spec.seed, record.run_id))
    runs = [run for record in ordered if (run := _trained(tracker, record))]
    found: dict[str, dict[str, str]] = {}
    for one, other, text in (*_near(tracker, runs), *_shared_tensors(runs)):
        for run, variant in ((one, other), (other, one)):
            found.setdefault(run.record.run_id, {}).setdefault(variant.record.run_id, text)
    return found


def _trained(tracker: Tracker, record: RunRecord) -> _Trained | None:
    held = _held(tracker, record.run_id)
    if not held or not _are_finite(held):
        return None
    initial = initial_weights(record.spec)
    names = trained_names(held, initial)
    large = [name for name in names if held[name].numel() >= LEAST_ENTRIES]
    digests = {name: _digest(held[name]) for name in large} if initial and _has_steps(record) else {}
    shapes = hashlib.sha256(repr([(name, tuple(held[name].shape)) for name in sorted(held)]).encode()).hexdigest()
    sample = _sampled(held, shapes)
    # it is not known how far the weights of an adopted run have moved
    way = np.abs(sample - _sampled(initial, shapes)) if initial.keys() == held.keys() else np.abs(sample) / 10
    scale = float(np.median(way[way > 0])) if way.any() else 0.0
    return _Trained(record, digests, shapes, sample, scale)


def _sampled(tensors: Mapping[str, Tensor], shapes: str) -> np.ndarray:
    """Return SAMPLED weights at pseudorandom positions, which depend only on `shapes`."""
    every = torch.cat([tensors[name].reshape(-1) for name in sorted(tensors)])
    generator = torch.Generator().manual_seed(int(shapes[:15], 16))
    return every[torch.randint(len(every), (SAMPLED,), generator=generator)].double().numpy()


def _held(tracker: Tracker, run_id: str) -> dict[str, Tensor]:
    with contextlib.suppress(RegistryError):  # recomputing the run reports what is wrong with the file
        path = tracker.artifact(run_id, schema.FINAL)
        tensors = load_tensors(path) if path else {}
        return _floating(tensors)
    return {}


def _floating(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def _are_finite(tensors: Mapping[str, Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values())


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
        network = build_network(spec, datasets.get(dataset).card)
    except Exception:  # third-party code: recomputing the run reports what is wrong with it
        return {}
    return _floating({name: tensor.detach() for name, tensor in network.state_dict().items()})


def trained_names(held: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that training changed.

    If `initial` has other tensor names or shapes than `held`, return all names of `held`.

    Args:
        held: final weights by name.
        initial: initial weights by name.
    """
    if {name: tensor.shape for name, tensor in held.items()} != {n: tensor.shape for n, tensor in initial.items()}:
        return sorted(held)
    drawn = [name for name in sorted(held) if initial[name].any()]
    moved = [name for name in drawn if _has_moved(held[name].reshape(-1), initial[name].reshape(-1))]
    # a tensor that begins at zero has no scale
    return moved and sorted([*moved, *(name for name in held if name not in drawn and held[name].any())])


def _has_moved(held: Tensor, initial: Tensor) -> bool:
    """Return whether the direction of a tensor changed, because weight decay changes only the length."""
    held, initial = held.double(), initial.double()
    shrunk = initial * (held @ initial / (initial @ initial))
    return bool((held - shrunk).norm() > MOVED * held.norm())


def _has_steps(record: RunRecord) -> bool:
    """Return whether the run took at least LEAST_STEPS training steps, according to its recorded digests."""
    step = schema.sealed_step(record.digests)
    return record.spec.epochs * (step or LEAST_STEPS) >= LEAST_STEPS


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> float:
    """Return the largest distance over all tensors that both runs trained.

    The distance of a tensor is median |a − b| / median |a − a₀|, where a and b are the final weights of the two runs and a₀
    are the initial weights.

    If the median |a − a₀| is less than SHORT times the median |a₀|, the distance is enlarged in proportion, because two methods
    with the same first step differ only in second order. The distance is infinite if the tensors that both runs trained have
    fewer than SAMPLED entries in total.

    Args:
        one, other, initial: final weights of two runs and their initial weights, by tensor name.
    """
    names = [name for name in trained_names(one, initial) if name in trained_names(other, initial)]
    if sum(one[name].numel() for name in names) < SAMPLED:
        return float("inf")
    return max(_apart(one[name], other[name], initial[name]) for name in names)


def _apart(one: Tensor, other: Tensor, initial: Tensor) -> float:
    off, way, size = (tensor.abs().median().item() for tensor in (one - other, one - initial, initial))
    if not off:
        return 0.0
    return off / way * max(1.0, SHORT * size / way) if way else float("inf")


# Which pairs of runs are compared.


def may_be_near(one: RunSpec, other: RunSpec) -> bool:
    """Return whether two honest runs of these specifications may have almost equal weights.

    Such pairs of runs are not reported. Honest runs may have almost equal weights if:

    - both runs are adopted, because models may be fine-tuned from one file; or
    - method, seed, control, architecture and data set are equal, so only numerical options differ; or
    - the seed and the number of trained blocks are equal, and every trained part of both runs gets the exact gradient.
    """
    if one.weights and other.weights:
        return True
    if _kin(one) == _kin(other):
        return True
    blocks = _exact_blocks(one) if one.seed == other.seed else None
    return blocks is not None and blocks == _exact_blocks(other)


def _kin(spec: RunSpec) -> tuple[object, ...]:
    return spec.method, spec.seed, effective_control(spec), spec.architecture, spec.dataset


def effective_control(spec: RunSpec) -> str:
    """Return the simplest name of an equivalent control.

    `ladder_L` trains all L blocks and is equivalent to `none`. `ladder_0` with method bp is equivalent to `frozen`.
    """
    trained = depth(spec.control)
    if trained is not None and trained == spec.architecture_options.get("num_blocks"):
        return "none"
    return "frozen" if trained == 0 and spec.method == "bp" else spec.control


def _without_control(spec: RunSpec) -> tuple[object, ...]:
    return _kin(dataclasses.replace(spec, control="none"))


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
    for one, other in candidates[:MOST_CANDIDATES]:
        initial = initial_weights(one.record.spec) or initial_weights(other.record.spec)
        held = [_held(tracker, run.record.run_id) for run in (one, other)]
        if not initial or any(tensors.keys() != initial.keys() for tensors in held):
            continue
        apart = distance(*held, initial)
        if apart <= LIMIT:
            changed = sum(int((held[0][name] != held[1][name]).sum()) for name in held[0])
            total = sum(tensor.numel() for tensor in held[0].values())
            yield one, other, _near_text(changed, total, apart)


def _near_text(changed: int, total: int, apart: float) -> str:
    return (
        f"except for {changed:,} of {total:,} numbers: the distance of the two runs is {apart:.2g} of their distance from the "
        f"initial weights, but the distance of two honest runs is at least {NEAREST_HONEST:g}"
    )


def _candidates(runs: Sequence[_Trained]) -> list[tuple[_Trained, _Trained]]:
    """Return the pairs of runs with close samples.

    The runs are sorted by one sampled weight, and only neighbours are compared. This is repeated for KEYS sampled weights.
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
            near = (np.abs(samples[first] - samples[second]) <= limit[:, None]).mean(axis=1) >= ALIKE
            pairs |= {
                tuple(sorted(pair)): None for pair in zip(first[near].tolist(), second[near].tolist(), strict=True)
            }
    chosen = [(runs[first], runs[second]) for first, second in pairs]
    return [(one, other) for one, other in chosen if not may_be_near(one.record.spec, other.record.spec)]


def _shared_tensors(runs: Sequence[_Trained]) -> Iterator[tuple[_Trained, _Trained, str]]:
    """Yield pairs of runs that have a bitwise equal trained tensor although their method or seed differs.

    Controls of one method and seed are omitted: with a method that learns locally, each control trains the same embedding.
    """
    holders: dict[tuple[str, str], list[_Trained]] = {}
    for run in runs:
        for name, digest in run.digests.items():
            holders.setdefault((name, digest), []).append(run)
    shared: dict[tuple[str, str], tuple[_Trained, _Trained, list[str]]] = {}
    for (name, _), same in holders.items():
        # one run per method, seed, architecture and data set represents the others, which may be many
        alone = list({_without_control(run.record.spec): run for run in same}.values())
        for place, one in enumerate(alone[:NEIGHBOURS]):
            for other in alone[place + 1 : NEIGHBOURS]:
                if not may_be_near(one.record.spec, other.record.spec):
                    key = one.record.run_id, other.record.run_id
                    shared.setdefault(key, (one, other, []))[2].append(name)
    for one, other, names in shared.values():
        several = len(names) > 1
        text = f"in {len(names)} trained tensor{'s' if several else ''}, bit by bit, e.g. {', '.join(names[:3])}"
        yield one, other, text
