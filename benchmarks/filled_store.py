"""A store of many finished runs without the training: each a copy of a run that was trained, under a specification of its own.

What lies in it is what RunWriter would have written (files, digests, tags, params, latest metrics), so that every verb takes it for
real; only measuring such a run again would find that its figures belong to another seed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fa_registry import jsonio
from fa_registry.commands.study import run_study
from fa_registry.records import RunSpec
from fa_registry.studies.study import load_study
from fa_registry.tracking import schema
from fa_registry.tracking.base import Point, StoredRun
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.writer import folder_digests
from fa_registry.training.naming import run_name, setting_label

PER_SEED = 5  # runs: four methods and their frozen control
STUDY = """
name = "filled"
title = "A registry of many runs"
edition = "2026-11"
cost = "nothing: its runs are copies"

[recipe]
epochs = 3

[[grid]]
methods = ["bp", "fa", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = {seeds}
architecture_options = {{ d_hidden = 16, num_blocks = 4 }}

[[grid]]
methods = ["dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = {seeds}
penalties = [0.01]
architecture_options = {{ d_hidden = 16, num_blocks = 4 }}
"""


def fill(folder: Path, runs: int) -> str:
    """Make folder/study.toml of so many runs (rounded up to whole seeds) and a store that holds them; returns its URI."""
    uri, study = f"sqlite:///{folder / 'mlflow.db'}", folder / "study.toml"
    study.write_text(STUDY.format(seeds=[0]), encoding="utf-8")
    run_study(str(study), {"device": "cpu"}, uri, jobs=1)
    tracker = MlflowTracker(uri)
    models = {run.tags["fa.method"]: run for run in tracker.search({schema.TAG_KIND: "run"})}
    study.write_text(STUDY.format(seeds=list(range(-(-runs // PER_SEED)))), encoding="utf-8")
    present = {run.tags[schema.TAG_SPEC] for run in models.values()}
    for spec in load_study(str(study), {"device": "cpu"}).specs:
        if spec.identity not in present:
            _copy(tracker, models[spec.method_label], spec)
    return uri


def _copy(tracker: MlflowTracker, model: StoredRun, spec: RunSpec) -> None:
    source = tracker.artifact(model.run_id, schema.SPEC).parent
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(source, folder, dirs_exist_ok=True)
        (folder / schema.SPEC).write_text(jsonio.pretty(spec), encoding="utf-8")
        provenance = json.loads((folder / schema.PROVENANCE).read_text(encoding="utf-8"))
        (folder / schema.PROVENANCE).unlink()
        provenance["digests"] = folder_digests(folder)
        (folder / schema.PROVENANCE).write_text(jsonio.pretty(provenance), encoding="utf-8")
        seal = jsonio.digest_of(folder_digests(folder))
        tags = {
            **schema.tags(spec, setting_label(spec), "filled"),
            schema.TAG_STATUS: "complete",
            schema.TAG_ARTIFACTS: seal,
        }
        run_id = tracker.create(run_name(spec), tags, schema.params(spec))
        tracker.log(run_id, _points(folder))
        tracker.upload(run_id, folder)
        tracker.finish(run_id, "FINISHED")


def _points(folder: Path) -> list[Point]:
    """The metrics of the last epoch: as many keys as a run has."""
    raw: Mapping = json.loads((folder / schema.MEASUREMENTS).read_text(encoding="utf-8"))
    measured = jsonio.decode(schema.Measurements, raw, schema.MEASUREMENTS)
    return [Point(key, reading.value, 3) for key, reading in schema.metrics(measured) if reading.value is not None]
