"""series.parquet: every per-epoch number of a run, site by site, lossless."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fa_registry.errors import shortened
from fa_registry.metrics import TRAJECTORY, TRAJECTORY_BY_SITE, at_last_site
from fa_registry.records import Measurements, Reading, Series, SiteSeries
from fa_registry.safe_files import RECORD, UnreadableFile, read_file
from fa_registry.tracking.base import Point
from fa_registry.tracking.schema import SITE_METRICS, scalar_metrics, shown_sites, site_metric, spread

MOST_EPOCHS = 25  # of what a report shows of every site by epoch: all would make audit.json of a long run mostly these
ABSENT = Reading(None, "not measured in this epoch")
MOST_ROWS = 5_000_000  # a run of 10,000 epochs at 30 sites
LAST_EPOCH = 100_000  # as training.specs has it: what is made of a series has an entry for every epoch up to the last
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
TEXTS = ("quantity", "reason")
# As it is read: each text is held once, however often it stands there. A few kB can say a text of 60 MB in a million rows.
HELD = pa.schema(
    [field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in TEXTS else field for field in SCHEMA]
)
MOST_BYTES = 4 * RECORD  # unpacked: MOST_ROWS rows of numbers, and as much again of texts
SeriesRow = tuple[int, str, int, float | None, str]  # as in SCHEMA


def write_series(path: Path, rows: Sequence[tuple[int, Measurements]]) -> None:
    """rows: (epoch, measurements). An absent number is a null with its reason beside it. Equal rows give equal bytes."""
    flat: list[SeriesRow] = []
    for epoch, measurements in rows:
        flat += [
            (epoch, name, site, reading.value, reading.reason)
            for name, line in sorted(measurements.sites.items())
            for site, reading in enumerate(line)
        ]
        flat += [
            (epoch, name, SCALAR_SITE, reading.value, reading.reason)
            for name, reading in sorted(measurements.scalars.items())
        ]
    columns = zip(*flat, strict=True) if flat else [()] * len(SCHEMA)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    pq.write_table(pa.table(arrays, schema=SCHEMA), path)


def read_series(path: Path) -> tuple[Mapping[str, Series], Mapping[str, SiteSeries]]:
    """What `trajectory` and `by_site` make of the file, which is read once."""
    rows = read_rows(path)
    return trajectory(rows), by_site(rows)


def read_rows(path: Path) -> list[SeriesRow]:
    """The file as it is, row by row. Raises UnreadableFile where `write_series` has not written it, whoever has."""
    data = read_file(path)  # a damaged file that is mapped into memory may end this process
    try:
        with pq.ParquetFile(pa.BufferReader(data), read_dictionary=TEXTS) as file:
            metadata = file.metadata
            unpacked = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
            if not file.schema_arrow.equals(HELD) or metadata.num_rows > MOST_ROWS or unpacked > MOST_BYTES:
                raise ValueError(f"{metadata.num_rows:,} rows of {file.schema_arrow.names}, {unpacked:,} bytes")
            table = file.read(use_threads=False)  # it is small: threads cost more than they read
        table.validate(full=True)
        columns = (_texts(table[name]) if name in TEXTS else table[name].to_pylist() for name in SCHEMA.names)
        rows = list(zip(*columns, strict=True))
    # UnicodeDecodeError is a ValueError, a damaged name of a text column a KeyError
    except (pa.ArrowException, ValueError, KeyError, OSError, MemoryError) as error:
        raise UnreadableFile(path, f"is no series that a run wrote: {str(error).splitlines()[0]}") from error
    wrong = next((row for row in rows if not _is_row(row)), None)
    if wrong:
        raise UnreadableFile(path, f"is no series that a run wrote: it has the row {shortened(wrong)}")
    return rows


def _texts(column: pa.ChunkedArray) -> Iterator[str | None]:
    for chunk in column.chunks:
        known = chunk.dictionary.to_pylist()
        yield from (None if place is None else known[place] for place in chunk.indices.to_pylist())


def _is_row(row: Sequence[Any]) -> bool:
    """Whether it stands for a reading: all that is read of a run's history is made of such rows."""
    epoch, quantity, site, value, reason = row
    placed = epoch is not None and 0 <= epoch <= LAST_EPOCH and site is not None and site >= SCALAR_SITE
    whole = quantity is not None and reason is not None and (value is None) == bool(reason)
    return placed and whole and (value is None or math.isfinite(value))


def points(rows: Sequence[SeriesRow], further: Sequence[str] = ()) -> Iterator[Point]:
    """The metric points that training logged of these rows, epoch by epoch: see schema.metrics. Absent numbers have none."""
    last: dict[str, int] = {}
    for _, quantity, site, *_ in rows:
        last[quantity] = max(site, last.get(quantity, SCALAR_SITE))
    keys = {(name, SCALAR_SITE): key for name, key in scalar_metrics(further).items()}
    for name in (*SITE_METRICS, *further):
        count = 1 + last.get(name, SCALAR_SITE)
        keys |= {(name, site): site_metric(name, site, count) for site in shown_sites(count, further)}
    for epoch, quantity, site, value, _ in rows:
        key = keys.get((quantity, site))
        if key and value is not None:
            yield Point(key, value, epoch)


def trajectory(rows: Sequence[SeriesRow]) -> Mapping[str, Series]:
    """The headlines by epoch, index = epoch; an epoch without the quantity is N/A and says so."""
    epochs = 1 + max((row[0] for row in rows), default=-1)
    last = max((row[2] for row in rows), default=SCALAR_SITE)
    by_site = {name: at_last_site(name) for name in TRAJECTORY}
    wanted = {(base, last) if base else (name, SCALAR_SITE): name for name, base in by_site.items()}
    lines: dict[str, list[Reading]] = {name: [ABSENT] * epochs for name in wanted.values()}
    for epoch, quantity, site, value, reason in rows:
        name = wanted.get((quantity, site))
        if name:
            lines[name][epoch] = Reading(value, reason)
    return {name: Series(line) for name, line in lines.items()}


def by_site(rows: Sequence[SeriesRow]) -> Mapping[str, SiteSeries]:
    """Growth and Γ of every site at no more than MOST_EPOCHS epochs, evenly spread, the first and the last included."""
    own = [row for row in rows if row[1] in TRAJECTORY_BY_SITE]
    epochs = spread(max((row[0] for row in own), default=-1), MOST_EPOCHS)
    place = {epoch: index for index, epoch in enumerate(epochs)}
    lines: dict[str, dict[int, list[Reading]]] = {name: {} for name in TRAJECTORY_BY_SITE}
    for epoch, quantity, site, value, reason in own:
        if epoch in place:
            lines[quantity].setdefault(site, [ABSENT] * len(epochs))[place[epoch]] = Reading(value, reason)
    return {
        name: SiteSeries(epochs, tuple(Series(sites[site]) for site in sorted(sites)))
        for name, sites in lines.items()
        if sites
    }
