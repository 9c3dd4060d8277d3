"""What is measured: a quantity's name, symbol, words, unit, how it is written, where it lives, and its mean over seeds.

Ours are declared here, once: a diagnostic's card names them, tables are tuples of names. A diagnostic of another package
declares its own on its card; cards travel with a report, so a page knows quantities that it has never heard of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import PluginError
from fa_registry.records import Reading
from fa_registry.statistics import Summary, summary
from fa_registry.statistics.samples import LARGEST

ARITHMETIC, GEOMETRIC = "arithmetic", "geometric"
FAMILY = "/*"  # ends the name of what is measured once a parameter: feature_drift/* → feature_drift/embed.weight
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kind": ("num", "sci", "cos", "exact", "compact", "pct", "pp"),
        "mean": (ARITHMETIC, GEOMETRIC),
        "where": ("", "site", "run", "epoch"),
    }
)


@dataclass(frozen=True)
class Quantity:
    """One number of a diagnostic. symbol, words: as pages call it. kind: the filter that writes it. unit: empty is its card's.

    always: it has its line even where no run measured it. valued: it has its line only where it has a value, for most methods
    give it none. mean: over seeds; GEOMETRIC of what lives on a ratio scale and spans decades (norms, growth, gain). where: it
    is one number a `site`, a `run` (at its end) or an `epoch`; empty where the card does not say. about: the quantity that it
    sums up or qualifies, which is shown in its stead.

    Raises PluginError where kind, mean or where is none that is known.
    """

    name: str
    symbol: str = ""
    words: str = ""
    kind: str = "num"
    always: bool = False
    valued: bool = False
    mean: str = ARITHMETIC
    unit: str = ""
    where: str = ""
    about: str = ""

    def __post_init__(self):
        problems = [
            f"{field} (one of {', '.join(filter(None, known))}, found {getattr(self, field)!r})"
            for field, known in CHOICES.items()
            if getattr(self, field) not in known
        ]
        if problems:
            raise PluginError(f"quantity {self.name!r}: {'; '.join(problems)}")

    @property
    def family(self) -> str:
        """What the names of its members begin with, `feature_drift/`; empty of a single quantity."""
        return self.name.removesuffix("*") if self.name.endswith(FAMILY) else ""


Known = Mapping[str, Quantity]
DIAGNOSTICS = "diagnostics/"  # before the name of a diagnostic among the cards of a report

NONE: Known = MappingProxyType({})
AGGREGATES = (
    "gamma_deep_mean",
    "gamma_deep_mean_mean",
    "gamma_deep_mean_median",
    "gamma_deep_median_mean",
    "gamma_deep_median_median",
    "gamma_all_mean_mean",
    "gamma_all_mean_median",
    "gamma_all_median_mean",
    "gamma_all_median_median",
    "gamma_spread",
)
# By name. Where a unit is empty it is the card's; what stands last no diagnostic measures: no card names it.
DECLARED: Known = MappingProxyType(
    {
        quantity.name: quantity
        for quantity in (
            Quantity("bridge_residual", "bridge residual", "|V_φ − softmin V̄|, mean", valued=True, where="site"),
            Quantity("costate_cosine", "costate cosine", "with the exact costate", "cos", valued=True, where="site"),
            Quantity(
                "costate_cosine_mean",
                "costate cosine",
                "mean over the sites that are not exact by construction",
                "cos",
                where="epoch",
                about="costate_cosine",
            ),
            Quantity("feature_drift/*", "", "drift of this parameter", where="run"),
            Quantity(
                "feature_drift_blocks",
                "drift of the blocks",
                "‖W_T − W_0‖ / ‖W_0‖ of all blocks' weights together",
                where="run",
            ),
            Quantity("fidelity", "fidelity", "cosine of g_l in float32 and in float64", "exact", where="site"),
            Quantity("fidelity_min", "fidelity", "least of the sites", where="epoch", about="fidelity"),
            Quantity(
                "g_norm",
                "‖g_l‖₂",
                "gradient of each sample's own loss, median",
                "sci",
                always=True,
                mean=GEOMETRIC,
                where="site",
            ),
            Quantity(
                "g_norm_mean_ce",
                "‖g_l‖₂ mean CE",
                "the published figure, of the batch's mean loss",
                "sci",
                always=True,
                mean=GEOMETRIC,
                where="site",
            ),
            Quantity(
                "g_L",
                "‖g_L‖",
                "of each sample's own loss at the last site, median",
                mean=GEOMETRIC,
                where="epoch",
                about="g_norm",
            ),
            Quantity("gain", "gain", "‖g_l‖ / ‖e‖: how much of the output error arrives", mean=GEOMETRIC, where="site"),
            Quantity(
                "gamma", "Γ", "cosine of credit and gradient, mean over samples", "cos", always=True, where="site"
            ),
            Quantity("gamma_q25", "Γ, lower quartile", "of the samples", "cos", where="site", about="gamma"),
            Quantity("gamma_median", "Γ, median", "of the samples", "cos", where="site", about="gamma"),
            Quantity("gamma_q75", "Γ, upper quartile", "of the samples", "cos", where="site", about="gamma"),
            Quantity(
                "gamma_samples", "samples of Γ", "those that have a cosine", unit="samples", where="site", about="gamma"
            ),
            Quantity("gamma_batch", "Γ batch", "cosine of the flattened batch", "cos", where="site"),
            Quantity(
                "gamma_block_input",
                "Γ block input",
                "the published reading, one site too early; for reproduction tables only",
                "cos",
                where="site",
            ),
            Quantity(
                "gamma_block_input_mean",
                "Γ block input",
                "mean of the published reading, one site too early; for reproduction tables only",
                "cos",
                where="epoch",
                about="gamma_block_input",
            ),
            Quantity(
                "gamma_null_mean", "Γ null", "the same for fresh feedback: mean ± std over draws", "cos", where="site"
            ),
            Quantity(
                "gamma_null_std",
                "Γ null",
                "standard deviation over draws",
                "cos",
                where="site",
                about="gamma_null_mean",
            ),
            Quantity("gamma_null_p", "p", "rank of Γ among its null", unit="probability", where="site"),
            Quantity(
                "h_norm",
                "‖h_l‖₂",
                "length of the stream, median over samples",
                always=True,
                mean=GEOMETRIC,
                where="site",
            ),
            Quantity("growth", "growth", "‖h_l‖ / ‖h_l−1‖", always=True, mean=GEOMETRIC, unit="ratio", where="site"),
            Quantity(
                "h_L", "‖h_L‖₂", "median over samples at the last site", mean=GEOMETRIC, where="epoch", about="h_norm"
            ),
            Quantity(
                "growth_max",
                "growth",
                "largest of a block",
                mean=GEOMETRIC,
                unit="ratio",
                where="epoch",
                about="growth",
            ),
            Quantity(
                "blocks_trained",
                "blocks trained",
                "those whose weights are not the initial ones",
                "compact",
                where="run",
            ),
            Quantity("norm_ratio", "‖c_l‖/‖g_l‖", "credit by gradient", mean=GEOMETRIC, where="site"),
            Quantity("nudge", "nudge", "change of the loss after a step along −c_l relative to ‖h_l‖", where="site"),
            Quantity(
                "nudge_rms", "nudge, rms", "the published form, step .01 along the rms-normalised credit", where="site"
            ),
            Quantity("nudge_bp", "nudge(bp)", "control: along the gradient itself, must be negative", where="site"),
            Quantity(
                "rho",
                "ρ",
                "predicted against true change of the loss, ε relative to ‖h_l‖, pooled",
                "cos",
                where="site",
            ),
            Quantity("rho_samples", "ρ per sample", "as ρ, one correlation a sample, mean", "cos", where="site"),
            Quantity(
                "rho_defined", "samples of ρ", "those that have one", unit="samples", where="site", about="rho_samples"
            ),
            Quantity(
                "rho_absolute",
                "ρ, absolute ε",
                "the published step, whatever the stream's scale, pooled",
                "cos",
                where="site",
            ),
            Quantity(
                "rho_absolute_samples",
                "ρ, absolute ε, per sample",
                "one correlation a sample, mean",
                "cos",
                where="site",
            ),
            Quantity("rho_bp", "ρ(bp)", "control: of the gradient itself, must be near 1", "cos", where="site"),
            Quantity("rho_bp_samples", "ρ(bp) per sample", "control: must be near 1", "cos", where="site"),
            Quantity("rho_random", "ρ(random)", "control: of a random credit, must be near 0", "cos", where="site"),
            Quantity("rho_random_samples", "ρ(random) per sample", "control: must be near 0", "cos", where="site"),
            Quantity("stability", "stability", "mean pairwise cosine of batch gradients", "cos", where="site"),
            Quantity("stability_mid", "stability", "at the middle site L/2", "cos", where="run", about="stability"),
            *(
                Quantity(name, "Γ", "over sites (deep: 1..L) and samples", "cos", where="epoch", about="gamma")
                for name in AGGREGATES
            ),
            Quantity("accuracy", "accuracy", "whole test set", "pct", where="epoch"),
            Quantity("accuracy_train", "training accuracy", "over the epoch's batches", "pct", where="epoch"),
            Quantity("loss_train", "training loss", "mean over the epoch's batches", where="epoch"),
            Quantity("penalty", "penalty", "the residual penalty, mean over the epoch's batches", where="epoch"),
            Quantity(
                "frozen_accuracy", "frozen", "accuracy of the frozen controls, paired by seed", "pct", where="run"
            ),
            Quantity(
                "margin_pp",
                "margin",
                "accuracy − frozen accuracy, paired by seed",
                "pp",
                unit="percentage points",
                where="run",
            ),
            Quantity(
                "g_norm_mean_ce_L",
                "‖g_L‖",
                "of the mean cross entropy at the last site",
                "sci",
                mean=GEOMETRIC,
                where="run",
                about="g_norm_mean_ce",
            ),
            Quantity(
                "fall",
                "‖g_0‖/‖g_L‖",
                "how much blocks enlarge what they pass down",
                mean=GEOMETRIC,
                where="run",
                about="g_norm",
            ),
        )
    }
)

# The form's tables of what is measured by site. What is a control of what stands under it.
SITE_TABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Scale and reference", ("h_norm", "growth", "g_norm", "g_norm_mean_ce", "gain", "fidelity", "stability")),
    (
        "Credit and its null",
        (
            "gamma",
            "gamma_null_mean",
            "gamma_null_p",
            "gamma_batch",
            "norm_ratio",
            "gamma_block_input",
            "bridge_residual",
            "costate_cosine",
        ),
    ),
    (
        "Perturbation",
        (
            "rho",
            "rho_bp",
            "rho_random",
            "rho_samples",
            "rho_bp_samples",
            "rho_random_samples",
            "rho_absolute",
            "rho_absolute_samples",
            "nudge",
            "nudge_rms",
            "nudge_bp",
        ),
    ),
)
FURTHER = "Further quantities"  # the table of what has no place in those above
RUN_SCALARS = ("stability_mid", "gamma_block_input_mean", "blocks_trained", "feature_drift_blocks")
DEVIATIONS: Mapping[str, str] = MappingProxyType({"gamma_null_mean": "gamma_null_std"})  # printed beside its mean
SHOWN_MEMBERS = 5  # of a family, the largest
HEADLINES = (
    "accuracy",
    "accuracy_train",
    "loss_train",
    "penalty",
    "frozen_accuracy",
    "margin_pp",
)  # in no table of a form
PLACED = frozenset({*HEADLINES, *RUN_SCALARS, *(name for _, names in SITE_TABLES for name in names)})


def held(cards: Mapping[str, Mapping[str, Any]]) -> dict[str, Quantity]:
    """By name, the quantities that the cards of a report hold; empty for a report of a release whose cards held none.

    cards: `family/name` → the card as JSON. Raises InvalidFields where one is no quantity; what a later release added is
    left out, and so is a way of writing that is not known here.
    """
    entries = (
        entry for key, card in cards.items() if key.startswith(DIAGNOSTICS) for entry in card.get("described", ())
    )
    return {quantity.name: quantity for quantity in map(_read, entries)}


def _read(entry: Any) -> Quantity:
    if isinstance(entry, Mapping):
        names = {field.name for field in fields(Quantity)}
        entry = {name: value for name, value in entry.items() if name in names and value in CHOICES.get(name, (value,))}
    return jsonio.decode(Quantity, entry, "a quantity of a diagnostic's card")


def quantity_of(name: str, known: Known = NONE) -> Quantity:
    """The quantity of this name; a family's member by the family's words; what nobody declared is called by its name.

    known: what the cards of the report hold; it goes before what is declared here.
    """
    if name in known or name in DECLARED:
        return known.get(name) or DECLARED[name]
    family = next((one for one in families(known) if name.startswith(one.family)), None)
    if family:
        return replace(family, name=name, symbol=name.removeprefix(family.family))
    return Quantity(name, name, kind="cos" if name.startswith("gamma_") else "num")


def families(known: Known = NONE) -> tuple[Quantity, ...]:
    """What is measured once a parameter: of the report's cards, then ours."""
    return tuple(one for one in {**DECLARED, **known}.values() if one.family)


