"""The commands `list` and `info`: plug-ins of every kind, editions, studies and templates."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fa_registry import analyses, architectures, bundled_files, datasets, diagnostics, jsonio, methods, tasks
from fa_registry.errors import RegistryError, UnknownName, pluralise
from fa_registry.protocol.builtin_editions import file_of
from fa_registry.studies import executors
from fa_registry.studies.executors.base import JobEvent

CATALOGS = {
    "methods": methods.CATALOG,
    "architectures": architectures.CATALOG,
    "datasets": datasets.CATALOG,
    "diagnostics": diagnostics.CATALOG,
    "tasks": tasks.CATALOG,
}
PLUGGED = {**CATALOGS, "analyses": analyses.CATALOG, "executors": executors.CATALOG}
IMPORT_SECONDS = 60.0  # limit for the import of a package
PART = "a part that pages include."  # description of a template that pages include
FAMILIES = (*CATALOGS, "analyses", "editions", "studies", "templates")


def check_plugin_imports(*families: str) -> None:
    """Import each third-party plug-in in a separate process, and disable a plug-in whose import fails.

    An import that takes longer than IMPORT_SECONDS also counts as failed.

    Args:
        families: plug-in kinds to check, keys of PLUGGED.
    """
    plugins = [(family, name) for family in families for name in PLUGGED[family].names()]
    third_party = [(family, name) for family, name in plugins if not PLUGGED[family].location(name).is_builtin]

    def receive(event: JobEvent) -> None:
        if event.kind == "failed":
            family, name = third_party[event.index]
            PLUGGED[family].disable(name, f"cannot be imported: {event.value}")

    if third_party:
        from fa_registry.parallel import usable_cores
        from fa_registry.studies.worker_processes import supervise

        supervise(third_party, _imported, usable_cores(), lambda: False, receive, IMPORT_SECONDS)


def _imported(plugin: tuple[str, str], stop: Callable[[], bool], report: Callable[[Any], None]) -> None:
    """Import a plug-in, and ignore a RegistryError because the main process raises the same error later."""
    family, name = plugin
    with contextlib.suppress(RegistryError):
        PLUGGED[family].get(name)


def members(family: str) -> list[dict[str, str]]:
    """Return the name, one-line description and file of each plug-in of a kind.

    Editions, studies and templates can be listed in the same way.

    Args:
        family: one of FAMILIES.

    Raises:
        UnknownName: `family` is not one of FAMILIES.
    """
    if family not in FAMILIES:
        raise UnknownName("family", family, (*FAMILIES, "runs"))  # the command `list` also lists runs
    if family in PLUGGED:
        check_plugin_imports(family)
    return [{"name": name, "line": line, "file": str(file)} for name, line, file in _members(family)]


def _members(family: str) -> Iterator[tuple[str, str, str | Path]]:
    if family == "editions":
        from fa_registry.protocol.rules import load_edition, shipped

        for name in shipped():  # the file of an edition also contains its variants: 2026-05.toml has `2026-05:strict`
            yield name, load_edition(name).title, file_of(name)
    elif family == "studies":
        from fa_registry.studies import study

        for name in study.names():
            loaded = study.load_study(name)
            yield name, f"{loaded.title} ({pluralise(len(loaded.specs), 'run')}; {loaded.cost})", study.find(name)
    elif family == "templates":
        from fa_registry.reporting.render import TEMPLATES, overridable

        for name in overridable():
            text = inspect.cleandoc(TEMPLATES[name].__doc__).partition(": ")[2] if name in TEMPLATES else PART
            yield name, text.partition("\n")[0], bundled_files.templates() / name
    elif family == "analyses":
        for name, analyser in analyses.CATALOG.members().items():
            typed = name.replace("_", "-")  # the form that `fa-registry analyse` expects
            yield typed, analyser.question, analyses.CATALOG.location(name).file
    else:
        for name, member in CATALOGS[family].members().items():
            yield name, getattr(member.card, "rule", "") or member.card.line, CATALOGS[family].location(name).file
    if family in PLUGGED:
        yield from ((fault.name, f"cannot be used: {fault.why}", fault.file) for fault in PLUGGED[family].faults())


def card_of(name: str, family: str = "") -> dict[str, Any]:
    """Return the card of a plug-in as a dictionary, with the additional keys `family` and `file`.

    Args:
        name: name of the plug-in.
        family: plug-in kind, a key of CATALOGS. If empty, the first kind that has a plug-in of this name is used.

    Raises:
        UnknownName: the kind or the plug-in does not exist.
    """
    if family and family not in CATALOGS:
        raise UnknownName("family", family, CATALOGS)
    catalogs = {family: CATALOGS[family]} if family else CATALOGS
    for kind, catalog in catalogs.items():
        base_name, colon, _ = name.partition(":") if kind == "datasets" else (name, "", "")
        if base_name in catalog.names():
            member = datasets.get(name) if colon else catalog.get(name)  # `random_targets:digits` has a separate card
            return {"family": kind, "file": catalog.location(base_name).file, **jsonio.encode(member.card)}
    raise UnknownName("name", name, [plugin_name for catalog in catalogs.values() for plugin_name in catalog.names()])
