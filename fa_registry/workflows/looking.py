"""The show and doctor verbs: one run in full, and whether this machine is ready."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fa_registry import analyses, architectures, datasets, diagnostics, jsonio, methods, provenance, resources
from fa_registry.errors import RegistryError, StoreError, UnknownName, UsageError, unknown_name_text
from fa_registry.protocol.rules import load_edition, shipped
from fa_registry.records import RunRecord
from fa_registry.reporting.render import TEMPLATES, overridable
from fa_registry.studies import executors, study
from fa_registry.studies.executors.base import JobEvent
from fa_registry.studies.workers import supervise
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.claim import Signs
from fa_registry.tracking.places import placed, put_right
from fa_registry.tracking.reader import read_record
from fa_registry.tracking.store import check_writable, resolve_uri, sqlite_path
from fa_registry.training.devices import usable_cores
from fa_registry.workflows import data
from fa_registry.workflows.elsewhere import at_work_elsewhere, host_of, watched
from fa_registry.workflows.leftovers import KINDS, leftovers
from fa_registry.workflows.selection import failure_text, whole_id
from fa_registry.workflows.stores import in_browser, mlflow_page, open_tracker, registry_folder


def show(run_id: str, store: str = "") -> RunRecord:
    """The record of a run that has one (finished or stopped early); another's status and failure in an error."""
    tracker = open_tracker(store, create=False)
    run = tracker.get(whole_id(tracker, run_id))
    if run.tags.get(schema.TAG_STATUS) not in (*schema.FINISHED_STATUSES, schema.STOPPED_EARLY):
        text = failure_text(tracker, run.run_id) or "no failure was recorded"
        raise RegistryError(
            f"run {run.run_id} ({run.name}) is {run.tags.get(schema.TAG_STATUS, 'not a training run')}: {text}"
        )
    return read_record(tracker, run)


def examine(store: str = "", repair: bool = False, pages: str = "reports") -> list[dict[str, Any]]:
    """One row a check: what, ok (nothing is wrong), state (the same as a word, or `missing` for files that nobody needs), found.

    A row of what killed processes left is ok too: whatever writes next takes it away.
    repair: what killed processes left behind is taken away, its state is `repaired`. pages: a folder of pages to look into.
    """
    looks: dict[str, Callable[[], str | dict[str, Any]]] = {
        **{f"version of {name}": partial(str, version) for name, version in provenance.versions().items()},
        "device": _device,
        "store": partial(_finished_runs, store),
        "artifacts": partial(_files, store, repair),
        "MLflow's pages": partial(_page, store),
        "templates": lambda: f"{len(list(resources.templates().glob('*.j2')))} in {resources.templates()}",
        "studies": lambda: ", ".join(study.names()),
        "temporary folder": tempfile.gettempdir,
        "working folder": lambda: str(Path.cwd()),
    }
    rows = [_check(what, look) for what, look in looks.items()]
    try_out(*PLUGGED)
    broken = [fault for catalog in PLUGGED.values() for fault in catalog.faults()]
    rows += [{"check": f"plugin {fault.name}", "ok": False, "state": "NOT OK", "found": fault.why} for fault in broken]
    return [*rows, *_left_behind(store, repair, Path(pages)), *map(_data_set, datasets.CATALOG.members())]


def _left_behind(store: str, repair: bool, pages: Path) -> Iterator[dict[str, Any]]:
    """One row a kind of what killed processes leave, which harms nobody; whoever is at work is not among them."""
    uri, tracker = "", None
    with contextlib.suppress(StoreError):  # the row of the store says why
        uri = resolve_uri(store)
        tracker = None if _is_missing(store) else open_tracker(store, create=False)
    signs = watched(tracker) if tracker and repair else Signs()
    found = leftovers(tracker, registry_folder(uri), sqlite_path(uri), pages, signs)
    for left in found if repair else ():
        left.mend()
    for kind in KINDS:
        names = [left.what for left in found if left.kind == kind]
        state = "ok" if not names else "repaired" if repair else "left behind"
        advice = "; `fa-registry doctor --repair` takes them away" if state == "left behind" else ""
        yield {"check": kind, "ok": True, "state": state, "found": f"{', '.join(names) or 'none left behind'}{advice}"}
    others = at_work_elsewhere(tracker, signs) if tracker else []
    if others:
        hosts = ", ".join(sorted(set(map(host_of, others))))
        advice = (
            "" if repair else "; `fa-registry doctor --repair` waits for a sign of life and closes those that give none"
        )
        yield {
            "check": "runs on other machines",
            "ok": True,
            "state": "ok",
            "found": f"{len(others)} on {hosts}{advice}",
        }


