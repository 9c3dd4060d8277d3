"""Search for runs with different specifications and equal final weights or equal trained tensors.

Such runs get a mismatch, unless their specifications must give the same weights (see `may_share_weights`). The content of the
weights is compared, because the metadata of a file can be changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from torch import Tensor

from fa_registry import architectures, jsonio, methods
from fa_registry.architectures.base import part_of
from fa_registry.errors import IntegrityError, PluginError, RegistryError, UnknownName, pluralise
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import DEEP_SUPERVISION, FROZEN_LONG, Check, Recipe, RunRecord, RunSpec, Scalar
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.reader import compared_values, read_provenance, read_spec, runs_by_tag
from fa_registry.training.checkpoint import content_digest, is_finite, load_tensors
from fa_registry.training.controls import depth
from fa_registry.training.run_setup import build_network
from fa_registry.training.spec_plugins import find_plugins

FINAL_WEIGHTS = "final weights"  # subject of the checks
INITIAL_WEIGHTS = "initial weights"
NOT_COMPARABLE = "some weights are not finite, so equal weights of two such runs prove nothing"
LOST = 2.0**-25  # a change of a float32 number by this fraction is lost in rounding
SHOWN = 3
FEW = 100  # up to this number of digests, one query per digest is faster than reading all runs of a large store


def final_weights(tracker: Tracker, record: RunRecord) -> Check:
    """Check that the checkpoint contains the weights whose digest the run recorded."""
    path = tracker.artifact(record.run_id, schema.FINAL)
    if path is None:  # the recomputation reports the missing file
        return Check(FINAL_WEIGHTS, "not possible", f"{schema.FINAL} is not in the store")
    try:
        stored_digest = content_digest(load_tensors(path, record.digests.get(schema.FINAL)))
    except IntegrityError as error:
        return Check(FINAL_WEIGHTS, "differs", str(error))
    recorded_digest = record.provenance.get("final_weights", "")
    if stored_digest != recorded_digest:
        expected = f"expected weights with digest {recorded_digest or 'none'}"
        return Check(FINAL_WEIGHTS, "differs", f"{schema.FINAL}: {expected}, found {stored_digest or 'none'}")
    if not stored_digest:
        return Check(FINAL_WEIGHTS, "not possible", NOT_COMPARABLE)
    text = "the checkpoint has the recorded weights, and no other specification has the same weights"
    return Check(FINAL_WEIGHTS, "agrees", text)


def initial_weights(tracker: Tracker, record: RunRecord) -> Iterator[Check]:
    """Yield a failed check if the file does not contain the recorded initial weights.

    The digest of the weights is recorded in provenance.json. The digest of the file is not enough: the owner of the store can
    record the digest of another run's file, or add a file that the run never recorded. The module `training.replay_from_seed`
    checks whether the seed gives the recorded weights.
    """
    recorded = record.provenance.get("initial_weights", "")
    path = tracker.artifact(record.run_id, schema.INITIAL) if recorded else None
    if path is None:
        return
    try:
        stored = content_digest(load_tensors(path, record.digests.get(schema.INITIAL)))
    except IntegrityError as error:
        yield Check(INITIAL_WEIGHTS, "differs", str(error))
        return
    if stored != recorded:
        detail = f"{schema.INITIAL}: expected weights with digest {recorded} (in {schema.PROVENANCE}), found {stored or 'none'}"
        yield Check(INITIAL_WEIGHTS, "differs", detail)


def compared(tracker: Tracker, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records, with a mismatch on each record that duplicates another run.

    A record is a duplicate if another record or another run in the store has equal final weights. A record is also a duplicate if
    another record has an equal trained tensor (see `shared_tensors`). Other runs in the store are found by the digest in their
    tags, and confirmed by the digest in their recorded files. The order of the records does not change.
    """
    digests = [record.provenance.get("final_weights", "") for record in records]
    by_digest: dict[str, list[RunRecord]] = {}
    for digest, record in zip(digests, records, strict=True):
        by_digest.setdefault(digest, []).append(record)
    by_digest.pop("", None)
    elsewhere = _elsewhere(tracker, by_digest)
    checked_records = [
        _with_finding(record, [*by_digest.get(digest, ()), *elsewhere.get(digest, ())])
        for digest, record in zip(digests, records, strict=True)
    ]
    shared, run_names = shared_tensors(tracker, records), {record.run_id: record.name for record in records}
    return [_with_shared(record, shared.get(record.run_id, {}), run_names) for record in checked_records]


