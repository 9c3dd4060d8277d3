"""Declarations of the metrics: name, symbol, label, unit, format, mean over seeds.

Each metric that a built-in table or sentence uses is declared here once. The card of a built-in diagnostic contains only
the names of its metrics, and a table is a tuple of metric names. The card of a third-party diagnostic contains complete
declarations of its metrics. A report contains the cards, so a page can show metrics that this release does not declare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from fa_registry import jsonio
from fa_registry.deprecated_names import aliases
from fa_registry.errors import PluginError
from fa_registry.records import Reading
from fa_registry.statistics.over_seeds import ARITHMETIC, GEOMETRIC, OverSeeds, mean_over

FAMILY = "/*"  # suffix of a metric with one value per parameter: feature_drift/* → feature_drift/embed.weight
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kind": ("num", "sci", "cos", "exact", "compact", "pct", "pp"),
        "mean": (ARITHMETIC, GEOMETRIC),
        "where": ("", "site", "run", "epoch"),
    }
)


@dataclass(frozen=True)
class Metric:
    """Declaration of one metric: name, texts, unit, format and mean over seeds."""

    name: str  # ends with FAMILY for a family of metrics
    symbol: str = ""
    words: str = ""  # short description
    kind: str = "num"  # the filter that formats its values
    always: bool = False  # show its row even if no run measured it
    valued: bool = False  # show its row only if it has a value; most methods have no value
    mean: str = ARITHMETIC  # over seeds; GEOMETRIC for ratio scales that span decades (norms, growth, gain)
    unit: str = ""  # empty: the unit on the diagnostic's card
    where: str = ""  # one value per `site`, `run` (at its end) or `epoch`; empty: the card does not state this
    about: str = ""  # the metric that this metric summarises or qualifies; `about` is shown instead
    head: str = ""  # column heading; empty: the symbol
    under: str = ""  # small text below the heading, which distinguishes metrics with the same heading
    alone: str = ""  # label for places without a description; empty: the symbol

    def __post_init__(self):
        problems = [
            f"{field} (one of {', '.join(filter(None, choices))}, found {getattr(self, field)!r})"
            for field, choices in CHOICES.items()
            if getattr(self, field) not in choices
        ]
        if problems:
            raise PluginError(f"metric {self.name!r}: {'; '.join(problems)}")

    @property
    def heading(self) -> str:
        """Column heading of the metric in a table."""
        return self.head or self.symbol

    @property
    def label(self) -> str:
        """Label of the metric without a description, such as `largest growth`."""
        return self.alone or self.symbol

    @property
    def title(self) -> str:
        """Label with a capital first letter for a figure's title: `Largest growth`."""
        # a symbol keeps its case, because S_l and s_l are different metrics
        return self.label[:1].upper() + self.label[1:] if self.label[:2].isalpha() else self.label

    @property
    def compared_with_control(self) -> bool:
        """Whether the metric compares a run with its frozen control.

        A control has no value of such a metric.
        """
        return self.name in COMPARED_WITH_CONTROL

    @property
    def with_deviation(self) -> bool:
        """Whether the audit table also shows the metric's standard deviation over seeds."""
        return self.name in WITH_DEVIATION

    @property
    def family(self) -> str:
        """Common prefix of the metrics of a family, for example `feature_drift/`.

        A family has one metric per parameter. The prefix of a single metric is an empty string.
        """
        return self.name.removesuffix("*") if self.name.endswith(FAMILY) else ""


Known = Mapping[str, Metric]
DIAGNOSTICS = "diagnostics/"  # prefix of a diagnostic's name in the cards of a report

