"""The contract of a diagnostic: it turns one Observation into numbers, and knows no threshold.

An Observation holds what one eval batch showed: states, exact gradients, credits and the output error. Gradients are of the
*sum* of the samples' cross entropies, so that row i is sample i's own gradient, whatever the batch it stood in.
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
# Least ‖e‖ of a sample that counts in fidelity. softmax(z) near 1 is rounded to float32's eps, so that an error of 64 eps has a
# direction to 1/64 at worst: a cosine of at least .9998, far from the .99 at which a reference is noise.
LEAST_ERROR = 64 * float(torch.finfo(torch.float32).eps)
NO_INITIAL = "the states at initialisation are not known"


@dataclass(frozen=True)
class DiagnosticCard:
    """What a reader must know of a diagnostic.

    quantities: what it measures, or its name: one of quantities.DECLARED, or what pages then call it; `name/*` is one a
    parameter. needs_credit: the names of those that are lost with the run's feedback state. cannot_tell: what a reader must not
    conclude from it. source: paper and equation, or who made it up. when: "epoch" (measured every epoch) or "final" (at the end
    of training and when a run is recomputed: it takes many passes). conventions: how it is measured, recorded with every run.
    bibtex: of what `source` names, where it is certain; an arXiv number in `source` is cited by itself. version: of a
    diagnostic of our own; raised whenever one of its numbers changes.
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
        problems += [f"the quantity {name!r}, which needs_credit names" for name in self._third_party()]
        if problems:
            raise PluginError(f"the card of diagnostic {self.name!r} lacks: {', '.join(problems)}")

    def _third_party(self) -> list[str]:
        return [name for name in self.needs_credit if name not in self.names]

    @property
    def names(self) -> tuple[str, ...]:
        """Of its quantities, in their order."""
        return tuple(quantity if isinstance(quantity, str) else quantity.name for quantity in self.quantities)

    @property
    def described(self) -> tuple[Metric, ...]:
        """Its quantities with all that a page says of them: the card's own words and unit where they have none."""
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
        """Whether the card announces a quantity of this name."""
        families = tuple(held.family for held in self.described if held.family)
        return quantity in self.names or quantity.startswith(families)

    def __json__(self) -> dict[str, Any]:
        """The fields, `quantities` as names; and `described`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "quantities": self.names, "described": self.described}


@dataclass(frozen=True)
class Measured:
    """sites: quantity → one Reading a site 0..L. scalars: quantity → Reading."""

    sites: Mapping[str, SiteReadings] = field(default_factory=dict)
    scalars: Mapping[str, Reading] = field(default_factory=dict)


class Diagnostic(abc.ABC):
    """A measure: a card and one function. It has no state and knows no threshold; the card names its source."""

    card: DiagnosticCard

    @abc.abstractmethod
    def measure(self, observation: Observation) -> Measured:
        """The quantities named on the card, in the card's unit: L+1 readings of one at sites, site 0 first, or one scalar.

        What cannot be measured is a Reading without a value and with the reason: never a zero, and never a site less. It raises
        for nothing that a run may hold, inf and nan included. An exception becomes a failure of this diagnostic alone, and the
        verdict incomplete; a PluginError, which says that a method broke its contract, ends the measuring.
        """


@dataclass(frozen=True)
class Observation:
    """What one eval batch of N samples showed, as one vector a sample and site.

    hidden, gradients: L+1 tensors (N, D_l), float32 as trained. gradients_double: the same gradients from a float64 pass,
    or None. credits: the method's, or None with `no_credits` saying why. exact: per site, credit = g by construction.
    no_gamma: why the method's card gives Γ no meaning; empty where it has one. bench: what may be tried on the network beyond
    looking at this batch; None where one look is all there was. first_credited: the first site whose credit a parameter learns
    from; 1 where site 0 is the input. least_error: ‖e‖ of a sample from which on it counts in fidelity.
    initial_norms: h_norm at initialisation, (L+1,); None with `no_initial` saying why.
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
        """L+1: the embedding's output and every block's."""
        return len(self.hidden)

    @property
    def samples(self) -> int:
        """N."""
        return self.error.shape[0]

    @cached_property
    def hidden_norms(self) -> SiteBySample:
        """‖h_l‖₂ per site and sample, (L+1, N), in the state's own unit."""
        return table(sample_norms(state) for state in self.hidden)

    @cached_property
    def gradient_norms(self) -> SiteBySample:
        """‖g_l‖₂ per site and sample, (L+1, N): of the sample's own loss, in loss per unit of state.

        The mean loss over N samples would make each N times smaller, and a floor under it a matter of the batch. Checked in
        tests/diagnostics/test_observe.py: a row is the same whatever batch it stood in.
        """
        return table(sample_norms(gradient) for gradient in self.gradients)

    @cached_property
    def credit_norms(self) -> SiteBySample | None:
        """‖c_l‖₂ per site and sample, (L+1, N), in the unit of g_l; None without credits."""
        return None if self.credits is None else table(sample_norms(credit) for credit in self.credits)

    @cached_property
    def error_norms(self) -> np.ndarray:
        """‖e‖₂ per sample, (N,)."""
        return sample_norms(self.error).cpu().numpy()

    @cached_property
    def fidelities(self) -> SiteBySample | None:
        """cos(g_l in float32, g_l in float64) per site and sample, (L+1, N), nan at a zero; None without the float64 pass."""
        if self.gradients_double is None:
            return None
        return cosine_table(self.gradients, self.gradients_double, self.gradient_norms, self.double_norms)

    @cached_property
    def double_norms(self) -> SiteBySample:
        """‖g_l‖₂ of the float64 pass per site and sample, (L+1, N); needs that pass."""
        return table(sample_norms(gradient) for gradient in self.gradients_double)

    @cached_property
    def resolved(self) -> np.ndarray:
        """Which samples have an error that float32 resolves, (N,) of bool; one that is not finite counts too."""
        return ~(self.error_norms <= self.least_error)

    @cached_property
    def alignments(self) -> SiteBySample | None:
        """cos(c_l, g_l) per site and sample, (L+1, N), nan where a norm is zero or not finite; None without credits.

        Credit and gradient of one index are of one site, the block's output. Against g_{l−1} fa reads .997 at its last block,
        as published; tests/diagnostics/test_gamma.py holds the two readings apart.
        """
        if self.credits is None:
            return None
        return cosine_table(self.credits, self.gradients, self.credit_norms, self.gradient_norms)


