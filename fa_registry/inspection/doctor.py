"""The doctor command: check the machine, the store and plug-ins; list stale items."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fa_registry import bundled_files, datasets, provenance
from fa_registry.audits.proof import verdict_tag_differences
from fa_registry.audits.reports import load_report
from fa_registry.audits.verify import judging_audits
from fa_registry.datasets.text import Text
from fa_registry.errors import RegistryError, StoreError, UnknownName, UsageError, join_names, pluralise
from fa_registry.inspection.plugin_list import PLUGGED, check_plugin_imports
from fa_registry.plugin_registry import catalog_of
from fa_registry.safe_files import RECORD
from fa_registry.studies import data_files, study
from fa_registry.studies.coordination import at_work_elsewhere, observe_heartbeats, without_heartbeat
from fa_registry.tracking import schema
from fa_registry.tracking.artifact_location import placed, rewrite_addresses
from fa_registry.tracking.base import StoredRun, Tracker, is_ahead, newest_first
from fa_registry.tracking.cleanup import KINDS, close, stale_items
from fa_registry.tracking.run_state import HeartbeatMonitor, RunState
from fa_registry.tracking.store import check_writable, probe_sqlite, resolve_uri, sqlite_path
from fa_registry.tracking.store_errors import DAMAGED, TO_DO, StoreRefusal
from fa_registry.tracking.stores import in_browser, is_missing, mlflow_page, open_tracker, registry_folder
from fa_registry.training.devices import bf16_gain, configuration

MOST_TAGS = 5  # largest number of listed tags that disagree with an audit
SMALL = 64 * 2**20  # bytes; the indices of a smaller database are checked too, which takes a second
CHECK_SECONDS = 20.0  # limit of the check of a database, because the check blocks writers
STEPS = 10_000  # sqlite instructions between two readings of the clock
MOST_PROBLEMS = 3  # reported problems of a database
WORTH = 1.5  # least speed-up of matrix products for which bf16 is advised; casts to bf16 and back use up a smaller gain


def examine(
    store: str = "", repair: bool = False, pages: str = "reports", lost_hosts: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Check the machine, the store, plug-ins and data sets; return one row per check.

    A row has the fields `check` (name), `ok` (whether the check passed), `state` (short text) and `found` (details). State
    `missing` means that files of a data set are missing; the check passes nevertheless. A check of stale items passes too,
    because the next command that writes to the store removes these items. With `repair`, stale items are removed, and the state
    of their row is `repaired`.

    Args:
        pages: Folder to check for half-written pages.
        lost_hosts: Names of other machines that no longer exist. Runs of these machines that never sent a heartbeat are closed.

    Raises:
        UsageError: `lost_hosts` was given without `repair`.
        UnknownName: No run of a machine in `lost_hosts` can be closed: the machine is unknown, or all of its runs sent
            heartbeats.
    """
    if lost_hosts and not repair:
        raise UsageError("--gone requires --repair, because --gone closes the runs of a machine that no longer exists")
    checks: dict[str, Callable[[], str | dict[str, Any]]] = {
        **{f"version of {name}": partial(str, version) for name, version in provenance.versions().items()},
        "device": _device,
        "bf16 on the CPU": _bf16,
        "configuration": _configuration,
        "store": partial(_finished_runs, store),
        "database": partial(_database, store),
        "artifacts": partial(_files, store, repair),
        "MLflow's pages": partial(_page, store),
        "verdict tags": partial(_verdict_tags, store),
        "clocks": partial(_clocks, store),
        "templates": lambda: f"{len(list(bundled_files.templates().glob('*.j2')))} in {bundled_files.templates()}",
        "studies": lambda: ", ".join(study.names()),
        "temporary folder": tempfile.gettempdir,
        "working folder": lambda: str(Path.cwd()),
    }
    rows = [_check(check_name, check) for check_name, check in checks.items()]
    check_plugin_imports(*PLUGGED)
    broken = [fault for family in PLUGGED for fault in catalog_of(family).faults()]
    rows += [{"check": f"plugin {fault.name}", "ok": False, "state": "NOT OK", "found": fault.why} for fault in broken]
    return [*rows, *_left_behind(store, repair, Path(pages), lost_hosts), *map(_data_set, datasets.CATALOG.members())]


