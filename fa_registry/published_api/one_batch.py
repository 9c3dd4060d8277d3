"""From a model and a batch to measurements, and to the record that the one engine judges. Shared by FAProtocol and diagnose.

Norms are medians over samples as the published code takes them, by torch.median: of an even number of samples the lower of the
two in the middle. The registry's own figures are the midpoint of these two, as NumPy's are.
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

OURS = ("fidelity", "gain")  # what the published code does not know
PUBLISHED = ("g_norm", "h_norm")


def observed(network: nn.Module, x: Tensor, y: Tensor, subject: str, double: bool = True) -> Observation:
    """Return what one batch shows, one vector a sample and site. Arguments and errors are those of observed_look."""
    return observed_look(network, x, y, subject, double).observation(None)


def checked(network: nn.Module, x: Tensor, y: Tensor, subject: str) -> tuple[Observation, str]:
    """Return what one batch shows, and why the model's backward pass is not its gradient; empty where it is."""
    seen = observed_look(network, x, y, subject)
    seen, check = reference.checked(network, x, y, seen)
    observation = seen.observation(None)
    objection = check.objection if check else ""
    return (reference.unreferenced(observation) if objection else observation), objection


def _lower_median(norms: SiteBySample) -> SiteBySample:
    """(sites, samples) → (sites, 1); nan where a sample is.

    Of four samples the second, where NumPy's median lies between the second and third: tests/api/test_fa_protocol.py.
    """
    return torch.from_numpy(norms).median(dim=1, keepdim=True).values.numpy()


def measured(observation: Observation, scalars: Mapping[str, Reading], objection: str = "") -> Measurements:
    """Return the metrics of one batch, and further `scalars`. g_norm_mean_ce is of the mean loss over *this* batch, as published.

    objection: why nothing that rests on the gradient has a value, as `checked` returns it.
    """
    # what the diagnostics of norms look at, as of one sample: the lower median over the samples there were
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
        reason = objection if name != "h_norm" else ""  # the one that rests on no gradient
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
    """The share of a batch that the network classifies rightly, in eval mode. No accuracy of a test set."""
    with torch.no_grad(), eval_mode(network):
        right = network(x.clone()).argmax(dim=1) == y  # a model may write into its input
    return right.double().mean().item()


def accuracy(value: float | None) -> Reading:
    return Reading(None, "no test accuracy was given") if value is None else Reading(float(value))


def judged(measurements: Measurements, frozen_accuracy: float | None, edition: Edition) -> RunAudit:
    """Findings and verdict of bare measurements, which belong to no run."""
    frozen = None
    if frozen_accuracy is not None:
        frozen = _record(Measurements({}, {"accuracy": accuracy(frozen_accuracy)}), "frozen")
    return judge(_record(measurements, "none"), frozen, edition)


def _record(measurements: Measurements, control: str) -> RunRecord:
    """It needs an id: a frozen accuracy without one is taken for that of an adopted run."""
    spec = RunSpec("unknown", "unknown", "unknown", seed=0, epochs=0, control=control)
    integrity = Integrity("trusted", ("not a registry run",))  # both accuracies are the caller's
    return RunRecord(control, "unknown", "", "complete", spec, measurements, {}, integrity)