def table(rows: Iterable[Tensor]) -> SiteBySample:
    """Stack one (N,) tensor a site into a NumPy table (sites, N): one copy off the device for all of them."""
    return torch.stack(list(rows)).cpu().numpy()


def sample_norms(rows: Tensor) -> Tensor:
    """L2 norm of every row in float64: (N, D) → (N,)."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)


def sample_cosines(left: Tensor, right: Tensor) -> Tensor:
    """Cosine of paired rows in float64 without any eps: (N, D), (N, D) → (N,); nan where a row is zero.

    The library function of this name clamps norms at 1e-8: on a gradient of norm 1e-10 its answer is 100 times too small.
    Checked in tests/diagnostics/test_base.py: the cosine does not depend on the size of a vector.
    """
    return sample_products(left, right) / (sample_norms(left) * sample_norms(right))


def sample_products(left: Tensor, right: Tensor) -> Tensor:
    """Inner product of paired rows in float64: (N, D), (N, D) → (N,)."""
    return torch.linalg.vecdot(left.double(), right.double(), dim=1)


def cosine_table(
    left: Sequence[Tensor], right: Sequence[Tensor], left_norms: SiteBySample, right_norms: SiteBySample
) -> SiteBySample:
    """`sample_cosines`, bit by bit, of every pair of a site, from norms that are known already: they are most of its work."""
    products = table(sample_products(*pair) for pair in zip(left, right, strict=True))
    with np.errstate(all="ignore"):  # 0 / 0 is nan, as it is in torch
        return products / (left_norms * right_norms)


def readings(values: Iterable[float]) -> SiteReadings:
    """One Reading a site; a value that is not finite becomes a reason that says so."""
    return tuple(Reading.of(value) for value in values)


def missing(count: int, reason: str) -> SiteReadings:
    """`count` readings, one a site, that all lack a value for the same reason."""
    return tuple(Reading(None, reason) for _ in range(count))


__getattr__ = aliases(__name__)
