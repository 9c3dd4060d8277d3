"""Old public names are the new objects, with a warning that names them; other names are still unknown."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path

import click
import pytest

import fa_registry
from fa_registry.cli import main
from fa_registry.deprecated_names import NAMES

# Public names of documented modules, and commands with their options, as commit 9d8cfb8 had them.
BEFORE = json.loads(Path(__file__).with_name("public_names.json").read_text(encoding="utf-8"))
REMOVED = {"promote": {"--alias"}}  # CHANGELOG names the replacement
PAIRS = [(module, old, new) for module, names in NAMES.items() for old, new in names.items()]


@pytest.mark.parametrize(("module", "old", "new"), PAIRS)
def test_an_old_name_is_the_new_object(module, old, new):
    if "adapters" in module:
        fa_registry.torchvision()
    home = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{old} was renamed; use {module}.{new}"):
        assert getattr(home, old) is getattr(home, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fa_registry.quantities", "fa_registry.metrics"),
        ("fa_registry.api", "fa_registry.published_api"),
        ("fa_registry.api.diagnosis", "fa_registry.published_api.diagnosis"),
        ("fa_registry.api.loading", "fa_registry.published_api.model_loader"),
        ("fa_registry.lint", "fa_lint"),
        ("fa_registry.lint.runner", "fa_lint.runner"),
    ],
)
def test_a_moved_module_is_the_module_at_its_new_place(monkeypatch, old, new):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} was renamed; use {new}"):
        moved = importlib.import_module(old)
    assert moved is importlib.import_module(new) and moved.__name__ == moved.__spec__.name == new


def test_the_old_name_in_a_moved_module_is_the_new_object():
    with pytest.warns(DeprecationWarning):
        from fa_registry.quantities import Quantity
    from fa_registry.metrics import Metric

    assert Quantity is Metric


def test_a_module_that_never_was_is_unknown():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fa_registry.api.never_was")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fa_registry.apis")


@pytest.mark.parametrize("module", [*NAMES])
def test_what_was_not_named_is_unknown(module):
    if "adapters" in module:
        fa_registry.torchvision()
    with pytest.raises(AttributeError):
        importlib.import_module(module).no_such_name  # noqa: B018


@pytest.mark.parametrize("module", sorted(BEFORE["python"]))
def test_every_public_name_of_before_can_be_imported(module):
    fa_registry.torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        home = importlib.import_module(module)
        assert [name for name in BEFORE["python"][module] if not hasattr(home, name)] == []


@pytest.mark.parametrize("command", sorted(BEFORE["cli"]))
def test_every_command_of_before_takes_every_option_of_before(command):
    context = click.Context(main)
    for option in set(BEFORE["cli"][command]) - REMOVED.get(command, set()):
        _, found, arguments = main.resolve_command(context, [command, option])
        known = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert arguments[0] in known, (command, option)