def _with_shared(record: RunRecord, shared: Mapping[str, Sequence[str]], run_names: Mapping[str, str]) -> RunRecord:
    """Add a failed check that names the runs with equal trained tensors.

    A record that already has a failed check of the final weights is not changed.
    """
    if not shared or any(_is_found(check) for check in record.integrity.checks):
        return record
    reported = [
        f"the same weights as run {run_id} ({run_names[run_id]}) in {pluralise(len(names), 'trained tensor')}, bit by bit, "
        f"e.g. {', '.join(names[:SHOWN])}"
        for run_id, names in shared.items()
    ]
    remainder = [f"{len(reported) - SHOWN} more runs"] if len(reported) > SHOWN else []
    return _with_check(record, Check(FINAL_WEIGHTS, "differs", "; ".join([*reported[:SHOWN], *remainder])))


def _is_found(check: Check) -> bool:
    return (check.subject, check.outcome) == (FINAL_WEIGHTS, "differs")


def may_share_weights(first: RunSpec, second: RunSpec) -> bool:
    """Return whether two specifications must give the same final weights.

    Equal weights of two such specifications are not reported. Specifications give the same weights if they differ only in fields
    without effect. The list gives each condition and the fields that have no effect under this condition:
    - nothing was trained (no epoch, a learning rate of 0, or `linear_lq` without `learn`): all fields that do not determine the
      initial weights;
    - no block is trained, and backpropagation trains the embedding (`frozen`, or `ladder_0` of `bp`): the method;
    - the control is `ladder_L`, which trains all L blocks: the control;
    - the control is `shallow`, which has no blocks: the number of blocks, and the options that change only blocks;
    - no gradient or credit reached a limit: this limit;
    - no block is trained: the factor of the blocks' learning rate;
    - errors are backpropagated end to end: credit_norm, and the options that choose where a credit is applied;
    - there is only one epoch: the schedule;
    - float32 rounding removes the effect of a penalty or of a weight decay: this penalty or weight decay.

    For an adopted run, seed and setting are only claims of its owner. Two adopted runs with the same weights file are therefore
    allowed to differ in seed and setting. If their method, method options, credit_norm, penalties or control differ, equal weights
    are reported. In one group, `protocol.paired_runs` counts a shared weights file only once.
    """
    if first.weights and second.weights:
        return _rule(first) == _rule(second)
    return effective(first) == effective(second)


def effective(spec: RunSpec) -> RunSpec:
    """Return the specification with a fixed value in each field that has no effect on its weights.

    See `may_share_weights`.
    """
    recipe, blocks = spec.recipe, spec.architecture_options.get("num_blocks")
    control, options = spec.control, _options(spec)
    if control == "shallow" or blocks == 0:
        control, options = "shallow", _without(options, "num_blocks", *_named(spec, "block_options"))
    else:
        control = effective_control(spec)
    if _is_untrained(spec):
        drawn = "shallow" if control == "shallow" else "none"
        return RunSpec("", spec.architecture, "", spec.seed, 0, {}, options, Recipe(), control=drawn)
    if recipe.optimizer == "adamw" and recipe.weight_decay * recipe.learning_rate < LOST:
        recipe = dataclasses.replace(recipe, weight_decay=0.0)
    if spec.epochs == 1:
        recipe = dataclasses.replace(recipe, schedule="")
    recipe = dataclasses.replace(recipe, clip_gradient=0.0, clip_credit=0.0)
    if control in ("shallow", "frozen"):
        recipe = dataclasses.replace(recipe, rate_blocks=1.0)
    if _end_to_end(spec):
        recipe = dataclasses.replace(recipe, credit_norm="")
    # if no block is trained, the penalty has no effect
    penalty = 0.0 if spec.penalty < LOST or control in ("shallow", "frozen") else spec.penalty
    embedding = 0.0 if spec.penalty_embedding < LOST else spec.penalty_embedding
    fields = {"architecture_options": options, "recipe": recipe, "penalty": penalty, "weights": ""}
    return dataclasses.replace(spec, control=control, penalty_embedding=embedding, **fields)


