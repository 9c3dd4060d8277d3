"""Record the version or the source digest of the code that trains a run.

A built-in plug-in is recorded with its version, a third-party plug-in with a digest of its source. If an author edits a method,
the specification and the identity of its runs do not change. Only this fingerprint separates runs of the old code from runs of
the new code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fa_registry import architectures, datasets, diagnostics, methods, tasks
from fa_registry.records import RunSpec

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
FIRST: Mapping[str, Any] = {"version": 1}  # of every built-in plug-in in an older release, which recorded no code
SHOWN = 8  # characters of a digest in a message


def fingerprint(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """Return the fingerprint of the code that trains `spec`.

    Returns:
        `methods/NAME`, `architectures/NAME`, `datasets/NAME` and `diagnostics/NAME` → version or source digest, for the method,
        architecture and data set of `spec` and for every installed diagnostic. `tasks/NAME` is included only for a third-party
        task, because releases without tasks recorded none.

    Raises:
        UnknownName: if one of these plug-ins is not installed.
    """
    method, architecture = methods.CATALOG.get(spec.method), architectures.CATALOG.get(spec.architecture)
    data = datasets.get(spec.dataset)
    return {
        f"methods/{spec.method}": methods.CATALOG.code(spec.method, method.card),
        f"architectures/{spec.architecture}": architectures.CATALOG.code(spec.architecture, architecture.card),
        f"datasets/{spec.dataset}": datasets.CATALOG.code(spec.dataset.partition(":")[0], data.card),
        **_task_code(data.card.task),
        **measuring_code(),
    }


def _task_code(name: str) -> dict[str, dict[str, Any]]:
    if not name or tasks.CATALOG.location(name).is_builtin:
        return {}
    return {f"tasks/{name}": tasks.CATALOG.code(name, None)}


def measuring_code() -> dict[str, dict[str, Any]]:
    """Return the fingerprint of every installed diagnostic.

    The function omits diagnostics that this process failed to import. It imports no third-party diagnostic itself.
    """
    catalog = diagnostics.CATALOG
    usable = [name for name in catalog.third_party() if not catalog.has_failed(name)]
    return {
        **{f"diagnostics/{name}": catalog.code(name, member.card) for name, member in catalog.built_in().items()},
        **{f"diagnostics/{name}": catalog.code(name, None) for name in usable},
    }


def runs_others_code(spec: RunSpec) -> bool:
    """Return whether training `spec` executes third-party code.

    Third-party code may terminate the process; built-in code never does.
    """
    return bool(packages_of(spec) or diagnostics.CATALOG.third_party())


def packages_of(spec: RunSpec) -> frozenset[str]:
    """Return the third-party packages of the method, architecture and data set.

    The function does not import these packages.

    Raises:
        UnknownName: if the method, the architecture or the data set is not installed.
    """
    members = (
        (methods.CATALOG, spec.method),
        (architectures.CATALOG, spec.architecture),
        (datasets.CATALOG, spec.dataset.partition(":")[0]),
    )
    return frozenset(catalog.location(name).package for catalog, name in members) - {""}


def fingerprint_changes(sealed: Code | None, now: Code) -> tuple[str, ...]:
    """Compare a run's recorded code with the installed code.

    A diagnostic that was installed or removed after the run is ignored, because it did not change the run's measurements.

    Args:
        sealed: the fingerprint that is recorded with the run, or None for a run of an older release. For None, built-in plug-ins
            count as version 1, and the source of third-party plug-ins counts as unknown.
        now: the fingerprint of the installed code.

    Returns:
        One line per plug-in whose code differs.
    """
    return tuple(_changes(sealed or {}, now))


def _changes(sealed: Code, now: Code) -> Iterator[str]:
    for key, today in now.items():
        family, _, name = key.partition("/")
        before = sealed.get(key) or ({} if "digest" in today else FIRST)
        if "digest" in before and "digest" in today and before.get("files") != today.get("files"):
            today = {
                **today,
                "digest": CATALOGS[family].recorded_digest(name.partition(":")[0], before.get("files", "")),
            }
        if _same(before, today) or (family == "diagnostics" and key not in sealed and "digest" in today):
            continue
        yield f"{TEXT[family]} {name}: {_change(before, today)}"


def _same(before: Mapping[str, Any], today: Mapping[str, Any]) -> bool:
    """Return whether both entries have the same version or source, in any release of the package."""
    name = "digest" if "digest" in today else "version"
    return ("digest" in before) == ("digest" in today) and before.get(name) == today[name]


def _change(before: Mapping[str, Any], today: Mapping[str, Any]) -> str:
    if not before:
        return f"its source was not recorded with the run; the installed source is {describe(today)}"
    if "digest" not in before and "digest" not in today:
        return f"version {before.get('version')} → {today['version']}"
    if "digest" not in before or "digest" not in today:
        return f"{describe(before)} → {describe(today)}"
    digests = f"digest {_short(before['digest'])}… → {_short(today['digest'])}…"
    old, new = (f"{provenance.get('package')} {provenance.get('version')}" for provenance in (before, today))
    return f"source edited ({digests})" if old == new else f"{old} → {new} ({digests})"


def describe(entry: Mapping[str, Any]) -> str:
    """Return a plug-in's fingerprint entry as text.

    The text is `version 2 of the built-in plug-in` or `package name 0.1 (digest ab12…)`.
    """
    if "digest" not in entry:
        return f"version {entry.get('version')} of the built-in plug-in"
    return f"package {entry.get('package')} {entry.get('version')} (digest {_short(entry['digest'])}…)"


def _short(digest: Any) -> str:
    return str(digest)[:SHOWN]
