"""The commands `list` and `info`: plug-ins of every kind, editions, studies and templates."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fa_registry import bundled_files, jsonio
from fa_registry.errors import RegistryError, UnknownName, pluralise
from fa_registry.plugin_registry import Catalog, catalog_of

CATALOGS = ("methods", "architectures", "datasets", "diagnostics", "tasks")  # plug-in kinds with cards
PLUGGED = (*CATALOGS, "analyses", "executors")
FAMILIES = (*CATALOGS, "analyses", "editions", "studies", "templates")
IMPORT_SECONDS = 60.0  # limit for the import of a package
PART = "a part that pages include."  # description of a template that pages include


def check_plugin_imports(*families: str) -> None:
    """Import each third-party plug-in of the kinds `families` (of PLUGGED) in a separate process.

    A plug-in whose import fails, or takes longer than IMPORT_SECONDS, is disabled.
    """
    third_party = [(family, name) for family in families for name in catalog_of(family).third_party()]

    def receive(event: Any) -> None:
        if event.kind == "failed":
            family, name = third_party[event.index]
            catalog_of(family).disable(name, f"cannot be imported: {event.value}")

    if third_party:
        from fa_registry.parallel import usable_cores
        from fa_registry.studies.executors.local import supervise

        supervise(third_party, _imported, usable_cores(), lambda: False, receive, IMPORT_SECONDS)


def _imported(plugin: tuple[str, str], stop: Callable[[], bool], report: Callable[[Any], None]) -> None:
    """Import a plug-in, and ignore a RegistryError because the main process raises the same error later."""
    family, name = plugin
    with contextlib.suppress(RegistryError):
        catalog_of(family).get(name)


def all_cards() -> dict[str, dict[str, Any]]:
    """Return each kind's source digest and the descriptions of its built-in plug-ins, for cards.json."""
    catalogs = {family: catalog_of(family) for family in CATALOGS}
    return {
        family: {
            "source": catalog.folder_digest(),
            "plugins": {
                name: jsonio.encode(catalog.description_of(plugin)) for name, plugin in catalog.built_in().items()
            },
        }
        for family, catalog in catalogs.items()
    }


def recorded_plugins(family: str) -> Mapping[str, Any]:
    """Return name → entry of cards.json; empty if the kind has none, or has third-party plug-ins."""
    foreign = family not in CATALOGS or importlib.metadata.entry_points(group=f"fa_registry.{family}")
    return {} if foreign else Catalog(family, family).recorded


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
    return [{"name": name, "line": line, "file": str(file)} for name, line, file in _members(family)]


def _members(family: str) -> Iterator[tuple[str, str, str | Path]]:
    if family == "editions":
        from fa_registry.protocol.builtin_editions import file_of
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
    elif recorded := recorded_plugins(family):
        catalog = Catalog(family, family)
        yield from ((name, _line(one["card"]), catalog.location(name).file) for name, one in recorded.items())
    else:
        check_plugin_imports(family)
        catalog = catalog_of(family)
        for name, member in catalog.members().items():
            # the command `analyse` expects `-` in the names of analyses
            is_analysis = family == "analyses"
            line = member.question if is_analysis else _line(jsonio.encode(member.card))
            yield name.replace("_", "-") if is_analysis else name, line, catalog.location(name).file
        yield from ((fault.name, f"cannot be used: {fault.why}", fault.file) for fault in catalog.faults())


def _line(card: Mapping[str, Any]) -> str:
    return card.get("rule") or card["line"]


def card_of(name: str, family: str) -> dict[str, Any]:
    """Return the card of a plug-in as a dictionary, with the additional keys `family` and `file`.

    Args:
        name: name of the plug-in.
        family: plug-in kind, one of CATALOGS. If empty, the first kind that has a plug-in of this name is used.

    Raises:
        UnknownName: the kind or the plug-in does not exist.
    """
    if family and family not in CATALOGS:
        raise UnknownName("family", family, CATALOGS)
    catalogs = {kind: Catalog(kind, kind) for kind in ((family,) if family else CATALOGS)}
    for kind, catalog in catalogs.items():
        base_name, colon, _ = name.partition(":") if kind == "datasets" else (name, "", "")
        if base_name in catalog.names():
            card = None if colon else catalog.recorded.get(name, {}).get("card")
            if card is None:
                from fa_registry import datasets

                # `random_targets:digits` has a separate card
                card = jsonio.encode((datasets.get(name) if colon else catalog_of(kind).get(name)).card)
            return {"family": kind, "file": catalog.location(base_name).file, **card}
    raise UnknownName("name", name, [plugin_name for catalog in catalogs.values() for plugin_name in catalog.names()])