def kind_of(quantity: str, known: Known = NONE) -> str:
    """The filter that writes a quantity, `num` for one that nobody declared."""
    return quantity_of(quantity, known).kind


def is_scale(quantity: str, known: Known = NONE) -> bool:
    """Whether it lives on a ratio scale: its mean is geometric, its differences are ratios."""
    return quantity_of(quantity, known).mean == GEOMETRIC


def further(measured: Iterable[str], known: Known) -> Iterator[Quantity]:
    """Of the measured quantities those that no table names and that are about no other, each once, in their order.

    Members of a family are left out: see SHOWN_MEMBERS.
    """
    members = tuple(family.family for family in families(known))
    for name in dict.fromkeys(measured):
        quantity = quantity_of(name, known)
        if name not in PLACED and not quantity.about and not name.startswith(members):
            yield quantity


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


def over_seeds(
    readings: Iterable[tuple[int, Reading]], quantity: str, average: str = "", known: Known = NONE
) -> OverSeeds:
    """The mean over seeds of a quantity's (seed, reading): the one function that takes it.

    Runs of one seed count as one. A seed without a value is left out of n; one that is not finite leaves no mean.
    average: where another is asked for than the quantity's own, as by a published figure that was tested on its own scale.
    """
    given = tuple(readings)
    average = average or quantity_of(quantity, known).mean
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
