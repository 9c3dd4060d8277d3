"""No two runs have the same weights: identical final weights under two specifications are a finding about both.

Compared is the content, not the file: a file's own metadata can be made to differ. Trained twice, by one rule on the same data
from the same seed, weights are equal to the last bit, and that is no finding: see `may_share_weights`.
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
NOT_COMPARABLE = "a weight is not finite: what training broke down to is the same in any two runs"
LOST = 2.0**-25  # a change by this fraction of a float32 number leaves it as it is
SHOWN = 3
FEW = 100  # digests that are searched one by one: each finds its own run alone, all runs of a large store take seconds to read


def final_weights(tracker: Tracker, record: RunRecord) -> Check:
    """Whether the checkpoint holds the weights whose content was sealed; those of older releases sealed only the file."""
    path = tracker.artifact(record.run_id, schema.FINAL)
    if path is None:  # measuring again needs it, and says so
        return Check(FINAL_WEIGHTS, "not possible", f"{schema.FINAL} is not in the store")
    try:
        held = content_digest(load_tensors(path, record.digests.get(schema.FINAL)))
    except IntegrityError as error:
        return Check(FINAL_WEIGHTS, "differs", str(error))
    sealed = record.provenance.get("final_weights", held)
    if held != sealed:
        detail = f"{schema.FINAL} holds content {held or 'none'}, sealed is {sealed or 'none'}"
        return Check(FINAL_WEIGHTS, "differs", detail)
    if not held:
        return Check(FINAL_WEIGHTS, "not possible", NOT_COMPARABLE)
    return Check(
        FINAL_WEIGHTS, "agrees", "the checkpoint holds the sealed weights; no other specification gave the same"
    )


def initial_weights(tracker: Tracker, record: RunRecord) -> Iterator[Check]:
    """Yield a check that differs where the file of initial weights holds others than provenance.json recorded.

    The file's own digest does not tell: its owner can record that of another run's file, or put a file there that the run never
    recorded. Whether the seed gives the recorded weights, training.replay_from_seed checks.
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
    """The records, in their order; one whose final weights are another's has a mismatch, told on both where both are here.

    Compared with each other, and with the rest of the store by the digest that runs carry in a tag and seal in a file.
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
    """Return the record with a finding for the runs whose weights are almost its own; one that has a finding stays as it is."""
    if not near or any(_is_found(check) for check in record.integrity.checks):
        return record
    reported = [f"the same weights as run {run_id} ({by_id[run_id].name}) {text}" for run_id, text in near.items()]
    rest = [f"{len(reported) - SHOWN} more"] if len(reported) > SHOWN else []
    return _with_check(record, Check(FINAL_WEIGHTS, "differs", "; ".join([*reported[:SHOWN], *rest])))


def _is_found(check: Check) -> bool:
    return (check.subject, check.outcome) == (FINAL_WEIGHTS, "differs")


def may_share_weights(one: RunSpec, other: RunSpec) -> bool:
    """Whether training these two gives the same weights by construction, so that equal ones are no finding.

    They do where they are equal in all that has an effect on the weights; without one are: everything but the draw of the
    initial weights where nothing was trained (no epoch, or a learning rate of 0); the method of a network in which no block
    learns and whose embedding is trained by backpropagation (frozen, ladder_0 by bp); the control ladder_L, which trains all
    blocks; of the shallow control the blocks it leaves out; credit_norm, and the options that say where a credit goes, where
    errors go back end to end; the schedule of one epoch; a penalty or a weight decay that is lost in float32. Adopted weights
    were trained elsewhere, with whatever seed and setting their owner states: one file may stand under several of them (each
    counts once, protocol.paired_runs), of one method.
    """
    if one.weights and other.weights:
        return _rule(one) == _rule(other)
    return effective(one) == effective(other)


def effective(spec: RunSpec) -> RunSpec:
    """The specification with all that has no effect on its final weights blanked; see may_share_weights."""
    recipe, blocks = spec.recipe, spec.architecture_options.get("num_blocks")
    control, options = spec.control, _options(spec)
    if control == "shallow" or blocks == 0:
        control, options = "shallow", _without(options, "num_blocks")
    else:
        control = effective_control(spec)
    if spec.epochs == 0 or recipe.learning_rate == 0:  # as it was drawn
        return RunSpec("", spec.architecture, "", spec.seed, 0, {}, options, Recipe(), 0.0, _drawn(control))
    if recipe.optimizer == "adamw" and recipe.weight_decay * recipe.learning_rate < LOST:
        recipe = dataclasses.replace(recipe, weight_decay=0.0)
    if spec.epochs == 1:
        recipe = dataclasses.replace(recipe, schedule="")
    if _end_to_end(spec):
        recipe = dataclasses.replace(recipe, credit_norm="")
    penalty = (
        0.0 if spec.penalty < LOST or control in ("shallow", "frozen") else spec.penalty
    )  # no block, nothing to keep small
    found = dataclasses.replace(spec, control=control, architecture_options=options, recipe=recipe, penalty=penalty)
    return dataclasses.replace(found, weights="")


def _options(spec: RunSpec) -> Mapping[str, Scalar]:
    """The architecture's options without those that say where a credit goes, of a run to whose weights none went."""
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
    """Of the controls only the shallow one draws another network."""
    return "shallow" if control == "shallow" else "none"