NONE: Known = MappingProxyType({})
HEADLINE_GAMMA = "gamma_deep_mean"
NOT_CREDITED = "site 0 is the input: no parameter learns from it"  # why Γ has no value at site 0
REFERENCE_BATCH = 128  # the published values are gradients of the *mean* loss over this number of samples
# Aggregates of Γ over sites and samples → description of each.
AGGREGATES: Mapping[str, str] = MappingProxyType(
    {
        f"gamma_{scope}_{over_sites}_{over_samples}": f"{over_sites} over {sites} of the {over_samples} over samples"
        for scope, sites in (("deep", "sites 1..L"), ("all", "sites 0..L"))
        for over_sites in ("mean", "median")
        for over_samples in ("mean", "median")
    }
)
SPREAD = "gamma_spread"
REFERENCE_CHECK = "reference_check"
# Name → metric. An empty unit means the unit on the card. No diagnostic measures the last entries, so no card names them.
DECLARED: Known = MappingProxyType(
    {
        quantity.name: quantity
        for quantity in (
            Metric("bridge_residual", "bridge residual", "|V_φ − softmin V̄|, mean", valued=True, where="site"),
            Metric(
                "costate_cosine",
                "costate cosine",
                "cosine of the credit and the exact costate",
                "cos",
                valued=True,
                where="site",
            ),
            Metric(
                "costate_cosine_mean",
                "costate cosine",
                "mean over the sites whose credit is not exact by construction",
                "cos",
                where="epoch",
                about="costate_cosine",
            ),
            Metric(
                "feature_drift/*",
                "",
                "relative distance of this parameter from its initial value",
                where="run",
            ),
            Metric(
                "feature_drift_blocks",
                "drift of the blocks",
                "‖W_T − W_0‖ / ‖W_0‖ of the weights of all blocks as one vector",
                where="run",
            ),
            Metric("fidelity", "fidelity", "cosine of g_l computed in float32 and in float64", "exact", where="site"),
            Metric(
                "fidelity_batch",
                "fidelity batch",
                "cosine of g_l computed in float32 and in float64, flattened over the batch",
                "exact",
                where="site",
            ),
            Metric("fidelity_min", "fidelity", "minimum over sites", where="epoch", about="fidelity"),
            Metric(
                "fidelity_left_out",
                "samples fitted",
                "samples excluded from fidelity, because their error is below the resolution of float32",
                "compact",
                unit="samples",
                where="epoch",
                about="fidelity",
            ),
            Metric(
                "g_norm",
                "‖g_l‖₂",
                f"gradient norm of each sample's loss, median over samples; {REFERENCE_BATCH} times the published value",
                "sci",
                always=True,
                mean=GEOMETRIC,
                where="site",
                under="per sample",
            ),
            Metric(
                "g_norm_mean_ce",
                "‖g_l‖₂ mean CE",
                f"gradient norm of the mean loss of N = {REFERENCE_BATCH} samples, as published",
                "sci",
                always=True,
                mean=GEOMETRIC,
                where="site",
                under="mean CE",
            ),
            Metric(
                "g_norm_uncertainty",
                "± ‖g_l‖",
                "half width of the 95 % interval of an estimated ‖g_l‖, relative to ‖g_l‖",
                "sci",
                valued=True,
                where="site",
            ),
            Metric(
                REFERENCE_CHECK,
                "reference check",
                "relative deviation of the gradient from finite differences of the loss",
                "sci",
                valued=True,
                where="site",
            ),
            Metric(
                "g_L",
                "‖g_L‖",
                "gradient norm of each sample's loss at the last site, median over samples",
                mean=GEOMETRIC,
                where="epoch",
                about="g_norm",
                under="per sample",
                alone="‖g_L‖ per sample",
            ),
            Metric(
                "gain",
                "gain",
                "‖g_l‖ / ‖e‖: norm of the gradient relative to the output error",
                mean=GEOMETRIC,
                where="site",
                head="Gain",
            ),
            Metric("gamma", "Γ", "cosine of credit and gradient, mean over samples", "cos", always=True, where="site"),
            Metric("gamma_q25", "Γ, lower quartile", "of the samples", "cos", where="site", about="gamma"),
            Metric("gamma_median", "Γ, median", "of the samples", "cos", where="site", about="gamma"),
            Metric("gamma_q75", "Γ, upper quartile", "of the samples", "cos", where="site", about="gamma"),
            Metric(
                "gamma_samples",
                "samples of Γ",
                "number of samples with a defined cosine",
                unit="samples",
                where="site",
                about="gamma",
            ),
            Metric(
                "gamma_batch",
                "Γ batch",
                "cosine of credit and gradient, both flattened over the batch",
                "cos",
                where="site",
            ),
            Metric(
                "gamma_block_input",
                "Γ block input",
                "Γ as published, one site too early; only for comparison with published values",
                "cos",
                where="site",
            ),
            Metric(
                "gamma_block_input_mean",
                "Γ block input",
                "mean of Γ as published, one site too early; only for comparison with published values",
                "cos",
                where="epoch",
                about="gamma_block_input",
            ),
            Metric(
                "gamma_null_mean", "Γ null", "Γ for newly drawn feedback: mean ± std over draws", "cos", where="site"
            ),
            Metric(
                "gamma_null_std",
                "Γ null",
                "standard deviation of Γ over draws of the feedback",
                "cos",
                where="site",
                about="gamma_null_mean",
            ),
            Metric("gamma_null_p", "p", "p-value from the rank of Γ in its null", unit="probability", where="site"),
            Metric(
                "h_norm",
                "‖h_l‖₂",
                "norm of the residual stream, median over samples",
                always=True,
                mean=GEOMETRIC,
                where="site",
            ),
            Metric("growth", "growth", "‖h_l‖ / ‖h_l−1‖", always=True, mean=GEOMETRIC, unit="ratio", where="site"),
            Metric(
                "growth_init",
                "growth since init",
                "‖h_l‖ / ‖h_l‖ at initialisation",
                mean=GEOMETRIC,
                unit="ratio",
                where="site",
            ),
            Metric(
                "growth_init_max",
                "growth since init",
                "maximum over sites of ‖h_l‖ relative to its value at initialisation",
                mean=GEOMETRIC,
                unit="ratio",
                where="epoch",
                about="growth_init",
                head="Since init",
                alone="growth since initialisation",
            ),
            Metric(
                "h_L",
                "‖h_L‖₂",
                "norm of the state at the last site, median over samples",
                always=True,
                mean=GEOMETRIC,
                where="epoch",
                about="h_norm",
                head="‖h_L‖",
            ),
            Metric(
                "growth_max",
                "growth",
                "maximum over blocks",
                always=True,
                mean=GEOMETRIC,
                unit="ratio",
                where="epoch",
                about="growth",
                head="Growth",
                alone="largest growth",
            ),
            Metric(
                "blocks_trained",
                "blocks trained",
                "number of blocks whose weights differ from their initial weights",
                "compact",
                where="run",
            ),
            Metric(
                "norm_ratio",
                "‖c_l‖/‖g_l‖",
                "norm of the credit divided by the norm of the gradient",
                mean=GEOMETRIC,
                where="site",
            ),
            Metric(
                "nudge",
                "nudge",
                "change of the loss after a step along −c_l with a length relative to ‖h_l‖",
                where="site",
            ),
            Metric(
                "nudge_rms",
                "nudge, rms",
                "nudge as published: a step of 0.01 along the rms-normalised credit",
                where="site",
            ),
            Metric("nudge_bp", "nudge(bp)", "control: nudge along the gradient, must be negative", where="site"),
            Metric(
                "rho",
                "ρ",
                "correlation of predicted and true change of the loss, ε relative to ‖h_l‖, pooled over samples",
                "cos",
                where="site",
            ),
            Metric(
                "rho_samples", "ρ per sample", "mean over samples of one correlation per sample", "cos", where="site"
            ),
            Metric(
                "rho_defined",
                "samples of ρ",
                "number of samples with a defined correlation",
                unit="samples",
                where="site",
                about="rho_samples",
            ),
            Metric(
                "rho_absolute",
                "ρ, absolute ε",
                "ρ with the published ε, which does not depend on ‖h_l‖, pooled over samples",
                "cos",
                where="site",
            ),
            Metric(
                "rho_absolute_samples",
                "ρ, absolute ε, per sample",
                "mean over samples of one correlation per sample, with the published ε",
                "cos",
                where="site",
            ),
            Metric("rho_bp", "ρ(bp)", "control: ρ of the gradient, must be near 1", "cos", where="site"),
            Metric(
                "rho_bp_samples",
                "ρ(bp) per sample",
                "control: mean over samples for the gradient, must be near 1",
                "cos",
                where="site",
            ),
            Metric("rho_random", "ρ(random)", "control: ρ of a random credit, must be near 0", "cos", where="site"),
            Metric(
                "rho_random_samples",
                "ρ(random) per sample",
                "control: mean over samples for a random credit, must be near 0",
                "cos",
                where="site",
            ),
            Metric(
                "stability",
                "stability",
                "mean pairwise cosine of the gradients of different batches",
                "cos",
                where="site",
            ),
            Metric(
                "stability_mid",
                "stability",
                "mean pairwise cosine at the middle site ⌊L/2⌋",
                "cos",
                unit="cosine",
                where="run",
                about="stability",
                head="Stability",
            ),
            Metric(
                HEADLINE_GAMMA,
                "Γ",
                AGGREGATES["gamma_deep_mean_mean"],
                "cos",
                always=True,
                unit="cosine",
                where="epoch",
                about="gamma",
                alone=f"Γ, {HEADLINE_GAMMA}",
            ),
            *(
                Metric(name, "Γ", text, "cos", unit="cosine", where="epoch", about="gamma", alone=f"Γ, {text}")
                for name, text in {**AGGREGATES, SPREAD: "largest minus smallest aggregate of Γ"}.items()
            ),
            Metric(
                "accuracy",
                "accuracy",
                "whole test set",
                "pct",
                always=True,
                unit="fraction",
                where="epoch",
                head="Accuracy",
                alone="test accuracy",
            ),
            Metric(
                "accuracy_train",
                "training accuracy",
                "mean over the batches of the epoch",
                "pct",
                unit="fraction",
                where="epoch",
            ),
            Metric("loss_train", "training loss", "mean over the batches of the epoch", where="epoch"),
            Metric("penalty", "penalty", "residual penalty, mean over the batches of the epoch", where="epoch"),
            Metric(
                "frozen_accuracy",
                "frozen",
                "accuracy of the frozen controls with the same seeds",
                "pct",
                always=True,
                unit="fraction",
                where="run",
                head="Frozen",
                alone="frozen accuracy",
            ),
            Metric(
                "margin_pp",
                "margin",
                "accuracy − frozen accuracy, paired by seed",
                "pp",
                always=True,
                unit="percentage points",
                where="run",
                head="Margin",
                alone="margin over frozen",
            ),
            Metric(
                "g_norm_mean_ce_L",
                "‖g_L‖",
                "gradient norm of the mean cross entropy at the last site",
                "sci",
                always=True,
                mean=GEOMETRIC,
                where="run",
                about="g_norm",
                under="mean CE",
                alone="‖g_L‖ of the mean CE",
            ),
            Metric(
                "fall",
                "‖g_0‖/‖g_L‖",
                "factor by which the gradient grows from site L to site 0",
                mean=GEOMETRIC,
                where="run",
                about="g_norm",
            ),
        )
    }
)

