"""Find runs with the same weights: equal final weights under two specifications are a finding on both.

The content of the weights is compared, not the file, whose metadata can be changed. Two runs of one rule, on the same
data and from the same seed, have bitwise equal weights, and that is not a finding: see `may_share_weights`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fa_registry import architectures, jsonio, methods
from fa_registry.errors import IntegrityError, PluginError, RegistryError, UnknownName
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import Check, Recipe, RunRecord, RunSpec, Scalar
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.reader import read_provenance, read_spec, runs_by_tag
from fa_registry.training.checkpoint import content_digest, load_tensors
from fa_registry.workflows.near_copies import effective_control, near_copies

FINAL_WEIGHTS = "final weights"  # subject of the checks
INITIAL_WEIGHTS = "initial weights"
NOT_COMPARABLE = "a weight is not finite: any two runs that diverge may end with the same values"
LOST = 2.0**-25  # a change of a float32 number by this fraction is lost in rounding
SHOWN = 3
FEW = 100  # up to so many digests are searched one by one; reading all runs of a large store takes seconds


def final_weights(tracker: Tracker, record: RunRecord) -> Check:
    """Check that the checkpoint has the recorded weights; older releases recorded only the file's digest."""
    path = tracker.artifact(record.run_id, schema.FINAL)
    if path is None:  # recomputing needs it, and reports it
        return Check(FINAL_WEIGHTS, "not possible", f"{schema.FINAL} is not in the store")
    try:
        held = content_digest(load_tensors(path, record.digests.get(schema.FINAL)))
    except IntegrityError as error:
        return Check(FINAL_WEIGHTS, "differs", str(error))
    sealed = record.provenance.get("final_weights", held)
    if held != sealed:
        detail = f"{schema.FINAL} has content {held or 'none'}, recorded is {sealed or 'none'}"
        return Check(FINAL_WEIGHTS, "differs", detail)
    if not held:
        return Check(FINAL_WEIGHTS, "not possible", NOT_COMPARABLE)
    return Check(
        FINAL_WEIGHTS, "agrees", "the checkpoint has the recorded weights; no other specification gave the same"
    )


def initial_weights(tracker: Tracker, record: RunRecord) -> Iterator[Check]:
    """Yield a failed check if the initial weights in the file are not those that provenance.json recorded.

    The file's digest is not enough: the owner can record the digest of another run's file, or add a file that the run
    never recorded. `training.replay_from_seed` checks whether the seed gives the recorded weights.
    """
    recorded = record.provenance.get("initial_weights", "")
    path = tracker.artifact(record.run_id, schema.INITIAL) if recorded else None
    if path is None:
        return
    try:
        held = content_digest(load_tensors(path, record.digests.get(schema.INITIAL)))
    except IntegrityError as error:
        yield Check(INITIAL_WEIGHTS, "differs", str(error))
        return
    if held != recorded:
        detail = f"{schema.INITIAL}: expected the content {recorded}, which {schema.PROVENANCE} records, found {held or 'none'}"
        yield Check(INITIAL_WEIGHTS, "differs", detail)


