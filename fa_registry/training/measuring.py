"""Measure a run: all diagnostics on the eval batch, and the task's metrics on the test set.

The same measurements can be recomputed from a finished run's specification, checkpoint and feedback state.
"""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fa_registry import architectures, diagnostics, methods, provenance, tasks
from fa_registry.architectures.base import stream_of
from fa_registry.datasets._shared_samples import shared_samples
from fa_registry.diagnostics import Observation
from fa_registry.diagnostics.base import MOMENTS, REFERENCE_BATCH, Diagnostic, Measured
from fa_registry.errors import PluginError
from fa_registry.metrics import DECLARED, REFERENCE_CHECK, SMALL_REFERENCE, VALIDATION, declaration
from fa_registry.records import (
    CHANCE,
    NOT_DUE,
    SHARED_SAMPLES,
    STREAM,
    Measurements,
    Reading,
    Reason,
    RunSpec,
    SampleScores,
    Scalar,
)
from fa_registry.tasks import reported_metrics
from fa_registry.training.checkpoint import load_into
from fa_registry.training.data_digests import data_digests
from fa_registry.training.devices import configuration, products
from fa_registry.training.method_calls import check_finite
from fa_registry.training.prediction import validation_metric
from fa_registry.training.probe_context import (
    Conventions,
    bench_conventions,
    bench_of,
    conventions_of_setup,
    credit_inputs,
    credits_under,
)
from fa_registry.training.reference import SAMPLES, checked, unreferenced, without_reference
from fa_registry.training.run_setup import RunSetup, eval_digest

NO_DOUBLE_YET = Reason("not due at this epoch", NOT_DUE)  # short, because most epochs of a series have it


@products("fp32")
def measure(
    setup: RunSetup,
    no_feedback: str = "",
    moments: Sequence[str] = ("epoch",),
    initial: Mapping[str, Tensor] | None = None,
    conventions: Conventions | None = None,
    members: Mapping[str, Diagnostic] | None = None,
    objection: str | None = None,
    is_due: bool = True,
) -> Measurements:
    """Run the installed diagnostics whose moment is in `moments`, at every site.

    For the moment "epoch", the task's metrics on the whole test set are measured too. If a diagnostic raises an exception, its
    metrics are omitted and the traceback is added to the failures. A third-party diagnostic cannot replace a built-in metric.

    Args:
        no_feedback: the reason why the run's feedback state is missing, or an empty string. If the state is missing, every
            alignment Γ is N/A with this reason.
        moments: "epoch" for the diagnostics of every epoch, "final" for the diagnostics at the end of a run.
        initial: the network's initial weights, name → tensor, or None if they were not saved.
        conventions: parameters of the metrics, or None for the defaults of the installed version.
        members: the diagnostics by name, or None for all installed diagnostics.
        objection: the reason why an earlier check found the reference gradient wrong, or an empty string if that check passed.
            If `objection` is None, this function checks the gradient of a third-party architecture or method itself.
        is_due: whether the float64 pass is made even if the gradient at the last site is not small, see RunSpec.is_due.
    """
    with diagnostics.eval_mode(setup.network):  # once: the contexts of every pass and draw then have nothing to switch
        return _measured(setup, no_feedback, moments, initial, conventions, members, objection, is_due)


def _measured(
    setup: RunSetup,
    no_feedback: str,
    moments: Sequence[str],
    initial: Mapping[str, Tensor] | None,
    conventions: Conventions | None,
    members: Mapping[str, Diagnostic] | None,
    objection: str | None,
    is_due: bool,
) -> Measurements:
    is_checked = objection is None and is_third_party(setup)
    forward_backward = diagnostics.run_forward_backward(
        setup.network, *setup.eval_batch, is_due or is_checked, task=setup.task
    )
    credits = None if no_feedback else credits_under(setup, setup.feedback, forward_backward)
    used_conventions = conventions or conventions_of_setup(setup)
    observation = forward_backward.observation(
        credits,
        exact=setup.exact_sites,
        no_credits=no_feedback,
        no_gamma=_no_gamma(setup),
        bench=bench_of(setup, forward_backward, credits, no_feedback, initial, used_conventions.null_draws),
        first_credited=used_conventions.first_credited,
        least_error=used_conventions.least_error,
        initial_norms=setup.initial_norms,
    )
    if not is_due and np.median(observation.gradient_norms[-1]) / REFERENCE_BATCH < SMALL_REFERENCE:
        return _measured(setup, no_feedback, moments, initial, conventions, members, objection, True)
    if not is_due:
        observation = dataclasses.replace(observation, gradients_double=None, no_double=NO_DOUBLE_YET)
    members = diagnostics.CATALOG.members() if members is None else members
    selected_names = [name for name in members if members[name].card.when in moments]
    selected_diagnostics = {name: members[name] for name in sorted(selected_names, key=_built_in_first)}
    labels = setup.eval_batch[1]
    measurements = _found(selected_diagnostics, observation, labels)
    if is_checked:
        samples = None if "final" in moments else SAMPLES
        _, check = checked(
            setup.network,
            *setup.eval_batch,
            forward_backward,
            credits if setup.task.by_position else observation.credits,
            samples=samples,
            task=setup.task,
        )
        objection, measurements.sites[REFERENCE_CHECK] = check.objection, check.deviations
    if objection:
        measurements = without_reference(
            measurements, _found(selected_diagnostics, unreferenced(observation), labels), objection
        )
    scalars = {**measurements.scalars, **(test_metrics(setup) if "epoch" in moments else {})}
    return in_order(measurements.sites, scalars, measurements.failures, measurements.sample_scores)


