"""Measurement of third-party diagnostics in separate processes during an audit.

The import of a third-party package could change built-in functions. Because the package is imported in separate processes, such
a change does not affect built-in metrics.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from fa_registry import datasets, diagnostics, jsonio
from fa_registry.diagnostics.base import Diagnostic, Measured
from fa_registry.errors import Interrupted, PluginError, RegistryError, UnknownName
from fa_registry.plugin_registry import IMPORTED, Location, catalog_of, source_digest
from fa_registry.protocol.integrity import compare, with_checks
from fa_registry.records import Check, Integrity, Measurements, RunRecord
from fa_registry.studies.executors.base import JobEvent
from fa_registry.studies.executors.local import run_in_subprocess, stop_on_signal, supervise
from fa_registry.tracking.base import StoredRun
from fa_registry.training.code_fingerprint import plugins_of
from fa_registry.training.measuring import without_built_in

SUBJECT = "third-party metrics"
CARDS_SECONDS = 600.0  # limit for importing all third-party diagnostics
Job = Callable[[StoredRun, Callable[[], bool], Callable[[Any], None]], Measurements]


def usable_members() -> dict[str, Diagnostic]:
    """Return the third-party diagnostics by name.

    If a diagnostic cannot be used, a warning is logged and the diagnostic is omitted.
    """
    third_party = set(diagnostics.CATALOG.third_party())
    return {name: member for name, member in diagnostics.CATALOG.members().items() if name in third_party}


def measured_apart(runs: Sequence[StoredRun], job: Job, processes: int) -> list[Measurements]:
    """Measure the third-party diagnostics of every run with `job` in separate processes.

    If the process of a run failed, the field `failures` of its result contains the error.
    """
    results: dict[int, Measurements] = {}

    def receive(event: JobEvent) -> None:
        if event.kind == "done":
            results[event.index] = event.value
        elif event.kind == "failed":
            failures = dict.fromkeys(diagnostics.CATALOG.third_party(), str(event.value))
            results[event.index] = Measurements({}, {}, failures=failures)

    with stop_on_signal() as stop:
        supervise(runs, job, processes, stop, receive)
    if len(results) < len(runs):
        raise Interrupted("stopped while third-party diagnostics measured the runs; no run was judged")
    return [results[index] for index in range(len(runs))]


def with_third_party(record: RunRecord, logged: Measurements, extra: Measurements) -> RunRecord:
    """Add the metrics of third-party diagnostics to the record, and compare them with the `logged` values.

    Recomputed metrics (`extra`) with the name of a built-in metric are ignored.
    """
    built_in, extra = record.measurements, third_party_part(extra)
    integrity = _integrity(record.integrity, compare(third_party_part(logged), extra))
    names = set(diagnostics.CATALOG.third_party())
    failures = {name: reason for name, reason in extra.failures.items() if name in names}
    measurements = Measurements(
        dict(sorted({**extra.sites, **built_in.sites}.items())),
        dict(sorted({**extra.scalars, **built_in.scalars}.items())),
        {**extra.conventions, **built_in.conventions},
        dict(sorted({**failures, **built_in.failures}.items())),
        built_in.sample_scores,
    )
    return dataclasses.replace(record, measurements=measurements, integrity=integrity)


def third_party_part(measurements: Measurements) -> Measurements:
    """Return only the metrics of third-party diagnostics."""
    third_party = without_built_in(Measured(measurements.sites, measurements.scalars))
    return dataclasses.replace(measurements, sites=third_party.sites, scalars=third_party.scalars, sample_scores={})


def built_in_part(measurements: Measurements) -> Measurements:
    """Return only the built-in metrics."""
    third_party = third_party_part(measurements)
    sites = {name: row for name, row in measurements.sites.items() if name not in third_party.sites}
    scalars = {name: reading for name, reading in measurements.scalars.items() if name not in third_party.scalars}
    return dataclasses.replace(measurements, sites=sites, scalars=scalars)


def _integrity(built_in: Integrity, third_party: Integrity) -> Integrity:
    (check,) = third_party.checks
    integrity = with_checks(built_in, [Check(SUBJECT, check.outcome, check.detail)])
    if third_party.state == "unverifiable" and integrity.state == "verified":
        integrity = dataclasses.replace(integrity, state="unverifiable", details=third_party.details)
    return dataclasses.replace(integrity, differences=(*integrity.differences, *third_party.differences))


def third_party_cards() -> dict[str, Any]:
    """Return the cards of all third-party diagnostics, which are imported in another process."""
    if not diagnostics.CATALOG.third_party():
        return {}
    end = run_in_subprocess(_cards_there, CARDS_SECONDS)
    return json.loads(end.value) if end.kind == "done" else {}


def _cards_there() -> str:
    return jsonio.canonical({f"diagnostics/{name}": member.card for name, member in usable_members().items()})


def packages_remark(records: Iterable[RunRecord]) -> Iterator[str]:
    """Yield one remark per third-party package whose code an audit of these runs imported."""
    modules = dict(IMPORTED)
    for location in _locations(records):
        modules.setdefault((location.package, location.version), location.module)
    for (package, version), module in sorted(modules.items()):
        try:
            digest = source_digest(module, all_files=True)
        except (RegistryError, OSError) as error:
            digest = f"cannot be computed: {error}"
        yield f"Code of another package was imported: {package} {version}, SHA-256 of its files {digest}."


def _locations(records: Iterable[RunRecord]) -> Iterator[Location]:
    """Yield the locations of the third-party plug-ins of these runs, and of all third-party diagnostics."""
    plugins = {(diagnostics.CATALOG, name) for name in diagnostics.CATALOG.third_party()}
    for record in records:
        plugins |= plugins_of(record.spec, record.provenance.get("code", {}))
    for catalog, name in plugins:
        with suppress(RegistryError):  # a plug-in that is not installed was not imported
            location = catalog.location(name)
            if not location.is_builtin:
                yield location


def cards(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the cards of all diagnostics and of the plug-ins that the records use.

    A key is `<plug-in kind>/<name>`, for example `methods/dfa`. Plug-ins that are not installed are omitted.
    """
    used_plugins = {("diagnostics", name) for name in diagnostics.CATALOG.built_in()}
    for field in ("method", "dataset", "architecture"):
        used_plugins |= {(f"{field}s", getattr(record.spec, field)) for record in records}
    installed_cards = {}
    for kind, name in sorted(used_plugins):
        get = datasets.get if kind == "datasets" else catalog_of(kind).get
        with suppress(UnknownName, PluginError):  # metrics of a plug-in that is not installed can still be judged
            installed_cards[f"{kind}/{name}"] = json.loads(jsonio.canonical(get(name).card))
    return dict(sorted({**third_party_cards(), **installed_cards}.items()))
