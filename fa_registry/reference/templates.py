"""Generator of docs/reference-templates.md: templates, records and filters."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fa_registry.reference import filled, table
from fa_registry.reporting import render
from fa_registry.reporting.render import NOT_OURS, overridable
from fa_registry.reporting.text.environment import FORBIDDEN_FILTERS, environment, mode

SECTION = re.compile(r"\n+(?:Attributes|Args):\n((?: +.*\n?|\n)*)")  # of a docstring in Google style
ENTRY = re.compile(r"(?m)^    `?(\w+(?:, \w+)*)`?: ")
GENERIC = {"T": "…", "Any": "anything"}


def templates_reference() -> str:
    """Return docs/reference-templates.md with the current templates, variables, records and filters."""
    by_context: dict[type, list[str]] = {}
    for name, context in render.TEMPLATES.items():
        by_context.setdefault(context, []).append(name)
    parts = ["## Variables of each template", *(_context(context, names) for context, names in by_context.items())]
    parts += ["\n## Records\n\nThe types of the variables, by name.\n"]
    parts += [_record(record) for record in sorted(_records(by_context), key=lambda one: one.__name__)]
    parts += ["\n## Filters\n", table(("filter", "what it returns", "templates that can use it"), _filters())]
    without = ", ".join(f"`{name}`" for name in sorted(FORBIDDEN_FILTERS))
    parts += [f"\nAll filters and functions of Jinja2 exist too, except the filters {without}."]
    names = ", ".join(f"`{name}`" for name in overridable())
    return filled("docs/reference-templates.md", f"{names}.", "\n".join(parts))


def _context(context: type, names: list[str]) -> str:
    hints = typing.get_type_hints(context)
    lines = [f"\n### {', '.join(f'`{name}`' for name in names)}\n", _text(context)]
    if any(name in NOT_OURS for name in names):
        lines.append("\nThis template is used only for notes in the store, so a user cannot replace this template.")
    rows = ((f"`{name}`", type_text(hints[name]), text) for name, text in text_below(context).items())
    return "\n".join([*lines, "", table(("variable", "type", "description"), rows)])


def _record(record: type) -> str:
    hints, text = typing.get_type_hints(record), {**_attributes(record), **text_below(record)}
    is_automatic = not record.__doc__ or record.__doc__.startswith(f"{record.__name__}(")
    lines = [f"\n### {record.__name__}\n", *([] if is_automatic else [_text(record)]), ""]
    for field in dataclasses.fields(record):
        description = text.get(field.name, "")
        separator = ". " if description[:1].isupper() else "; " if description else ""
        lines.append(f"- `{field.name}`: {type_text(hints[field.name])}{separator}{description}")
    properties = inspect.getmembers(record, lambda member: isinstance(member, property))
    for name, computed in properties:
        description = text.get(name) or (first_line(computed.fget) if computed.fget.__doc__ else "")
        lines.append(f"- `{name}`, computed{': ' if description else ''}{description}")
    return "\n".join(lines)


def _attributes(record: type) -> dict[str, str]:
    """Return a mapping field name → its description in the section Attributes or Args of the docstring."""
    section = SECTION.search(inspect.cleandoc(record.__doc__ or ""))
    _, *entries = ENTRY.split(section[1]) if section else [""]
    pairs = zip(entries[::2], entries[1::2], strict=True)
    return {name: " ".join(text.split()) for names, text in pairs for name in names.split(", ")}


def text_below(record: type) -> dict[str, str]:
    """Return a mapping field name → the text below the field in the source of the data class."""
    (definition,) = ast.parse(inspect.cleandoc(inspect.getsource(record))).body
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr)
    }


def _records(contexts_of: Mapping[type, Any]) -> set[type]:
    records: set[type] = set()
    pending_hints = [hint for context in contexts_of for hint in typing.get_type_hints(context).values()]
    while pending_hints:
        hint = pending_hints.pop()
        pending_hints += typing.get_args(hint)
        base_type = typing.get_origin(hint) or hint
        if dataclasses.is_dataclass(base_type) and base_type not in records:
            records.add(base_type)
            pending_hints += typing.get_type_hints(base_type).values()
    return records


def _filters() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each filter, its text, and the templates that can use it."""
    pages = {name: environment(name) for name in render.TEMPLATES}
    kinds = {mode(name): page for name, page in pages.items()}
    common = set.intersection(*(set(page.filters) for page in kinds.values()))
    all_filters = {name: (function, kind) for kind, page in kinds.items() for name, function in page.filters.items()}
    for name, (function, kind) in sorted(all_filters.items()):
        if function.__module__.startswith("fa_registry"):
            usage = "everywhere" if name in common else f"`*{kind}`"
            yield f"`{name}`", first_line(function), usage


def type_text(hint: Any) -> str:
    """Return a type as Markdown, with links for records, for example `list of SeedRow`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return "none"
    if origin is typing.Annotated:
        return type_text(arguments[0])
    if origin is tuple:
        inner = [argument for argument in arguments if argument is not ...]
        text = " and ".join(map(type_text, inner))
        return f"list of {text}" if ... in arguments else f"({', '.join(map(type_text, inner))})"
    if origin is not None and dataclasses.is_dataclass(origin):
        return f"{_link(origin)} of {', '.join(map(type_text, arguments))}"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return f"{type_text(arguments[0])} → {type_text(arguments[1])}"
    if origin is typing.Literal:
        return ", ".join(f"`{literal}`" for literal in arguments)
    if arguments:
        return " or ".join(map(type_text, arguments))
    if dataclasses.is_dataclass(hint):
        return _link(hint)
    names = {str: "text", int: "whole number", float: "number", bool: "yes or no"}
    return names.get(hint) or GENERIC.get(getattr(hint, "__name__", ""), getattr(hint, "__name__", "anything"))


def _link(record: type) -> str:
    return f"[{record.__name__}](#{record.__name__.lower()})"


def _text(record: type) -> str:
    """Return the docstring without its section Attributes or Args, one line per paragraph."""
    text = SECTION.sub("", inspect.cleandoc(record.__doc__ or ""))
    return re.sub(r"\n(?!\n)(?<!\n\n)", " ", text).replace("\n ", "\n\n").strip()


def first_line(function: Callable) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