# Columns of the tables with one number per run. `NAME_L` is the value of NAME at the last site.
AUDIT_TABLE = (
    *("accuracy", "frozen_accuracy", "margin_pp", "h_L", "growth_max", "growth_init_max", "g_norm_mean_ce_L"),
    *("stability_mid", HEADLINE_GAMMA),
)
TERMINAL_TABLE = ("accuracy", "growth_max", "growth_init_max")
NOTE_TABLE = (
    *("accuracy", "h_L", "g_norm_mean_ce_L", "growth_max", "growth_init_max", "frozen_accuracy", "margin_pp"),
    HEADLINE_GAMMA,
)
PAIRED = ("accuracy", HEADLINE_GAMMA, "h_L", "growth_max", "g_norm_mean_ce_L", "stability_mid")
WITH_DEVIATION = ("accuracy", HEADLINE_GAMMA)  # the audit table has space only for these deviations
COMPARED_WITH_CONTROL = ("frozen_accuracy", "margin_pp")  # a control is not compared with itself
LAST_SITE = "_L"
# TRAJECTORY: metrics that a report contains for every epoch. TRAJECTORY_BY_SITE: for every site at some epochs.
TRAJECTORY = (
    *("h_L", "g_L", "growth_max", "growth_init_max", "accuracy", "loss_train", HEADLINE_GAMMA, "fidelity_min"),
    *("g_norm_L", "g_norm_mean_ce_L", "gain_L", "fidelity_L", "fidelity_batch_L"),
)
TRAJECTORY_BY_SITE = ("growth", "gamma")
COMPARED_SITES = ("gamma", "h_norm", "g_norm_mean_ce")  # compared in addition to metrics that no table names
# The form's tables of metrics by site. Each metric is followed by its controls.
SITE_TABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Scale and reference",
        (
            "h_norm",
            "growth",
            "growth_init",
            "g_norm_mean_ce",
            "g_norm",
            "gain",
            "fidelity",
            "fidelity_batch",
            "stability",
        ),
    ),
    (
        "Credit and its null",
        (
            *("gamma", "gamma_null_mean", "gamma_null_p", "gamma_batch", "norm_ratio", "gamma_block_input"),
            *("bridge_residual", "costate_cosine"),
        ),
    ),
    (
        "Perturbation",
        (
            *("rho", "rho_bp", "rho_random", "rho_samples", "rho_bp_samples", "rho_random_samples", "rho_absolute"),
            *("rho_absolute_samples", "nudge", "nudge_rms", "nudge_bp"),
        ),
    ),
)
FURTHER = "Further metrics"  # title of the table of metrics that SITE_TABLES does not contain
RUN_SCALARS = ("stability_mid", "gamma_block_input_mean", "blocks_trained", "feature_drift_blocks")
DEVIATIONS: Mapping[str, str] = MappingProxyType({"gamma_null_mean": "gamma_null_std"})  # mean → its deviation
SHOWN_MEMBERS = 5  # number of metrics of a family that are shown, largest values first
HEADLINES = ("accuracy", "accuracy_train", "loss_train", "penalty", "frozen_accuracy", "margin_pp")  # in no table
PLACED = frozenset({*HEADLINES, *RUN_SCALARS, *(name for _, names in SITE_TABLES for name in names)})


