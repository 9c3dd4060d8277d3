"""A store of many finished runs without the training: each a copy of a run that was trained, under a specification of its own.

Its rows and files equal those that RunWriter writes, so every command accepts them. Only recomputing such a run would find that
its metrics belong to another seed. Files that are alike are hard links, and the rows go into MLflow's tables by SQL: 7 ms a run
instead of 100. Filling is python -m benchmarks.filled_store FOLDER RUNS.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fa_registry
from benchmarks.filled_study import study_text
from fa_registry import jsonio
from fa_registry.records import RunSpec
from fa_registry.studies.study import load_study
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.checkpoint import content_digest, load_tensors, save_tensors
from fa_registry.training.specs import run_name, setting_label

TABLES = {name: "run_uuid" for name in ("runs", "tags", "params", "metrics", "latest_metrics")}
TABLES |= {"inputs": "destination_id"}  # MLflow's tables: the column that names the run


def fill(folder: Path, runs: int) -> str:
    """Make folder/study.toml of so many runs and a store that holds them; returns its URI."""
    database, study = folder / "mlflow.db", folder / "study.toml"
    uri = f"sqlite:///{database}"
    study.write_text(study_text(1), encoding="utf-8")
    fa_registry.study(str(study), device="cpu", store=uri, jobs=1)
    study.write_text(study_text(runs), encoding="utf-8")
    trained = MlflowTracker(uri).search({schema.TAG_KIND: "run"})
    present = {run.tags[schema.TAG_SPEC] for run in trained}
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.row_factory = sqlite3.Row
        models = {run.tags[schema.TAG_METHOD]: Model.of(connection, run.run_id) for run in trained}
        for spec in load_study(str(study), {"device": "cpu"}).specs:
            if spec.identity not in present:
                models[spec.method_label].copy(connection, spec)
    return uri


@dataclass(frozen=True)
class Model:
    """A run that was trained: its rows by table, its artifacts' folder, its provenance."""

    run_id: str
    rows: Mapping[str, list[dict[str, Any]]]
    artifacts: Path
    provenance: Mapping[str, Any]

    @classmethod
    def of(cls, connection: sqlite3.Connection, run_id: str) -> Model:
        rows = {
            table: [dict(row) for row in connection.execute(f"SELECT * FROM {table} WHERE {column} = ?", (run_id,))]
            for table, column in TABLES.items()
        }
        artifacts = Path(rows["runs"][0]["artifact_uri"].removeprefix("file://"))
        return cls(run_id, rows, artifacts, json.loads((artifacts / schema.PROVENANCE).read_text(encoding="utf-8")))

    def copy(self, connection: sqlite3.Connection, spec: RunSpec) -> None:
        """A run of this specification that has all that this one has."""
        run_id, name = uuid.uuid4().hex, run_name(spec)
        weights, digest = self._copy_files(self.artifacts.parent.parent / run_id / self.artifacts.name, spec)
        setting = {schema.TAG_SETTING: setting_label(spec), schema.TAG_SPEC: spec.identity}
        recorded = {schema.TAG_WEIGHTS: weights, schema.TAG_ARTIFACTS: digest}
        values = {
            "tags": {**setting, **recorded, "mlflow.runName": name},
            "params": schema.params(spec),
        }
        place = self.rows["runs"][0]["artifact_uri"].replace(self.run_id, run_id)
        for table, rows in self.rows.items():
            changed = {TABLES[table]: run_id} | ({"name": name, "artifact_uri": place} if table == "runs" else {})
            _insert(connection, table, [_with_value({**row, **changed}, values.get(table, {})) for row in rows])

    def _copy_files(self, folder: Path, spec: RunSpec) -> tuple[str, str]:
        """Link the run's files, and write its specification, weights and manifest; return the digests of weights and manifest.

        No two runs may share a tensor: every number of the weights has noise drawn from the specification's identity.
        """
        shutil.copytree(self.artifacts, folder, copy_function=os.link)
        _replace(folder / schema.SPEC, jsonio.pretty(spec))
        (folder / schema.FINAL).unlink()
        tensors = load_tensors(self.artifacts / schema.FINAL)
        draw = torch.Generator().manual_seed(int(spec.identity[:12], 16))
        tensors = {
            name: tensor + torch.randn(tensor.shape, generator=draw) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        own = {
            schema.SPEC: jsonio.file_digest(folder / schema.SPEC),
            schema.FINAL: save_tensors(folder / schema.FINAL, tensors),
        }
        digests, weights = {**self.provenance["digests"], **own}, content_digest(tensors)
        written = {"digests": digests, "final_weights": weights, "setting": setting_label(spec)}
        _replace(folder / schema.PROVENANCE, jsonio.pretty({**self.provenance, **written}))
        provenance = jsonio.file_digest(folder / schema.PROVENANCE)
        return weights, jsonio.digest_of({**digests, schema.PROVENANCE: provenance})


def _replace(path: Path, text: str) -> None:
    path.unlink()  # it is a link: written to as it is, it would change in every run
    path.write_text(text, encoding="utf-8")


def _with_value(row: dict[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """A tag or parameter with its value of this run, if it has one of its own."""
    return {**row, "value": values[row["key"]]} if row.get("key") in values else row


def _insert(connection: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
    columns = ", ".join(f'"{name}"' for name in rows[0])
    connection.executemany(
        f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(rows[0]))})",
        [tuple(row.values()) for row in rows],
    )


if __name__ == "__main__":
    print(fill(Path(sys.argv[1]), int(sys.argv[2])))
