"""Measurement and judgement of a model on one batch, for FAProtocol and diagnose.

Norms are medians over samples by torch.median, as in the published code. For an even number of samples, torch.median
returns the lower of the two middle values. The other metrics of this package use the midpoint of these two values, as
NumPy does.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from fa_registry.diagnostics import CATALOG, Observation, ReferenceCheck, eval_mode
from fa_registry.diagnostics.base import NO_INITIAL, SiteBySample
from fa_registry.metrics import ACCURACY
from fa_registry.network_mode import tensors_unchanged
from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import Edition
from fa_registry.records import Integrity, Measurements, Reading, RunAudit, RunRecord, RunSpec
from fa_registry.seeding import generators_unchanged
from fa_registry.tasks import Task
from fa_registry.tasks._user_loss import class_numbers
from fa_registry.training import reference
from fa_registry.training.user_model import observed_look

OURS = ("fidelity", "gain")  # diagnostics that the published code does not have
PUBLISHED = ("g_norm", "h_norm")


def observed(
    network: nn.Module, x: Tensor, y: Tensor, subject: str, double: bool = True, task: Task | None = None
) -> Observation:
    """Run the network on one batch and return states, gradients and output error.

    Args:
        network: network with observable sites.
        x: input, (N, …).
        y: labels, (N,), or values in the shape of the outputs.
        subject: name of the public function, for error messages.
        double: whether a second pass in float64 is made.
        task: task that defines the loss, or None for the built-in task of the labels' dtype.

    Raises:
        InvalidFields: the loss has no gradient with respect to some state.
    """
    return observed_look(network, x, y, subject, double, task=task).observation(None)


def checked(
    network: nn.Module, x: Tensor, y: Tensor, subject: str, task: Task | None = None
) -> tuple[Observation, ReferenceCheck | None]:
    """Observe one batch, as `observed`, and check the reference gradient.

    The check is None if finite differences of the loss gave the gradient.
    """
    forward_backward = observed_look(network, x, y, subject, task=task)
    forward_backward, check = reference.checked(network, x, y, forward_backward, task=task)
    observation = forward_backward.observation(None)
    return (reference.unreferenced(observation) if check and check.objection else observation), check


def _lower_median(norms: SiteBySample) -> SiteBySample:
    """Return the lower median over samples, (sites, samples) → (sites, 1)."""
    return torch.from_numpy(norms).median(dim=1, keepdim=True).values.numpy()


def measured(
    observation: Observation, scalars: Mapping[str, Reading], check: ReferenceCheck | None = None
) -> Measurements:
    """Return the metrics of one batch.

    As in the published code, g_norm_mean_ce is the norm of the gradient of the mean loss over this batch.

    Args:
        observation: result of `observed` or `checked`.
        scalars: further metrics that are added to the result.
        check: check of the reference gradient. If it has an objection, metrics that use the gradient have no value.
    """
    objection = check.objection if check else ""
    # input of the norm diagnostics, in which the lower median over the samples replaces the norms of the samples
    median = SimpleNamespace(
        hidden_norms=_lower_median(observation.hidden_norms),
        stream_norms=_lower_median(observation.stream_norms),
        gradient_norms=_lower_median(observation.gradient_norms),
        initial_norms=None,
        no_initial=NO_INITIAL,
    )
    sites: dict[str, tuple[Reading, ...]] = {}
    readings: dict[str, Reading] = {}
    for name in (*OURS, *PUBLISHED):
        measures = CATALOG.get(name).measure(observation if name in OURS else median)
        reason = objection if name != "h_norm" else ""  # only h_norm uses no gradient
        sites |= {key: tuple(_withdrawn(reading, reason) for reading in row) for key, row in measures.sites.items()}
        readings |= {key: _withdrawn(reading, reason) for key, reading in measures.scalars.items()}
    sites["g_norm_mean_ce"] = tuple(
        Reading.of(reading.value / observation.samples) if reading.value is not None else reading
        for reading in sites["g_norm"]
    )
    return Measurements(sites, {**readings, **scalars})


def _withdrawn(reading: Reading, objection: str) -> Reading:
    return Reading(None, objection) if objection and reading.value is None else reading


def accuracy_of(network: nn.Module, x: Tensor, y: Tensor) -> float | None:
    """Return the accuracy of the network on a batch in eval mode, or None without classes."""
    classes = class_numbers(y)
    with generators_unchanged(), tensors_unchanged(network), torch.no_grad(), eval_mode(network):
        outputs = network(x.clone())  # a copy, because a model may write into its input
    if classes is None or outputs.dim() != 2 or outputs.shape[1] < 2:
        return None
    return (outputs.argmax(dim=1) == classes).double().mean().item()


def accuracy(value: float | None) -> Reading:
    return Reading(None, "no test accuracy was given") if value is None else Reading(float(value))


def judged(measurements: Measurements, frozen_accuracy: float | None, edition: Edition) -> RunAudit:
    """Judge measurements that do not belong to a run; `frozen_accuracy` is a fraction or None."""
    frozen = None
    if frozen_accuracy is not None:
        frozen = _record(Measurements({}, {ACCURACY.name: accuracy(frozen_accuracy)}), "frozen")
    return judge(_record(measurements, "none"), frozen, edition)


def _record(measurements: Measurements, control: str) -> RunRecord:
    spec = RunSpec("unknown", "unknown", "unknown", seed=0, epochs=0, control=control)
    integrity = Integrity("trusted", ("not a registry run",))  # the caller supplies both accuracies
    return RunRecord(control, "unknown", "", "complete", spec, measurements, {}, integrity)
