"""Comparison of the versions that must be equal on all machines of a study.

This module imports neither torch nor MLflow.
"""

from __future__ import annotations

from collections.abc import Mapping

from fa_registry import provenance
from fa_registry.plugin_registry import source_digest

COMPARED = ("python", "torch", "mlflow")  # MLflow: a newer one would migrate the database


def versions() -> dict[str, str]:
    """Return the versions of this package, Python, torch and MLflow on this machine.

    The version of this package includes a digest of its source.
    """
    known = provenance.versions()
    ours = f"{known.get('fa_registry', '')} (source {source_digest('fa_registry')[:8]})"
    return {"fa_registry": ours, **{name: known.get(name, "not installed") for name in COMPARED}}


def unequal(here: Mapping[str, str], there: Mapping[str, str], host: str) -> str:
    """Return a message about versions that differ between two machines.

    Return an empty string if all versions are equal.

    Args:
        here: versions on this machine.
        there: versions on the other machine.
        host: name of the other machine.
    """
    names = [name for name in here if here[name] != there.get(name)]
    if not names:
        return ""
    found = ", ".join(f"{name} {there.get(name, 'not installed')} instead of {here[name]}" for name in names)
    return (
        f"{host} has {found}; nothing was trained there. All machines of a study must have the versions of this machine: "
        "install the same versions there (pip install with the same constraints.txt), or exclude that machine"
    )
