"""Check that a third-party method has the properties that its card states.

The method is checked before training, and its runs record the outcome. An audit checks the method again. Built-in
methods are checked by the tests of this package. An audit does not trust recorded outcomes because the owner of the store
can write them. For the same reason, an audit keeps its own outcomes in memory and not in a file.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from fa_registry import architectures, jsonio, methods
from fa_registry.errors import IntegrityError, InvalidFields, PluginError, RegistryError, UnknownName
from fa_registry.plugin_registry import source_digest
from fa_registry.records import Check, Conformance, RunRecord, RunSpec
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.studies.executors.local import run_in_subprocess
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import read_provenance
from fa_registry.tracking.stores import registry_folder
from fa_registry.training.code_fingerprint import describe, fingerprint, fingerprint_changes

LOG = logging.getLogger(__name__)
CHECK_SECONDS = 3_600.0  # limit of the checks, which take far less time on one architecture


def cached_conformance(spec: RunSpec, store: str) -> dict[str, Any]:
    """Return the conformance outcome that training records for a method, as JSON.

    The outcome is computed once for each version of the source code and stored in a folder next to the store. For a built-in
    method, the mapping is empty. A method that fails its checks is trained nevertheless, and the failures are logged.
    """
    if methods.CATALOG.location(spec.method).is_builtin:
        return {}
    key = _key(spec)
    path = registry_folder(store) / "conformance" / f"{jsonio.digest_of(key)}.json"
    conformance = _read(path)
    if conformance is None:
        conformance = _tested(jsonio.canonical(key))
        if conformance.state != "unchecked":  # if the checks gave no result, they are repeated next time
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(jsonio.pretty(conformance), encoding="utf-8")
    if conformance.state == "failed":
        LOG.info("method %s fails its conformance checks, so no audit gives its runs the verdict PASS:", spec.method)
        for line in conformance.failures:
            LOG.info("  %s", line)
    return jsonio.encode(conformance)


def with_conformance(record: RunRecord) -> RunRecord:
    """Return the record with the conformance outcome of its method.

    The installed method is checked again. If this is not possible, the outcome in the run's files is used, but a recorded
    success counts only as `stated`.
    """
    return dataclasses.replace(record, conformance=_conformance(record))


def _conformance(record: RunRecord) -> Conformance:
    spec = record.spec
    if OWN_LOOP in record.provenance:
        return Conformance("unchecked", ("a user-supplied loop trained the run instead of the installed method",))
    entry = record.provenance.get("code", {}).get(f"methods/{spec.method}", {})
    try:
        is_builtin = methods.CATALOG.location(spec.method).is_builtin
        if is_builtin and "digest" not in entry:
            card = methods.CATALOG.describe(spec.method).card
            return Conformance("own", sign="tested" if card.fixes_sign else "not tested")
        if not is_builtin and entry.get("digest") == methods.CATALOG.code(spec.method)["digest"]:
            return _tested(jsonio.canonical(_key(spec)))
    except UnknownName:
        return _stated(record, "the package of the method is not installed here")
    except PluginError as error:
        return _stated(record, f"the package of the method cannot be used here: {error}")
    return _stated(record, "the code that trained the run is not the installed code")


def _stated(record: RunRecord, reason: str) -> Conformance:
    """Return the conformance outcome in the run's files; a success counts only as `stated`."""
    try:
        recorded = jsonio.decode(Conformance, record.provenance.get("conformance") or {"state": "unchecked"})
    except InvalidFields:
        return Conformance("unchecked", (reason,))
    if recorded.state == "failed":
        return recorded
    if recorded.state != "passed":
        return Conformance("unchecked", (reason,), recorded.architecture)
    return Conformance("stated", (reason,), recorded.architecture, recorded.sign)


