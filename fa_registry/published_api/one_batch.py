"""Measurements of a model on one batch, and the record to judge; shared by FAProtocol and diagnose.

Norms are medians over samples by torch.median, as in the published code. For an even number of samples this is the
lower of the two middle values, while the registry's metrics are their midpoint, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from fa_registry.diagnostics import CATALOG, Observation, eval_mode
from fa_registry.diagnostics.base import NO_INITIAL, SiteBySample
from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import Edition
from fa_registry.records import Integrity, Measurements, Reading, RunAudit, RunRecord, RunSpec
from fa_registry.training import reference
from fa_registry.training.user_model import observed_look

OURS = ("fidelity", "gain")  # diagnostics that the published code does not have
PUBLISHED = ("g_norm", "h_norm")


def observed(network: nn.Module, x: Tensor, y: Tensor, subject: str, double: bool = True) -> Observation:
    """Return the Observation of one batch; arguments and errors are those of observed_look."""
    return observed_look(network, x, y, subject, double).observation(None)


def checked(network: nn.Module, x: Tensor, y: Tensor, subject: str) -> tuple[Observation, str]:
    """Return the Observation of one batch, and why the backward pass is not the gradient, or ""."""
    seen = observed_look(network, x, y, subject)
    seen, check = reference.checked(network, x, y, seen)
    observation = seen.observation(None)
    objection = check.objection if check else ""
    return (reference.unreferenced(observation) if objection else observation), objection


def _lower_median(norms: SiteBySample) -> SiteBySample:
    """Return the lower median over samples, (sites, samples) → (sites, 1); nan if a sample is nan."""
    return torch.from_numpy(norms).median(dim=1, keepdim=True).values.numpy()


def measured(observation: Observation, scalars: Mapping[str, Reading], objection: str = "") -> Measurements:
    """Return the metrics of one batch, and further `scalars`.

    g_norm_mean_ce is of the mean loss over *this* batch, as published. `objection` is the result of `checked`: if it is
    not empty, metrics that use the gradient have no value.
    """
    # the input of the norm diagnostics: the lower median over the samples takes the place of one sample
    median = SimpleNamespace(
        hidden_norms=_lower_median(observation.hidden_norms),
        gradient_norms=_lower_median(observation.gradient_norms),
        initial_norms=None,
        no_initial=NO_INITIAL,
    )
    sites: dict[str, tuple[Reading, ...]] = {}
    readings: dict[str, Reading] = {}
    for name in (*OURS, *PUBLISHED):
        measures = CATALOG.get(name).measure(observation if name in OURS else median)
        reason = objection if name != "h_norm" else ""  # the only diagnostic that uses no gradient
        sites |= {key: tuple(_withdrawn(reading, reason) for reading in row) for key, row in measures.sites.items()}
        readings |= {key: _withdrawn(reading, reason) for key, reading in measures.scalars.items()}
    sites["g_norm_mean_ce"] = tuple(
        Reading.of(reading.value / observation.samples) if reading.value is not None else reading
        for reading in sites["g_norm"]
    )
    return Measurements(sites, {**readings, **scalars})


def _withdrawn(reading: Reading, objection: str) -> Reading:
    return Reading(None, objection) if objection and reading.value is None else reading


def accuracy_of(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of a batch that the network classifies correctly in eval mode."""
    with torch.no_grad(), eval_mode(network):
        right = network(x.clone()).argmax(dim=1) == y  # a copy, because a model may write into its input
    return right.double().mean().item()


def accuracy(value: float | None) -> Reading:
    return Reading(None, "no test accuracy was given") if value is None else Reading(float(value))


def judged(measurements: Measurements, frozen_accuracy: float | None, edition: Edition) -> RunAudit:
    """Return findings and verdict of measurements that belong to no run."""
    frozen = None
    if frozen_accuracy is not None:
        frozen = _record(Measurements({}, {"accuracy": accuracy(frozen_accuracy)}), "frozen")
    return judge(_record(measurements, "none"), frozen, edition)


def _record(measurements: Measurements, control: str) -> RunRecord:
    """Return a record with an id: a frozen accuracy without an id counts as that of an adopted run."""
    spec = RunSpec("unknown", "unknown", "unknown", seed=0, epochs=0, control=control)
    integrity = Integrity("trusted", ("not a registry run",))  # the caller supplies both accuracies
    return RunRecord(control, "unknown", "", "complete", spec, measurements, {}, integrity)