def _rule(spec: RunSpec) -> tuple[object, ...]:
    """What was stated to have trained an adopted file, whatever its seed and setting."""
    norm = "" if _end_to_end(spec) else spec.recipe.credit_norm
    return spec.method, jsonio.digest_of(spec.method_options), norm, spec.penalty, spec.control


def _end_to_end(spec: RunSpec) -> bool:
    try:
        return methods.CATALOG.get(spec.method).end_to_end
    except (UnknownName, PluginError):  # of a plugin that is not installed here, or broken
        return False


def _content(tracker: Tracker, record: RunRecord) -> str:
    """The digest of the checkpoint's content; empty where it cannot be had: that it is missing is told elsewhere."""
    try:
        path = tracker.artifact(record.run_id, schema.FINAL)
        return content_digest(load_tensors(path)) if path else ""
    except RegistryError:
        return ""


def _elsewhere(tracker: Tracker, by_digest: Mapping[str, Sequence[RunRecord]]) -> dict[str, list[RunRecord]]:
    """Runs of the store outside of `alike` with the same weights. A tag finds them; what they sealed decides."""
    known = {record.run_id for records in by_digest.values() for record in records}
    elsewhere: dict[str, list[RunRecord]] = {}
    for digest, runs in runs_by_tag(tracker, schema.TAG_WEIGHTS, by_digest, FEW).items():
        for run in runs:
            if run.run_id in known:
                continue
            with contextlib.suppress(RegistryError):  # a run that was not asked for: what cannot be read tells nothing
                variant = _sealed_with(tracker, run.run_id, digest, by_digest[digest][0])
                elsewhere.setdefault(digest, []).extend(
                    [dataclasses.replace(variant, name=run.name)] if variant else []
                )
    return elsewhere


def _sealed_with(tracker: Tracker, run_id: str, digest: str, like: RunRecord) -> RunRecord | None:
    """A run of which no more is known than its specification, if it sealed these weights."""
    try:
        spec, provenance = (tracker.artifact(run_id, name) for name in (schema.SPEC, schema.PROVENANCE))
        if spec is None or provenance is None or read_provenance(provenance).get("final_weights") != digest:
            return None
        return dataclasses.replace(like, run_id=run_id, spec=read_spec(spec))
    except IntegrityError:  # what is wrong with its files is told where that run is judged
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
        FINAL_WEIGHTS, "differs", f"the same weights, bit by bit, as {text}: two specifications cannot give that"
    )
    return _with_check(record, finding)


def _with_check(record: RunRecord, finding: Check) -> RunRecord:
    """Return the record with this finding on its final weights instead of the check that found nothing."""
    integrity = record.integrity
    kept = tuple(check for check in integrity.checks if check.subject != FINAL_WEIGHTS or _is_found(check))
    return dataclasses.replace(record, integrity=with_checks(dataclasses.replace(integrity, checks=kept), [finding]))


def _named(variants: Sequence[RunRecord]) -> Iterator[str]:
    for variant in variants[:SHOWN]:
        yield f"run {variant.run_id} ({variant.name})"
    if len(variants) > SHOWN:
        yield f"{len(variants) - SHOWN} more"