def _key(spec: RunSpec) -> dict[str, Any]:
    """Return everything that affects the outcome of the conformance checks.

    The source code of the package is included, because the version number does not change during development.
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


@cache  # an audit of a hundred runs checks each version of the code once
def _tested(key: str) -> Conformance:
    """Check every property of the method on the architecture of the run; `key` is a result of `_key`.

    Other architectures are omitted, because the check of all architectures would take minutes.
    """
    from fa_registry.conformance.outcomes import SIGN  # loaded only for a third-party method
    from fa_registry.conformance.small_networks import cannot_build
    from fa_registry.conformance.suite import check_method

    key_fields = json.loads(key)
    name, architecture = key_fields["name"], key_fields["architecture"]
    if problem := cannot_build(architectures.CATALOG.get(architecture)):
        return Conformance("unchecked", (f"{architecture} cannot be built as small as the checks require: {problem}",))
    LOG.info("checking the conformance of method %s on %s, once for this version of the code", name, architecture)
    process_end = run_in_subprocess(
        partial(check_method, name, [architecture], options=key_fields["options"]), CHECK_SECONDS
    )
    if process_end.kind == "done":
        failures = tuple(
            f"{result.property}: {result.detail}" for result in process_end.value if result.outcome == "fail"
        )
        is_sign_tested = any(result.property == SIGN and result.outcome == "pass" for result in process_end.value)
        sign = "tested" if is_sign_tested else "not tested"
        return Conformance("failed" if failures else "passed", failures, architecture, sign)
    messages = (f"the conformance checks did not finish: {process_end.value.strip().splitlines()[-1]}",)
    return Conformance("unchecked", messages) if process_end.lost else Conformance("failed", messages, architecture)


def _read(path: Path) -> Conformance | None:
    """Return the cached outcome, or None if the file is missing or damaged."""
    try:
        return jsonio.decode(Conformance, jsonio.read_json(path))
    except RegistryError:
        return None


# Checks of the code that trained a run, before the run counts as complete and before an audit uses any metric of the run.
SUBJECT = "code"


def code_changes(tracker: Tracker, run: StoredRun, spec: RunSpec) -> tuple[str, ...]:
    """Return the differences between the code that trained a run and the installed code.

    If a tag of the run identifies the code, no file is opened. The tag only decides whether a run is trained again; an audit
    reads the recorded files. For the same reason, the versions of unchanged built-in plug-ins may come from cards.json.
    """
    today = fingerprint(spec, by_record=True)
    tag = run.tags.get(schema.TAG_CODE)
    if tag == jsonio.digest_of(today):
        return ()
    try:
        path = tracker.artifact(run.run_id, schema.PROVENANCE)
        return fingerprint_changes(read_provenance(path).get("code", {}) if path else {}, today)
    except IntegrityError as error:
        return (f"cannot read which code trained the run: {error}",)


def log_code_changes(changed: Mapping[str, Sequence[str]], is_kept: bool) -> None:
    """Log the runs that other code trained (name → changes of the code), and whether they are kept."""
    if not changed:
        return
    has_many = len(changed) > 1
    count = f"{len(changed)} runs were" if has_many else f"{next(iter(changed))} was"
    consequence = (
        f"{'are' if has_many else 'is'} kept (--accept-old-code), but an audit cannot recompute {'them' if has_many else 'it'}"
        if is_kept
        else f"{'are' if has_many else 'is'} trained again (--accept-old-code keeps {'them' if has_many else 'it'})"
    )
    LOG.info("%s trained by other code than the installed code and %s:", count, consequence)
    for line in dict.fromkeys(line for lines in changed.values() for line in lines):
        LOG.info("  %s", line)


def code_check(record: RunRecord) -> Check:
    """Check whether the installed code is the code that trained the run.

    If the code differs or is not installed, metrics cannot be recomputed, and the outcome of the check is `not possible`.
    """
    recorded_code = record.provenance.get("code", {})
    try:
        differences = fingerprint_changes(recorded_code, fingerprint(record.spec))
    except (UnknownName, PluginError) as error:
        entries = {describe(entry) for entry in recorded_code.values() if "digest" in entry}
        wanted = f"; the run was trained with {', '.join(sorted(entries))}" if entries else ""
        return Check(SUBJECT, "not possible", f"{str(error).splitlines()[0]}{wanted}")
    if differences:
        action = "adopted and measured" if record.spec.weights else "trained"
        return Check(
            SUBJECT, "not possible", f"{action} by other code than the installed code: {'; '.join(differences)}"
        )
    return Check(SUBJECT, "agrees", "method, architecture, data set and diagnostics are the same as in training")
