"""What an attacker who owns the store can do: edit its tables, edit a run's files, and record them again as the writer does.

Each attack of this folder goes through here and never through the registry's own code, except for the digests of a manifest.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from fa_registry import jsonio
from fa_registry.records import Measurements, Reading, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.series_parquet import SCALAR_SITE, SCHEMA, SeriesRow, points, read_rows
from fa_registry.training.checkpoint import content_digest, save_tensors


@dataclass(frozen=True)
class Store:
    """A working folder with mlflow.db and mlartifacts in it, and a study file `tiny/study.toml`."""

    folder: Path

    def sql(self, statement: str, *values: Any) -> list[tuple]:
        """One statement on the database, committed; returns its rows."""
        with sqlite3.connect(self.folder / "mlflow.db") as database:
            return database.execute(statement, values).fetchall()

    def run_ids(self, **spec: Any) -> list[str]:
        """Ids of the training runs whose spec.json has these top-level values, e.g. method="dfa", seed=1."""
        rows = self.sql("SELECT run_uuid FROM tags WHERE key = 'fa.kind' AND value = 'run'")
        return [run_id for (run_id,) in rows if spec.items() <= self.json(run_id, schema.SPEC).items()]

    def run_id(self, **spec: Any) -> str:
        """The one training run with these values."""
        (found,) = self.run_ids(**spec)
        return found

    def artifacts(self, run_id: str) -> Path:
        ((uri,),) = self.sql("SELECT artifact_uri FROM runs WHERE run_uuid = ?", run_id)
        return Path(unquote(uri.removeprefix("file://")))

    def json(self, run_id: str, name: str) -> dict[str, Any]:
        return json.loads((self.artifacts(run_id) / name).read_text(encoding="utf-8"))

    def tags(self, run_id: str) -> dict[str, str]:
        return dict(self.sql("SELECT key, value FROM tags WHERE run_uuid = ?", run_id))

    def set_tag(self, run_id: str, name: str, value: str) -> None:
        self.sql("INSERT OR REPLACE INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", name, value, run_id)

    def change_json(self, run_id: str, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Let `change` edit a JSON artifact in place; record it again to make it count."""
        held = self.json(run_id, name)
        change(held)
        (self.artifacts(run_id) / name).write_text(jsonio.pretty(held), encoding="utf-8")

    def write_manifest(self, run_id: str) -> None:
        """The manifest again over the run's files as they are now: digests in provenance.json, their digest in the tag."""
        folder = self.artifacts(run_id)
        provenance = self.json(run_id, schema.PROVENANCE)
        provenance["digests"] = {name: jsonio.file_digest(folder / name) for name in provenance["digests"]}
        (folder / schema.PROVENANCE).write_text(jsonio.pretty(provenance), encoding="utf-8")
        recorded = {**provenance["digests"], schema.PROVENANCE: jsonio.file_digest(folder / schema.PROVENANCE)}
        self.set_tag(run_id, schema.TAG_ARTIFACTS, jsonio.digest_of(recorded))

    def restate(self, run_id: str, spec: RunSpec) -> None:
        """Another specification for the run, in all files, tags and parameters that name it; recorded with new digests."""
        (self.artifacts(run_id) / schema.SPEC).write_text(jsonio.pretty(spec), encoding="utf-8")
        self.change_json(run_id, schema.PROVENANCE, lambda held: held.update(method=spec.method_label))
        self.set_tag(run_id, schema.TAG_SPEC, spec.identity)
        self.set_tag(run_id, schema.TAG_METHOD, spec.method_label)
        for name, value in schema.params(spec).items():
            statement = "INSERT OR REPLACE INTO params (key, value, run_uuid) VALUES (?, ?, ?)"
            self.sql(statement, name, value, run_id)
        self.write_manifest(run_id)

    def reweigh(self, run_id: str, tensors: dict[str, Tensor]) -> None:
        """Other final weights for the run, and their digest in its file and tag."""
        save_tensors(self.artifacts(run_id) / schema.FINAL, tensors)
        digest = content_digest(tensors)
        self.change_json(run_id, schema.PROVENANCE, lambda held: held.update(final_weights=digest))
        self.set_tag(run_id, schema.TAG_WEIGHTS, digest)
        self.write_manifest(run_id)

    def retell(self, run_id: str) -> None:
        """The metrics of measurements.json into the last epoch of the series and into MLflow's tables; new digests."""
        path = self.artifacts(run_id) / schema.SERIES
        measured = jsonio.decode(Measurements, self.json(run_id, schema.MEASUREMENTS))
        again = {(name, SCALAR_SITE): one for name, one in measured.scalars.items()}
        again |= {(name, site): one for name, row in measured.sites.items() for site, one in enumerate(row)}
        rows = read_rows(path)
        last = max(row[0] for row in rows)
        rows = [_retold(row, again.get(row[1:3])) if row[0] == last else row for row in rows]
        _write(path, rows)
        for point in points(rows):
            for table in ("metrics", "latest_metrics"):
                statement = f"UPDATE {table} SET value = ?, is_nan = 0 WHERE run_uuid = ? AND key = ? AND step = ?"
                self.sql(statement, schema.shown(point.value), run_id, point.key, point.step)
        self.write_manifest(run_id)

    def change_series(self, run_id: str, value: Callable[[int, str], float | None]) -> None:
        """Other values in the series, value(epoch, name) where that is a number, and new digests."""
        path = self.artifacts(run_id) / schema.SERIES
        rows = [(row, None if row[4] else value(*row[:2])) for row in read_rows(path)]
        _write(path, [row if new is None else (*row[:3], new, *row[4:]) for row, new in rows])
        self.write_manifest(run_id)


def _write(path: Path, rows: list[SeriesRow]) -> None:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    pq.write_table(pa.table(arrays, schema=SCHEMA), path)


def _retold(row: SeriesRow, reading: Reading | None) -> SeriesRow:
    return row if reading is None else (*row[:3], reading.value, reading.reason, reading.kind)