def is_third_party(setup: RunSetup) -> bool:
    """Return whether the architecture, the method or the task of a run is third-party."""
    locations = (
        architectures.CATALOG.location(setup.spec.architecture),
        methods.CATALOG.location(setup.spec.method),
        tasks.CATALOG.location(setup.task.card.name),
    )
    return not all(location.is_builtin for location in locations)


def _found(members: Mapping[str, Diagnostic], observation: Observation, labels: Tensor) -> Measurements:
    """Run the diagnostics on an observation of the samples with these labels, (N, …).

    If every position has a target, the observation has one row per position, (N·T,). The score of a sample is then the mean over
    its positions, because these are no independent samples. If only some positions have a target, no scores are recorded.
    """
    sites: dict[str, tuple[Reading, ...]] = {}
    scalars: dict[str, Reading] = {}
    failures: dict[str, str] = {}
    sample_scores: dict[str, SampleScores] = {}
    for name, diagnostic in members.items():
        measured, failure = attempt(diagnostic, observation)
        measured = measured if _is_built_in(name) else without_built_in(measured)
        sites |= measured.sites
        scalars |= measured.scalars
        failures |= {name: failure} if failure else {}
        for metric, rows in measured.cosines.items():
            if len(rows) in (len(labels), labels.numel()):
                scores = rows.reshape(len(labels), -1).mean(axis=1)
                sample_scores[metric] = SampleScores.of("cosine", scores)
    return Measurements(sites, scalars, failures=failures, sample_scores=sample_scores)


def _is_built_in(name: str) -> bool:
    return diagnostics.CATALOG.location(name).is_builtin


def _built_in_first(name: str) -> tuple[bool, str]:
    return (not _is_built_in(name), name)


def without_built_in(measured: Measured) -> Measured:
    """Remove built-in metrics from the results of a third-party diagnostic."""
    cards = [diagnostic.card for diagnostic in diagnostics.CATALOG.built_in().values()]

    def kept(table: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value
            for name, value in table.items()
            if name not in DECLARED and not any(card.covers(name) for card in cards)
        }

    return Measured(kept(measured.sites), kept(measured.scalars))


def with_final(
    measured: Measurements, setup: RunSetup, no_feedback: str = "", initial: Mapping[str, Tensor] | None = None
) -> Measurements:
    """Return a run's measurements after its last epoch, with those of the moment "final".

    The diagnostics of the moment "final" are the more expensive diagnostics. The result also contains the conventions, i.e. the
    parameters of the metrics. `remeasure` later computes the same metrics from the run's files, with one forward/backward pass for
    both moments.

    Args:
        measured: measurements after the last epoch.
        no_feedback, initial: as for `measure`.
    """
    # metrics based on a wrong reference gradient are withdrawn from both moments, and a run may end at an epoch that is not due
    is_repeated = is_third_party(setup) or any(reading.kind == NOT_DUE for reading in measured.scalars.values())
    final = measure(setup, no_feedback, MOMENTS if is_repeated else ("final",), initial)
    merged = in_order(
        {**measured.sites, **final.sites},
        {**measured.scalars, **final.scalars},
        {**measured.failures, **final.failures},
        {**measured.sample_scores, **final.sample_scores},
    )
    return with_conventions(merged, setup)