def metrics_of_cards(cards: Mapping[str, Mapping[str, Any]]) -> dict[str, Metric]:
    """Return the metrics that the diagnostics' cards in a report declare.

    Fields and number formats that only a later release defines are ignored.

    Args:
        cards: `kind/name` → card as JSON.

    Returns:
        Name → metric. The result is empty if an older release wrote the report.

    Raises:
        InvalidFields: an entry of a card is not a metric.
    """
    entries = (
        entry for key, card in cards.items() if key.startswith(DIAGNOSTICS) for entry in card.get("described", ())
    )
    return {quantity.name: quantity for quantity in map(_read, entries)}


def _read(entry: Any) -> Metric:
    if isinstance(entry, Mapping):
        names = {field.name for field in fields(Metric)}
        entry = {name: value for name, value in entry.items() if name in names and value in CHOICES.get(name, (value,))}
        declared = DECLARED.get(str(entry.get("name")))  # for fields that the card of an older release lacks
        entry = {**(jsonio.encode(declared) if declared else {}), **entry}
    return jsonio.decode(Metric, entry, "a metric on a diagnostic's card")


def quantity_of(name: str, card_metrics: Known = NONE) -> Metric:
    """Return the metric with this name.

    Args:
        name: name of the metric. A metric of a family has the description of the family. If the metric is not declared,
            its label is its name.
        card_metrics: metrics from the cards of a report; these metrics take precedence over DECLARED.
    """
    if name in card_metrics or name in DECLARED:
        return card_metrics.get(name) or DECLARED[name]
    family = next((metric for metric in families(card_metrics) if name.startswith(metric.family)), None)
    if family:
        return replace(family, name=name, symbol=name.removeprefix(family.family))
    if base := at_last_site(name, card_metrics):
        by_site = quantity_of(base, card_metrics)
        return replace(by_site, name=name, words=f"{by_site.words}, at the last site", where="run", about=base)
    return Metric(name, name, kind="cos" if name.startswith("gamma_") else "num")


