"""Is a method of another package what its card says? Measured before it trains, sealed with its runs, measured again by an audit.

Methods of our own are held by this package's own tests. What is sealed is a statement of whoever wrote the store: an audit
measures for itself, and keeps what it measured in memory alone, since a file beside the store is the store owner's too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from fa_registry import architectures, jsonio, methods
from fa_registry.disk_spill import replace_fields
from fa_registry.errors import IntegrityError, InvalidFields, PluginError, RegistryError, UnknownName
from fa_registry.plugin_registry import source_digest
from fa_registry.records import Check, Conformance, RunRecord, RunSpec
from fa_registry.studies.worker_processes import run_in_subprocess
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import read_provenance
from fa_registry.training.code_fingerprint import Code, describe, fingerprint, fingerprint_changes
from fa_registry.training.user_task import OWN_LOOP
from fa_registry.workflows.stores import registry_folder

LOG = logging.getLogger(__name__)
CHECK_SECONDS = 3_600.0  # far more than the suite takes on one architecture


def cached_conformance(spec: RunSpec, store: str) -> dict[str, Any]:
    """What training seals of the spec's method: measured once for each source, then read from the folder beside the store.

    Empty for a method of our own. A method that fails is trained all the same, with a word to whoever listens.
    """
    if methods.CATALOG.location(spec.method).is_builtin:
        return {}
    key = _key(spec)
    path = registry_folder(store) / "conformance" / f"{jsonio.digest_of(key)}.json"
    conformance = _read(path)
    if conformance is None:
        conformance = _tested(jsonio.canonical(key))
        if conformance.state != "unchecked":  # an accident of today is nothing to keep
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(jsonio.pretty(conformance), encoding="utf-8")
    if conformance.state == "failed":
        LOG.info("method %s fails its conformance, so that no audit will pass its runs:", spec.method)
        for line in conformance.failures:
            LOG.info("  %s", line)
    return jsonio.encode(conformance)


def with_conformance(record: RunRecord) -> RunRecord:
    """The record with what this audit itself finds of its method; what is sealed counts only where it cannot be measured."""
    return replace_fields(record, conformance=_conformance(record))


def _conformance(record: RunRecord) -> Conformance:
    spec = record.spec
    if OWN_LOOP in record.provenance:
        return Conformance("unchecked", ("a loop of its author's own trained the run, not the method of that name",))
    entry = (sealed_code(record.provenance) or {}).get(f"methods/{spec.method}", {})
    try:
        own = methods.CATALOG.location(spec.method).is_builtin
        if own and "digest" not in entry:
            return Conformance("own")
        if not own and entry.get("digest") == methods.CATALOG.recorded_digest(spec.method, entry.get("files", "")):
            return _tested(jsonio.canonical(_key(spec)))
    except UnknownName:
        return _stated(record, "its package is not installed here")
    except PluginError as error:
        return _stated(record, f"its package cannot be used here: {error}")
    return _stated(record, "the code that trained it is not the one installed here")


def _stated(record: RunRecord, why: str) -> Conformance:
    """By the run's own files: a failure that they admit is one, a success that they claim is a statement."""
    try:
        sealed = jsonio.decode(Conformance, record.provenance.get("conformance") or {"state": "unchecked"})
    except InvalidFields:
        return Conformance("unchecked", (why,))
    if sealed.state == "failed":
        return sealed
    return Conformance("stated" if sealed.state == "passed" else "unchecked", (why,), sealed.architecture)


def _key(spec: RunSpec) -> dict[str, Any]:
    """All that a check's outcome depends on: the method's source and options, the architecture's code, and our source.

    All of ours: what the suite calls is spread over the house, and a release's number stays while it is worked on.
    """
    architecture = architectures.CATALOG.get(spec.architecture)
    return {
        "name": spec.method,
        "method": methods.CATALOG.code(spec.method, methods.CATALOG.get(spec.method).card).get("digest"),
        "options": dict(spec.method_options),
        "architecture": spec.architecture,
        "architecture_code": architectures.CATALOG.code(spec.architecture, architecture.card),
        "suite": source_digest("fa_registry"),
    }