def with_conventions(
    measurements: Measurements,
    setup: RunSetup,
    used_conventions: Conventions | None = None,
    members: Mapping[str, Diagnostic] | None = None,
) -> Measurements:
    """Return the measurements together with their conventions.

    Conventions are the facts that determine the metrics: for example, the number of eval samples, the parameters of the metrics,
    and the torch version. `used_conventions` and `members` are as `conventions` and `members` of `measure`.
    """
    conventions: dict[str, Scalar] = {
        # the task's entries are first, so a third-party task cannot replace the other entries
        **setup.task.conventions(setup.card.classes),
        **declaration(setup.task.headline),
        "eval_samples": len(setup.eval_batch[1]),
        "eval_digest": eval_digest(setup),
        "test_samples": len(setup.splits.test_labels),
        SHARED_SAMPLES: shared_samples(setup.splits),
        **data_digests(setup.spec, setup.splits),
        **_chance(setup),
        **setup.task.baselines(setup.splits.train_images, setup.splits.train_labels),
        STREAM: stream_of(setup.network, setup.eval_batch[0][:2]),
        **conventions_of(setup, members),
        **bench_conventions(setup, used_conventions),
    }
    name = setup.task.headline.name
    scores = _test_scores(setup, measurements.scalars.get(name))
    sample_scores = {**({name: scores} if scores else {}), **measurements.sample_scores}
    return dataclasses.replace(measurements, conventions=conventions, sample_scores=sample_scores)


def _test_scores(setup: RunSetup, main_metric: Reading | None) -> SampleScores | None:
    """Return the score of each test sample, or None if the task has no scores.

    A task that replaces `evaluate` of another task and not its `scores` has none.

    Raises:
        PluginError: `scores` of a third-party task raises an exception, or returns scores of another shape, or of another mean
            than the main metric.
    """
    task, splits = setup.task, setup.splits
    owners = [next(kind for kind in type(task).__mro__ if name in vars(kind)) for name in ("evaluate", "scores")]
    if not issubclass(owners[1], owners[0]) or main_metric is None or main_metric.value is None:
        return None
    is_third_party = task.card.name not in tasks.CATALOG.builtin_names()
    try:
        scores = task.scores(setup.predictor, splits.test_images, splits.test_labels)
    except Exception as error:
        if not is_third_party or isinstance(error, torch.OutOfMemoryError):
            raise
        raise PluginError(f"task {task.card.name!r}: scores raised {type(error).__name__}: {error}") from error
    if scores is None:
        return None
    mean = scores.double().mean().item()
    found = f"found the shape {tuple(scores.shape)}" if scores.shape != (len(splits.test_labels),) else ""
    if is_third_party and not math.isclose(mean, main_metric.value, rel_tol=1e-5, abs_tol=1e-5):
        found = found or f"found the mean {mean:g}"
    if found:
        raise PluginError(
            f"task {task.card.name!r}: scores: expected one score per test sample ({len(splits.test_labels)},) "
            f"with the mean {main_metric.value:g}, {found}"
        )
    return SampleScores.of("right" if task.headline.is_share else "loss", scores.cpu().numpy())


def _chance(setup: RunSetup) -> dict[str, Scalar]:
    """Return the main metric of a model that ignores its inputs, if the task defines this value."""
    chance = setup.task.chance(setup.splits.train_labels, setup.splits.test_labels)
    return {} if chance is None else {CHANCE: chance}


def conventions_of(setup: RunSetup, members: Mapping[str, Diagnostic] | None = None) -> dict[str, Scalar]:
    """Return the parameters of the diagnostics and the properties of this machine.

    Both are recorded with a run. `members` contains the diagnostics by name, or is None for all installed diagnostics.
    """
    conventions: dict[str, Scalar] = {
        "site_convention": "block_output; gamma_block_input is the published reading, one site earlier",
        "gradient_reduction": "sum",
        "g_norm_mean_ce_samples": REFERENCE_BATCH,
        "precision": "float32 pass, float64 arithmetic; fidelity against float64; nudge in float64, rho where float32 is inexact",
        **machine(setup),
    }
    members = diagnostics.CATALOG.members() if members is None else members
    reported: dict[str, Scalar] = {}
    for name in sorted(members, key=_built_in_first, reverse=True):  # a built-in name has precedence
        reported |= members[name].card.conventions
    return {**reported, **conventions}


def machine(setup: RunSetup) -> dict[str, Scalar]:
    """Return the properties of this machine and process that change metrics.

    Two measurements of the same specification are equal bit by bit if all these properties are equal.
    """
    return {
        "threads": torch.get_num_threads(),
        "device": setup.device.type,
        "processor": f"{provenance.hardware()['cpu']}, {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        **configuration(),
    }


def _no_gamma(setup: RunSetup) -> str:
    """Return why Γ has no meaning for the setup's method, or an empty text if Γ has one."""
    card = setup.method.card
    return (
        f"according to the card of {card.name}, Γ has no meaning for this method"
        if card.gamma_reference == "none"
        else ""
    )


