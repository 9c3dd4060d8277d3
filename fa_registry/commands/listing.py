"""The list verb: what there is, with the file where it lives."""

from __future__ import annotations

import inspect

from fa_registry import analyses, architectures, datasets, diagnostics, methods, resources
from fa_registry.errors import UnknownName
from fa_registry.protocol.rules import load_edition, shipped
from fa_registry.reporting.contexts import TEMPLATES
from fa_registry.reporting.user_templates import overridable
from fa_registry.studies import study

CATALOGS = {
    "methods": methods.CATALOG,
    "architectures": architectures.CATALOG,
    "datasets": datasets.CATALOG,
    "diagnostics": diagnostics.CATALOG,
}
FAMILIES = (*CATALOGS, "analyses", "editions", "studies", "templates")


def members(family: str) -> list[dict[str, str]]:
    """name, line and file of every member of a family; UnknownName for another family."""
    if family == "editions":
        return [_edition_row(name) for name in shipped()]
    if family == "studies":
        return [_study_row(name) for name in study.names()]
    if family == "templates":
        return [_template_row(name) for name in overridable()]
    if family == "analyses":
        return [_analysis_row(name) for name in analyses.CATALOG.names()]
    if family not in CATALOGS:
        raise UnknownName("family", family, FAMILIES)
    catalog = CATALOGS[family]
    rows = []
    for name in catalog.names():
        card = catalog.get(name).card
        rows.append({"name": name, "line": getattr(card, "rule", "") or card.line, "file": catalog.location(name).file})
    return rows


def _edition_row(name: str) -> dict[str, str]:
    """A variant lives in the file of its edition: `2026-05:strict` in 2026-05.toml."""
    file = resources.editions() / f"{name.partition(':')[0]}.toml"
    return {"name": name, "line": load_edition(name).title, "file": str(file)}


def _analysis_row(name: str) -> dict[str, str]:
    typed = name.replace("_", "-")  # as `fa-registry analyse` takes it
    return {"name": typed, "line": analyses.CATALOG.get(name).question, "file": analyses.CATALOG.location(name).file}


def _template_row(name: str) -> dict[str, str]:
    """One that --templates may replace; what is no page of its own is taken in by pages."""
    words = inspect.cleandoc(TEMPLATES[name].__doc__).partition(": ")[2] if name in TEMPLATES else "taken in by pages."
    return {"name": name, "line": words.partition("\n")[0], "file": str(resources.templates() / name)}


def _study_row(name: str) -> dict[str, str]:
    loaded = study.load_study(name)
    return {
        "name": name,
        "line": f"{loaded.title} ({len(loaded.specs)} runs; {loaded.cost})",
        "file": str(study.find(name)),
    }
