"""Declarations of the metrics: name, symbol, label, unit, format, mean over seeds.

Each metric that a built-in table or sentence uses is declared here once. The card of a built-in diagnostic contains only
the names of its metrics, and a table is a tuple of metric names. The card of a third-party diagnostic contains complete
declarations of its metrics. A report contains the cards, so a page can show metrics that are not declared here.
"""
# ruff: noqa: F401 - the imported names are the names of this package

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from fa_registry import jsonio
from fa_registry.metrics.base import (
    AGGREGATES,
    CHOICES,
    DIAGNOSTICS,
    FAMILY,
    FIDELITY,
    HEADLINE_GAMMA,
    NONE,
    NOT_CREDITED,
    REFERENCE_BATCH,
    REFERENCE_CHECK,
    SMALL_REFERENCE,
    SPREAD,
    VALIDATION,
    Known,
    Metric,
)
from fa_registry.metrics.declarations import DECLARED
from fa_registry.metrics.headlines import (
    ACCURACY,
    DEFAULT,
    HEADLINES,
    MARGIN_LABEL,
    MARGIN_SYMBOL,
    MARGINS,
    TOKEN_LOSS,
    Headline,
    declaration,
    declared_fields,
    declared_headline,
    headline_of,
    headlines_of,
    logged_headline,
    own_headline,
)
from fa_registry.metrics.table_columns import DEVIATIONS, FURTHER, SHOWN_MEMBERS, SITE_TABLES, TABLES, table
from fa_registry.records import AuditReport, Measurements, Reading, RunRecord
from fa_registry.statistics.over_seeds import ARITHMETIC, GEOMETRIC, OverSeeds, mean_over

# Metrics that already have a place in a table, so the table of further metrics leaves these metrics out.
PLACED = frozenset(
    {
        *table("headlines", HEADLINES.values()),
        *TABLES["run_scalars"],
        *(name for _, names in SITE_TABLES for name in names),
    }
)
LAST_SITE = "_L"
# Recorded and judged by a user's edition, but never shown: pages show ‖g‖ of the mean loss only, as published.
NOT_SHOWN = ("g_norm", "g_L")


def metrics_of_cards(cards: Mapping[str, Mapping[str, Any]]) -> dict[str, Metric]:
    """Return the metrics that the diagnostics' cards in a report declare.

    Args:
        cards: mapping from `kind/name` of a plug-in to its card as JSON.

    Returns:
        A mapping from name to metric.

    Raises:
        InvalidFields: an entry of a card is not a metric.
    """
    entries = (
        entry for key, card in cards.items() if key.startswith(DIAGNOSTICS) for entry in card.get("described", ())
    )
    metrics = (jsonio.decode(Metric, entry, "a metric on a diagnostic's card") for entry in entries)
    return {metric.name: metric for metric in metrics}


def metrics_of_report(report: AuditReport) -> dict[str, Metric]:
    """Return the metrics that a report declares: those of its cards, and the own headlines of its runs."""
    return {**metrics_of_cards(report.cards), **metrics_of_headlines(run.record for run in report.runs)}


def metrics_of_headlines(records: Iterable[RunRecord]) -> dict[str, Metric]:
    """Return the metrics of the runs' headlines that are not built in."""
    headlines = (item for item in headlines_of(records) if item.name not in HEADLINES)
    return {metric.name: metric for item in headlines for metric in item.metrics}


def metric_named(name: str, card_metrics: Known = NONE) -> Metric:
    """Return the metric with this name. The metrics of a report's cards take precedence over DECLARED.

    A metric of a family has the description of the family. If the metric is not declared, its label is its name.
    """
    if name in card_metrics or name in DECLARED:
        return card_metrics.get(name) or DECLARED[name]
    family = next((metric for metric in families(card_metrics) if name.startswith(metric.family)), None)
    if family:
        return replace(family, name=name, symbol=name.removeprefix(family.family))
    if base := at_last_site(name, card_metrics):
        by_site = metric_named(base, card_metrics)
        return replace(by_site, name=name, words=f"{by_site.words}, at the last site", where="run", about=base)
    return Metric(name, name, kind="cos" if name.startswith("gamma_") else "num")


