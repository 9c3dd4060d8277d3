"""Looking at a user's templates before anything is measured or written: every problem that shows without rendering."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from jinja2 import Environment, TemplateError, meta, nodes

from fa_registry import resources
from fa_registry.errors import InvalidFields, unknown_name_text
from fa_registry.reporting.contexts import TEMPLATES
from fa_registry.reporting.environment import environment
from fa_registry.reporting.template_errors import SUFFIX, template_failure

NOT_OURS = (
    "note.md.j2",
    "audit_note.md.j2",
)  # written to the store for every reader of it, so that it is always the shipped one


def check_templates(folder: Path | None) -> None:
    """Raise InvalidFields that names every problem of the templates in `folder`; None: there are none to check."""
    problems = template_problems(folder) if folder else []
    if problems:
        raise InvalidFields(f"templates in {folder}", problems)


def template_problems(folder: Path) -> list[str]:
    """Wrong syntax, unknown names and filters, files that nobody renders, links that lead out of the folder."""
    if not folder.is_dir():
        return [f"templates: there is no folder {folder}"]
    paths = sorted(folder.rglob(f"*{SUFFIX}"))
    inside = [path for path in paths if path.resolve().is_relative_to(folder.resolve())]
    problems = [f"{path.name}: is a link that leads out of the folder" for path in paths if path not in inside]
    used: set[str] = set()
    for path in inside:
        problems += _problems(path, folder, used)
    names = [path.relative_to(folder).as_posix() for path in inside]
    return problems + [f"{name}: {_nobody(name)}" for name in names if name not in {*overridable(), *used}]


def overridable() -> list[str]:
    """The names of the shipped templates that a user's file may stand in for."""
    return sorted(path.name for path in resources.templates().glob(f"*{SUFFIX}") if path.name not in NOT_OURS)


def _nobody(name: str) -> str:
    if name in NOT_OURS:
        return "is written to the store, not to the report: it cannot be replaced"
    return f"no page is made from it and no template takes it in; {unknown_name_text('template', name, overridable())}"


def _problems(path: Path, folder: Path, used: set[str]) -> Iterator[str]:
    """What is wrong with one file. used: the templates it takes in are added."""
    name = path.relative_to(folder).as_posix()
    made = environment(name, folder)
    try:
        source = path.read_text(encoding="utf-8")
        tree = made.parse(source, name)
        unknown = _unknown_filters(made, tree, name)
        if not unknown:
            made.compile(source, name)
    except (TemplateError, UnicodeDecodeError, RecursionError, SyntaxError, ValueError) as error:
        yield str(template_failure(name, error))
        return
    yield from unknown
    if unknown:
        return  # Jinja2 looks at names only where it knows every filter
    used |= {found for found in meta.find_referenced_templates(tree) if found}
    if name in TEMPLATES:
        known = {field.name for field in fields(TEMPLATES[name])}
        for unknown in sorted(meta.find_undeclared_variables(tree) - known - set(made.globals)):
            yield f"{_where(tree, unknown, name)}: {unknown_name_text('name', unknown, known)}"


def _unknown_filters(made: Environment, tree: nodes.Template, name: str) -> list[str]:
    return [
        f"template {name}, line {node.lineno}: {unknown_name_text('filter', node.name, made.filters)}"
        for node in tree.find_all(nodes.Filter)
        if node.name not in made.filters
    ]


def _where(tree: nodes.Template, variable: str, name: str) -> str:
    lines = [node.lineno for node in tree.find_all(nodes.Name) if node.name == variable and node.ctx == "load"]
    return f"template {name}, line {min(lines)}" if lines else f"template {name}"
