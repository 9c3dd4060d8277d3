"""series.parquet: all values of a run, per epoch and site, without rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fa_registry.errors import shortened
from fa_registry.metrics import TABLES, Headline, at_last_site, table
from fa_registry.records import Measurements, Reading, Series, SiteSeries
from fa_registry.records.readings import KINDS
from fa_registry.safe_files import RECORD, UnreadableFile, read_file
from fa_registry.tracking.base import Point
from fa_registry.tracking.schema import SITE_METRICS, scalar_metrics, shown_sites, site_metric, spread

MOST_EPOCHS = 25  # epochs per site in a report; all epochs of a long run would make audit.json much larger
ABSENT = Reading(None, "not measured in this epoch")
MOST_ROWS = 5_000_000  # enough for a run with 10,000 epochs and 30 sites
LAST_EPOCH = 100_000  # as in training.specs: results of a series have an entry for every epoch up to the last
SCALAR_SITE = -1  # the site column of a scalar metric
SCHEMA = pa.schema(
    [
        ("epoch", pa.int32()),
        ("quantity", pa.string()),
        ("site", pa.int16()),
        ("value", pa.float64()),
        ("reason", pa.string()),
        ("kind", pa.string()),  # of the reason, see records.Reading
    ]
)
TEXTS = ("quantity", "reason", "kind")
# Schema for reading: memory contains each distinct text once. A few kB can encode a text of 60 MB in a million rows.
HELD = pa.schema(
    [field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in TEXTS else field for field in SCHEMA]
)
MOST_BYTES = 4 * RECORD  # uncompressed size of MOST_ROWS rows of numbers, and of texts of the same size
SeriesRow = tuple[int, str, int, float | None, str, str]  # as in SCHEMA


def write_series(path: Path, rows: Sequence[tuple[int, Measurements]]) -> None:
    """Write rows, i.e. pairs of epoch and measurements, to a Parquet file.

    Equal measurements produce equal bytes. A missing value is written as null with a reason.
    """
    flat: list[SeriesRow] = []
    for epoch, measurements in rows:
        flat += [
            (epoch, name, site, reading.value, reading.reason, reading.kind)
            for name, readings in sorted(measurements.sites.items())
            for site, reading in enumerate(readings)
        ]
        flat += [
            (epoch, name, SCALAR_SITE, reading.value, reading.reason, reading.kind)
            for name, reading in sorted(measurements.scalars.items())
        ]
    columns = zip(*flat, strict=True) if flat else [()] * len(SCHEMA)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    pq.write_table(pa.table(arrays, schema=SCHEMA), path)


def read_rows(path: Path) -> list[SeriesRow]:
    """Return all rows of the file. Raise UnreadableFile if the contents are invalid."""
    return parse_rows(path, read_file(path))  # not memory-mapped: a damaged mapped file may end this process


def parse_rows(path: Path, data: bytes) -> list[SeriesRow]:
    """Return all rows of the content `data` of a file; see `read_rows`."""
    try:
        with pq.ParquetFile(pa.BufferReader(data), read_dictionary=TEXTS) as file:
            metadata = file.metadata
            unpacked_bytes = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
            if not file.schema_arrow.equals(HELD) or metadata.num_rows > MOST_ROWS or unpacked_bytes > MOST_BYTES:
                raise ValueError(f"{metadata.num_rows:,} rows of {file.schema_arrow.names}, {unpacked_bytes:,} bytes")
            table = file.read(use_threads=False)  # the file is small: threads cost more than they save
        table.validate(full=True)
        columns = (_texts(table[name]) if name in TEXTS else table[name].to_pylist() for name in SCHEMA.names)
        rows = list(zip(*columns, strict=True))
    # a bad encoding raises UnicodeDecodeError, a ValueError; a damaged name of a text column raises KeyError
    except (pa.ArrowException, ValueError, KeyError, OSError, MemoryError) as error:
        raise UnreadableFile(path, f"is not a series that a run wrote: {str(error).splitlines()[0]}") from error
    invalid_row = next((row for row in rows if not _is_row(row)), None)
    if invalid_row:
        raise UnreadableFile(
            path, f"is not a series that a run wrote: it contains the invalid row {shortened(invalid_row)}"
        )
    return rows


def _texts(column: pa.ChunkedArray) -> Iterator[str | None]:
    for chunk in column.chunks:
        dictionary = chunk.dictionary.to_pylist()
        yield from (None if index is None else dictionary[index] for index in chunk.indices.to_pylist())


def _is_row(row: Sequence[Any]) -> bool:
    """Return whether all fields of the row are valid."""
    epoch, metric, site, value, reason, kind = row
    has_position = epoch is not None and 0 <= epoch <= LAST_EPOCH and site is not None and site >= SCALAR_SITE
    is_complete = metric is not None and reason is not None and (value is None) == bool(reason)
    is_kind_valid = kind in KINDS and not (kind and value is not None)
    return has_position and is_complete and is_kind_valid and (value is None or math.isfinite(value))


def points(rows: Sequence[SeriesRow], extra_metrics: Sequence[str] = ()) -> Iterator[Point]:
    """Yield the metric points that the rows contain, in order of epochs.

    `extra_metrics` are the names of third-party metrics with charts.
    """
    last: dict[str, int] = {}
    for _, metric, site, *_ in rows:
        last[metric] = max(site, last.get(metric, SCALAR_SITE))
    keys: dict[tuple[str, int], list[str]] = {}
    for name, key in scalar_metrics(extra_metrics).items():
        base = at_last_site(name)
        keys.setdefault((base, last.get(base, SCALAR_SITE)) if base else (name, SCALAR_SITE), []).append(key)
    for name in (*SITE_METRICS, *extra_metrics):
        count = 1 + last.get(name, SCALAR_SITE)
        for site in shown_sites(count, extra_metrics):
            keys.setdefault((name, site), []).append(site_metric(name, site, count))
    for epoch, metric, site, value, *_ in rows:
        if value is not None:
            yield from (Point(key, value, epoch) for key in keys.get((metric, site), ()))


def trajectory(rows: Sequence[SeriesRow], headline: Headline) -> Mapping[str, Series]:
    """Return a series per metric that reports show for every epoch. Missing values are N/A."""
    epochs = 1 + max((row[0] for row in rows), default=-1)
    last = max((row[2] for row in rows), default=SCALAR_SITE)
    by_site = {name: at_last_site(name) for name in table("trajectory", [headline])}
    headline_names = {(base, last) if base else (name, SCALAR_SITE): name for name, base in by_site.items()}
    lines: dict[str, list[Reading]] = {name: [ABSENT] * epochs for name in headline_names.values()}
    for epoch, metric, site, value, reason, kind in rows:
        name = headline_names.get((metric, site))
        if name:
            lines[name][epoch] = Reading(value, reason, kind)
    return {name: Series(line) for name, line in lines.items()}


def by_site(rows: Sequence[SeriesRow]) -> Mapping[str, SiteSeries]:
    """Return growth, ‖g_l‖ and Γ of every site at no more than 25 evenly spaced epochs.

    Γ is the cosine of credit and gradient. The first and the last epoch are included.
    """
    site_rows = [row for row in rows if row[1] in TABLES["trajectory_sites"]]
    epochs = spread(max((row[0] for row in site_rows), default=-1), MOST_EPOCHS)
    positions = {epoch: index for index, epoch in enumerate(epochs)}
    lines: dict[str, dict[int, list[Reading]]] = {name: {} for name in TABLES["trajectory_sites"]}
    for epoch, metric, site, value, reason, kind in site_rows:
        if epoch in positions:
            lines[metric].setdefault(site, [ABSENT] * len(epochs))[positions[epoch]] = Reading(value, reason, kind)
    return {
        name: SiteSeries(epochs, tuple(Series(sites[site]) for site in sorted(sites)))
        for name, sites in lines.items()
        if sites
    }
