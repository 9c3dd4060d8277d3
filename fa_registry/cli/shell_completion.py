"""Shell completion of the names of plug-ins, studies and editions, without slow imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from fa_registry.errors import PluginError
from fa_registry.plugin_registry import Catalog
from fa_registry.studies import study_files
from fa_registry.workflows.plugin_list import FAMILIES as FAMILIES

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def family(name: str, home: str = "") -> Complete:
    """Return a function that completes the names of all plug-ins of a kind, e.g. `methods`.

    The built-in plug-ins are in the package `home`, or else in the package `name`.
    """
    return _offering(lambda: _members(name, home))


def choices(*names: str) -> Complete:
    return _offering(lambda: names)


def studies() -> Complete:
    """Return a function that completes the names of built-in studies, or a path."""
    return _or_path(_offering(study_files.names))


def editions() -> Complete:
    return _or_path(_offering(_shipped))


def several(complete: Complete) -> Complete:
    """Return a function that completes the last of several comma-separated names."""

    def complete_last(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        previous, comma, last = typed.rpartition(",")
        items = complete(context, parameter, last)
        return [CompletionItem(f"{previous}{comma}{item.value}", type=item.type) for item in items]

    return complete_last


def completer(offered: str | tuple[str, ...], is_list: bool) -> Complete | None:
    """Return the function that completes the values of an option, or of a list with commas.

    The argument `offered` is the value of `OptionDeclaration.completes`.
    """
    if not offered:
        return None
    if isinstance(offered, tuple):
        complete = choices(*offered)
    elif offered in SPECIAL:
        complete = SPECIAL[offered]()
    else:
        complete = family(offered, "studies.executors" if offered == "executors" else "")
    return several(complete) if is_list else complete


def _shipped() -> tuple[str, ...]:
    from fa_registry.protocol.rules import shipped  # this import reads the editions

    return shipped()


def _members(name: str, home: str) -> list[str]:
    try:
        names = Catalog(name, name, home=home).names()
        return [member.replace("_", "-") if name == "analyses" else member for member in names]
    except PluginError:  # the command reports the broken package, but a completion cannot
        return []


def _offering(names: Callable[[], Iterable[str]]) -> Complete:
    return lambda context, parameter, typed: [
        CompletionItem(name) for name in sorted(names()) if name.startswith(typed)
    ]


def _or_path(complete: Complete) -> Complete:
    def complete_either(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        names = complete(context, parameter, typed)
        return names or [CompletionItem(typed, type="file")]

    return complete_either


SPECIAL: dict[str, Callable[[], Complete]] = {
    "studies": studies,
    "study files": studies,
    "editions": editions,
}
