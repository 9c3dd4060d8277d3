"""Contents of a bundle: pages of the audit, files of the runs, store tables.

The pages are in `audit/`, the recorded files of each run in `runs/ID/`, and the tables in `runs.json`.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.bundles.archive import CRATE
from fa_registry.errors import IntegrityError, InvalidFields
from fa_registry.field_types import Many
from fa_registry.metrics import MARGINS
from fa_registry.records import AuditReport, RunRecord
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.reader import check_files, check_manifest

TABLES, RUNS, AUDIT = "runs.json", "runs", "audit"
TENSORS = ".safetensors"
NOT_RECORDED = (
    *(schema.TAG_NOTE, schema.TAG_PROCESS, schema.TAG_HEARTBEAT),
    *(schema.TAG_REPORT, schema.TAG_EXCLUDED, schema.TAG_PAGES, schema.TAG_AUDITS),
)
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CRATE_SPEC = "https://w3id.org/ro/crate/1.1"


def collect_files(
    tracker: Tracker, report: AuditReport, audit: StoredRun, light: bool, licence: str, folder: Path
) -> None:
    """Copy the contents of a bundle into `folder`.

    The files of the runs are first compared with their recorded digests.

    Args:
        audit: stored run of the audit itself, which contains its pages.
        light: whether to leave out the files with tensors.
        licence: SPDX identifier of the licence; empty if there is no licence.
    """
    runs = [tracker.get(judged.record.run_id) for judged in report.runs]
    for judged, run in zip(report.runs, runs, strict=True):
        digests = judged.record.digests
        check_manifest(tracker, run, digests)
        names = [name for name in digests if not (light and name.endswith(TENSORS))]
        check_files(tracker, run.run_id, {name: digests[name] for name in names})
        for name in (schema.PROVENANCE, *names):
            _copy(tracker, run.run_id, name, folder / RUNS / run.run_id / name)
    content = jsonio.read_json(tracker.artifact(audit.run_id, schema.PAGE_DIGESTS))
    recorded = jsonio.decode(dict[str, str], content, schema.PAGE_DIGESTS)
    for name in (schema.PAGE_DIGESTS, *recorded):
        _copy(tracker, audit.run_id, name, folder / AUDIT / name)
    (folder / TABLES).write_text(jsonio.pretty([_table(run) for run in (audit, *runs)]), encoding="utf-8")
    (folder / CRATE).write_text(jsonio.pretty(crate(report, audit, licence, folder)), encoding="utf-8")


def _copy(tracker: Tracker, run_id: str, name: str, target: Path) -> None:
    path = tracker.artifact(run_id, name)
    if path is None:
        raise IntegrityError(f"run {run_id}: {name} is missing")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _table(run: StoredRun) -> dict[str, Any]:
    """Return a run's row in the store's tables, without fields that may change later."""
    tags = {
        name: value
        for name, value in sorted(run.tags.items())
        if name.startswith(schema.TAGS) and name not in NOT_RECORDED
    }
    if run.tags.get(schema.TAG_KIND) == "audit":
        tags[schema.TAG_PAGES] = run.tags.get(schema.TAG_PAGES, "")
    return {
        "run_id": run.run_id,
        "name": run.name,
        "experiment": run.experiment,
        "state": run.state,
        "started": run.started,
        "tags": tags,
        "metrics": {name: value for name, value in sorted(run.metrics.items()) if name not in MARGINS},
        "params": dict(sorted(run.params.items())),
    }


def open_bundle(folder: Path) -> tuple[MemoryTracker, StoredRun, list[StoredRun]]:
    """Open an unpacked bundle.

    Returns:
        Three values: a tracker with the contents of the bundle, the stored run of the audit itself, and the list of stored runs
        that the audit judged.

    Raises:
        IntegrityError: the tables are invalid.
    """
    try:
        audit, *runs = jsonio.decode(Many[StoredRun], jsonio.read_json(folder / TABLES), TABLES)
    except (InvalidFields, ValueError) as error:
        raise IntegrityError(f"{TABLES}: {error}") from error
    tracker = MemoryTracker(folder / RUNS)
    tracker.runs = {run.run_id: run for run in (audit, *runs)}
    if len(tracker.runs) <= len(runs) or not all(run.run_id.isalnum() for run in (audit, *runs)):
        raise IntegrityError(f"{TABLES}: expected each run exactly once, with a valid id")
    (folder / RUNS).mkdir(exist_ok=True)
    if (folder / AUDIT).exists():  # false if another process has already opened the bundle
        (folder / AUDIT).rename(folder / RUNS / audit.run_id)
    return tracker, audit, runs


def crate(report: AuditReport, audit: StoredRun, licence: str, folder: Path) -> dict[str, Any]:
    """Return the description of the bundle in RO-Crate 1.1, Process Run Crate profile.

    Each run is an action whose results are its files. The audit is an action whose results are the pages.
    """
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    actions = [_action(judged.record, files) for judged in report.runs]
    pages = [name for name in files if name.startswith(f"{AUDIT}/")]
    audit_action = {
        "@id": f"#audit-{audit.run_id}",
        "@type": "CreateAction",
        "name": report.title,
        "description": f"judged by edition {report.edition.name}: {report.selection}",
        "startTime": _started(audit.started),
        "instrument": {"@id": "#fa_registry"},
        "object": [{"@id": action["@id"]} for action in actions],
        "result": _ids(pages),
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": report.title,
        "description": f"{report.selection}: the audit, its runs and everything needed to recompute their metrics",
        "datePublished": _started(audit.started)[:10],
        "conformsTo": {"@id": PROFILE},
        "hasPart": _ids(files),
        "mentions": _ids([audit_action["@id"], *(action["@id"] for action in actions)]),
    }
    descriptor = {"@id": CRATE, "@type": "CreativeWork", "about": {"@id": "./"}, "conformsTo": {"@id": CRATE_SPEC}}
    versions = [judged.record.provenance.get("versions", {}).get("fa_registry", "") for judged in report.runs]
    version = ", ".join(sorted(set(filter(None, versions)))) or "unknown"
    entities = [
        {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
        {"@id": "#fa_registry", "@type": "SoftwareApplication", "name": "fa_registry", "softwareVersion": version},
    ]
    if licence:
        root["license"] = {"@id": f"https://spdx.org/licenses/{licence}"}
        entities.append({"@id": f"https://spdx.org/licenses/{licence}", "@type": "CreativeWork", "name": licence})
    parts = [{"@id": name, "@type": "File", "name": name.rpartition("/")[2]} for name in files]
    graph = [descriptor, root, *entities, audit_action, *actions, *parts]
    return {"@context": f"{CRATE_SPEC}/context", "@graph": graph}


def _started(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds // 1000, datetime.UTC).isoformat()


def _action(record: RunRecord, files: Sequence[str]) -> dict[str, Any]:
    spec = record.spec
    return {
        "@id": f"#run-{record.run_id}",
        "@type": "CreateAction",
        "name": record.name,
        "description": f"{spec.method_label} on {spec.dataset}, seed {spec.seed}: specification {spec.identity}",
        "instrument": {"@id": "#fa_registry"},
        "result": _ids([name for name in files if name.startswith(f"{RUNS}/{record.run_id}/")]),
    }


def _ids(names: Sequence[str]) -> list[Mapping[str, str]]:
    return [{"@id": name} for name in names]
