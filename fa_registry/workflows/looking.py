"""The show and doctor verbs: one run in full, and whether this machine is ready."""

from __future__ import annotations

import contextlib
import inspect
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fa_registry import analyses, architectures, datasets, diagnostics, jsonio, methods, provenance, resources
from fa_registry.errors import RegistryError, StoreError, UnknownName, UsageError
from fa_registry.protocol.rules import load_edition, shipped
from fa_registry.records import RunRecord
from fa_registry.reporting.render import TEMPLATES, overridable
from fa_registry.studies import study
from fa_registry.tracking import schema
from fa_registry.tracking.reader import read_record
from fa_registry.tracking.store import resolve_uri, sqlite_path
from fa_registry.workflows import data
from fa_registry.workflows.selection import whole_id
from fa_registry.workflows.stores import open_tracker


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


# The list verb: what there is, with the file where it lives.


CATALOGS = {
    "methods": methods.CATALOG,
    "architectures": architectures.CATALOG,
    "datasets": datasets.CATALOG,
    "diagnostics": diagnostics.CATALOG,
}
FAMILIES = (*CATALOGS, "analyses", "editions", "studies", "templates")


def members(family: str) -> list[dict[str, str]]:
    """name, line and file of every member of a family; UnknownName for another family."""
    if family == "editions":
        return [_edition_row(name) for name in shipped()]
    if family == "studies":
        return [_study_row(name) for name in study.names()]
    if family == "templates":
        return [_template_row(name) for name in overridable()]
    if family == "analyses":
        return [_analysis_row(name) for name in analyses.CATALOG.names()]
    if family not in CATALOGS:
        raise UnknownName("family", family, FAMILIES)
    catalog = CATALOGS[family]
    rows = []
    for name in catalog.names():
        card = catalog.get(name).card
        rows.append({"name": name, "line": getattr(card, "rule", "") or card.line, "file": catalog.location(name).file})
    return rows


def _edition_row(name: str) -> dict[str, str]:
    """A variant lives in the file of its edition: `2026-05:strict` in 2026-05.toml."""
    file = resources.editions() / f"{name.partition(':')[0]}.toml"
    return {"name": name, "line": load_edition(name).title, "file": str(file)}


def _analysis_row(name: str) -> dict[str, str]:
    typed = name.replace("_", "-")  # as `fa-registry analyse` takes it
    return {"name": typed, "line": analyses.CATALOG.get(name).question, "file": analyses.CATALOG.location(name).file}


def _template_row(name: str) -> dict[str, str]:
    """One that --templates may replace; what is no page of its own is taken in by pages."""
    words = inspect.cleandoc(TEMPLATES[name].__doc__).partition(": ")[2] if name in TEMPLATES else "taken in by pages."
    return {"name": name, "line": words.partition("\n")[0], "file": str(resources.templates() / name)}


def _study_row(name: str) -> dict[str, str]:
    loaded = study.load_study(name)
    return {
        "name": name,
        "line": f"{loaded.title} ({len(loaded.specs)} runs; {loaded.cost})",
        "file": str(study.find(name)),
    }


# The card verb: everything that is declared of one method, architecture, data set or diagnostic.


def card_of(name: str, family: str = "") -> dict[str, Any]:
    """The card of the member of this name as plain data, with `family` and `file`; of that family where one is given.

    Raises UnknownName with the nearest name. Where two families hold the name, the methods' comes first.
    """
    if family and family not in CATALOGS:
        raise UnknownName("family", family, CATALOGS)
    catalogs = {family: CATALOGS[family]} if family else CATALOGS
    for kind, catalog in catalogs.items():
        plain, colon, _ = name.partition(":") if kind == "datasets" else (name, "", "")
        if plain in catalog.names():
            member = datasets.get(name) if colon else catalog.get(name)  # `random_targets:digits` has a card of its own
            return {"family": kind, "file": catalog.location(plain).file, **jsonio.encode(member.card)}
    raise UnknownName("name", name, [known for catalog in catalogs.values() for known in catalog.names()])


# The optimize verb: let a sqlite store count what it holds, so that its queries take the right way through.


COUNTED = ("runs", "metrics", "latest_metrics", "params", "tags")


@dataclass(frozen=True)
class Optimized:
    """rows: of each of the store's large tables."""

    store: str
    rows: dict[str, int]


def run_optimize(store: str = "") -> Optimized:
    """Run ANALYZE on a sqlite store: MLflow never does, and sqlite then scans all metrics of all runs for one chart.

    Raises UsageError for a store that is no sqlite database (others count by themselves), StoreError where it is locked.
    """
    uri = open_tracker(store, create=False).uri
    path = sqlite_path(uri)
    if path is None:
        raise UsageError(
            f"optimize: expected a sqlite store, found {uri}; a database server keeps its statistics itself"
        )
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
            connection.execute("ANALYZE")
            connection.commit()
            rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in COUNTED}
    except sqlite3.OperationalError as error:
        raise StoreError(f"store {uri}: cannot be analysed now: {error}; is a study being trained into it?") from error
    return Optimized(uri, rows)
