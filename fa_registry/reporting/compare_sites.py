"""The quantities by site of a comparison, as tables and as one figure: every column in one panel."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fa_registry.protocol.grouping import Group
from fa_registry.quantities import Quantity, further, held, quantity_of
from fa_registry.records import Reading
from fa_registry.reporting import filters
from fa_registry.reporting.analysis_figures import DRAWINGS, png
from fa_registry.reporting.compare_parts import ComparedSites
from fa_registry.reporting.naming import group_label
from fa_registry.reporting.parts import Estimate, Number, SeedValue
from fa_registry.reporting.readings import estimate, site_row

SHOWN = ("gamma", "h_norm", "g_norm_mean_ce")
PANELS = {"g": "g_norm_mean_ce", "gamma": "gamma"}  # of the figure by site
DRAWN = DRAWINGS["per-layer"]
COLUMNS = ("panel", "method", "setting", "site", "value", "low", "high", "counts", "reason")


def compared_sites(groups: Sequence[Group], cards: Mapping[str, Mapping[str, Any]]) -> tuple[ComparedSites, ...]:
    """Γ, ‖h‖, ‖g‖ and what no table names, of every site: the mean over the seeds of each column.

    cards: hold the quantities, and know where credit is exact.
    """
    known = held(cards)
    measured = (name for group in groups for run in group.runs for name in run.record.measurements.sites)
    return tuple(
        ComparedSites(
            quantity.name,
            quantity.symbol,
            quantity.words,
            rows,
            tuple(_exact(quantity.name, len(rows), one, cards) for one in groups),
        )
        for quantity in (*map(quantity_of, SHOWN), *further(measured, known))
        if (rows := tuple(_rows(quantity, groups)))
    )


def _exact(name: str, count: int, group: Group, cards: Mapping[str, Mapping[str, Any]]) -> tuple[int, ...]:
    """The sites of a column at which Γ is 1 whatever was learned."""
    card = cards.get(f"methods/{group.runs[0].record.spec.method}", {})
    exact = {"all": range(count), "last": range(count)[-1:]}.get(str(card.get("exact_sites")), ())
    return tuple(exact) if name == "gamma" else ()


def _rows(quantity: Quantity, groups: Sequence[Group]) -> Iterator[tuple[int, tuple[Estimate, ...]]]:
    count = max((len(site_row(run.record, quantity.name)) for group in groups for run in group.runs), default=0)
    for site in range(count):
        yield site, tuple(_estimate(quantity, site, group) for group in groups)


def _estimate(quantity: Quantity, site: int, group: Group) -> Estimate:
    values = []
    for run in group.runs:
        row = site_row(run.record, quantity.name)
        missing = Reading(None, f"site {site} was not measured")
        reading = row[site] if site < len(row) else missing
        values.append(SeedValue(run.record.spec.seed, Number(reading, quantity.kind, (run.record.run_id,))))
    return estimate(quantity, values)


def layer_numbers(groups: Sequence[Group]) -> pd.DataFrame:
    """What the figure by site shows: a row a panel, column and site; means over seeds and their intervals."""
    rows = [
        (panel, group_label(group), group.setting, site, *_ends(name, site, group))
        for panel, name in PANELS.items()
        for group in groups
        for site in range(max((len(site_row(run.record, name)) for run in group.runs), default=0))
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(("site", "value", "low", "high"), float))


def _ends(name: str, site: int, group: Group) -> tuple[float | None, float | None, float | None, str, str]:
    found = _estimate(quantity_of(name), site, group)
    return (found.mean.reading.value, found.low.value, found.high.value, "yes", found.mean.reading.reason)


def layer_figure(groups: Sequence[Group], sites: Sequence[ComparedSites]) -> tuple[tuple[str, str], ...]:
    """(data URI, alt text) of ‖g_l‖ and Γ_l by site; nothing where no column has a number."""
    frame = layer_numbers(groups)
    if frame["value"].isna().all():
        return ()
    words = []
    for quantity in (one for one in sites if one.name in SHOWN):
        for place, group in enumerate(groups):
            ends = (quantity.rows[index][1][place].mean for index in (0, -1))
            words.append(f"{quantity.symbol} of {group_label(group)} from {' to '.join(map(filters.number, ends))}")
    uri = base64.b64encode(png(DRAWN, frame)).decode("ascii")
    return ((f"data:image/png;base64,{uri}", f"By site, first to last: {'; '.join(words)}."),)
