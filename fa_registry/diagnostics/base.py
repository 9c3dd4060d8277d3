"""The contract of a diagnostic: it computes metrics from one Observation and contains no threshold.

An Observation contains the states, exact gradients, credits and output error of one eval batch. Gradients belong to the
*sum* of the samples' cross entropies, so that row i is the gradient of sample i and does not depend on the batch.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fa_registry.deprecated_names import aliases
from fa_registry.errors import PluginError
from fa_registry.metrics import DECLARED, Metric
from fa_registry.metrics import REFERENCE_BATCH as REFERENCE_BATCH
from fa_registry.records import Reading, Scalar

if TYPE_CHECKING:
    from fa_registry.diagnostics._probe import ProbeContext

SiteReadings = tuple[Reading, ...]
MOMENTS = ("epoch", "final")

SiteBySample = np.ndarray  # float64 (sites, samples)
# Least ‖e‖ of a sample that counts in fidelity. softmax(z) near 1 is rounded to float32's eps, so the direction of an error of
# 64 eps is accurate to 1/64 at worst: a cosine of at least .9998, far from the .99 below which a reference is noise.
LEAST_ERROR = 64 * float(torch.finfo(torch.float32).eps)
NO_INITIAL = "the states at initialisation are not known"


@dataclass(frozen=True)
class DiagnosticCard:
    """Description of a diagnostic.

    `quantities` are the metrics it measures, or their names. A name in DECLARED refers to that metric; any other name is shown on
    pages as given; `name/*` is one metric per parameter.

    Args:
        cannot_tell: conclusions that a reader must not draw from it.
        source: paper and equation, or the author of the metric.
        when: "epoch" (measured every epoch) or "final" (at the end of training and when a run is recomputed, because it takes
            many passes).
        needs_credit: names of the metrics that cannot be measured without the run's feedback state.
        conventions: measurement settings, recorded with every run.
        bibtex: entry for the work that `source` names, if it is certain; an arXiv number in `source` is cited automatically.
        version: for built-in diagnostics; raised whenever one of its numbers changes.
    """

    name: str
    symbol: str
    line: str
    quantities: tuple[Metric | str, ...]
    unit: str
    range: str
    cannot_tell: str
    source: str
    when: str = "epoch"
    needs_credit: tuple[str, ...] = ()
    conventions: Mapping[str, Scalar] = field(default_factory=dict)
    bibtex: str = ""
    version: int = 1

    def __post_init__(self):
        text = ("name", "symbol", "line", "quantities", "unit", "range", "cannot_tell", "source")
        problems = [word for word in text if not getattr(self, word)]
        if self.when not in MOMENTS:
            problems.append(f"when (one of {', '.join(MOMENTS)}, found {self.when!r})")
        problems += [f"the metric {name!r}, which needs_credit names" for name in self._third_party()]
        if problems:
            raise PluginError(f"the card of diagnostic {self.name!r} lacks: {', '.join(problems)}")

    def _third_party(self) -> list[str]:
        return [name for name in self.needs_credit if name not in self.names]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its metrics, in their order."""
        return tuple(quantity if isinstance(quantity, str) else quantity.name for quantity in self.quantities)

    @property
    def described(self) -> tuple[Metric, ...]:
        """Return its metrics with their descriptions; symbol, text and unit default to those of the card."""
        return tuple(map(self._described, self.quantities))

    def _described(self, given: Metric | str) -> Metric:
        quantity = DECLARED.get(given, Metric(given)) if isinstance(given, str) else given
        symbol = self.symbol if len(self.quantities) == 1 else quantity.name
        return replace(
            quantity,
            symbol=quantity.symbol or symbol,
            words=quantity.words or self.line,
            unit=quantity.unit or self.unit,
        )

    def covers(self, quantity: str) -> bool:
        """Return whether the card declares a metric with this name."""
        families = tuple(held.family for held in self.described if held.family)
        return quantity in self.names or quantity.startswith(families)

    def __json__(self) -> dict[str, Any]:
        """Return the fields, with `quantities` as names, and `described`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "quantities": self.names, "described": self.described}


@dataclass(frozen=True)
class Measured:
    """The result of a diagnostic.

    Args:
        sites: metric → one Reading per site 0..L.
        scalars: metric → Reading.
    """

    sites: Mapping[str, SiteReadings] = field(default_factory=dict)
    scalars: Mapping[str, Reading] = field(default_factory=dict)


class Diagnostic(abc.ABC):
    """A diagnostic: a card and one function, without state and without thresholds."""

    card: DiagnosticCard

    @abc.abstractmethod
    def measure(self, observation: Observation) -> Measured:
        """Return the metrics named on the card, in the card's unit.

        A site metric has L+1 readings, site 0 first; a scalar metric has one. If a value cannot be measured, return a Reading
        with a reason instead of a value: never 0, never a shorter list. Do not raise for any value that a run may contain,
        including inf and nan. An exception makes only this diagnostic fail and the verdict incomplete. A PluginError (a method
        broke its contract) ends the measurement.
        """


@dataclass(frozen=True)
class Observation:
    """Tensors of one eval batch of N samples, one vector per sample and site.

    Args:
        hidden: L+1 tensors (N, D_l), float32 as trained.
        gradients: L+1 tensors (N, D_l), float32 as trained.
        error: e (N, C).
        gradients_double: the same gradients from a float64 pass, or None.
        credits: those of the method, or None.
        no_credits: the reason if credits is None.
        exact: per site, whether the credit is g by construction.
        no_gamma: why Γ has no meaning according to the method's card; empty if it has one.
        bench: functions that run the network again; None if there was only one forward and backward pass.
        first_credited: the first site whose credit a parameter learns from; 1 if site 0 is the input.
        least_error: a sample counts in fidelity only if its ‖e‖ is larger.
        initial_norms: h_norm at initialisation, (L+1,), or None.
        no_initial: the reason if initial_norms is None.
    """

    hidden: Sequence[Tensor]
    gradients: Sequence[Tensor]
    error: Tensor
    gradients_double: Sequence[Tensor] | None = None
    credits: Sequence[Tensor] | None = None
    no_credits: str = "no method was given"
    exact: tuple[bool, ...] = ()
    no_gamma: str = ""
    bench: ProbeContext | None = None
    first_credited: int = 0
    least_error: float = LEAST_ERROR
    initial_norms: Sequence[float] | None = None
    no_initial: str = NO_INITIAL

    @property
    def sites(self) -> int:
        """Return L+1: the outputs of the embedding and of every block."""
        return len(self.hidden)

    @property
    def samples(self) -> int:
        """Return N."""
        return self.error.shape[0]

    @cached_property
    def hidden_norms(self) -> SiteBySample:
        """Return ‖h_l‖₂ per site and sample, (L+1, N), in the unit of the state."""
        return table(sample_norms(state) for state in self.hidden)

    @cached_property
    def gradient_norms(self) -> SiteBySample:
        """Return ‖g_l‖₂ of each sample's loss per site and sample, (L+1, N), in loss per unit of state.

        With the mean loss each norm would be N times smaller, and a floor would depend on the batch size.
        tests/diagnostics/test_observe.py checks that a row does not depend on the batch.
        """
        return table(sample_norms(gradient) for gradient in self.gradients)

    @cached_property
    def credit_norms(self) -> SiteBySample | None:
        """Return ‖c_l‖₂ per site and sample, (L+1, N), in the unit of g_l; None without credits."""
        return None if self.credits is None else table(sample_norms(credit) for credit in self.credits)

    @cached_property
    def error_norms(self) -> np.ndarray:
        """Return ‖e‖₂ per sample, (N,)."""
        return sample_norms(self.error).cpu().numpy()

    @cached_property
    def fidelities(self) -> SiteBySample | None:
        """Return cos(g_l in float32, g_l in float64) per site and sample, (L+1, N).

        It is nan if a norm is zero. Returns None without the float64 pass.
        """
        if self.gradients_double is None:
            return None
        return cosine_table(self.gradients, self.gradients_double, self.gradient_norms, self.double_norms)

    @cached_property
    def double_norms(self) -> SiteBySample:
        """Return ‖g_l‖₂ of the float64 pass per site and sample, (L+1, N); needs that pass."""
        return table(sample_norms(gradient) for gradient in self.gradients_double)

    @cached_property
    def resolved(self) -> np.ndarray:
        """Return a mask (N,) of the samples whose error float32 resolves; includes non-finite errors."""
        return ~(self.error_norms <= self.least_error)

    @cached_property
    def alignments(self) -> SiteBySample | None:
        """Return cos(c_l, g_l) per site and sample, (L+1, N); None without credits.

        It is nan if a norm is zero or not finite. Credit and gradient with the same index belong to the same site, the block's
        output. With g_{l−1} instead, fa has .997 at its last block, as published; tests/diagnostics/test_gamma.py distinguishes
        the two.
        """
        if self.credits is None:
            return None
        return cosine_table(self.credits, self.gradients, self.credit_norms, self.gradient_norms)


def table(rows: Iterable[Tensor]) -> SiteBySample:
    """Stack one (N,) tensor per site into a NumPy table (sites, N), with one copy from the device."""
    return torch.stack(list(rows)).cpu().numpy()


def sample_norms(rows: Tensor) -> Tensor:
    """Return the L2 norm of every row in float64: (N, D) → (N,)."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)


