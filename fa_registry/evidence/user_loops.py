"""Recomputation of the metrics of a run that a user-supplied training loop logged with `track`.

The run names a factory function that builds its model. The function is imported only if the auditor passes the same name
with `--factory`, because an untrusted store could name any installed function.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from fa_registry import diagnostics
from fa_registry.architectures import AdaptedNetwork
from fa_registry.errors import IntegrityError, UsageError
from fa_registry.metrics import REFERENCE_CHECK
from fa_registry.protocol.evidence_rules import MEASURING
from fa_registry.protocol.integrity import compare, with_checks
from fa_registry.records import Check, Integrity, Measurements, Reading, RunRecord
from fa_registry.tasks._user_loss import CROSS_ENTROPY, LOSSES, Loss
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.training.checkpoint import load_into, load_tensors
from fa_registry.training.devices import pinned_threads, threads_refused
from fa_registry.training.input_validation import Checks
from fa_registry.training.reference import WIDTHS
from fa_registry.training.user_model import UserCreditRule, measured
from fa_registry.training.user_run_setup import LOSS, OWN_LOOP, UserRunSetup

REPORTED = "accuracy, losses and all metrics of the credit are as the author of the loop reported them"
NO_LOSS = "; its loss is the function {} of the author, so no metric of the gradient is recomputed"
# metrics that need no gradient
OF_STATES = {"h_norm", "growth", "growth_init", "growth_max", "growth_init_max", "h_L"}


def from_factory(path: str) -> nn.Module:
    """Return the model that the function `path` builds, given as `package.module:function`.

    Raises:
        UsageError: the function cannot be imported, fails, or does not return an nn.Module.
    """
    module, _, name = path.partition(":")
    try:
        model = getattr(importlib.import_module(module), name)()
    except Exception as error:
        raise UsageError(
            f"factory {path!r}: {type(error).__name__}: {error}; expected package.module:function"
        ) from error
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"factory {path!r}: expected a function that returns an nn.Module, found the return type {type(model).__name__}"
        )
    return model


def of_own_loop(tracker: Tracker, record: RunRecord, factories: Sequence[str]) -> RunRecord:
    """Return the record with recomputed metrics, if its model factory is one of the trusted `factories`.

    Metrics of the credit, the accuracy and the losses are not recomputed. If the factory is not trusted, no metric is
    recomputed and the record is marked as unverifiable.
    """
    story = record.provenance[OWN_LOOP]
    factory = str(story.get("factory", ""))
    trained = f"trained by a user-supplied loop, {story.get('script', '')}"
    if not factory or factory not in factories:
        cause = "the run names no model factory (option factory of track, and then audit --factory)"
        if factory:
            cause = f"the auditor did not trust the model factory {factory} (--factory)"
        return _unverifiable(record, f"{trained}: metrics are not recomputed, because {cause}")
    threads = int(record.measurements.conventions["threads"])
    if problem := threads_refused(threads):
        return _unverifiable(record, problem)
    with pinned_threads(threads):
        recomputed, objection, is_loss_known = _measured_again(tracker, record, story)
    comparable = _without_word(record.measurements, recomputed, objection, is_loss_known)
    unknown_loss = "" if is_loss_known else NO_LOSS.format(story.get("loss_function", ""))
    check = Check(MEASURING, "not possible", f"{trained}: {REPORTED}{unknown_loss}")
    return dataclasses.replace(record, integrity=with_checks(compare(comparable, recomputed), [check]))


def _unverifiable(record: RunRecord, reason: str) -> RunRecord:
    check = Check(MEASURING, "not possible", reason)
    return dataclasses.replace(record, integrity=Integrity("unverifiable", (reason,), (check,)))


def _measured_again(tracker: Tracker, record: RunRecord, story: Any) -> tuple[Measurements, str, bool]:
    """Recompute the metrics of a run.

    Returns:
        The metrics, the objection to the reference gradient, and whether the run's loss is known.
    """
    files = {name: tracker.artifact(record.run_id, name) for name in (schema.FINAL, schema.EVALUATION)}
    if missing := [name for name, path in files.items() if path is None or name not in record.digests]:
        raise IntegrityError(
            f"run {record.run_id}: {', '.join(missing)}: the file or its recorded digest is missing, so no metric can be recomputed"
        )
    built = from_factory(str(story["factory"]))
    model = built.model if isinstance(built, AdaptedNetwork) else built
    load_into(model, files[schema.FINAL], record.digests[schema.FINAL])
    batch = load_tensors(files[schema.EVALUATION], record.digests[schema.EVALUATION])
    checks = Checks(f"run {record.run_id}")
    gradient = str(story.get("gradient", ""))
    declared = (story.get("sites", ()), story.get("skip") or "outside", story.get("readout", ""), gradient)
    network = built if isinstance(built, AdaptedNetwork) else checks.network(model, *declared)
    checks.finish()
    loss, is_loss_known = _loss(record, getattr(built, LOSS, ""))
    members = diagnostics.CATALOG.built_in().values()
    selected = [diagnostic for diagnostic in members if diagnostic.card.when == "epoch"]
    setup = UserRunSetup(record.spec, model, (batch["x"], batch["y"]), 0, loss=loss)
    rule = UserCreditRule("audit", model, None, None, 0)
    measurements, reference = measured(network, *setup.eval_batch, rule, selected, task=setup.task)
    objection = reference.check.objection if reference.check else ""
    return setup.with_conventions(measurements, reference.source), objection, is_loss_known


def _loss(record: RunRecord, given: Loss) -> tuple[Loss, bool]:
    """Return the loss of a run, and whether it is known.

    A run that names a built-in loss is measured with this loss. The loss of a run that names a function is known only if the
    trusted factory returns it: `given` is the loss of the result of `adapt`. An unknown loss is replaced by the sum of the outputs,
    because no metric that needs the loss is compared.
    """
    name = record.measurements.conventions.get(LOSS, CROSS_ENTROPY)
    if name in LOSSES:
        return str(name), True
    return (given, True) if callable(given) else (_sum_of_outputs, False)


def _sum_of_outputs(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.reshape(len(outputs), -1).sum(dim=1)


def _without_word(
    logged: Measurements, recomputed: Measurements, objection: str, is_loss_known: bool = True
) -> Measurements:
    """Return the logged metrics that were also recomputed from the weights and the batch."""

    # If the reference check fails, metrics have the reason `objection` instead of a value. These metrics are compared too,
    # because a logged value of such a metric is a difference.
    def is_known(reading: Reading) -> bool:
        return reading.value is not None or bool(objection and reading.reason == objection)

    # REFERENCE_CHECK is omitted, because its first direction is the credit
    sites = {name: row for name, row in recomputed.sites.items() if any(map(is_known, row)) and name != REFERENCE_CHECK}
    scalars = {name for name, reading in recomputed.scalars.items() if is_known(reading)}
    is_estimate = any(
        reading.value for reading in recomputed.sites.get(WIDTHS, ())
    )  # the logged estimate used the credit
    if is_estimate or not is_loss_known:
        sites = {name: row for name, row in sites.items() if name in OF_STATES}
        scalars &= OF_STATES
    return dataclasses.replace(
        logged,
        sites={name: row for name, row in logged.sites.items() if name in sites},
        scalars={name: reading for name, reading in logged.scalars.items() if name in scalars},
    )