def _is_untrained(spec: RunSpec) -> bool:
    """Return whether no weight of the network was trained.

    A third-party architecture cannot declare that it trains nothing, because its runs would then escape the comparison.
    """
    if spec.epochs == 0 or spec.recipe.learning_rate == 0:
        return True
    try:
        architecture = architectures.CATALOG.get(spec.architecture)
    except (UnknownName, PluginError):
        return False
    is_builtin = architectures.CATALOG.location(spec.architecture).is_builtin
    return is_builtin and not architecture.trains(architecture.resolve(spec.architecture_options))


def _options(spec: RunSpec) -> Mapping[str, Scalar]:
    """Return the architecture's options that can affect the weights.

    If no credit changed the weights, the options that choose where a credit is applied are omitted.
    """
    if not (_is_untrained(spec) or _end_to_end(spec)):
        return spec.architecture_options
    return _without(spec.architecture_options, *_named(spec, "credit_options"))


def _named(spec: RunSpec, field: str) -> tuple[str, ...]:
    """Return the options that this field of the architecture's card lists; none without a card."""
    try:
        return getattr(architectures.CATALOG.get(spec.architecture).card, field)
    except (UnknownName, PluginError):
        return ()


def _without(options: Mapping[str, Scalar], *names: str) -> dict[str, Scalar]:
    return {name: value for name, value in options.items() if name not in names}


def _rule(spec: RunSpec) -> tuple[object, ...]:
    norm = "" if _end_to_end(spec) else spec.recipe.credit_norm
    options = jsonio.digest_of(spec.method_options)
    return spec.method, options, norm, spec.penalty, spec.penalty_embedding, spec.control


def _end_to_end(spec: RunSpec) -> bool:
    try:
        return methods.CATALOG.get(spec.method).end_to_end
    except (UnknownName, PluginError):  # the plug-in is not installed here or is broken
        return False


def _elsewhere(tracker: Tracker, by_digest: Mapping[str, Sequence[RunRecord]]) -> dict[str, list[RunRecord]]:
    """Return a mapping: digest of weights → other runs of the store with these weights.

    The runs are found by a tag and confirmed by their recorded files.
    """
    selected_ids = {record.run_id for records in by_digest.values() for record in records}
    elsewhere: dict[str, list[RunRecord]] = {}
    digests = compared_values(tracker, schema.TAG_WEIGHTS, by_digest, selected_ids)
    for digest, runs in runs_by_tag(tracker, schema.TAG_WEIGHTS, digests, FEW).items():
        for run in runs:
            if run.run_id in selected_ids:
                continue
            with contextlib.suppress(RegistryError):  # an unreadable run outside the selection is no evidence
                spec, provenance = (tracker.artifact(run.run_id, name) for name in (schema.SPEC, schema.PROVENANCE))
                if spec and provenance and read_provenance(provenance).get("final_weights") == digest:
                    # all other fields of the record come from a selected run
                    fields = {"run_id": run.run_id, "spec": read_spec(spec), "name": run.name}
                    variant = dataclasses.replace(by_digest[digest][0], **fields)
                    elsewhere.setdefault(digest, []).append(variant)
    return elsewhere


def _with_finding(record: RunRecord, candidates: Iterable[RunRecord]) -> RunRecord:
    duplicates = [
        variant
        for variant in candidates
        if variant.run_id != record.run_id and not may_share_weights(record.spec, variant.spec)
    ]
    if not duplicates:
        return record
    named = [f"run {variant.run_id} ({variant.name})" for variant in duplicates[:SHOWN]]
    named += [f"{len(duplicates) - SHOWN} more runs"] if len(duplicates) > SHOWN else []
    text = f"the weights are bitwise equal to those of {', '.join(named)}"
    detail = f"{text}, but two different specifications cannot give equal weights"
    return _with_check(record, Check(FINAL_WEIGHTS, "differs", detail))


def _with_check(record: RunRecord, finding: Check) -> RunRecord:
    """Replace the passed check of the record's final weights by the failed check `finding`."""
    integrity = record.integrity
    remaining_checks = tuple(check for check in integrity.checks if check.subject != FINAL_WEIGHTS or _is_found(check))
    integrity = with_checks(dataclasses.replace(integrity, checks=remaining_checks), [finding])
    return dataclasses.replace(record, integrity=integrity)


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
    initial = reinitialised_weights(record.spec)
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


def reinitialised_weights(spec: RunSpec) -> Mapping[str, Tensor]:
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
    initial = reinitialised_weights(spec)
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
