"""The list verb: what there is, with the file where it lives."""

from __future__ import annotations

from fa_registry import architectures, datasets, diagnostics, methods, resources
from fa_registry.errors import UnknownName
from fa_registry.protocol.rules import load_edition
from fa_registry.studies import study

CATALOGS = {
    "methods": methods.CATALOG,
    "architectures": architectures.CATALOG,
    "datasets": datasets.CATALOG,
    "diagnostics": diagnostics.CATALOG,
}
FAMILIES = (*CATALOGS, "editions", "studies")


def members(family: str) -> list[dict[str, str]]:
    """name, line and file of every member of a family; UnknownName for another family."""
    if family == "editions":
        paths = sorted(resources.editions().glob("*.toml"))
        return [{"name": path.stem, "line": load_edition(path.stem).title, "file": str(path)} for path in paths]
    if family == "studies":
        return [_study_row(name) for name in study.names()]
    if family not in CATALOGS:
        raise UnknownName("family", family, FAMILIES)
    catalog = CATALOGS[family]
    rows = []
    for name in catalog.names():
        card = catalog.get(name).card
        rows.append({"name": name, "line": getattr(card, "rule", "") or card.line, "file": catalog.location(name).file})
    return rows


def _study_row(name: str) -> dict[str, str]:
    loaded = study.load_study(name)
    return {
        "name": name,
        "line": f"{loaded.title} ({len(loaded.specs)} runs; {loaded.cost})",
        "file": str(study.find(name)),
    }
