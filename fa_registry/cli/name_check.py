"""Check of the names that a command received, before the command imports large packages.

The import of PyTorch and MLflow takes seconds. With this check, a mistyped name is reported before this import. The command itself
checks all names again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from fa_registry.errors import InvalidFields, RegistryError, UnknownName
from fa_registry.option_table import OptionDeclaration, as_list
from fa_registry.plugin_registry import Catalog
from fa_registry.studies import study_files
from fa_registry.workflows.plugin_list import CATALOGS

NUMBER = re.compile(r"[0-9][0-9.,]*|True|False")  # also several numbers with commas, and flags
SINGULAR = {"methods": "method", "architectures": "architecture", "datasets": "data set", "executors": "executor"}


def check_names(
    command: str, options: Iterable[OptionDeclaration], values: Mapping[str, Any], argument: str = ""
) -> None:
    """Check the names in the values of options; raise InvalidFields with all unknown names.

    This function cannot check the values of some options. If the user has set such an option, the function checks nothing. The
    command later reports all problems together. The names in the command's argument `name` or `names` are of the kind
    `argument`; if it is empty, these names are not checked.
    """
    names = (*values.get("names", ()), values.get("name")) if argument else ()
    if not all(_is_checked_here(option, values[option.name]) for option in options if option.name in values):
        return
    problems = [f"name: {problem}" for problem in _problems(argument, filter(None, names))]
    problems += [
        f"{option.flag.removeprefix('--')}: {problem}"
        for option in options
        if isinstance(option.completes, str) and option.name in values
        for problem in _problems(option.completes, _names(option, values[option.name]))
    ]
    if problems:
        raise InvalidFields(command, problems)


def check_card(name: str, kind: str = "") -> None:
    """Raise UnknownName if no plug-in with a card has this name; if `kind` is empty, of any kind."""
    catalogs = [Catalog(each, each) for each in ((kind,) if kind in CATALOGS else () if kind else CATALOGS)]
    base_name = name.partition(":")[0]
    if catalogs and not any(base_name in catalog.builtin_names() for catalog in catalogs):
        names = [known for catalog in catalogs for known in catalog.names()]
        if base_name not in names:
            raise UnknownName("name", name, names)


def _is_checked_here(option: OptionDeclaration, value: Any) -> bool:
    """Return whether the value is a name that this module checks, or a number, a flag or a default value."""
    is_default = value in ("", (), None, {}) or value == str(option.default)
    is_name = isinstance(option.completes, str) and bool(option.completes)
    return is_default or is_name or bool(NUMBER.fullmatch(str(value)))


def _names(option: OptionDeclaration, value: Any) -> tuple[str, ...]:
    return tuple(map(str, as_list(value))) if option.is_list else (str(value or ""),)


def _problems(kind: str, names: Iterable[str]) -> Iterator[str]:
    for name in filter(None, names):
        # the command reports a broken package or file with the details
        with suppress(RegistryError, OSError, ValueError):
            try:
                _look_up(kind, name)
            except UnknownName as error:
                yield str(error)


def _look_up(kind: str, name: str) -> None:
    """Raise UnknownName if the name is not known; names of other kinds are not checked."""
    if kind == "study files":
        study_files.find(name)
    elif kind == "analyses":
        names = [*(known.replace("_", "-") for known in Catalog(kind, kind).names()), "all"]
        if name not in names:
            raise UnknownName("analysis", name, names)
    elif kind == "editions":
        from fa_registry.protocol.rules import load_edition  # imports pydantic

        load_edition(name)
    elif kind in SINGULAR and ":" not in name:  # `text:PATH` has a parameter
        catalog = Catalog(kind, SINGULAR[kind], home="studies.executors" if kind == "executors" else "")
        if name not in catalog.builtin_names():  # third-party names require the metadata of all packages
            catalog.location(name)
