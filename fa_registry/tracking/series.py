"""series.parquet: every per-epoch number of a run, site by site, lossless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fa_registry.records import Measurements, Reading, Series, SiteSeries
from fa_registry.tracking.schema import TRAJECTORY, spread

BY_SITE = ("growth", "gamma")  # what a report shows of every site by epoch
MOST_EPOCHS = 25  # of them: all would make audit.json of a long run mostly these
ABSENT = Reading(None, "not measured in this epoch")
SCALAR_SITE = -1  # the site column of a quantity that has none
SCHEMA = pa.schema(
    [
        ("epoch", pa.int32()),
        ("quantity", pa.string()),
        ("site", pa.int16()),
        ("value", pa.float64()),
        ("reason", pa.string()),
    ]
)
LAST_SITE = {
    "g_norm_L": "g_norm",
    "g_norm_mean_ce_L": "g_norm_mean_ce",
    "gain_L": "gain",
    "fidelity_L": "fidelity",
}  # headlines that are a site quantity's last entry


def write_series(path: Path, rows: Sequence[tuple[int, Measurements]]) -> None:
    """rows: (epoch, measurements). An absent number is a null with its reason beside it. Equal rows give equal bytes."""
    columns: list[list] = [[], [], [], [], []]
    for epoch, measurements in rows:
        flat = [
            (name, site, reading)
            for name, line in sorted(measurements.sites.items())
            for site, reading in enumerate(line)
        ]
        flat += [(name, SCALAR_SITE, reading) for name, reading in sorted(measurements.scalars.items())]
        for quantity, site, reading in flat:
            for column, value in zip(columns, (epoch, quantity, site, reading.value, reading.reason), strict=True):
                column.append(value)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    pq.write_table(pa.table(arrays, schema=SCHEMA), path)


def read_trajectory(path: Path) -> Mapping[str, Series]:
    """The headlines by epoch, index = epoch; an epoch without the quantity is N/A and says so."""
    table = pq.read_table(path)
    epochs = 1 + max(table["epoch"].to_pylist(), default=-1)
    last = max(table["site"].to_pylist(), default=SCALAR_SITE)
    wanted = {(name, SCALAR_SITE): name for name in TRAJECTORY}
    wanted |= {(quantity, last): name for name, quantity in LAST_SITE.items()}
    lines: dict[str, list[Reading]] = {name: [ABSENT] * epochs for name in wanted.values()}
    columns = (table[name].to_pylist() for name in ("epoch", "quantity", "site", "value", "reason"))
    for epoch, quantity, site, value, reason in zip(*columns, strict=True):
        name = wanted.get((quantity, site))
        if name:
            lines[name][epoch] = Reading(value, reason)
    return {name: Series(line) for name, line in lines.items()}


def read_by_site(path: Path) -> Mapping[str, SiteSeries]:
    """Growth and Γ of every site at no more than MOST_EPOCHS epochs, evenly spread, the first and the last included."""
    table = pq.read_table(path, filters=[("quantity", "in", BY_SITE)])
    epochs = spread(max(table["epoch"].to_pylist(), default=-1), MOST_EPOCHS)
    place = {epoch: index for index, epoch in enumerate(epochs)}
    lines: dict[str, dict[int, list[Reading]]] = {name: {} for name in BY_SITE}
    columns = (table[name].to_pylist() for name in ("epoch", "quantity", "site", "value", "reason"))
    for epoch, quantity, site, value, reason in zip(*columns, strict=True):
        if epoch in place:
            lines[quantity].setdefault(site, [ABSENT] * len(epochs))[place[epoch]] = Reading(value, reason)
    return {
        name: SiteSeries(epochs, tuple(Series(sites[site]) for site in sorted(sites)))
        for name, sites in lines.items()
        if sites
    }