def _files(store: str, repair: bool) -> dict[str, Any]:
    """Where the files of the store's runs lie. repair: a database that names another place is put right."""
    try:
        database = sqlite_path(resolve_uri(store))
        if database is None or _is_missing(store):
            return {"found": "none yet" if database else f"where {resolve_uri(store)} says"}
        files, state = placed(database), "ok"
    except StoreError:
        return {"found": "none: the store cannot be used"}
    words = [f"of {files.count - len(files.lacking)} runs, beside {database}"]
    if files.moved:
        words += [
            f"they lie in {new}, the database names {old}, where MLflow's pages look"
            for old, new in files.moved.items()
        ]
        state = "repaired" if repair else "moved"
        done = f"put right; as it was: {put_right(database, files.moved)}" if repair else ""
        words.append(done or "`fa-registry doctor --repair` puts the addresses right")
    for run_id, where in list(files.lacking.items())[:1]:
        state = "NOT OK"
        words.append(f"{len(files.lacking)} of {files.count} runs have no files, as {run_id}: there is no {where}")
    return {"ok": not files.lacking, "state": state, "found": "; ".join(words)}


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device: training runs on the CPU"


def _is_missing(store: str) -> bool:
    """Whether the store is a database that is not there yet, or empty: to look must not make one, the name may be mistyped."""
    path = sqlite_path(resolve_uri(store))
    return path is not None and not (path.exists() and path.stat().st_size)


def _finished_runs(store: str) -> str:
    if _is_missing(store):
        return f"{resolve_uri(store)}: none yet, the first run makes it"
    tracker = open_tracker(store, create=False)
    kind = {schema.TAG_KIND: "run"}
    count = sum(len(tracker.search({**kind, schema.TAG_STATUS: status})) for status in schema.FINISHED_STATUSES)
    try:
        check_writable(tracker.uri)
    except StoreError:
        return f"{tracker.uri}: {count} finished runs; it can only be read"
    return f"{tracker.uri}: {count} finished runs"


def _page(store: str) -> str:
    """Where the newest study's runs stand side by side."""
    try:
        tracker = None if _is_missing(store) else open_tracker(store, create=False)
    except StoreError:
        return "none: the store cannot be used"
    if not tracker:
        return "no study yet"
    if tracker.in_the_bin():
        raise StoreError(tracker.in_the_bin())
    newest = next(iter(tracker.search({schema.TAG_KIND: "study"})), None)
    if not newest:
        return "no study yet"
    if why_not := tracker.why_no_views():
        return f"no views: {why_not}"
    page = mlflow_page(tracker, newest.tags[schema.TAG_STUDY])
    return in_browser(tracker.uri, page) or "none: it has no runs, or the store takes no view"


def _data_set(name: str) -> dict[str, Any]:
    """A data set whose files are not here is nothing wrong: whoever does not train on it needs none."""
    row = _check(f"data set {name}", partial(_load, name))
    files = data.overview(name)[0] if row["ok"] and datasets.CATALOG.get(name).card.files else None
    return row | {"state": "missing"} if files and files["missing"] and not files["decoded"] else row


def _load(name: str) -> str:
    """What is bundled is loaded, which checks its digest; of what needs files, whether they are here."""
    dataset = datasets.CATALOG.get(name)
    if dataset.card.files:
        return data.state(data.overview(name)[0])
    if not dataset.card.sha256:
        return "synthetic: drawn when it is used"
    splits = dataset.load(torch.device("cpu"))
    return f"{len(splits.train_labels)} train, {len(splits.test_labels)} test, digest {splits.digest[:12]}"


def _check(what: str, look: Callable[[], str | dict[str, Any]]) -> dict[str, Any]:
    """The row of what `look` found: words, or fields of the row."""
    try:
        found = look()
        return {"check": what, "ok": True, "state": "ok", **(found if isinstance(found, dict) else {"found": found})}
    except (RegistryError, OSError) as error:
        return {"check": what, "ok": False, "state": "NOT OK", "found": str(error)}


# The list verb: what there is, with the file where it lives.


CATALOGS = {
    "methods": methods.CATALOG,
    "architectures": architectures.CATALOG,
    "datasets": datasets.CATALOG,
    "diagnostics": diagnostics.CATALOG,
}
PLUGGED = {**CATALOGS, "analyses": analyses.CATALOG, "executors": executors.CATALOG}
IMPORT_SECONDS = 60.0  # that a package may take to be imported
PART = "taken in by pages."  # of a template that is no page of its own
FAMILIES = (*CATALOGS, "analyses", "editions", "studies", "templates")


def try_out(*families: str) -> None:
    """Import what other packages bring to these families each in a process of its own, which may hang or end there.

    What does is refused here from then on, with its reason.
    """
    places = [(family, name) for family in families for name in PLUGGED[family].names()]
    foreign = [(family, name) for family, name in places if not PLUGGED[family].location(name).own]

    def hear(event: JobEvent) -> None:
        if event.kind == "failed":
            family, name = foreign[event.index]
            PLUGGED[family].refuse(name, f"cannot be imported: {event.value}")

    if foreign:
        supervise(foreign, _imported, usable_cores(), lambda: False, hear, IMPORT_SECONDS)


def _imported(place: tuple[str, str], stop: Callable[[], bool], report: Callable[[Any], None]) -> None:
    """In the other process. An error that is told there is told here too."""
    family, name = place
    with contextlib.suppress(RegistryError):
        PLUGGED[family].get(name)


