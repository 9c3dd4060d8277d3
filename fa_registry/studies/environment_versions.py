"""Comparison of software versions that must be equal on all machines of a study.

This module imports neither torch nor MLflow.
"""

from __future__ import annotations

from collections.abc import Mapping

from fa_registry import provenance
from fa_registry.plugin_registry import source_digest

COMPARED = ("python", "torch", "mlflow")  # a newer MLflow would migrate the database


def versions() -> dict[str, str]:
    """Return the versions of this package (with a digest of its source), Python, torch and MLflow here."""
    installed = provenance.versions()
    package_version = f"{installed.get('fa_registry', '')} (source {source_digest('fa_registry')[:8]})"
    return {"fa_registry": package_version, **{name: installed.get(name, "not installed") for name in COMPARED}}


def unequal(local_versions: Mapping[str, str], remote_versions: Mapping[str, str], host: str) -> str:
    """Return a message about versions on `host` that differ from the local versions; "" if there are none."""
    names = [name for name in local_versions if local_versions[name] != remote_versions.get(name)]
    if not names:
        return ""
    differences = ", ".join(
        f"{name} {remote_versions.get(name, 'not installed')} instead of {local_versions[name]}" for name in names
    )
    return (
        f"{host} has {differences}; nothing was trained on {host}. All machines of a study must have the versions of this machine: "
        f"install these versions on {host} (pip install with the same constraints.txt), or exclude {host}"
    )