def at_last_site(name: str, card_metrics: Known = NONE) -> str:
    """Return the per-site metric whose value at the last site is called `name`.

    For example, return `gain` for `gain_L`. Return an empty string if there is no such metric.
    """
    base = name.removesuffix(LAST_SITE)
    by_site = card_metrics.get(base) or DECLARED.get(base) if base != name else None
    return base if by_site and by_site.where == "site" else ""


def symbol_of(name: str) -> str:
    """Return the symbol of a built-in metric."""
    return DECLARED[name].symbol


def label_of(name: str) -> str:
    """Return the label of a built-in metric, for example `largest growth`."""
    return DECLARED[name].label


def families(card_metrics: Known = NONE) -> tuple[Metric, ...]:
    """Return the metric families in DECLARED and in `card_metrics`.

    A metric family has one metric per parameter. `card_metrics` contains the metrics of the cards in a report.
    """
    return tuple(metric for metric in {**DECLARED, **card_metrics}.values() if metric.family)


def kind_of(quantity: str, card_metrics: Known = NONE) -> str:
    """Return the name of the number format of a metric; `num` if it is not declared."""
    return quantity_of(quantity, card_metrics).kind


def is_scale(quantity: str, card_metrics: Known = NONE) -> bool:
    """Return whether a metric is on a ratio scale.

    The mean of a metric on a ratio scale is geometric, and two of its values are compared by their ratio.
    """
    return quantity_of(quantity, card_metrics).mean == GEOMETRIC


