"""The code that trains a run: version of each built-in plug-in, source of each third-party one.

It is recorded with the run. Editing a method changes neither a run's specification nor its identity. Only this fingerprint
separates the runs of the old code from those of the new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fa_registry import architectures, datasets, diagnostics, methods
from fa_registry.records import RunSpec

Code = Mapping[str, Mapping[str, Any]]  # `methods/dfa` → {version} if built-in, else {package, version, digest}

CATALOGS = {
    "methods": methods.CATALOG,
    "architectures": architectures.CATALOG,
    "datasets": datasets.CATALOG,
    "diagnostics": diagnostics.CATALOG,
}
TEXT = {"methods": "method", "architectures": "architecture", "datasets": "data set", "diagnostics": "diagnostic"}
FIRST: Mapping[str, Any] = {"version": 1}  # of every built-in plug-in in an older release, which recorded no code
SHOWN = 8  # characters of a digest in a message


def fingerprint(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """Return the code that trains `spec`: its method, architecture and data set, and every diagnostic.

    Raises:
        UnknownName: one of them is not installed.
    """
    method, architecture = methods.CATALOG.get(spec.method), architectures.CATALOG.get(spec.architecture)
    data = datasets.get(spec.dataset)
    return {
        f"methods/{spec.method}": methods.CATALOG.code(spec.method, method.card),
        f"architectures/{spec.architecture}": architectures.CATALOG.code(spec.architecture, architecture.card),
        f"datasets/{spec.dataset}": datasets.CATALOG.code(spec.dataset.partition(":")[0], data.card),
        **measuring_code(),
    }


def measuring_code() -> dict[str, dict[str, Any]]:
    """Return the code of every installed diagnostic, except those that this process could not import.

    No third-party diagnostic is imported for that.
    """
    catalog = diagnostics.CATALOG
    usable = [name for name in catalog.third_party() if not catalog.has_failed(name)]
    return {
        **{f"diagnostics/{name}": catalog.code(name, member.card) for name, member in catalog.built_in().items()},
        **{f"diagnostics/{name}": catalog.code(name, None) for name in usable},
    }


def runs_others_code(spec: RunSpec) -> bool:
    """Return whether training `spec` runs third-party code.

    Third-party code may end its process; built-in code never does."""
    return bool(packages_of(spec) or diagnostics.CATALOG.third_party())


def packages_of(spec: RunSpec) -> frozenset[str]:
    """Return the third-party packages of method, architecture and data set, without importing them.

    Raises:
        UnknownName: one of the three is not installed.
    """
    members = (
        (methods.CATALOG, spec.method),
        (architectures.CATALOG, spec.architecture),
        (datasets.CATALOG, spec.dataset.partition(":")[0]),
    )
    return frozenset(catalog.location(name).package for catalog, name in members) - {""}


def fingerprint_changes(sealed: Code | None, now: Code) -> tuple[str, ...]:
    """Return the differences between a run's recorded code and the installed code, one line a plug-in.

    A diagnostic that was added or removed since does not change what was measured, and is no difference.

    Args:
        sealed: the recorded code; None for a run of an older release. Then built-in plug-ins count as version 1, and the source
            of third-party ones is unknown.
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
    """Return whether both entries have the same source, regardless of the release that it came in."""
    name = "digest" if "digest" in today else "version"
    return ("digest" in before) == ("digest" in today) and before.get(name) == today[name]


def _change(before: Mapping[str, Any], today: Mapping[str, Any]) -> str:
    if not before:
        return f"its source was not recorded with the run; installed is {describe(today)}"
    if "digest" not in before and "digest" not in today:
        return f"version {before.get('version')} → {today['version']}"
    if "digest" not in before or "digest" not in today:
        return f"{describe(before)} → {describe(today)}"
    digests = f"digest {_short(before['digest'])}… → {_short(today['digest'])}…"
    old, new = (f"{provenance.get('package')} {provenance.get('version')}" for provenance in (before, today))
    return f"source edited ({digests})" if old == new else f"{old} → {new} ({digests})"


def describe(entry: Mapping[str, Any]) -> str:
    """Return `version 2 of fa_registry's own`, or `package name 0.1 (digest ab12…)`."""
    if "digest" not in entry:
        return f"version {entry.get('version')} of fa_registry's own"
    return f"package {entry.get('package')} {entry.get('version')} (digest {_short(entry['digest'])}…)"


def _short(digest: Any) -> str:
    return str(digest)[:SHOWN]
