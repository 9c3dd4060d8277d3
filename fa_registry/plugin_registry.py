"""Catalogs of plug-ins, one per plug-in kind: a catalog finds and imports plug-ins by name.

A built-in plug-in is one file in the folder of its kind. The file binds `PLUGIN`, and the file name is the plug-in's
name. A third-party plug-in is an entry point in the group `fa_registry.<family>`, where `<family>` is the plug-in kind,
such as `methods`. A plug-in is imported on first use, with a time limit. If the import of a plug-in fails, only the code that
uses the plug-in is affected.

Every run records the version of its plug-ins' code. For a built-in plug-in this record is the version on its card. The
author must raise this version if the plug-in's results change (tests/golden.json checks this). For a third-party plug-in
the record is a digest of its source, so its author does not have to maintain a version.

cards.json describes the built-in plug-ins of the kinds that have cards, so that the options of a run can be checked without the
import of a plug-in and of torch, which takes seconds. A description counts only if the digest of all Python files in the folder
of the kind agrees when a process first asks, and only until the plug-in is imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import logging
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from fa_registry import bundled_files, jsonio
from fa_registry.errors import PluginError, RegistryError, UnknownName

LOG = logging.getLogger(__name__)
# Seconds of an import of another package until a warning is logged, and until the import is abandoned.
SLOW_SECONDS, MOST_SECONDS = 15.0, 120.0
NOT_MEMBERS = ("base",)
CARDS = bundled_files.PACKAGE / "cards.json"  # written by `python -m fa_registry.reference --write`
# Functions of a plug-in that check a run specification, and attributes on which other checks depend.
CHECKS, TRAITS = ("check", "resolve", "of"), ("end_to_end", "_replaces_weights")
IMPORTED: dict[tuple[str, str], str] = {}  # (package, version) → one of its modules that this process has imported
BLOCK = 1 << 20  # bytes per read
LEFT_OUT = "__pycache__"  # not part of a package's digest, because Python writes to this folder


class ImportHangs(PluginError):
    """Error for a third-party plug-in whose import exceeded the time limit."""


@dataclass(frozen=True)
class Location:
    """Location of a plug-in in the installed packages.

    Args:
        module: module to import.
        attribute: name of the plug-in in the module.
        file: file that messages mention.
        package: distribution that contains the plug-in; empty for a built-in plug-in.
        version: version of that distribution; empty for a built-in plug-in.
    """

    module: str
    attribute: str
    file: str
    package: str = ""
    version: str = ""

    @property
    def is_builtin(self) -> bool:
        return not self.package


@dataclass(frozen=True)
class Fault:
    """A third-party plug-in that cannot be used, with the message `why` of the error that its use raises."""

    name: str
    file: str
    why: str


@dataclass(frozen=True)
class Description:
    """The part of a plug-in that is needed to check a run specification.

    Args:
        suffices: whether card and traits decide all checks, because the plug-in overrides none of CHECKS.
        traits: name → value of those TRAITS that the plug-in has.
    """

    card: Any
    suffices: bool
    traits: Mapping[str, Any]


@cache
def entry_points(path: tuple[str, ...]) -> importlib.metadata.EntryPoints:
    """Return the entry points of all packages on `path`, which is sys.path; reading them takes 20 ms."""
    return importlib.metadata.entry_points()


class Catalog:
    """All plug-ins of one kind, for example Catalog("methods", "method", Method).

    Args:
        singular: noun for one plug-in in messages.
        kind, card: required classes of each plug-in and of its `card` attribute. A class in a module of the subpackage, such as
            `base:Method`, is imported at its first use.
        home: subpackage with the built-in plug-ins, by default `family`, the name of the plug-in kind.
    """

    def __init__(
        self, family: str, singular: str, kind: type | str = object, home: str = "", card: type | str = object
    ):
        self.family = family
        self.home = home or family
        self.singular = singular
        self._kind, self._card = kind, card
        self._folder = Path(__file__).parent.joinpath(*self.home.split("."))
        self._failed: dict[str, RegistryError] = {}
        self._shadowed: list[Fault] = []
        self._told: set[str] = set()

    def names(self) -> list[str]:
        """Return all known names, sorted, including plug-ins that cannot be used."""
        return sorted(self._locations)

    def builtin_names(self) -> list[str]:
        """Return the sorted names of the built-in plug-ins, without reading packages' metadata."""
        return sorted(path.stem for path in self._files())

    def third_party(self) -> list[str]:
        """Return the sorted names of the third-party plug-ins. Import no plug-in."""
        return [name for name in self.names() if not self._locations[name].is_builtin]

    def built_in(self) -> dict[str, Any]:
        """Return name → plug-in of all built-in plug-ins, sorted by name. Run no third-party code."""
        return {name: self.get(name) for name in self.names() if self._locations[name].is_builtin}

    def has_failed(self, name: str) -> bool:
        """Return whether an earlier use of the plug-in failed in this process."""
        return name in self._failed

    def location(self, name: str) -> Location:
        """Return the location of a plug-in.

        Raises:
            UnknownName: no plug-in has this name; the message contains the most similar name.
        """
        locations = self._locations
        if name not in locations:
            raise UnknownName(self.singular, name, locations)
        return locations[name]

    def get(self, name: str) -> Any:
        """Import and return the plug-in. Raise UnknownName, or PluginError if the plug-in cannot be used."""
        location = self.location(name)
        if name in self._failed:
            raise self._failed[name]
        try:
            return self._member(name, location)
        except RegistryError as error:
            self._failed[name] = error  # a second import would repeat half of a module's code
            raise

    def describe(self, name: str, find: Callable[[], Any] | None = None) -> Description:
        """Return the description of a plug-in. If cards.json has none, import the plug-in, or call `find`."""
        with contextlib.suppress(RegistryError, LookupError):  # other fields than those of the card, or no pydantic
            if self._entry(name):
                return self._decoded(name)
        own = self.description_of(find() if find else self.get(name))
        return dataclasses.replace(own, suffices=False)  # an imported plug-in is asked: its object may have own checks

    def _entry(self, name: str) -> Mapping[str, Any]:
        """Return the entry of a plug-in in cards.json; empty if the plug-in itself must be asked."""
        location = self.location(name)
        is_usable = location.is_builtin and location.module not in sys.modules and name not in self._failed
        return self.recorded.get(name, {}) if is_usable else {}

    @cache  # noqa: B019 - a process has few catalogs
    def _decoded(self, name: str) -> Description:
        recorded = self.recorded[name]
        card = jsonio.decode(self._class(self._card), recorded["card"])
        return Description(card, recorded["suffices"], recorded["traits"])

    def description_of(self, plugin: Any) -> Description:
        """Return the description of an imported plug-in."""
        own, base = type(plugin), self._class(self._kind)
        inherits = all(getattr(own, name, None) is getattr(base, name, None) for name in CHECKS)
        return Description(
            plugin.card, inherits, {name: getattr(plugin, name) for name in TRAITS if hasattr(plugin, name)}
        )

    @cached_property
    def recorded(self) -> Mapping[str, Mapping[str, Any]]:
        """Name → description of each built-in plug-in, from cards.json; empty if the source was edited."""
        try:
            recorded = json.loads(CARDS.read_text(encoding="utf-8"))[self.family]
            return recorded["plugins"] if recorded["source"] == self.folder_digest() else {}
        except (OSError, ValueError, LookupError, TypeError):  # another release wrote the file
            return {}

    def folder_digest(self) -> str:
        """Return the SHA-256 (hex) of all Python files in the folder of the built-in plug-ins."""
        digest = hashlib.sha256()
        for path in sorted(self._folder.glob("*.py")):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
        return digest.hexdigest()

    def members(self) -> dict[str, Any]:
        """Import all plug-ins and return a mapping name → plug-in, sorted by name.

        A third-party plug-in that cannot be used is left out, and one warning is logged.

        Raises:
            RegistryError: a built-in plug-in cannot be used.
            ImportHangs: the import of a plug-in exceeded the time limit. Such a plug-in is not left out, because a later import
                may succeed and the set of plug-ins must not depend on chance.
        """
        plugins = {}
        for name in self.names():
            try:
                plugins[name] = self.get(name)
            except RegistryError as error:
                if self.location(name).is_builtin or isinstance(error, ImportHangs):
                    raise
                if name not in self._told:
                    LOG.warning("plug-in left out: %s", error)
                self._told.add(name)
        return plugins

    def faults(self) -> list[Fault]:
        """Return the third-party plug-ins of this kind that cannot be used."""
        usable = self.members()
        broken = [(name, self.location(name).file) for name in self.names() if name not in usable]
        return [*(Fault(name, file, str(self._failed[name])) for name, file in broken), *self._shadowed]

    def disable(self, name: str, reason: str) -> None:
        """Make later uses of a plug-in that failed in another process raise PluginError with the reason."""
        self._failed[name] = PluginError(f"{self.singular} {name!r}: {self.location(name).file} {reason}")

    def code(self, name: str, card: Any = None) -> dict[str, Any]:
        """Return the data that identify the code of a plug-in.

        Returns:
            For a built-in plug-in, the `version` on its card; without a card, of cards.json. For a third-party plug-in, the
            `package`, its `version`, and the `digest` of all files of the package.

        Raises:
            PluginError: the source of the plug-in is not found.
        """
        location = self.location(name)
        if location.is_builtin:
            entry = {} if card else self._entry(name)
            return {"version": entry["card"]["version"] if entry else (card or self.get(name).card).version}
        digest = source_digest(location.module, all_files=True)
        return {"package": location.package, "version": location.version, "digest": digest}

    def _member(self, name: str, location: Location) -> Any:
        subject = f"{self.singular} {name!r}"
        try:
            module = importlib.import_module(location.module) if location.is_builtin else _foreign(subject, location)
            plugin = getattr(module, location.attribute, None)
        except (RegistryError, KeyboardInterrupt):
            raise
        # any error of the plug-in's code on import, such as a card that lacks a field, or sys.exit
        except BaseException as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise PluginError(f"{subject}: {location.file} cannot be imported: {text}") from error
        if plugin is None:
            raise PluginError(f"{subject}: {location.file} defines no {location.attribute}")
        object_reference = f"{location.module}:{location.attribute}"
        if not isinstance(plugin, kind := self._class(self._kind)):
            raise PluginError(f"{subject}: {object_reference} is {_unlike(plugin, kind)}")
        if not isinstance(card := getattr(plugin, "card", None), kind := self._class(self._card)):
            raise PluginError(f"{subject}: the card of {object_reference} is {_unlike(card, kind)}")
        return plugin

    def _class(self, kind: type | str) -> type:
        if isinstance(kind, type):
            return kind
        module, _, name = kind.partition(":")
        return getattr(importlib.import_module(f"fa_registry.{self.home}.{module}"), name)

    def _files(self) -> Iterator[Path]:
        files = self._folder.glob("*.py")
        return (path for path in files if not path.stem.startswith("_") and path.stem not in NOT_MEMBERS)

    @cached_property
    def _locations(self) -> dict[str, Location]:
        locations = {
            path.stem: Location(f"fa_registry.{self.home}.{path.stem}", "PLUGIN", str(path)) for path in self._files()
        }
        self._failed, self._shadowed, self._told = {}, [], set()
        for entry_point in entry_points(tuple(sys.path)).select(group=f"fa_registry.{self.family}"):
            self._add(locations, entry_point.name, _location(entry_point))
        return locations

    def _add(self, locations: dict[str, Location], name: str, location: Location) -> None:
        """Add a third-party plug-in to `locations`; record an error if the name already exists."""
        existing = locations.setdefault(name, location)
        if (existing.module, existing.attribute) == (location.module, location.attribute):
            return
        source = f"{location.file} ({location.module}:{location.attribute})"
        # on a name conflict the built-in plug-in wins; two third-party plug-ins are both refused
        if existing.is_builtin:
            message = f"{self.singular} {name!r}: {source} is not used: {existing.file} has the same name; rename the entry point"
            self._shadowed.append(Fault(name, location.file, message))
            LOG.warning("%s", message)
        else:
            conflict = f"{self.singular} {name!r} is registered twice: {existing.file} and {source}; rename one of them"
            self._failed[name] = PluginError(conflict)


