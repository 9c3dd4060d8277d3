"""The show and doctor verbs: one run in full, and whether this machine is ready."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fa_registry import datasets, provenance, resources
from fa_registry.commands import data
from fa_registry.commands.selection import whole_id
from fa_registry.commands.stores import open_tracker
from fa_registry.errors import RegistryError
from fa_registry.records import RunRecord
from fa_registry.studies import study
from fa_registry.tracking import schema
from fa_registry.tracking.reader import read_record
from fa_registry.tracking.store import resolve_uri


def show(run_id: str, store: str = "") -> RunRecord:
    """The record of a run that has one (finished or stopped early); another's status and failure in an error."""
    tracker = open_tracker(store, create=False)
    run = tracker.get(whole_id(tracker, run_id))
    if run.tags.get(schema.TAG_STATUS) not in (*schema.FINISHED_STATUSES, schema.STOPPED_EARLY):
        failure = tracker.artifact(run.run_id, schema.FAILURE)
        text = failure.read_text(encoding="utf-8") if failure else "no failure was recorded"
        raise RegistryError(
            f"run {run.run_id} ({run.name}) is {run.tags.get(schema.TAG_STATUS, 'not a training run')}: {text}"
        )
    return read_record(tracker, run)


def examine(store: str = "") -> list[dict[str, Any]]:
    """One row a check: what, ok, found."""
    rows = [
        {"check": f"version of {name}", "ok": True, "found": version} for name, version in provenance.versions().items()
    ]
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device: training runs on the CPU"
    rows.append({"check": "device", "ok": True, "found": gpu})
    rows.append(_check("store", lambda: f"{resolve_uri(store)}: {_count_runs(store)} finished runs"))
    rows.append(
        _check("templates", lambda: str(len(list(resources.templates().glob("*.j2")))) + f" in {resources.templates()}")
    )
    rows.append(_check("studies", lambda: ", ".join(study.names())))
    for name in datasets.CATALOG.names():
        rows.append(_check(f"data set {name}", lambda name=name: _load(name)))
    rows.append(_check("temporary folder", lambda: tempfile.gettempdir()))
    rows.append(_check("working folder", lambda: str(Path.cwd())))
    return rows


def _count_runs(store: str) -> int:
    tracker = open_tracker(store)
    return sum(
        len(tracker.search({schema.TAG_KIND: "run", schema.TAG_STATUS: status})) for status in schema.FINISHED_STATUSES
    )


def _load(name: str) -> str:
    """What is bundled is loaded, which checks its digest; of what needs files, whether they are here."""
    dataset = datasets.CATALOG.get(name)
    if dataset.card.files:
        return data.state(data.overview(name)[0])
    if not dataset.card.sha256:
        return "synthetic: drawn when it is used"
    splits = dataset.load(torch.device("cpu"))
    return f"{len(splits.train_labels)} train, {len(splits.test_labels)} test, digest {splits.digest[:12]}"


def _check(what: str, look: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"check": what, "ok": True, "found": look()}
    except (RegistryError, OSError) as error:
        return {"check": what, "ok": False, "found": str(error)}
