"""What the quantities are called, how they are written, and which mean over seeds is theirs: the one place that takes one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from fa_registry.records import Reading
from fa_registry.statistics import Summary, summary
from fa_registry.statistics.samples import LARGEST

ARITHMETIC, GEOMETRIC = "arithmetic", "geometric"


@dataclass(frozen=True)
class Quantity:
    """kind: the filter that writes it. always: it has its line even where no run measured it.

    mean: over seeds. Of what lives on a ratio scale (norms, growth, gain), and spans decades, it is the geometric one.
    """

    name: str
    symbol: str
    words: str
    kind: str
    always: bool = False
    valued: bool = False  # it has its line only where it has a value: most methods give it none
    mean: str = ARITHMETIC


# One table each; sites across. What is a control of what stands under it.
SITE_TABLES: tuple[tuple[str, tuple[Quantity, ...]], ...] = (
    (
        "Scale and reference",
        (
            Quantity(
                "h_norm", "‖h_l‖₂", "length of the stream, median over samples", "num", always=True, mean=GEOMETRIC
            ),
            Quantity("growth", "growth", "‖h_l‖ / ‖h_l−1‖", "num", always=True, mean=GEOMETRIC),
            Quantity(
                "g_norm", "‖g_l‖₂", "gradient of each sample's own loss, median", "sci", always=True, mean=GEOMETRIC
            ),
            Quantity(
                "g_norm_mean_ce",
                "‖g_l‖₂ mean CE",
                "the published figure, of the batch's mean loss",
                "sci",
                True,
                mean=GEOMETRIC,
            ),
            Quantity("gain", "gain", "‖g_l‖ / ‖e‖: how much of the output error arrives", "num", mean=GEOMETRIC),
            Quantity("fidelity", "fidelity", "cosine of g_l in float32 and in float64", "exact"),
            Quantity("stability", "stability", "mean pairwise cosine of batch gradients", "cos"),
        ),
    ),
    (
        "Credit and its null",
        (
            Quantity("gamma", "Γ", "cosine of credit and gradient, mean over samples", "cos", always=True),
            Quantity("gamma_null_mean", "Γ null", "the same for fresh feedback: mean ± std over draws", "cos"),
            Quantity("gamma_null_p", "p", "rank of Γ among its null", "num"),
            Quantity("gamma_batch", "Γ batch", "cosine of the flattened batch", "cos"),
            Quantity("norm_ratio", "‖c_l‖/‖g_l‖", "credit by gradient", "num", mean=GEOMETRIC),
            Quantity(
                "gamma_block_input",
                "Γ block input",
                "the published reading, one site too early; for reproduction tables only",
                "cos",
            ),
            Quantity("bridge_residual", "bridge residual", "|V_φ − softmin V̄|, mean", "num", valued=True),
            Quantity("costate_cosine", "costate cosine", "with the exact costate", "cos", valued=True),
        ),
    ),
    (
        "Perturbation",
        (
            Quantity("rho", "ρ", "predicted against true change of the loss, ε relative to ‖h_l‖, pooled", "cos"),
            Quantity("rho_bp", "ρ(bp)", "control: of the gradient itself, must be near 1", "cos"),
            Quantity("rho_random", "ρ(random)", "control: of a random credit, must be near 0", "cos"),
            Quantity("rho_samples", "ρ per sample", "as ρ, one correlation a sample, mean", "cos"),
            Quantity("rho_bp_samples", "ρ(bp) per sample", "control: must be near 1", "cos"),
            Quantity("rho_random_samples", "ρ(random) per sample", "control: must be near 0", "cos"),
            Quantity("rho_absolute", "ρ, absolute ε", "the published step, whatever the stream's scale, pooled", "cos"),
            Quantity("rho_absolute_samples", "ρ, absolute ε, per sample", "one correlation a sample, mean", "cos"),
            Quantity("nudge", "nudge", "change of the loss after a step along −c_l relative to ‖h_l‖", "num"),
            Quantity("nudge_rms", "nudge, rms", "the published form, step .01 along the rms-normalised credit", "num"),
            Quantity("nudge_bp", "nudge(bp)", "control: along the gradient itself, must be negative", "num"),
        ),
    ),
)
DEVIATIONS: Mapping[str, str] = MappingProxyType({"gamma_null_mean": "gamma_null_std"})  # printed beside its mean

RUN_SCALARS: tuple[Quantity, ...] = (
    Quantity("stability_mid", "stability", "at the middle site L/2", "cos"),
    Quantity(
        "gamma_block_input_mean",
        "Γ block input",
        "mean of the published reading, one site too early; for reproduction tables only",
        "cos",
    ),
    Quantity("blocks_trained", "blocks trained", "those whose weights are not the initial ones", "compact"),
    Quantity(
        "feature_drift_blocks", "drift of the blocks", "‖W_T − W_0‖ / ‖W_0‖ of all blocks' weights together", "num"
    ),
)
DRIFT, SHOWN_DRIFTS = "feature_drift/", 5  # of the parameters the ones that moved most

# What stands in headlines and comparisons, and in no table of the form.
HEADLINES: tuple[Quantity, ...] = (
    Quantity("accuracy", "accuracy", "whole test set", "pct"),
    Quantity("frozen_accuracy", "frozen", "accuracy of the frozen controls, paired by seed", "pct"),
    Quantity("margin_pp", "margin", "accuracy − frozen accuracy, paired by seed", "pp"),
    Quantity("h_L", "‖h_L‖₂", "median over samples at the last site", "num", mean=GEOMETRIC),
    Quantity("g_L", "‖g_L‖", "of each sample's own loss at the last site, median", "num", mean=GEOMETRIC),
    Quantity("g_norm_mean_ce_L", "‖g_L‖", "of the mean cross entropy at the last site", "sci", mean=GEOMETRIC),
    Quantity("growth_max", "growth", "largest of a block", "num", mean=GEOMETRIC),
    Quantity("fall", "‖g_0‖/‖g_L‖", "how much blocks enlarge what they pass down", "num", mean=GEOMETRIC),
    Quantity("gamma_null_std", "Γ null", "standard deviation over draws", "cos"),
)

_KNOWN: Mapping[str, Quantity] = MappingProxyType(
    {one.name: one for one in (*(one for _, several in SITE_TABLES for one in several), *RUN_SCALARS, *HEADLINES)}
)


def quantity_of(name: str) -> Quantity:
    """What is known of a quantity; one that nobody listed is a plain number with an arithmetic mean, a cosine if it is of Γ."""
    return _KNOWN.get(name) or Quantity(name, name, name, "cos" if name.startswith("gamma_") else "num")


def kind_of(quantity: str) -> str:
    """The filter that writes a quantity, `num` for one that has none of its own."""
    return quantity_of(quantity).kind


def is_scale(quantity: str) -> bool:
    """Whether it lives on a ratio scale: its mean is geometric, its differences are ratios."""
    return quantity_of(quantity).mean == GEOMETRIC


LARGEST_DECADES = 308.0  # where doubles end


@dataclass(frozen=True)
class OverSeeds:
    """A quantity over seeds. average: which mean; mean: it, or why there is none; n: the seeds behind it, of all there are.

    terms: what was added up, one number a seed: decimal logarithms where the mean is geometric, none where 0 has none.
    """

    average: str
    mean: Reading
    n: int
    of: int
    terms: tuple[float, ...] = ()

    @property
    def std(self) -> Reading:
        """ddof 1; of a geometric mean the factor that one standard deviation of the logarithms is."""
        return self._figure("std")

    @property
    def low(self) -> Reading:
        """The lower end of the 95 % t interval of the mean, of a geometric one through the logarithms."""
        return self._figure("low")

    @property
    def high(self) -> Reading:
        """The upper end of that interval."""
        return self._figure("high")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends; None where there are none."""
        ends = self.low.value, self.high.value
        return None if None in ends else ends

    @cached_property  # most of what this costs: figures of many sites and epochs show the mean alone
    def _summary(self) -> Summary:
        return summary(self.terms)

    def _figure(self, name: str) -> Reading:
        if self.mean.value is None:
            return self.mean
        if self.n == 1:
            return Reading(None, "one seed: no interval")
        if not self.terms:
            return Reading(None, "no interval: 0 has no logarithm")
        found = self._summary
        if self.average == ARITHMETIC:
            return Reading(getattr(found, name))
        if max(abs(found.low), abs(found.high), found.std) > LARGEST_DECADES:
            return Reading(None, "no interval: it is wider than the range of numbers")
        return Reading(10.0 ** getattr(found, name))