def compared(tracker: Tracker, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records in their order, with a mismatch on each whose final weights are another run's.

    They are compared with each other, and with the rest of the store by the digest that runs have in a tag and in a
    recorded file.
    """
    digests = [record.provenance.get("final_weights") or _content(tracker, record) for record in records]
    by_digest: dict[str, list[RunRecord]] = {}
    for digest, record in zip(digests, records, strict=True):
        by_digest.setdefault(digest, []).append(record)
    by_digest.pop("", None)
    elsewhere = _elsewhere(tracker, by_digest)
    after = [
        _with_finding(record, [*by_digest.get(digest, ()), *elsewhere.get(digest, ())])
        for digest, record in zip(digests, records, strict=True)
    ]
    near, by_id = near_copies(tracker, records), {record.run_id: record for record in records}
    return [_with_near(record, near.get(record.run_id, {}), by_id) for record in after]


def _with_near(record: RunRecord, near: Mapping[str, str], by_id: Mapping[str, RunRecord]) -> RunRecord:
    """Return the record with a finding that names the runs with almost the same weights.

    A record that already has a finding is not changed.
    """
    if not near or any(_is_found(check) for check in record.integrity.checks):
        return record
    reported = [f"the same weights as run {run_id} ({by_id[run_id].name}) {text}" for run_id, text in near.items()]
    rest = [f"{len(reported) - SHOWN} more"] if len(reported) > SHOWN else []
    return _with_check(record, Check(FINAL_WEIGHTS, "differs", "; ".join([*reported[:SHOWN], *rest])))


def _is_found(check: Check) -> bool:
    return (check.subject, check.outcome) == (FINAL_WEIGHTS, "differs")


def may_share_weights(one: RunSpec, other: RunSpec) -> bool:
    """Return whether training these two gives the same weights by construction, which is not a finding.

    It does if the two specifications are equal in everything that has an effect on the weights. No effect on the
    weights have:
    - everything but the draw of the initial weights if nothing was trained (no epoch, or a learning rate of 0);
    - the method of a network in which no block learns and whose embedding is trained by backpropagation (frozen,
    ladder_0 by bp);
    - the control ladder_L, which trains all blocks;
    - the blocks that the shallow control leaves out;
    - credit_norm, and the options that set where a credit is applied, if errors are backpropagated end to end;
    - the schedule of a single epoch;
    - a penalty or a weight decay that is lost in float32.
    Adopted weights were trained elsewhere, and their owner states the seed and the setting: one file may appear under
    several of them (each counts once, protocol.paired_runs), of one method.
    """
    if one.weights and other.weights:
        return _rule(one) == _rule(other)
    return effective(one) == effective(other)


def effective(spec: RunSpec) -> RunSpec:
    """Return the specification with every field blanked that has no effect on its final weights.

    See `may_share_weights`.
    """
    recipe, blocks = spec.recipe, spec.architecture_options.get("num_blocks")
    control, options = spec.control, _options(spec)
    if control == "shallow" or blocks == 0:
        control, options = "shallow", _without(options, "num_blocks")
    else:
        control = effective_control(spec)
    if spec.epochs == 0 or recipe.learning_rate == 0:  # nothing was trained
        return RunSpec("", spec.architecture, "", spec.seed, 0, {}, options, Recipe(), 0.0, _drawn(control))
    if recipe.optimizer == "adamw" and recipe.weight_decay * recipe.learning_rate < LOST:
        recipe = dataclasses.replace(recipe, weight_decay=0.0)
    if spec.epochs == 1:
        recipe = dataclasses.replace(recipe, schedule="")
    if _end_to_end(spec):
        recipe = dataclasses.replace(recipe, credit_norm="")
    penalty = (
        0.0 if spec.penalty < LOST or control in ("shallow", "frozen") else spec.penalty
    )  # no block is trained, so the penalty has no effect
    found = dataclasses.replace(spec, control=control, architecture_options=options, recipe=recipe, penalty=penalty)
    return dataclasses.replace(found, weights="")


def _options(spec: RunSpec) -> Mapping[str, Scalar]:
    """Return the architecture's options that can affect the weights.

    Options that set where a credit is applied are left out if no credit changed the weights.
    """
    untrained = spec.epochs == 0 or spec.recipe.learning_rate == 0
    if not (untrained or _end_to_end(spec)):
        return spec.architecture_options
    try:
        return _without(spec.architecture_options, *architectures.CATALOG.get(spec.architecture).card.credit_options)
    except (UnknownName, PluginError):
        return spec.architecture_options


def _without(options: Mapping[str, Scalar], *names: str) -> dict[str, Scalar]:
    return {name: value for name, value in options.items() if name not in names}


def _drawn(control: str) -> str:
    """Return the control if it changes the initial network: only the shallow one does."""
    return "shallow" if control == "shallow" else "none"


def _rule(spec: RunSpec) -> tuple[object, ...]:
    """Return the stated method of an adopted file, regardless of its seed and setting."""
    norm = "" if _end_to_end(spec) else spec.recipe.credit_norm
    return spec.method, jsonio.digest_of(spec.method_options), norm, spec.penalty, spec.control


def _end_to_end(spec: RunSpec) -> bool:
    try:
        return methods.CATALOG.get(spec.method).end_to_end
    except (UnknownName, PluginError):  # of a plugin that is not installed here, or broken
        return False


def _content(tracker: Tracker, record: RunRecord) -> str:
    """Return the digest of the checkpoint's content; empty if it cannot be read.

    Another check reports an unreadable checkpoint.
    """
    try:
        path = tracker.artifact(record.run_id, schema.FINAL)
        return content_digest(load_tensors(path)) if path else ""
    except RegistryError:
        return ""


def _elsewhere(tracker: Tracker, by_digest: Mapping[str, Sequence[RunRecord]]) -> dict[str, list[RunRecord]]:
    """Return runs of the rest of the store with the same weights.

    A tag finds them; their recorded files decide.
    """
    known = {record.run_id for records in by_digest.values() for record in records}
    elsewhere: dict[str, list[RunRecord]] = {}
    for digest, runs in runs_by_tag(tracker, schema.TAG_WEIGHTS, by_digest, FEW).items():
        for run in runs:
            if run.run_id in known:
                continue
            with contextlib.suppress(RegistryError):  # a run outside the selection: an unreadable one is no evidence
                variant = _sealed_with(tracker, run.run_id, digest, by_digest[digest][0])
                elsewhere.setdefault(digest, []).extend(
                    [dataclasses.replace(variant, name=run.name)] if variant else []
                )
    return elsewhere


def _sealed_with(tracker: Tracker, run_id: str, digest: str, like: RunRecord) -> RunRecord | None:
    """Return a record of the run, with only its specification known, if it recorded these weights."""
    try:
        spec, provenance = (tracker.artifact(run_id, name) for name in (schema.SPEC, schema.PROVENANCE))
        if spec is None or provenance is None or read_provenance(provenance).get("final_weights") != digest:
            return None
        return dataclasses.replace(like, run_id=run_id, spec=read_spec(spec))
    except IntegrityError:  # the audit of that run reports what is wrong with its files
        return None


def _with_finding(record: RunRecord, same: Iterable[RunRecord]) -> RunRecord:
    others = [
        variant
        for variant in same
        if variant.run_id != record.run_id and not may_share_weights(record.spec, variant.spec)
    ]
    if not others:
        return record
    text = ", ".join(_named(others))
    finding = Check(
        FINAL_WEIGHTS,
        "differs",
        f"the same weights, bit by bit, as {text}: two different specifications cannot give equal weights",
    )
    return _with_check(record, finding)


def _with_check(record: RunRecord, finding: Check) -> RunRecord:
    """Return the record with this finding on its final weights, in place of the passed check."""
    integrity = record.integrity
    kept = tuple(check for check in integrity.checks if check.subject != FINAL_WEIGHTS or _is_found(check))
    return dataclasses.replace(record, integrity=with_checks(dataclasses.replace(integrity, checks=kept), [finding]))


def _named(variants: Sequence[RunRecord]) -> Iterator[str]:
    for variant in variants[:SHOWN]:
        yield f"run {variant.run_id} ({variant.name})"
    if len(variants) > SHOWN:
        yield f"{len(variants) - SHOWN} more"
