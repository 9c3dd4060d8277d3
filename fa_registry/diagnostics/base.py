"""Interface of diagnostics. A diagnostic computes metrics from one Observation.

An Observation contains the states, exact gradients, credits and output errors of one evaluation batch. The gradients are those of
the *sum* of the samples' losses. Therefore, row i is the gradient of sample i's loss and does not depend on other samples.
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

from fa_registry.errors import PluginError
from fa_registry.metrics import DECLARED, Metric
from fa_registry.metrics import REFERENCE_BATCH as REFERENCE_BATCH
from fa_registry.records import Reading, Scalar

if TYPE_CHECKING:
    from fa_registry.diagnostics._probe import ProbeContext

SiteReadings = tuple[Reading, ...]
MOMENTS = ("epoch", "final")

SiteBySample = np.ndarray  # float64 (sites, samples)
# A sample counts in the fidelity only if its ‖e‖ is larger than this limit. softmax(z) near 1 is rounded to float32's eps, so the
# direction of an error of 64 eps is accurate to 1/64 or better. The fidelity is then at least .9998; below .99, it means noise.
LEAST_ERROR = 64 * float(torch.finfo(torch.float32).eps)
NO_INITIAL = "the states at initialisation are not known"
NO_GRADIENT = "the reference gradient is exactly zero for every sample"
OTHER_POSITION = (
    "a state (N, T, D) is measured at its first position, but the loss depends on this state only at later positions. The last of "
    "them is {} of {}, as with out.logits[:, -1] of a causal decoder. Give one label per token, y (N, T), or −100 for all but the "
    "last, with output=lambda out: out.logits, or let the output depend on all positions, as out.logits.mean(1) does"
)


@dataclass(frozen=True)
class DiagnosticCard:
    """Description of a diagnostic and of its metrics.

    `quantities` contains the metrics that the diagnostic measures, as Metric objects or as names. A name in metrics.DECLARED means
    the metric that is declared there. A metric with any other name gets the defaults of `described`. A name `name/*` declares one
    metric per parameter of the network.

    Args:
        cannot_tell: conclusions that a reader must not draw from the metrics.
        source: paper and equation, or the author of the metric.
        when: "epoch" (measured at every epoch) or "final" (measured at the end of training and when a run is recomputed, because
            the diagnostic needs many passes).
        needs_credit: names of the metrics that cannot be measured without the run's feedback state.
        conventions: settings of the measurement by name, recorded with every run.
        bibtex: BibTeX entry for the work that `source` names. An arXiv number in `source` needs no entry, because it is cited
            automatically.
        version: version of a built-in diagnostic, increased whenever one of its metrics changes.
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
        problems = [field_name for field_name in text if not getattr(self, field_name)]
        if self.when not in MOMENTS:
            problems.append(f"when (expected one of {', '.join(MOMENTS)}; found {self.when!r})")
        problems += [
            f"needs_credit (lists {name!r}, which `quantities` does not contain)"
            for name in self.needs_credit
            if name not in self.names
        ]
        if problems:
            raise PluginError(
                f"the card of diagnostic {self.name!r} has missing or invalid fields: {', '.join(problems)}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the diagnostic's metrics, in the order of `quantities`."""
        return tuple(metric if isinstance(metric, str) else metric.name for metric in self.quantities)

    @property
    def described(self) -> tuple[Metric, ...]:
        """The diagnostic's metrics with symbols, descriptions and units.

        If a metric has no description or no unit, the card's description or unit is used. A metric without a symbol gets the
        card's symbol if the card has only one metric. Otherwise, the name of this metric is its symbol.
        """
        return tuple(map(self._described, self.quantities))

    def _described(self, declared: Metric | str) -> Metric:
        metric = DECLARED.get(declared, Metric(declared)) if isinstance(declared, str) else declared
        symbol = self.symbol if len(self.quantities) == 1 else metric.name
        return replace(
            metric,
            symbol=metric.symbol or symbol,
            words=metric.words or self.line,
            unit=metric.unit or self.unit,
        )

    def covers(self, quantity: str) -> bool:
        """Return whether the card declares a metric with the name `quantity`."""
        families = tuple(metric.family for metric in self.described if metric.family)
        return quantity in self.names or quantity.startswith(families)

    def __json__(self) -> dict[str, Any]:
        """Return the fields of the card as a dictionary for JSON.

        In this dictionary, `quantities` contains only the names of the metrics, and `described` contains the complete metrics.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "quantities": self.names, "described": self.described}


@dataclass(frozen=True)
class Measured:
    """Result of a diagnostic.

    `sites` contains one Reading per site 0..L for each metric name, `scalars` one Reading for each metric name. `cosines` contains
    the mean cosine of every row, (N,), for each scalar metric that is the mean of these; only built-in diagnostics report it.
    """

    sites: Mapping[str, SiteReadings] = field(default_factory=dict)
    scalars: Mapping[str, Reading] = field(default_factory=dict)
    cosines: Mapping[str, np.ndarray] = field(default_factory=dict)


class Diagnostic(abc.ABC):
    """Base class of diagnostics, with a card and the method `measure`.

    A diagnostic has no state and no thresholds.
    """

    card: DiagnosticCard

    @abc.abstractmethod
    def measure(self, observation: Observation) -> Measured:
        """Compute the metrics that the card declares, in the units of the card.

        A metric per site has L+1 readings, one for each of the sites 0..L. A scalar metric has one reading. If a value cannot be
        measured, return a Reading with the reason, never 0 or a shorter list. Do not raise an exception for values that a run may
        contain, including inf and nan.

        If `measure` raises an exception, only this diagnostic fails, and the verdict on the run is incomplete. The exception
        PluginError, however, ends the measurement of all diagnostics, because it means that the run's method violated its
        interface.
        """


@dataclass(frozen=True)
class Observation:
    """Tensors of one batch of N samples, with one vector per sample and site.

    Args:
        hidden: states h_l, L+1 tensors (N, D_l), in the network's precision, usually float32.
        gradients: gradients g_l, L+1 tensors (N, D_l), in the network's precision.
        error: output error e_i = ∂ℓ_i/∂z_i of every sample, (N, C).
        gradients_double: gradients g_l from a float64 pass, or None.
        no_double: the reason why gradients_double is None.
        credits: credits c_l of the method, L+1 tensors (N, D_l), or None.
        no_credits: the reason why credits is None.
        exact: for every site, whether the credit equals the gradient by construction.
        no_gamma: the reason why Γ has no meaning according to the method's card. It is empty if Γ has a meaning.
        bench: probe context, with which a diagnostic runs the network again. It is None if only one forward and backward pass is
            available.
        first_credited: the first site whose credit trains a parameter. It is 1 if site 0 is the input.
        least_error: the fidelity includes only samples whose ‖e‖ is larger than this value.
        initial_norms: h_norm of every site at initialisation, (L+1,), or None.
        no_initial: the reason why initial_norms is None.
        full_gradients: gradients g_l in the shapes of the states, with all positions; empty if they are not known.
        full_credits: credits c_l, each (N, D_l) or in the shape of the state; empty if there are no credits.
        no_full_gradients: the reason why full_gradients are valid only after a sum over positions, or an empty string.
        stream: states h_l before the norm that ends block l, L+1 tensors (N, D_l); empty if no block names such a norm.
    """

    hidden: Sequence[Tensor]
    gradients: Sequence[Tensor]
    error: Tensor
    gradients_double: Sequence[Tensor] | None = None
    no_double: str = "the network was not run in float64"
    credits: Sequence[Tensor] | None = None
    no_credits: str = "no method was given"
    exact: tuple[bool, ...] = ()
    no_gamma: str = ""
    bench: ProbeContext | None = None
    first_credited: int = 0
    least_error: float = LEAST_ERROR
    initial_norms: Sequence[float] | None = None
    no_initial: str = NO_INITIAL
    full_gradients: Sequence[Tensor] = ()
    full_credits: Sequence[Tensor] = ()
    no_full_gradients: str = ""
    stream: Sequence[Tensor] = ()

    @property
    def sites(self) -> int:
        """Number of sites, L+1. The sites are the outputs of the embedding and of every block."""
        return len(self.hidden)

    @property
    def samples(self) -> int:
        """Number of samples N in the batch."""
        return self.error.shape[0]

    @cached_property
    def hidden_norms(self) -> SiteBySample:
        """Norms ‖h_l‖₂ per site and sample, (L+1, N), in the unit of the state."""
        return table(sample_norms(state) for state in self.hidden)

    @cached_property
    def stream_norms(self) -> SiteBySample:
        """Norms of the stream per site and sample, (L+1, N).

        The stream is h_l, or its value before the norm that ends block l.
        """
        return table(sample_norms(state) for state in self.stream) if self.stream else self.hidden_norms

    @cached_property
    def gradient_norms(self) -> SiteBySample:
        """Norms ‖g_l‖₂ of the samples' gradients, (L+1, N), in loss per unit of state.

        The norms of the mean loss would be N times smaller, so a threshold would depend on the batch size.
        tests/diagnostics/test_observe.py checks that the gradient of a sample does not depend on the batch.
        """
        return table(sample_norms(gradient) for gradient in self.gradients)

    def zero_reason(self, site: int) -> str:
        """Return why ‖g_l‖ is exactly zero for every sample at a site, or an empty string if it is not zero."""
        if self.gradient_norms[site].any():
            return ""
        full = self.full_gradients[site] if len(self.full_gradients) else None
        if full is None or full.dim() != 3 or not full.any():
            return NO_GRADIENT
        last = int(full.any(dim=2).any(dim=0).nonzero().max())
        return f"{NO_GRADIENT}; {OTHER_POSITION.format(last + 1, full.shape[1])}"

    @cached_property
    def credit_norms(self) -> SiteBySample | None:
        """Norms ‖c_l‖₂ per site and sample, (L+1, N), in the unit of g_l, or None if there are no credits."""
        return None if self.credits is None else table(sample_norms(credit) for credit in self.credits)

    @cached_property
    def error_norms(self) -> np.ndarray:
        """Norms ‖e‖₂ of the output errors, (N,)."""
        return sample_norms(self.error).cpu().numpy()

    @cached_property
    def fidelities(self) -> SiteBySample | None:
        """Cosines between g_l in the network's precision and g_l in float64, (L+1, N).

        A cosine is nan if a norm is zero. The value is None if there is no float64 pass.
        """
        if self.gradients_double is None:
            return None
        return cosine_table(self.gradients, self.gradients_double, self.gradient_norms, self.double_norms)

    @cached_property
    def double_norms(self) -> SiteBySample:
        """Norms ‖g_l‖ of the float64 pass, (L+1, N). The field `gradients_double` must not be None."""
        return table(sample_norms(gradient) for gradient in self.gradients_double)

    @cached_property
    def resolved(self) -> np.ndarray:
        """Mask (N,) of the samples whose ‖e‖ is larger than least_error or is not finite."""
        return ~(self.error_norms <= self.least_error)

    @cached_property
    def alignments(self) -> SiteBySample | None:
        """Cosines cos(c_l, g_l) per site and sample, (L+1, N), or None if there are no credits.

        A cosine is nan if a norm is zero or not finite. c_l and g_l both belong to site l, the output of block l. The published
        code uses g_{l−1} instead of g_l. With g_{l−1}, the method fa has a cosine of .997 at its last block.
        tests/diagnostics/test_gamma.py distinguishes the two conventions.
        """
        if self.credits is None:
            return None
        return cosine_table(self.credits, self.gradients, self.credit_norms, self.gradient_norms)


def table(rows: Iterable[Tensor]) -> SiteBySample:
    """Stack one tensor (N,) per site into a NumPy array (sites, N), with only one copy from the device."""
    return torch.stack(list(rows)).cpu().numpy()


def sample_norms(rows: Tensor) -> Tensor:
    """Compute the L2 norm of every row in float64: (N, D) → (N,)."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)


def sample_cosines(left: Tensor, right: Tensor) -> Tensor:
    """Compute the cosine of every pair of rows in float64: (N, D), (N, D) → (N,).

    A cosine is nan if a row is zero. The formula has no eps. torch's cosine_similarity clamps norms at 1e-8, so its result is 100
    times too small for a gradient of norm 1e-10. tests/diagnostics/test_base.py checks that the cosine does not depend on the norm
    of a vector.
    """
    return sample_products(left, right) / (sample_norms(left) * sample_norms(right))


def sample_products(left: Tensor, right: Tensor) -> Tensor:
    """Compute the inner product of every pair of rows in float64: (N, D), (N, D) → (N,)."""
    return torch.linalg.vecdot(left.double(), right.double(), dim=1)


def cosine_table(
    left: Sequence[Tensor], right: Sequence[Tensor], left_norms: SiteBySample, right_norms: SiteBySample
) -> SiteBySample:
    """Compute the cosines of pairs of rows whose norms are known, (sites, N).

    The result is bitwise equal to that of `sample_cosines`. The function is faster, because it does not compute the norms.

    Args:
        left: one tensor (N, D_l) per site.
        right: one tensor (N, D_l) per site.
        left_norms: norms of the rows of `left`, (sites, N).
        right_norms: norms of the rows of `right`, (sites, N).
    """
    products = table(sample_products(*pair) for pair in zip(left, right, strict=True))
    with np.errstate(all="ignore"):  # 0 / 0 is nan, as it is in torch
        return products / (left_norms * right_norms)


def readings(values: Iterable[float]) -> SiteReadings:
    """Convert one value per site to Readings; inf and nan become N/A with a reason."""
    return tuple(Reading.of(value) for value in values)


def missing(count: int, reason: str) -> SiteReadings:
    """Return `count` readings without a value, one per site, with the same reason."""
    return tuple(Reading(None, reason) for _ in range(count))