def sample_cosines(left: Tensor, right: Tensor) -> Tensor:
    """Return the cosine of paired rows in float64: (N, D), (N, D) → (N,); nan if a row is zero.

    It uses no eps. torch's cosine_similarity clamps norms at 1e-8: for a gradient of norm 1e-10 its result is 100 times too
    small. tests/diagnostics/test_base.py checks that the cosine does not depend on the size of a vector.
    """
    return sample_products(left, right) / (sample_norms(left) * sample_norms(right))


def sample_products(left: Tensor, right: Tensor) -> Tensor:
    """Return the inner product of paired rows in float64: (N, D), (N, D) → (N,)."""
    return torch.linalg.vecdot(left.double(), right.double(), dim=1)


def cosine_table(
    left: Sequence[Tensor], right: Sequence[Tensor], left_norms: SiteBySample, right_norms: SiteBySample
) -> SiteBySample:
    """Return `sample_cosines` of every site, with identical bits, from known norms.

    Computing the norms is most of the work of `sample_cosines`.
    """
    products = table(sample_products(*pair) for pair in zip(left, right, strict=True))
    with np.errstate(all="ignore"):  # 0 / 0 is nan, as it is in torch
        return products / (left_norms * right_norms)


def readings(values: Iterable[float]) -> SiteReadings:
    """Return one Reading per site; a value that is not finite is replaced by a reason."""
    return tuple(Reading.of(value) for value in values)


def missing(count: int, reason: str) -> SiteReadings:
    """Return `count` readings, one per site, that all lack a value for the same reason."""
    return tuple(Reading(None, reason) for _ in range(count))


__getattr__ = aliases(__name__)
