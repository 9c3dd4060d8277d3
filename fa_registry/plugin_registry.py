"""Catalog: the named members of a family, built in or brought by another package.

A built-in member is one file in the family's folder that binds `PLUGIN`; its name is the file's. A third-party member
is an entry point in the group `fa_registry.<family>`. Nothing is imported until it is asked for. One that is broken stands in
nobody's way who does not ask for it, and none is waited for without an end.

What a member *is* goes with every run: of one of ours its card's version, which a change of its numbers must raise
(tests/golden.json holds that); of another package's the digest of its source, which needs nobody's care.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import logging
import os
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from fa_registry.errors import PluginError, RegistryError, UnknownName

LOG = logging.getLogger(__name__)
# Seconds of importing another package, after which whoever waits is told for what, and after which it is given up.
SLOW_SECONDS, MOST_SECONDS = 15.0, 120.0
NOT_MEMBERS = ("base",)
IMPORTED: dict[
    tuple[str, str], str
] = {}  # (package, version) → a module of it, of those that this process has imported
BLOCK = 1 << 20  # bytes that are read at once
LEFT_OUT = "__pycache__"  # of a package's digest: Python writes there


class ImportHangs(PluginError):
    """A member of another package's whose import was given up."""


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
    def is_builtin(self) -> bool:
        """Whether it is a member of this package."""
        return not self.package


@dataclass(frozen=True)
class Fault:
    """A member of another package's that cannot be used. why: one sentence, as whoever asks for it by name is told."""

    name: str
    file: str
    why: str