@cache  # in memory: an audit of a hundred runs measures each source once
def _tested(key: str) -> Conformance:
    """Every property of the method, on the run's own architecture alone: on all of them it takes minutes."""
    from fa_registry.testing.small_networks import (
        cannot_build,  # the suite is loaded for a method of another package alone
    )
    from fa_registry.testing.suite import check_method

    wanted = json.loads(key)
    name, architecture = wanted["name"], wanted["architecture"]
    if hindrance := cannot_build(architectures.CATALOG.get(architecture)):
        return Conformance(
            "unchecked", (f"{architecture} cannot be built as small as the suite needs it: {hindrance}",)
        )
    LOG.info("method %s: measuring its conformance on %s, once for this source", name, architecture)
    end = run_in_subprocess(partial(check_method, name, [architecture], options=wanted["options"]), CHECK_SECONDS)
    if end.kind == "done":
        failures = tuple(f"{result.property}: {result.detail}" for result in end.value if result.outcome == "fail")
        return Conformance("failed" if failures else "passed", failures, architecture)
    why = (f"the suite did not come to its end: {end.value.strip().splitlines()[-1]}",)
    return Conformance("unchecked", why) if end.lost else Conformance("failed", why, architecture)


def _read(path: Path) -> Conformance | None:
    """None where nothing was measured yet, or the file is torn: it is measured again then."""
    try:
        return jsonio.decode(Conformance, jsonio.read_json(path))
    except RegistryError:
        return None


# Which code trained a run: asked before a run is called complete, and before an audit believes one of its figures.


SUBJECT = "code"


def code_changes(tracker: Tracker, run: StoredRun, spec: RunSpec) -> tuple[str, ...]:
    """What differs between the code that trained `run` and the code that would train it today; empty where it is the same.

    The tag answers for nearly all runs without opening a file. It decides only what is trained again: an audit reads the seal.
    """
    today = fingerprint(spec)
    tag = run.tags.get(schema.TAG_CODE)
    if tag is None:
        return fingerprint_changes(None, today)
    if tag == jsonio.digest_of(today):
        return ()
    try:
        path = tracker.artifact(run.run_id, schema.PROVENANCE)
        return fingerprint_changes(sealed_code(read_provenance(path)) if path else None, today)
    except IntegrityError as error:
        return (f"which code trained it cannot be read: {error}",)


def sealed_code(provenance: Mapping[str, Any]) -> Code | None:
    """The code that a run's provenance.json names; None in one of an older release."""
    code = provenance.get("code")
    if not isinstance(code, Mapping):
        return None
    return {name: entry for name, entry in code.items() if isinstance(entry, Mapping)}


def log_code_changes(changed: Mapping[str, Sequence[str]], kept: bool) -> None:
    """Say which runs other code has trained, what changed in it, by run name, and what becomes of them."""
    if not changed:
        return
    many = len(changed) > 1
    count = f"{len(changed)} runs were" if many else f"{next(iter(changed))} was"
    become = (
        f"{'are' if many else 'is'} kept (--keep-trained); an audit cannot recompute {'them' if many else 'it'}"
        if kept
        else f"{'are' if many else 'is'} trained again (--keep-trained keeps {'them' if many else 'it'})"
    )
    LOG.info("%s trained by other code and %s:", count, become)
    for line in dict.fromkeys(line for lines in changed.values() for line in lines):
        LOG.info("  %s", line)


def code_check(record: RunRecord) -> Check:
    """Whether today's code is what trained the run. Where it is not, or is not installed, no figure can be recomputed."""
    sealed = sealed_code(record.provenance)
    try:
        differences = fingerprint_changes(sealed, fingerprint(record.spec))
    except (UnknownName, PluginError) as error:
        return Check(SUBJECT, "not possible", f"{str(error).splitlines()[0]}{_wanted(sealed)}")
    if differences:
        what = "adopted and measured" if record.spec.weights else "trained"
        return Check(SUBJECT, "not possible", f"{what} by other code than is installed: {'; '.join(differences)}")
    if sealed is None:
        text = (
            "no code was recorded by the release that trained it; its members are taken for version 1, as today's are"
        )
        return Check(SUBJECT, "agrees", text)
    return Check(SUBJECT, "agrees", "method, architecture, data set and diagnostics are those it was trained by")


def _wanted(sealed: Code | None) -> str:
    """Which packages the run names that no member of ours is in."""
    entries = {describe(entry) for entry in (sealed or {}).values() if "digest" in entry}
    return f"; the run names {', '.join(sorted(entries))}" if entries else ""
