"""A package with a method or a diagnostic, as pip would leave it: module and entry point on the path, gone after the test."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fa_registry import architectures, datasets, diagnostics, methods, plugin_registry, tasks
from fa_registry.studies import method_conformance

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "third_party"
PACKAGE, NAME = "orthogonal_feedback", "orthogonal_dfa"
BORDER = "PLUGIN = OrthogonalDfa()"


@dataclass(frozen=True)
class Plugin:
    """The installed package in `folder`. Every change is seen as by a new process: module, digests and answers are forgotten."""

    folder: Path

    @property
    def module(self) -> Path:
        return self.folder / PACKAGE / f"{NAME}.py"

    def edit(self, old: str, new: str) -> None:
        """Replace text that occurs once in the method's source."""
        text = self.module.read_text(encoding="utf-8")
        assert text.count(old) == 1, text
        self.module.write_text(text.replace(old, new), encoding="utf-8")
        self.forget()

    def release(self, version: str) -> None:
        """Another version number on the package."""
        (information,) = self.folder.glob("*.dist-info")
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: orthogonal-feedback\nVersion: {version}\n")
        self.forget()

    def uninstall(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.forget()

    def forget(self) -> None:
        """What a process remembers of the package."""
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        shutil.rmtree(self.folder / PACKAGE / "__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        plugin_registry.entry_points.cache_clear()
        plugin_registry.source_digest.cache_clear()
        plugin_registry.IMPORTED.clear()
        method_conformance._tested.cache_clear()
        vars(methods.CATALOG).pop("_locations", None)


@contextmanager
def installed(folder: Path) -> Iterator[Plugin]:
    """The package of docs/own-method.md installed into `folder`, version 0.1.0."""
    shutil.copytree(FIXTURE / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    information = folder / "orthogonal_feedback-0.1.0.dist-info"
    information.mkdir()
    points = f"[fa_registry.methods]\n{NAME} = {PACKAGE}.{NAME}:PLUGIN\n"
    (information / "entry_points.txt").write_text(points, encoding="utf-8")
    plugin = Plugin(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr(sys, "dont_write_bytecode", True)  # an edit within the same second would run the old bytecode
        plugin.release("0.1.0")
        try:
            yield plugin
        finally:
            plugin.uninstall()


@contextmanager
def installed_member(folder: Path, kind: str, name: str, source: str) -> Iterator[None]:
    """A package of one module with one member. kind: methods, architectures, datasets, diagnostics or tasks. It binds PLUGIN."""
    catalogs = {
        "methods": methods,
        "architectures": architectures,
        "datasets": datasets,
        "diagnostics": diagnostics,
        "tasks": tasks,
    }
    catalog_of = vars(catalogs[kind].CATALOG)
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (information / "entry_points.txt").write_text(f"[fa_registry.{kind}]\n{name} = {name}\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        catalog_of.pop("_locations", None)
        try:
            yield
        finally:
            catalog_of.pop("_locations", None)
            plugin_registry.IMPORTED.clear()
            plugin_registry.source_digest.cache_clear()
            sys.modules.pop(name, None)


def put_plugin(
    patch: pytest.MonkeyPatch, catalog: plugin_registry.Catalog, name: str, location: plugin_registry.Location
):
    """A catalog with one more plug-in, or another one under this name, until the patch is undone."""
    known = {known: catalog.location(known) for known in catalog.names()}
    patch.setitem(vars(catalog), "_locations", {**known, name: location})