def other_metrics(measured: Iterable[str], card_metrics: Known) -> Iterator[Metric]:
    """Yield the measured metrics that no table contains, in order and without repeats.

    Metrics of families and metrics with an `about` field are excluded.

    Args:
        measured: names of the measured metrics.
        card_metrics: metrics from the cards of the report.
    """
    prefixes = tuple(family.family for family in families(card_metrics))  # left out, see SHOWN_MEMBERS
    for name in dict.fromkeys(measured):
        quantity = quantity_of(name, card_metrics)
        if name not in PLACED and not quantity.about and not name.startswith(prefixes):
            yield quantity


def run_metrics(measured: Iterable[str], card_metrics: Known) -> Iterator[Metric]:
    """Yield the measured metrics that a form shows as one number per run.

    The metrics in RUN_SCALARS come first, then the result of `other_metrics`.
    """
    measured = tuple(dict.fromkeys(measured))
    yield from (quantity_of(name, card_metrics) for name in RUN_SCALARS if name in measured)
    yield from other_metrics(measured, card_metrics)


# Subject of a rule → metrics. Editions name their rules freely and judge the same subject by different metrics.
SUBJECTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "scale": ("growth", "growth_max", "growth_init", "growth_init_max", "h_norm", "h_L"),
        "reference": ("g_norm", "g_norm_mean_ce", "g_L", "gain", "fidelity", "fidelity_batch", "fidelity_min"),
        "depth": ("accuracy", "margin_pp"),
        "stability": ("stability", "stability_mid"),
    }
)


def subject_of(quantity: str) -> str:
    """Return the subject of a metric: scale, reference, depth or stability.

    Return the name of the metric if it belongs to no subject in SUBJECTS.
    """
    return next((subject for subject, names in SUBJECTS.items() if quantity in names), quantity)


def over_seeds(
    readings: Iterable[tuple[int, Reading]], quantity: str, average: str = "", card_metrics: Known = NONE
) -> OverSeeds:
    """Return the mean of a metric over seeds, as computed by `mean_over`.

    `readings` are pairs of a seed and the reading of a run. `average` is `arithmetic` or `geometric`; if it is empty, the
    declaration of the metric `quantity` decides.
    """
    return mean_over(readings, average or quantity_of(quantity, card_metrics).mean)


__getattr__ = aliases(__name__)