def _left_behind(store: str, repair: bool, pages: Path, lost_hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one row per kind of stale item, then rows about runs on other machines."""
    uri, tracker = "", None
    with contextlib.suppress(StoreError):  # the row `store` reports the reason
        uri = resolve_uri(store)
        tracker = None if is_missing(store) else open_tracker(store, create=False)
    heartbeats = observe_heartbeats(tracker) if tracker and repair else HeartbeatMonitor()
    items = stale_items(tracker, registry_folder(uri), sqlite_path(uri), pages, heartbeats)
    for item in items if repair else ():
        item.mend()
    for kind in KINDS:
        names = [stale_item.what for stale_item in items if stale_item.kind == kind]
        state = "ok" if not names else "repaired" if repair else "left behind"
        advice = "; `fa-registry doctor --repair` removes these items" if state == "left behind" else ""
        yield {"check": kind, "ok": True, "state": state, "found": f"{', '.join(names) or 'none left behind'}{advice}"}
    remote_runs = at_work_elsewhere(tracker, heartbeats) if tracker else []
    if remote_runs:
        found = f"{len(remote_runs)} running on {', '.join(sorted({RunState(run).host for run in remote_runs}))}"
        if not repair:
            found += "; `fa-registry doctor --repair` waits for heartbeats and closes the runs that send no heartbeat"
        yield {"check": "runs on other machines", "ok": True, "state": "ok", "found": found}
    yield from _unknown(tracker, lost_hosts) if tracker else ()


def _unknown(tracker: Tracker, lost_hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one row per other machine with runs that never sent a heartbeat; close those of `lost_hosts`."""
    by_host: dict[str, list[StoredRun]] = {}
    for run in without_heartbeat(tracker):
        by_host.setdefault(RunState(run).host, []).append(run)
    for host in lost_hosts:
        if host not in by_host:
            raise UnknownName("machine with runs without a heartbeat", host, by_host)
    for host, runs in sorted(by_host.items()):
        names = ", ".join(f"{run.tags.get(schema.TAG_KIND, 'run')} {run.run_id}" for run in runs)
        state, advice = "repaired", "; closed"
        if host in lost_hosts:
            for run in runs:
                close(tracker, run)
        else:
            state = "unknown"
            advice = (
                "; these runs have no heartbeat, so only you know whether the machine still exists. If the machine is gone, "
                f"`fa-registry doctor --repair --gone {shlex.quote(host)}` closes the runs"
            )
        yield {"check": f"runs at work on {host}", "ok": True, "state": state, "found": f"{names}{advice}"}


def _database(store: str) -> str | dict[str, Any]:
    """Check the sqlite file; the indices are checked only in a small database."""
    try:
        path = sqlite_path(resolve_uri(store))
    except StoreError:  # the row `store` reports the reason
        return "not checked: the store cannot be used"
    if path is None or is_missing(store):
        return "none yet" if path else "the database is on a server"
    check = "integrity_check" if path.stat().st_size <= SMALL else "quick_check"
    deadline = time.monotonic() + CHECK_SECONDS
    try:
        with probe_sqlite(path) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
            problems = [problem for (problem,) in connection.execute(f"PRAGMA {check}({MOST_PROBLEMS})")]
    except StoreRefusal as refusal:
        if time.monotonic() > deadline and refusal.kind not in TO_DO:
            return f"sqlite's {check} of {path} did not end within {CHECK_SECONDS:.0f} seconds, but had found no errors"
        raise
    if problems == ["ok"]:
        return f"sqlite's {check} found no errors"
    lines = " · ".join(line for problem in problems for line in problem.splitlines())
    text = f"sqlite's {check} expected a database without errors, found: {lines}; {TO_DO[DAMAGED]}"
    return {"ok": False, "state": "NOT OK", "found": text}


def _files(store: str, repair: bool) -> dict[str, Any]:
    """Check whether the runs' files exist at the addresses in the database.

    If `repair` is True and the files were moved, correct the addresses.
    """
    try:
        database = sqlite_path(resolve_uri(store))
        if database is None or is_missing(store):
            return {"found": "none yet" if database else f"the store {resolve_uri(store)} keeps the files"}
        files, state = placed(database), "ok"
    except StoreError:
        return {"found": "not checked: the store cannot be used"}
    text = [f"the files of {files.count - len(files.lacking)} runs are next to {database}"]
    if files.moved:
        text += [
            f"the files are in {new}, but MLflow's pages use {old}, the address in the database"
            for old, new in files.moved.items()
        ]
        state = "repaired" if repair else "moved"
        correction = f"corrected; backup: {rewrite_addresses(database, files.moved)}" if repair else ""
        text.append(correction or "`fa-registry doctor --repair` corrects the addresses")
    for run_id, missing_folder in list(files.lacking.items())[:1]:
        state = "NOT OK"
        text.append(
            f"{len(files.lacking)} of {files.count} runs have no files, e.g. {run_id}: the missing folder is {missing_folder}"
        )
    return {"ok": not files.lacking, "state": state, "found": "; ".join(text)}


def _configuration() -> str:
    """Describe the configuration of numerical computations on this machine.

    Audits expect bitwise equal results only from runs with the same configuration.
    """
    settings = configuration()
    threads = torch.get_num_threads()
    return f"{settings['instruction_set']}; {settings['math_library']}; fingerprint {settings['fingerprint']} at {threads} threads"


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device: training runs on the CPU"


def _bf16() -> str:
    gain = bf16_gain()
    advice = "`train --set precision=bf16` is faster" if gain > WORTH else "`train --set precision=bf16` is not faster"
    return f"bf16 matrix products are {gain:.1f} times as fast as fp32 products: {advice}"


def _finished_runs(store: str) -> str:
    if is_missing(store):
        return f"{resolve_uri(store)}: does not exist yet; the first run creates the store"
    tracker = open_tracker(store, create=False)
    kind = {schema.TAG_KIND: "run"}
    count = sum(len(tracker.search({**kind, schema.TAG_STATUS: status})) for status in schema.FINISHED_STATUSES)
    try:
        check_writable(tracker.uri)
    except StoreError:
        return f"{tracker.uri}: {count} finished runs; read-only"
    return f"{tracker.uri}: {count} finished runs"


def _verdict_tags(store: str) -> dict[str, Any]:
    """Compare the verdict tags of all runs with the reports of their newest audits."""
    try:
        tracker = None if is_missing(store) else open_tracker(store, create=False)
    except StoreError:
        return {"ok": True, "state": "ok", "found": "not checked: the store cannot be used"}
    runs = tracker.search({schema.TAG_KIND: "run"}) if tracker else []
    differences, uncompared, count = [], [], 0
    for audit_id, judged in judging_audits(runs).items():
        try:
            path = tracker.artifact(audit_id, schema.AUDIT_REPORT) if audit_id else None
            if path is None or path.stat().st_size > RECORD:
                uncompared += judged
                continue
            report = load_report(path)
        except RegistryError:
            uncompared += judged
            continue
        count += len(judged)
        differences += [line for run in judged for line in verdict_tag_differences(report, run)]
    details = differences[:MOST_TAGS] or [f"the tags of {pluralise(count, 'run')} match their audits"]
    details += [f"{len(differences) - MOST_TAGS} more tags differ"] if len(differences) > MOST_TAGS else []
    details += [f"{pluralise(len(uncompared), 'run')} not compared"] if uncompared else []
    return {"ok": not differences, "state": "NOT OK" if differences else "ok", "found": "; ".join(details)}


def _clocks(store: str) -> dict[str, Any] | str:
    """List the runs whose times show that the clock of their machine was wrong."""
    try:
        tracker = None if is_missing(store) else open_tracker(store, create=False)
    except StoreError:
        return "not checked: the store cannot be used"
    runs = tracker.search({}) if tracker else []
    reversed_runs = [run for run in runs if 0 < run.ended < run.started]
    faults = {"end before they start": reversed_runs, "have a start time in the future": list(filter(is_ahead, runs))}
    texts = [
        f"{pluralise(len(wrong), 'run')} {fault}, because the clock of a machine was changed: "
        f"{join_names([f'{run.run_id} ({run.name})' for run in wrong])}"
        for fault, wrong in faults.items()
        if wrong
    ]
    advice = "the durations of these runs and their order are wrong; metrics and verdicts do not depend on clocks"
    found = "; ".join([*texts, advice]) if texts else f"the times of {pluralise(len(runs), 'run')} are plausible"
    return {"state": "noted" if texts else "ok", "found": found}


def _page(store: str) -> str:
    """Return the address of the MLflow page that compares the newest study's runs."""
    try:
        tracker = None if is_missing(store) else open_tracker(store, create=False)
    except StoreError:
        return "not checked: the store cannot be used"
    if not tracker:
        return "no study yet"
    if tracker.experiment_deleted_message():
        raise StoreError(tracker.experiment_deleted_message())
    newest = next(iter(newest_first(tracker.search({schema.TAG_KIND: "study"}))), None)
    if not newest:
        return "no study yet"
    if reason := tracker.why_no_views():
        return f"no views: {reason}"
    page = mlflow_page(tracker, newest.tags.get(schema.TAG_STUDY, ""))
    return in_browser(tracker.uri, page) or "none: the study has no runs, or the store does not support views"


def _data_set(name: str) -> dict[str, Any]:
    """Return the row of one data set; missing files do not fail the check."""
    row = _check(f"data set {name}", partial(_load, name))
    files = data_files.overview(name)[0] if row["ok"] and datasets.CATALOG.get(name).card.files else None
    return row | {"state": "missing"} if files and files["missing"] and not files["decoded"] else row


def _load(name: str) -> str:
    """Describe the state of a data set; load a bundled data set to check its digest."""
    dataset = datasets.CATALOG.get(name)
    if dataset.card.files:
        return data_files.state(data_files.overview(name)[0])
    if isinstance(dataset, Text):
        return "any UTF-8 text file: use `text:PATH` with the path of your file"
    if not dataset.card.sha256:
        return "synthetic: the data are generated at each use"
    splits = dataset.load(torch.device("cpu"))
    counts = f"{len(splits.train_labels)} training and {len(splits.test_labels)} test samples"
    return f"{counts}, digest {splits.digest[:12]}"


def _check(name: str, check: Callable[[], str | dict[str, Any]]) -> dict[str, Any]:
    """Call `check` and return a row with the result or with the error."""
    try:
        result = check()
        return {"check": name, "ok": True, "state": "ok", **(result if isinstance(result, dict) else {"found": result})}
    except (RegistryError, OSError) as error:
        return {"check": name, "ok": False, "state": "NOT OK", "found": str(error)}