def _unlike(value: object, expected_type: type) -> str:
    return f"a {type(value).__name__}, expected an instance of {expected_type.__module__}.{expected_type.__name__}"


def _location(entry_point: importlib.metadata.EntryPoint) -> Location:
    """Return the location to which an entry point refers, even if the entry point is faulty."""
    try:
        module, attribute = entry_point.module, entry_point.attr
    except AttributeError:  # the entry point does not have the form module:attribute
        module, attribute = entry_point.value, ""
    origin = (module.partition(".")[0], "unknown")
    with contextlib.suppress(Exception):  # a package without METADATA raises various errors; `dist` may be None
        origin = (entry_point.dist.name or origin[0], entry_point.dist.version or origin[1])
    specification = _specification(module)  # without an import
    return Location(module, attribute or "PLUGIN", (specification and specification.origin) or module, *origin)


def _specification(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return a module's spec as importlib.util.find_spec does, but import no parent package."""
    top, *submodules = module.split(".")
    try:
        specification = importlib.util.find_spec(top)
        for step in submodules:
            folders = specification and specification.submodule_search_locations
            specification = folders and importlib.machinery.PathFinder.find_spec(
                f"{specification.name}.{step}", folders
            )
    except (ImportError, ValueError, AttributeError):  # no such name, or an entry of sys.modules is not a module
        return None
    return specification or None


def _foreign(subject: str, location: Location) -> ModuleType:
    """Import a third-party module in a thread; raise ImportHangs after MOST_SECONDS."""

    # A slow import logs a warning. After MOST_SECONDS the import is abandoned, but its thread continues until the process
    # ends. `os._exit` in the module does not end this process.
    def leave(code: int = 0) -> None:
        raise SystemExit(code)

    def load() -> None:
        IMPORTED.setdefault((location.package, location.version), location.module)
        try:
            outcome.append(importlib.import_module(location.module))
        except BaseException as error:
            outcome.append(error)

    outcome: list[ModuleType | BaseException] = []
    thread = threading.Thread(target=load, daemon=True)
    original_exit, os._exit = os._exit, leave
    try:
        thread.start()
        thread.join(SLOW_SECONDS)
        if not outcome:
            LOG.warning("%s: the import of %s takes long; press Ctrl-C to stop it", subject, location.file)
            thread.join(MOST_SECONDS - SLOW_SECONDS)
    finally:
        os._exit = original_exit
    if not outcome:
        advice = f"`pip uninstall {shlex.quote(location.package)}` removes the package; otherwise, repair its import"
        raise ImportHangs(
            f"{subject}: the import of {location.file} was stopped after {MOST_SECONDS:.0f} seconds; {advice}"
        )
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


@cache  # imported code does not change while a process runs, even if its files do
def source_digest(module: str, all_files: bool = False) -> str:
    """Return the SHA-256 (hex) of the source files of a module's top-level package.

    The digest includes the relative path and the bytes of each file. The whole package is included, because it is not known which
    of its modules a plug-in will use. Other packages that the module imports are excluded. If the module is not in a package, the
    digest includes only the module's file. By default, only .py files are included. If `all_files` is true, the digest includes
    every file, because a JSON file or a compiled module may also influence results. For a link, the digest then includes only the
    path of the target.
    """
    digest = hashlib.sha256()
    for name, path in sorted(_source_files(module, all_files)):
        if path.is_symlink() and all_files:
            digest.update(f"{name}\0link\0{os.readlink(path)}\0".encode())
            continue
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


def _source_files(module: str, all_files: bool) -> Iterator[tuple[str, Path]]:
    """Yield (path within the package, path on this machine) of each source file."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        specification = _specification(".".join(parts[:count]))
        if specification is not None and specification.origin:
            break
    else:
        raise PluginError(
            f"the source code of the module {module!r} cannot be found, so a run cannot record which code it used"
        )
    folders = specification.submodule_search_locations
    if folders is None:
        yield Path(specification.origin).name, Path(specification.origin)
    for folder in map(Path, folders or ()):
        paths = _all_files(folder) if all_files else folder.rglob("*.py")
        yield from ((path.relative_to(folder).as_posix(), path) for path in paths)


def _all_files(folder: Path) -> Iterator[Path]:
    """Yield every regular file and every link below a folder, except in `__pycache__`."""
    for parent, folders, names in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        folders[:] = [name for name in folders if name != LEFT_OUT and name not in linked]
        paths = (Path(parent, name) for name in (*names, *linked))
        yield from (path for path in paths if path.is_symlink() or path.is_file())


def catalog_of(family: str) -> Catalog:
    """Return the catalog of a plug-in kind. Most catalogs import torch."""
    home = "studies.executors" if family == "executors" else family
    return importlib.import_module(f"fa_registry.{home}").CATALOG
