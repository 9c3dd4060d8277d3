"""Record the version or the source digest of the code that trains a run.

The fingerprint contains the version of each built-in plug-in and a digest of the source of each third-party plug-in. If an author
edits a method, the specification and the identity of its runs do not change. Only the fingerprint shows whether a run used the old
code or the new code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fa_registry import architectures, datasets, diagnostics, methods, tasks
from fa_registry.plugin_registry import Catalog
from fa_registry.records import RunSpec
from fa_registry.training.spec_plugins import find_plugins

Code = Mapping[str, Mapping[str, Any]]  # `methods/dfa` → {version} if built-in, else {package, version, digest}

CATALOGS = {
    "methods": methods.CATALOG,
    "architectures": architectures.CATALOG,
    "datasets": datasets.CATALOG,
    "diagnostics": diagnostics.CATALOG,
    "tasks": tasks.CATALOG,
}
TEXT = {
    "methods": "method",
    "architectures": "architecture",
    "datasets": "data set",
    "diagnostics": "diagnostic",
    "tasks": "task",
}
RANDOM_TARGETS = "random_targets"  # family of data sets with permuted labels
SHOWN = 8  # characters of a digest in a message


def fingerprint(spec: RunSpec, by_record: bool = False) -> dict[str, dict[str, Any]]:
    """Return the fingerprint of the code that trains `spec`.

    Args:
        by_record: whether the versions of built-in plug-ins may come from cards.json. An audit always asks the code.

    Returns:
        Mapping from `methods/NAME`, `architectures/NAME`, `datasets/NAME` and `diagnostics/NAME` to version or source digest. It
        contains the method, architecture and data set of `spec` and every installed diagnostic. Two entries are included only if
        their code is third-party: `tasks/NAME`, and the data set that `random_targets` permutes.

    Raises:
        UnknownName: if one of these plug-ins is not installed.
    """
    plugins = find_plugins(spec)
    method, architecture, dataset = (
        (None, None, plugins.card)
        if by_record
        else (plugins.method.card, plugins.architecture.card, plugins.dataset.card)
    )
    return {
        f"methods/{spec.method}": methods.CATALOG.code(spec.method, method),
        f"architectures/{spec.architecture}": architectures.CATALOG.code(spec.architecture, architecture),
        f"datasets/{spec.dataset}": datasets.CATALOG.code(spec.dataset.partition(":")[0], dataset),
        **_third_party_code(spec.dataset, dataset.task),
        **measuring_code(by_record),
    }


def _third_party_code(dataset: str, task: str) -> dict[str, dict[str, Any]]:
    """Return the entries of third-party code: the task, and the data set that random_targets permutes."""
    family, _, source = dataset.partition(":")
    used = {"datasets": source if family == RANDOM_TARGETS else "", "tasks": task}
    return {
        f"{kind}/{name}": CATALOGS[kind].code(name.partition(":")[0], None)
        for kind, name in used.items()
        if name and not CATALOGS[kind].location(name.partition(":")[0]).is_builtin
    }


def measuring_code(by_record: bool = False) -> dict[str, dict[str, Any]]:
    """Return the fingerprint of every installed diagnostic, without importing third-party diagnostics.

    Diagnostics that this process failed to import are omitted.
    """
    catalog = diagnostics.CATALOG
    usable = [name for name in catalog.third_party() if not catalog.has_failed(name)]
    return {
        **{
            f"diagnostics/{name}": catalog.code(name, None if by_record else catalog.get(name).card)
            for name in catalog.builtin_names()
        },
        **{f"diagnostics/{name}": catalog.code(name, None) for name in usable},
    }


def runs_others_code(spec: RunSpec) -> bool:
    """Return whether training `spec` executes third-party code, which may terminate the process."""
    return bool(packages_of(spec) or diagnostics.CATALOG.third_party())


def packages_of(spec: RunSpec) -> frozenset[str]:
    """Return the third-party packages of the method, architecture, data set and task.

    The function does not import these packages. Therefore it does not know the task of a third-party data set. For such a data
    set, the packages of all third-party tasks are included.

    Raises:
        UnknownName: if the method, the architecture or the data set is not installed.
    """
    plugins = plugins_of(spec)
    if has_third_party_data(spec):
        plugins |= {(tasks.CATALOG, name) for name in tasks.CATALOG.third_party()}
    return frozenset(catalog.location(name).package for catalog, name in plugins) - {""}


def has_third_party_data(spec: RunSpec) -> bool:
    """Return whether another package contains the data set.

    For random_targets, this is the data set whose labels are permuted.
    """
    used = (name for catalog, name in plugins_of(spec) if catalog is datasets.CATALOG)
    return any(not datasets.CATALOG.location(name).is_builtin for name in used)


def plugins_of(spec: RunSpec, code: Code = MappingProxyType({})) -> set[tuple[Catalog, str]]:
    """Return (catalog, name) of each plug-in that a training of `spec` uses.

    `code`, the recorded fingerprint of the run, names a third-party task.
    """
    family, _, source = spec.dataset.partition(":")
    data_sets = [family, source.partition(":")[0]] if family == RANDOM_TARGETS else [family]
    recorded_tasks = [key.partition("/")[2] for key in code if key.startswith("tasks/")]
    return {
        (methods.CATALOG, spec.method),
        (architectures.CATALOG, spec.architecture),
        *((datasets.CATALOG, name) for name in data_sets),
        *((tasks.CATALOG, name) for name in recorded_tasks),
    }


def fingerprint_changes(recorded: Code, installed: Code) -> tuple[str, ...]:
    """Compare a run's recorded code with the installed code.

    A diagnostic that was installed or removed after the run is ignored, because it did not change the run's measurements.

    Args:
        recorded: the fingerprint that is recorded with the run.
        installed: the fingerprint of the installed code.

    Returns:
        One line per plug-in whose installed code differs from the recorded code.
    """
    return tuple(_changes(recorded, installed))


def _changes(recorded: Code, installed: Code) -> Iterator[str]:
    for key, installed_entry in installed.items():
        kind, _, name = key.partition("/")
        recorded_entry = recorded.get(key, {})
        if _same(recorded_entry, installed_entry) or (kind == "diagnostics" and key not in recorded):
            continue
        yield f"{TEXT[kind]} {name}: {_change(recorded_entry, installed_entry)}"


def _same(recorded: Mapping[str, Any], installed: Mapping[str, Any]) -> bool:
    """Return whether two code entries have the same version or source digest."""
    name = "digest" if "digest" in installed else "version"
    return ("digest" in recorded) == ("digest" in installed) and recorded.get(name) == installed[name]


def _change(recorded: Mapping[str, Any], installed: Mapping[str, Any]) -> str:
    if not recorded:
        return f"the run recorded no code of this plug-in; the installed code is {describe(installed)}"
    if "digest" not in recorded and "digest" not in installed:
        return f"version {recorded.get('version')} → {installed['version']}"
    if "digest" not in recorded or "digest" not in installed:
        return f"{describe(recorded)} → {describe(installed)}"
    digests = f"digest {_short(recorded['digest'])}… → {_short(installed['digest'])}…"
    old, new = (f"{provenance.get('package')} {provenance.get('version')}" for provenance in (recorded, installed))
    return f"source edited ({digests})" if old == new else f"{old} → {new} ({digests})"


def describe(entry: Mapping[str, Any]) -> str:
    """Return an entry as `version 2 of the built-in plug-in` or `package name 0.1 (digest ab12…)`."""
    if "digest" not in entry:
        return f"version {entry.get('version')} of the built-in plug-in"
    return f"package {entry.get('package')} {entry.get('version')} (digest {_short(entry['digest'])}…)"


def _short(digest: Any) -> str:
    return str(digest)[:SHOWN]