def over_seeds(readings: Iterable[tuple[int, Reading]], quantity: str, average: str = "") -> OverSeeds:
    """The mean over seeds of a quantity's (seed, reading): the one function that takes it.

    Runs of one seed count as one. A seed without a value is left out of n; one that is not finite leaves no mean.
    average: where another is asked for than the quantity's own, as by a published figure that was tested on its own scale.
    """
    given = tuple(readings)
    average = average or quantity_of(quantity).mean
    of = len({seed for seed, _ in given})
    broken = [reading for _, reading in given if reading.not_finite]
    known = [reading.value for _, reading in given if reading.value is not None]
    if broken or not known:
        return OverSeeds(average, next(iter((*broken, *(one for _, one in given))), Reading(None, "no run")), 0, of)
    low, high = min(known), max(known)
    if (average == GEOMETRIC and low <= 0 < high - low) or (average == ARITHMETIC and max(-low, high) > LARGEST):
        return OverSeeds(average, Reading(None, f"no {average} mean of {low:.3g} to {high:.3g}"), 0, of)
    values = tuple(seed_values(given, average).values())
    terms = values if average == ARITHMETIC else tuple(map(math.log10, values)) if low > 0 else ()
    return OverSeeds(average, Reading(_mean(values, average)), len(values), of, terms)