class Catalog:
    """The members of one family, e.g. Catalog("methods", "method", Method). home: the package ours are in [the family's].

    kind, card: what a member is an instance of, and its `card`.
    """

    def __init__(self, family: str, singular: str, kind: type | None = None, home: str = "", card: type | None = None):
        self.family = family
        self.home = home or family
        self.singular = singular
        self.kind = kind
        self.card = card
        self._failed: dict[str, RegistryError] = {}
        self._shadowed: list[Fault] = []
        self._told: set[str] = set()

    def names(self) -> list[str]:
        """All known names, sorted; those of what cannot be used too."""
        return sorted(self._locations)

    def builtin_names(self) -> list[str]:
        """The names of our own members, sorted: known without a look at the packages that are installed."""
        return sorted(path.stem for path in self._files())

    def third_party(self) -> list[str]:
        """Return the names of the members of other packages, sorted; nothing is imported for that."""
        return [name for name in self.names() if not self._locations[name].is_builtin]

    def built_in(self) -> dict[str, Any]:
        """Return name → member of our own members, sorted; no code of another package runs for that."""
        return {name: self.get(name) for name in self.names() if self._locations[name].is_builtin}

    def has_failed(self, name: str) -> bool:
        """Return whether this process has found that the member cannot be used."""
        return name in self._failed

    def location(self, name: str) -> Location:
        """Where `name` lives; raises UnknownName with the nearest name."""
        locations = self._locations
        if name not in locations:
            raise UnknownName(self.singular, name, locations)
        return locations[name]

    def get(self, name: str) -> Any:
        """Import and return the member; raises UnknownName, or PluginError when it is not what the family asks for."""
        location = self.location(name)
        if name in self._failed:
            raise self._failed[name]
        try:
            return self._member(name, location)
        except RegistryError as error:
            self._failed[name] = error  # importing again would run half a module's code again
            raise

    def members(self) -> dict[str, Any]:
        """name → member, sorted, of all that can be used. What another package brings and cannot be is told once, and left out.

        Raises ImportHangs, for what waits today may be there tomorrow: which diagnostics a run has would be chance.
        """
        found = {}
        for name in self.names():
            try:
                found[name] = self.get(name)
            except RegistryError as error:
                if self.location(name).is_builtin or isinstance(error, ImportHangs):
                    raise
                if name not in self._told:
                    LOG.warning("left out: %s", error)
                self._told.add(name)
        return found

    def faults(self) -> list[Fault]:
        """What other packages bring to this family and cannot be used."""
        usable = self.members()
        broken = [(name, self.location(name).file) for name in self.names() if name not in usable]
        return [*(Fault(name, file, str(self._failed[name])) for name, file in broken), *self._shadowed]

    def disable(self, name: str, why: str) -> None:
        """From now on raise a PluginError for this member: whoever has tried it elsewhere knows better than to import it here."""
        self._failed[name] = PluginError(f"{self.singular} {name!r}: {self.location(name).file} {why}")

    def code(self, name: str, card: Any) -> dict[str, Any]:
        """What tells this code from another that bears the name: {version} of our own, {package, version, digest} of others.

        card: the member's; unused of a member of another package. `files` says that the digest is of all files: an older
        release took the Python files alone. Raises UnknownName, or PluginError where no source is found.
        """
        location = self.location(name)
        if location.is_builtin:
            return {"version": card.version}
        digest = source_digest(location.module, all_files=True)
        return {"package": location.package, "version": location.version, "digest": digest, "files": "all"}

    def recorded_digest(self, name: str, files: str) -> str:
        """Return today's digest of a member of another package, of those files that a run recorded: `all`, or Python files."""
        return source_digest(self.location(name).module, all_files=files == "all")

    def _member(self, name: str, location: Location) -> Any:
        what = f"{self.singular} {name!r}"
        try:
            module = importlib.import_module(location.module) if location.is_builtin else _foreign(what, location)
            member = getattr(module, location.attribute, None)
        except (RegistryError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever its code raises on import, as a card that lacks a field, or sys.exit
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise PluginError(f"{what}: {location.file} cannot be imported: {text}") from error
        if member is None:
            raise PluginError(f"{what}: {location.file} binds no {location.attribute}")
        place = f"{location.module}:{location.attribute}"
        if self.kind is not None and not isinstance(member, self.kind):
            raise PluginError(f"{what}: {place} is {_unlike(member, self.kind)}")
        if self.card is not None and not isinstance(card := getattr(member, "card", None), self.card):
            raise PluginError(f"{what}: the card of {place} is {_unlike(card, self.card)}")
        return member

    def _files(self) -> Iterator[Path]:
        folder = Path(__file__).parent.joinpath(*self.home.split("."))
        return (path for path in folder.glob("*.py") if not path.stem.startswith("_") and path.stem not in NOT_MEMBERS)

    @cached_property  # reading every installed package's entry points takes 4 ms
    def _locations(self) -> dict[str, Location]:
        found = {
            path.stem: Location(f"fa_registry.{self.home}.{path.stem}", "PLUGIN", str(path)) for path in self._files()
        }
        self._failed, self._shadowed, self._told = {}, [], set()
        for point in importlib.metadata.entry_points(group=f"fa_registry.{self.family}"):
            self._add(found, point.name, _location(point))
        return found

    def _add(self, found: dict[str, Location], name: str, location: Location) -> None:
        """A name that is taken: ours stands, and of two packages neither, since nobody could say which was meant."""
        known = found.setdefault(name, location)
        if (known.module, known.attribute) == (location.module, location.attribute):
            return
        place = f"{location.file} ({location.module}:{location.attribute})"
        if known.is_builtin:
            why = (
                f"{self.singular} {name!r}: {place} is not used, for {known.file} has that name; rename the entry point"
            )
            self._shadowed.append(Fault(name, location.file, why))
            LOG.warning("%s", why)
        else:
            twice = f"{self.singular} {name!r} is registered twice: {known.file} and {place}; rename one of them"
            self._failed[name] = PluginError(twice)


def _unlike(value: object, wanted: type) -> str:
    return f"a {type(value).__name__}, expected an instance of {wanted.__module__}.{wanted.__name__}"


def _location(point: importlib.metadata.EntryPoint) -> Location:
    """Of an entry point whatever it says: what is wrong with it shows when it is imported."""
    try:
        module, attribute = point.module, point.attr
    except AttributeError:  # it is not of the form module:attribute
        module, attribute = point.value, ""
    brought = (module.partition(".")[0], "unknown")
    with contextlib.suppress(Exception):  # a package without METADATA has no name, and says so in many ways
        brought = (point.dist.name or brought[0], point.dist.version or brought[1]) if point.dist else brought
    return Location(module, attribute or "PLUGIN", _file_of(module), *brought)


def _file_of(module: str) -> str:
    """Its file; its name where none is found. Nothing is imported for that, not even the packages above it."""
    specification = _specification(module)
    return (specification and specification.origin) or module


def _specification(module: str) -> importlib.machinery.ModuleSpec | None:
    """As importlib.util.find_spec, which would import the packages above the module."""
    top, *rest = module.split(".")
    try:
        specification = importlib.util.find_spec(top)
        for step in rest:
            folders = specification and specification.submodule_search_locations
            specification = folders and importlib.machinery.PathFinder.find_spec(
                f"{specification.name}.{step}", folders
            )
    except (ImportError, ValueError, AttributeError):  # no such name; or somebody has put no module into sys.modules
        return None
    return specification or None


def _foreign(what: str, location: Location) -> ModuleType:
    """Another package's module, imported in a thread of its own: one that takes long is named, one that hangs is given up, and none
    ends this process as if all were well.

    Raises whatever its code raises, and ImportHangs; the thread then goes on, and ends with the process.
    """

    def leave(code: int = 0) -> None:
        raise SystemExit(code)

    def load() -> None:
        IMPORTED.setdefault((location.package, location.version), location.module)
        try:
            outcome.append(importlib.import_module(location.module))
        except BaseException as error:
            outcome.append(error)

    outcome: list[ModuleType | BaseException] = []
    loading = threading.Thread(target=load, daemon=True)
    genuine, os._exit = os._exit, leave
    try:
        loading.start()
        loading.join(SLOW_SECONDS)
        if not outcome:
            LOG.warning("%s: importing %s takes long; Ctrl-C ends it", what, location.file)
            loading.join(MOST_SECONDS - SLOW_SECONDS)
    finally:
        os._exit = genuine
    if not outcome:
        without = f"`pip uninstall {shlex.quote(location.package)}` goes on without it"
        raise ImportHangs(
            f"{what}: importing {location.file} took {MOST_SECONDS:.0f} seconds and was given up; {without}"
        )
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


@cache  # the code that is imported does not change while a process runs; its files may
def source_digest(module: str, all_files: bool = False) -> str:
    """SHA-256 over path and bytes of every .py file of the top-level package (or the one file) that `module` lives in.

    All of them, for which of them a member uses shows only when it runs. What it takes from other packages is not in it.

    Args:
        all_files: Take every file, since a rule may stand in a JSON file or a compiled module. Of a link its target's name
            counts: a link is not followed.
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
    """(path within the package, path here). Of a namespace package, which many share, the part that `module` is in."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        specification = _specification(".".join(parts[:count]))
        if specification is not None and specification.origin:
            break
    else:
        raise PluginError(f"the source of the module {module!r} cannot be found, so no run could tell what trained it")
    folders = specification.submodule_search_locations
    if folders is None:
        yield Path(specification.origin).name, Path(specification.origin)
    for folder in map(Path, folders or ()):
        found = _all_files(folder) if all_files else folder.rglob("*.py")
        yield from ((path.relative_to(folder).as_posix(), path) for path in found)


def _all_files(folder: Path) -> Iterator[Path]:
    """Every regular file and every link below a folder, but for what Python itself writes there."""
    for inside, folders, names in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(inside, name))]
        folders[:] = [name for name in folders if name != LEFT_OUT and name not in linked]
        paths = (Path(inside, name) for name in (*names, *linked))
        yield from (path for path in paths if path.is_symlink() or path.is_file())
