"""What must be the same on every machine on which runs of one study train. Asking loads neither torch nor MLflow."""

from __future__ import annotations

from collections.abc import Mapping

from fa_registry import provenance
from fa_registry.plugin_registry import source_digest

COMPARED = ("python", "torch", "mlflow")  # MLflow: a newer one would migrate the database


def versions() -> dict[str, str]:
    """What must be the same wherever a study's runs train: this package to the byte, Python, torch and MLflow."""
    known = provenance.versions()
    ours = f"{known.get('fa_registry', '')} (source {source_digest('fa_registry')[:8]})"
    return {"fa_registry": ours, **{name: known.get(name, "not installed") for name in COMPARED}}


def unequal(here: Mapping[str, str], there: Mapping[str, str], host: str) -> str:
    """What is not the same on two machines and what to do, one sentence; empty where nothing is."""
    names = [name for name in here if here[name] != there.get(name)]
    if not names:
        return ""
    found = ", ".join(
        f"{name} {there.get(name, 'not installed')} where this machine has {here[name]}" for name in names
    )
    return (
        f"{host} has {found}; nothing was trained there. Runs of different versions are not one study: install the same there "
        "(pip install with the same constraints.txt), or leave that machine out"
    )
