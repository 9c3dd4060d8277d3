"""Catalog: the named members of a family, built in or brought by another package.

A built-in member is one file in the family's folder that binds `PLUGIN`; its name is the file's. A third-party member
is an entry point in the group `fa_registry.<family>`. Nothing is imported until it is asked for.

What a member *is* goes with every run: of one of ours its card's version, which a change of its numbers must raise
(tests/golden.json holds that); of another package's the digest of its source, which needs nobody's care.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fa_registry.errors import PluginError, RegistryError, UnknownName

NOT_MEMBERS = ("__init__", "base")


@dataclass(frozen=True)
class Location:
    """Where a member lives: `module` to import, `attribute` to take, `file` to show.

    package, version: of the distribution that brings it; both empty for a member of our own.
    """

    module: str
    attribute: str
    file: str
    package: str = ""
    version: str = ""

    @property
    def own(self) -> bool:
        """Whether it is a member of this package."""
        return not self.package


class Catalog:
    """The members of one family, e.g. Catalog("methods", "method", Method). home: the package ours are in [the family's]."""

    def __init__(self, family: str, singular: str, kind: type | None = None, home: str = ""):
        self.family = family
        self.home = home or family
        self.singular = singular
        self.kind = kind

    def names(self) -> list[str]:
        """All known names, sorted."""
        return sorted(self._locations)

    def location(self, name: str) -> Location:
        """Where `name` lives; raises UnknownName with the nearest name."""
        locations = self._locations
        if name not in locations:
            raise UnknownName(self.singular, name, locations)
        return locations[name]

    def get(self, name: str) -> Any:
        """Import and return the member; raises UnknownName, or PluginError when it is not what the family asks for."""
        location = self.location(name)
        module = self._imported(name, location)
        if not hasattr(module, location.attribute):
            raise PluginError(f"{self.singular} {name!r}: {location.file} binds no {location.attribute}")
        member = getattr(module, location.attribute)
        if self.kind is not None and not isinstance(member, self.kind):
            raise PluginError(
                f"{self.singular} {name!r}: {location.module}:{location.attribute} is a {type(member).__name__}, "
                f"expected an instance of {self.kind.__module__}.{self.kind.__name__}"
            )
        return member

    def code(self, name: str, card: Any) -> dict[str, Any]:
        """What tells this code from another that bears the name: {version} of our own, {package, version, digest} of others.

        card: the member's. Raises UnknownName, or PluginError where no source is found.
        """
        location = self.location(name)
        if location.own:
            return {"version": card.version}
        digest = source_digest(location.module)
        return {"package": location.package, "version": location.version, "digest": digest}

    def _imported(self, name: str, location: Location) -> Any:
        """The member's module; whatever its own code raises on import (a card that lacks a field) is told with its file."""
        try:
            return importlib.import_module(location.module)
        except RegistryError:
            raise
        except Exception as error:
            raise PluginError(
                f"{self.singular} {name!r}: {location.file} cannot be imported: {type(error).__name__}: {error}"
            ) from error

    @cached_property  # reading every installed package's entry points takes 4 ms
    def _locations(self) -> dict[str, Location]:
        folder = Path(__file__).parent.joinpath(*self.home.split("."))
        found = {
            path.stem: Location(f"fa_registry.{self.home}.{path.stem}", "PLUGIN", str(path))
            for path in folder.glob("*.py")
            if path.stem not in NOT_MEMBERS and not path.stem.startswith("_")
        }
        for point in importlib.metadata.entry_points(group=f"fa_registry.{self.family}"):
            brought = (
                (point.dist.name, point.dist.version) if point.dist else (point.module.partition(".")[0], "unknown")
            )
            location = Location(point.module, point.attr or "PLUGIN", _file_of(point.module), *brought)
            if point.name in found:
                raise PluginError(
                    f"{self.singular} {point.name!r} is registered twice: {found[point.name].file} and {location.file} "
                    f"({location.module}:{location.attribute}); rename one of them"
                )
            found[point.name] = location
        return found


def _file_of(module: str) -> str:
    try:
        specification = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        raise PluginError(f"an entry point names the module {module!r}, which cannot be imported: {error}") from error
    return (specification and specification.origin) or module


@cache  # the code that is imported does not change while a process runs; its files may
def source_digest(module: str) -> str:
    """SHA-256 over path and bytes of every .py file of the top-level package (or the one file) that `module` lives in.

    All of them, for which of them a member uses shows only when it runs. What it takes from other packages is not in it.
    """
    digest = hashlib.sha256()
    for name, path in sorted(_source_files(module)):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _source_files(module: str) -> Iterator[tuple[str, Path]]:
    """(path within the package, path here). Of a namespace package, which many share, the part that `module` is in."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        specification = importlib.util.find_spec(".".join(parts[:count]))
        if specification is not None and specification.origin:
            break
    else:
        raise PluginError(f"the source of the module {module!r} cannot be found, so no run could tell what trained it")
    folders = specification.submodule_search_locations
    if folders is None:
        yield Path(specification.origin).name, Path(specification.origin)
    for folder in map(Path, folders or ()):
        yield from ((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*.py"))