def attempt(diagnostic: Diagnostic, observation: Observation) -> tuple[Measured, str]:
    """Run one diagnostic and return its metrics and the traceback of its exception.

    The traceback is empty if the diagnostic succeeds. If it raises an exception, the metrics are empty and the training continues.

    Raises:
        PluginError: if the method breaks its contract, for example if a credit has a wrong shape.
    """
    try:
        return diagnostic.measure(observation), ""
    except PluginError:
        raise
    except Exception:
        return Measured(), traceback.format_exc()


def in_order(
    sites: Mapping[str, tuple[Reading, ...]],
    scalars: Mapping[str, Reading],
    failures: Mapping[str, str],
    sample_scores: Mapping[str, SampleScores] = MappingProxyType({}),
) -> Measurements:
    """Return the measurements sorted by name, which is their order in a resume file.

    The scores of a metric without a value are left out.
    """
    ordered = [dict(sorted(table.items())) for table in (sites, scalars, failures)]
    scores = {name: scores for name, scores in sorted(sample_scores.items()) if scalars[name].value is not None}
    return Measurements(ordered[0], ordered[1], failures=ordered[2], sample_scores=scores)


def check_first_credits(setup: RunSetup) -> None:
    """Check the method's credits before the first training step.

    Raises:
        PluginError: if a credit has a wrong shape or contains inf or nan.
    """
    if setup.method.end_to_end:
        return
    forward_backward = diagnostics.run_forward_backward(setup.network, *setup.eval_batch, double=False, task=setup.task)
    inputs = credit_inputs(setup, forward_backward)
    check_finite(setup.spec.method, credits_under(setup, setup.feedback, forward_backward), inputs)


def test_metrics(setup: RunSetup) -> dict[str, Reading]:
    """Return the task's metrics on the whole test set. The first one is the main metric.

    If there are validation samples, the last one is the main metric on them.
    """
    splits = setup.splits
    metrics = reported_metrics(setup.task, "evaluate", setup.predictor, splits.test_images, splits.test_labels)
    loss = metrics.get(setup.task.headline.name)
    if splits.entropy_rate is not None and setup.task.by_position and loss is not None:
        metrics["excess_nats"] = loss if loss.value is None else Reading(loss.value - splits.entropy_rate)
    if splits.validation_labels is not None:
        metrics[f"{setup.task.headline.name}{VALIDATION}"] = validation_metric(setup)
    return metrics


NO_FEEDBACK = "the run's feedback state is not in the store (not saved, or lost); Γ under other feedback would not describe the run"
NOT_GIVEN = "the feedback matrices were not given"  # for a run that was trained elsewhere and adopted without them


def obstacle(spec: RunSpec) -> str:
    """Return why this machine cannot recompute a run, or an empty text if it can."""
    if spec.device_class == "cuda" and not torch.cuda.is_available():
        return "the run was trained on a GPU, and this machine has no GPU for the recomputation"
    return ""


def remeasure(
    setup: RunSetup,
    checkpoint: Path,
    feedback: Path | None,
    digests: Mapping[str, str],
    initial: Mapping[str, Tensor] | None = None,
    recorded: Mapping[str, Scalar] | None = None,
    members: Mapping[str, Diagnostic] | None = None,
) -> Measurements:
    """Load a run's final weights and feedback, and recompute all its measurements.

    Args:
        setup: the setup as `build_setup` returns it. The function loads the final weights and the feedback state into it.
        checkpoint: file of the final weights.
        feedback: file of the feedback state. If None, every alignment Γ is N/A, and the N/A gives the reason.
        digests: mapping from "checkpoint" and "feedback" to the recorded SHA-256.
        initial: the initial weights, name → tensor. If None, comparisons with the initial weights are N/A.
        recorded: the conventions that the run recorded, or None for the defaults of the installed version.
        members: as for `measure`.

    Raises:
        IntegrityError: if a file's SHA-256 differs from the recorded one, or if its tensors do not fit the specification.
    """
    load_into(setup.network, checkpoint, digests["checkpoint"])
    no_feedback = ""
    if setup.feedback.state_dict() and feedback is not None:
        load_into(setup.feedback, feedback, digests["feedback"])
    elif setup.feedback.state_dict():
        no_feedback = NOT_GIVEN if setup.spec.weights and not digests.get("feedback") else NO_FEEDBACK
    conventions = conventions_of_setup(setup, recorded)
    # one forward and backward pass for both moments
    return with_conventions(
        measure(setup, no_feedback, MOMENTS, initial, conventions, members), setup, conventions, members
    )