def seed_values(readings: Iterable[tuple[int, Reading]], average: str) -> dict[int, float]:
    """seed → its value, where it has one; several runs of one seed are their mean, by `average`."""
    several: dict[int, list[float]] = {}
    for seed, reading in readings:
        if reading.value is not None:
            several.setdefault(seed, []).append(reading.value)
    return {seed: _mean(values, average) for seed, values in several.items()}


def _mean(values: Sequence[float], average: str) -> float:
    """Clipped into the values: equal ones have their own mean, not one beside it."""
    low, high = min(values), max(values)
    if low == high:
        return low
    logarithms = average == GEOMETRIC
    mean = math.fsum(map(math.log10, values) if logarithms else values) / len(values)
    return min(max(10.0**mean if logarithms else mean, low), high)


def means_in_words(names: Iterable[str]) -> str:
    """Which mean the columns of a table are, to be said once: `arithmetic means over seeds, geometric means of …`."""
    symbols = list(dict.fromkeys(quantity_of(name).symbol for name in names if is_scale(name)))
    named = " and ".join(part for part in (", ".join(symbols[:-1]), *symbols[-1:]) if part)
    return f"arithmetic means over seeds, geometric means of {named}" if named else "arithmetic means over seeds"


# What a rule is about: an edition is free to name its rules, and editions judge one thing by different figures.
SUBJECTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "scale": ("growth", "growth_max", "h_norm", "h_L"),
        "reference": ("g_norm", "g_norm_mean_ce", "g_L", "gain", "fidelity", "fidelity_min"),
        "depth": ("accuracy", "margin_pp"),
        "stability": ("stability", "stability_mid"),
    }
)


def subject_of(quantity: str) -> str:
    """scale, reference, depth, stability, or the quantity's own name."""
    return next((subject for subject, names in SUBJECTS.items() if quantity in names), quantity)