def at_last_site(name: str, card_metrics: Known = NONE) -> str:
    """Return the per-site metric whose value at the last site is called `name`: `gain` for `gain_L`.

    The text is empty if there is no such metric.
    """
    base = name.removesuffix(LAST_SITE)
    by_site = card_metrics.get(base) or DECLARED.get(base) if base != name else None
    return base if by_site and by_site.where == "site" else ""


def value_in(measurements: Measurements, name: str) -> Reading | None:
    """Return a metric with one number per run, or None if it was not measured.

    For `NAME_L`, this is the value of the metric `NAME` at the last site.
    """
    row = measurements.sites.get(at_last_site(name), ())
    return measurements.scalars.get(name, row[-1] if row else None)


def symbol_of(name: str) -> str:
    """Return the symbol of a built-in metric."""
    return DECLARED[name].symbol


def label_of(name: str) -> str:
    """Return the label of a built-in metric, for example `largest growth`."""
    return DECLARED[name].label


def families(card_metrics: Known = NONE) -> tuple[Metric, ...]:
    """Return the metric families in DECLARED and in a report's cards. A family has a metric per parameter."""
    return tuple(metric for metric in {**DECLARED, **card_metrics}.values() if metric.family)


def kind_of(quantity: str, card_metrics: Known = NONE) -> str:
    """Return the name of a metric's number format, such as `num` or `pct`."""
    return metric_named(quantity, card_metrics).kind


def is_scale(quantity: str) -> bool:
    """Return whether a metric is on a ratio scale.

    The mean of such a metric is geometric, and two of its values are compared by their ratio.
    """
    return metric_named(quantity).mean == GEOMETRIC


def other_metrics(measured: Iterable[str], card_metrics: Known) -> Iterator[Metric]:
    """Yield the measured metrics that no table contains, in order and without repeats.

    Metrics of families and metrics with an `about` field are excluded.
    """
    prefixes = tuple(family.family for family in families(card_metrics))  # left out, see SHOWN_MEMBERS
    for name in dict.fromkeys(measured):
        quantity = metric_named(name, card_metrics)
        if name not in PLACED and not quantity.about and not name.startswith(prefixes):
            yield quantity


def run_metrics(measured: Iterable[str], card_metrics: Known) -> Iterator[Metric]:
    """Yield the measured metrics that a reporting form shows as one number per run.

    The metrics in the table `run_scalars` come first, then the result of `other_metrics`.
    """
    measured = tuple(dict.fromkeys(measured))
    yield from (metric_named(name, card_metrics) for name in TABLES["run_scalars"] if name in measured)
    yield from other_metrics(measured, card_metrics)


# Subject of a rule → metrics. Editions name their rules freely and judge the same subject by different metrics.
SUBJECTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "scale": ("growth", "growth_max", "growth_init", "growth_init_max", "h_norm", "h_L"),
        "reference": ("g_norm", "g_norm_mean_ce", "g_L", "gain", "fidelity", "fidelity_batch", "fidelity_min"),
        "depth": tuple(name for item in HEADLINES.values() for name in (item.name, item.margin)),
        "stability": ("stability", "stability_mid"),
    }
)


def subject_of(quantity: str) -> str:
    """Return the subject of a metric (scale, reference, depth or stability), by default its name."""
    return next((subject for subject, names in SUBJECTS.items() if quantity in names), quantity)


def over_seeds(
    readings: Iterable[tuple[int, Reading]], quantity: str, average: str = "", card_metrics: Known = NONE
) -> OverSeeds:
    """Return the mean of a metric over seeds, as computed by `mean_over`.

    `readings` are pairs of a seed and the reading of a run. `average` is `arithmetic` or `geometric`; if it is empty, the
    declaration of the metric `quantity` decides.
    """
    return mean_over(readings, average or metric_named(quantity, card_metrics).mean)
