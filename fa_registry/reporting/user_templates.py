"""Looking at a user's templates before anything is measured or written: every problem that shows without rendering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
SHOWN = 10  # of the files of a folder without any template


def check_templates(folder: Path | None) -> None:
    """Raise InvalidFields that names every problem of the templates in `folder`; None: there are none to check."""
    problems = template_problems(folder) if folder else []
    if problems:
        raise InvalidFields(f"templates in {folder}", problems)


def template_problems(folder: Path) -> list[str]:
    """Wrong syntax, unknown names and filters, files that change no page, links that lead out of the folder."""
    if not folder.is_dir():
        return [f"templates: there is no folder {folder}"]
    paths = sorted(folder.rglob(f"*{SUFFIX}"))
    inside = [path for path in paths if path.resolve().is_relative_to(folder.resolve())]
    problems = [f"{path.name}: is a link that leads out of the folder" for path in paths if path not in inside]
    taken_in: dict[str, set[str]] = {}
    for path in inside:
        problems += _problems(path, folder, taken_in)
    names = [path.relative_to(folder).as_posix() for path in inside]
    used = _reached(overridable(), taken_in)
    problems += [f"{name}: {_nobody(name)}" for name in names if name not in used]
    return problems + list(_no_templates(folder, bool(paths)))


def _reached(names: Iterable[str], taken_in: Mapping[str, set[str]]) -> set[str]:
    """These templates, what they take in, and what that takes in."""
    reached, left = set(), list(names)
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += taken_in.get(name, ())
    return reached


def _no_templates(folder: Path, some: bool) -> Iterator[str]:
    """Files that are named as if they were templates. some: there are templates beside them; else that there is none."""
    others = sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix != SUFFIX)
    known = overridable()
    meant = {name: near for name in others if (near := _meant(name, known))}
    for name, near in meant.items():
        yield (
            f"{name}: its name does not end on {SUFFIX}, so that no page is made from it (did you mean {near!r}?); "
            f"known: {', '.join(known)}"
        )
    if not (some or meant):
        yield (
            f"templates: no file in it ends on {SUFFIX}, so that no page would change; "
            f"found {', '.join(others[:SHOWN]) or 'nothing'}; known: {', '.join(known)}"
        )


def _meant(name: str, known: Iterable[str]) -> str:
    """The template that a file of another ending was meant to be: `form.html`, `form.html.jinja2`, `FORM.HTML.J2`."""
    plain = name.lower()
    written = (f"{plain}{SUFFIX}", f"{plain.rpartition('.')[0]}{SUFFIX}", plain)
    return next((one for one in known if one in written), "")


def overridable() -> list[str]:
    """The names of the shipped templates that a user's file may stand in for."""
    return sorted(path.name for path in resources.templates().glob(f"*{SUFFIX}") if path.name not in NOT_OURS)


def _nobody(name: str) -> str:
    if name in NOT_OURS:
        return "is written to the store, not to the report: it cannot be replaced"
    return f"no page is made from it and no template takes it in; {unknown_name_text('template', name, overridable())}"


def _problems(path: Path, folder: Path, taken_in: dict[str, set[str]]) -> Iterator[str]:
    """What is wrong with one file. taken_in: the names of the templates that it takes in are added."""
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
    taken_in[name] = {found for found in meta.find_referenced_templates(tree) if found}
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