def members(family: str) -> list[dict[str, str]]:
    """name, line and file of every member of a family; UnknownName for another family."""
    if family not in FAMILIES:
        raise UnknownName("family", family, FAMILIES)
    if family in PLUGGED:
        try_out(family)
    return [{"name": name, "line": line, "file": str(file)} for name, line, file in _members(family)]


def _members(family: str) -> Iterator[tuple[str, str, str | Path]]:
    if family == "editions":
        for name in shipped():  # a variant lives in the file of its edition: `2026-05:strict` in 2026-05.toml
            yield name, load_edition(name).title, resources.editions() / f"{name.partition(':')[0]}.toml"
    elif family == "studies":
        for name in study.names():
            loaded = study.load_study(name)
            yield name, f"{loaded.title} ({len(loaded.specs)} runs; {loaded.cost})", study.find(name)
    elif family == "templates":
        for name in overridable():
            words = inspect.cleandoc(TEMPLATES[name].__doc__).partition(": ")[2] if name in TEMPLATES else PART
            yield name, words.partition("\n")[0], resources.templates() / name
    elif family == "analyses":
        for name, analyser in analyses.CATALOG.members().items():
            typed = name.replace("_", "-")  # as `fa-registry analyse` takes it
            yield typed, analyser.question, analyses.CATALOG.location(name).file
    else:
        for name, member in CATALOGS[family].members().items():
            yield name, getattr(member.card, "rule", "") or member.card.line, CATALOGS[family].location(name).file
    if family in PLUGGED:
        yield from ((fault.name, f"cannot be used: {fault.why}", fault.file) for fault in PLUGGED[family].faults())


# `list runs`: what the store holds, newest first.


SHOWN = 50  # runs, unless told otherwise
OPTIONS = f"{schema.PARAM}method_options/"


@dataclass(frozen=True)
class Listing:
    """runs: newest first, one mapping each. more: whether older ones were left off. none: where there is no run, why."""

    runs: list[dict[str, Any]]
    more: bool
    none: str = ""


def listed_runs(store: str = "", study: str = "", method: str = "", status: str = "", limit: int = SHOWN) -> Listing:
    """The newest `limit` runs (0: all) of a store, of a study, of a method by its label and of a status, where one is given.

    One search, and no file of a run is read: what a run's tags, parameters and metrics say, which an audit does not believe.
    """
    wanted = {schema.TAG_STUDY: study, schema.TAG_METHOD: method, schema.TAG_STATUS: status}
    tags = {schema.TAG_KIND: "run", **{name: value for name, value in wanted.items() if value}}
    tracker = open_tracker(store, create=False)
    found = tracker.search(tags, most=limit + 1 if limit else 0)
    shown = found[:limit] if limit else found
    none = "" if found else _why_none(tracker, study, method, status)
    return Listing([_listed(run) for run in shown], len(found) > len(shown), none)


def _why_none(tracker: Tracker, study: str, method: str, status: str) -> str:
    """What the store has instead: a name may be mistyped, which nothing that is trained mends."""
    runs = tracker.search({schema.TAG_KIND: "run"})
    if not runs:
        return "no run yet; `fa-registry study` and `fa-registry train` make some"
    asked = {
        "study": (schema.TAG_STUDY, study),
        "method": (schema.TAG_METHOD, method),
        "status": (schema.TAG_STATUS, status),
    }
    for what, (tag, name) in asked.items():
        known = {run.tags[tag] for run in runs if run.tags.get(tag)}
        if name and name not in known:
            return f"no such run in {tracker.uri}: {unknown_name_text(what, name, known)}"
    return f"no such run in {tracker.uri}: some have the one, some the other"


def _listed(run: StoredRun) -> dict[str, Any]:
    seed = run.params.get(f"{schema.PARAM}seed", "")
    started = datetime.datetime.fromtimestamp(run.started / 1000, datetime.UTC)
    return {
        "run_id": run.run_id,
        "name": run.name,
        "study": run.tags.get(schema.TAG_STUDY, ""),
        "method": run.tags.get(schema.TAG_METHOD, ""),
        "options": {
            name.removeprefix(OPTIONS): value for name, value in run.params.items() if name.startswith(OPTIONS)
        },
        "setting": run.tags.get(schema.TAG_SETTING, ""),
        "seed": int(seed) if seed.lstrip("-").isdecimal() else None,
        "status": run.tags.get(schema.TAG_STATUS, ""),
        "verdict": run.tags.get(schema.TAG_VERDICT, ""),
        "accuracy": run.metrics.get(schema.SCALAR_METRICS["accuracy"]),
        "started": started.isoformat(timespec="seconds"),
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


def run_optimize(store: str = "") -> dict[str, Any]:
    """Run ANALYZE on a sqlite store: MLflow never does, and sqlite then scans all metrics of all runs for one chart.

    Returns `store`, its address, and `rows`, of each of its large tables.
    Raises UsageError for a store that is no sqlite database (others count by themselves), StoreError where it is locked.
    """
    uri = open_tracker(store, create=False, write=True).uri
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
    return {"store": uri, "rows": rows}
