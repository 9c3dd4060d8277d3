"""Functions that render the pages of an audit.

The same report gives the same bytes, because pages contain no times and no random ids.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import MappingProxyType

from jinja2 import TemplateError, meta, nodes

from fa_registry import bundled_files, parallel, process_ownership, provenance
from fa_registry.analyses import Answers, answers_of
from fa_registry.errors import InvalidFields, join_names, unknown_name_text
from fa_registry.jsonio import digest_of, file_digest
from fa_registry.plugin_registry import source_digest
from fa_registry.protocol.grouping import Group
from fa_registry.records import AuditReport
from fa_registry.reporting.figures.canvas import VECTORS
from fa_registry.reporting.figures.page import form_figures, setting_figures
from fa_registry.reporting.files import audit_json, report_files
from fa_registry.reporting.pages.analyses import page_analyses
from fa_registry.reporting.pages.comparison import CompareContext
from fa_registry.reporting.pages.form import (
    FormContext,
    check_blanks_kept,
    form_context,
    read_blanks,
)
from fa_registry.reporting.pages.form_tiles import judged_scale
from fa_registry.reporting.pages.index import (
    FIGURES,
    IndexContext,
    figure_files,
    index_context,
)
from fa_registry.reporting.pages.notes import AuditNoteContext, ExcludedNoteContext, NoteContext
from fa_registry.reporting.pages.paper_table import PaperTableContext, paper_table_context
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text.environment import (
    SUFFIX,
    TemplateRenderer,
    environment,
    template_failure,
    variables,
)
from fa_registry.reporting.view_models import FORM_FORMATS, Link
from fa_registry.tracking.schema import AUDIT_PAGE

# The table for a paper, and the text that explains its numbers; both can be included in a LaTeX file.
PAPER = ("audit_table.tex", "audit_table_notes.tex")
FORMS = "forms"  # the folder of the forms
COMPARISON = "compare.html"
# The placeholder of the comparison's link in index.html.j2, and the link that replaces it.
UNLINKED = "<!-- fa:compare -->"
LINKED = '<li><a href="compare.html">compare.html</a>: methods or runs side by side</li>'
NOT_OURS = ("note.md.j2", "audit_note.md.j2")  # for all users of the store: always built-in templates
OWN_TEMPLATES = ", user templates"  # suffix of the text that `renderer` returns
UNCALCULABLE = (ValueError, ArithmeticError, RuntimeError)
DRAWN_WITH = ("jinja2", "matplotlib", "numpy", "pillow", "scipy")  # libraries whose version affects the bytes of a page
PREFIX = ".rendering-"  # of the name of the temporary folder
# Template → its context class. The fields of this class are the variables of the template, each with a description and a unit.
TEMPLATES: Mapping[str, type] = MappingProxyType(
    {
        "index.html.j2": IndexContext,
        **{f"form{suffix}.j2": FormContext for suffix in FORM_FORMATS},
        **{f"{name}.j2": PaperTableContext for name in PAPER},
        "compare.html.j2": CompareContext,
        "note.md.j2": NoteContext,
        "excluded_note.md.j2": ExcludedNoteContext,
        "audit_note.md.j2": AuditNoteContext,
    }
)


def render_report(
    report: AuditReport, out: Path, templates: Path | None = None, columns: Sequence[str] = ()
) -> list[Path]:
    """Write the pages, files and figures of an audit, and return their paths in this order.

    The output is index.html, the forms forms/<slug>.html and .md of every method and setting, the table for a paper with its notes,
    the files of `report_files()`, and figures/. The texts that the author wrote into the blanks of existing forms are kept.

    Args:
        templates: Folder of user templates. They replace the built-in templates with the same name and run in a sandbox.
        columns: The metrics in the table for a paper; empty: the table `paper`.

    Raises:
        InvalidFields: `columns` has too many or unknown metrics.
        UsageError: A template fails, the blanks of a form cannot be kept, or the values cannot be rendered. No page was written.
    """
    with rendered(report, answers_of(report), out, templates, columns) as (_, names):
        return [out / name for name in names]


@contextmanager
def rendered(
    report: AuditReport, answers: Answers, out: Path, templates: Path | None = None, columns: Sequence[str] = ()
) -> Iterator[tuple[Path, list[str]]]:
    """Render an audit into a temporary folder, then move the files into `out`.

    The files are those of `render_report`. They are moved at the end of the `with` block, even if the block raises an exception.
    Another audit that writes into `out` at the same time does not change the temporary folder.

    Args:
        answers: The analyses on the first page.

    Yields:
        The tuple (the temporary folder, the names of the files in this folder).
    """
    check_templates(templates)
    with unfinished(out) as folder:  # only one page at a time is in memory
        with _as_values_allow(report):
            sources, pages = Sources.of(report), TemplateRenderer(templates)
            names = _write_tables(sources, columns, folder, pages)  # first, because this checks the columns
            names = _render(sources, answers, folder, out, pages) + names
        try:
            yield folder, names
        finally:
            for name in names:  # complete pages are moved, so no reader sees a partial page
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(folder / name, out / name)


@contextmanager
def _as_values_allow(report: AuditReport) -> Iterator[None]:
    """Raise InvalidFields if the `with` block fails because of impossible values.

    An example is a p-value of 7. Measured values never cause this error. A report that was read from a file may contain impossible
    values, because the reader does not check all values (tests/stress/malformed.py).
    """
    try:
        yield
    except UNCALCULABLE as error:
        cause = f"{type(error).__name__}: {error}"
        reason = f"the report contains values that no measurement can produce, so it cannot be rendered: {cause}"
        raise InvalidFields(
            f"audit of {report.selection}", [f"{reason}. Nothing was written; audit the runs of the report again"]
        ) from error


def renderer(templates: Path | None = None) -> str:
    """Return a text that identifies everything that determines the bytes of the pages.

    The text contains the digest of the source code, the versions of the libraries, and the processor. With user templates, only
    users who have their folder can render the same pages.
    """
    shipped = {path.name: file_digest(path) for path in sorted(bundled_files.templates().glob(f"*{SUFFIX}"))}
    source = digest_of([source_digest("fa_registry"), shipped])
    versions = {name: importlib.metadata.version(name) for name in ("fa_registry", *DRAWN_WITH)}
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    machine = provenance.hardware()
    template_note = OWN_TEMPLATES if templates else ""
    return f"{libraries}, source {source[:16]}, {machine['machine']} {machine['cpu']}{template_note}"


def output_conflicts(out: Path) -> list[str]:
    """Return the reasons why the pages cannot be written into `out`.

    A conflict is a file in place of a needed folder, or a folder in place of a file.
    """
    folders = [out / name for name in (FORMS, FIGURES)]
    pages = [out / name for name in (AUDIT_PAGE, *PAPER, *(file.name for file in report_files()))]
    reasons = [
        f"expected a folder, found the file {path}; move the file away or choose another folder"
        for path in folders
        if path.exists() and not path.is_dir()
    ]
    return reasons + [
        f"expected a file or nothing at {path}, found a folder; move the folder away or choose another folder"
        for path in pages
        if path.is_dir()
    ]


def _write_tables(sources: Sources, columns: Sequence[str], folder: Path, pages: TemplateRenderer) -> list[str]:
    """Write the table for a paper and its notes into `folder`, and return their names."""
    table = variables(paper_table_context(sources, columns))
    for name in PAPER:
        _write(folder / name, pages.render(f"{name}.j2", table))
    return list(PAPER)


def _render(sources: Sources, answers: Answers, folder: Path, out: Path, pages: TemplateRenderer) -> list[str]:
    """Write the other files into `folder`, with the author's texts in the forms of `out`; return names."""
    report = sources.report
    names = [AUDIT_PAGE]
    context = index_context(sources, setting_figures(sources.groups, report.cards), page_analyses(answers, report))
    _write(folder / AUDIT_PAGE, pages.render("index.html.j2", variables(context)))
    (folder / FORMS).mkdir()
    write, forms = partial(_write_form, sources, folder, out, pages), list(sources.forms)
    for form in forms[:1]:
        write(form)  # the first form fills the caches of templates and common values, before the process forks
    parallel.parallel_for(write, forms[1:])
    names += [name for _, link in forms for name in link.files.values()]
    for file in report_files():
        file.write(report, folder / file.name)
        names.append(file.name)
    images = figure_files(context.figures, context.analyses)
    for name, kind, image in ((figure.name, kind, image) for figure, image in images.items() for kind in VECTORS):
        path = folder / f"{name}.{kind}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(image.saved(kind))
        names.append(f"{name}.{kind}")
    return names


def _write_form(sources: Sources, folder: Path, out: Path, pages: TemplateRenderer, form: tuple[Group, Link]) -> None:
    group, link = form
    blanks = read_blanks(out / link.markdown)
    figures = form_figures(group, sources.controls(group), sources.report.cards, judged_scale(group.runs)[0])
    context = variables(form_context(group, link, sources, blanks, figures))
    for suffix in FORM_FORMATS:
        _write(folder / f"{link.stem}{suffix}", pages.render(f"form{suffix}.j2", context))
    check_blanks_kept(blanks, (folder / link.markdown).read_text(encoding="utf-8"), out / link.markdown)


def _write(path: Path, text: str) -> None:
    # A name from a broken store may contain a lone surrogate, which UTF-8 cannot encode. Like JSON, write an escape such as \udc80.
    path.write_bytes(text.encode("utf-8", errors="backslashreplace"))


def render_comparison(context: CompareContext, out: Path, templates: Path | None = None) -> Path:
    """Write compare.html into `out`, and add a link to this page to index.html.

    The link is added if the audit in `out` contains all compared runs; otherwise an existing link is removed.

    Args:
        context: The template variables of the page.
        templates: As in `render_report`.

    Returns:
        The path of compare.html.

    Raises:
        UsageError: A template fails.
    """
    check_templates(templates)
    text = TemplateRenderer(templates).render(f"{COMPARISON}.j2", variables(context))
    with unfinished(out) as folder:
        _write(folder / COMPARISON, text)
        os.replace(folder / COMPARISON, out / COMPARISON)
        _link(context, out, folder)
    return out / COMPARISON


def _link(context: CompareContext, out: Path, folder: Path) -> None:
    """Add or remove the link to compare.html in index.html, as bytes because the encoding may be unknown."""
    index, records = out / AUDIT_PAGE, out / audit_json.FILE.name
    if not index.is_file():
        return
    judged = records.read_bytes() if records.is_file() else b""
    compared = [seed.run_id for part, _ in context.parts for column in part.columns for seed in column.seeds]
    current, replacement = UNLINKED.encode(), LINKED.encode()
    if not all(run_id.encode() in judged for run_id in compared):
        current, replacement = replacement, current
    page = index.read_bytes()
    if current in page:
        (folder / index.name).write_bytes(page.replace(current, replacement))
        os.replace(folder / index.name, index)


def check_templates(folder: Path | None) -> None:
    """Check the user's templates in a folder without rendering a page; None skips the check.

    Raises:
        InvalidFields: The message lists all problems of the templates.
    """
    problems = template_problems(folder) if folder else []
    if problems:
        raise InvalidFields(f"templates in {folder}", problems)


def template_problems(folder: Path) -> list[str]:
    """Return all problems of the user's templates in a folder.

    Problems are syntax errors, unknown names, unknown filters and unused files.
    """
    if not os.path.isdir(folder):  # Path.is_dir raises if the name is longer than the file system allows
        return [f"templates: expected a folder with {SUFFIX} files, found no folder {folder}"]
    paths = sorted(folder.rglob(f"*{SUFFIX}"))
    includes: dict[str, set[str]] = {}
    problems = [problem for path in paths for problem in _problems(path, folder, includes)]
    names = [path.relative_to(folder).as_posix() for path in paths]
    used_names = _included_templates(overridable(), includes)
    for name in (name for name in names if name not in used_names):
        reason = f"no page uses it and no template includes it; {unknown_name_text('template', name, overridable())}"
        if name in NOT_OURS:
            reason = "this template is used only for notes in the store, so a user cannot replace this template"
        problems.append(f"{name}: {reason}")
    return problems + list(_no_templates(folder, bool(paths)))


def _included_templates(names: Iterable[str], includes: Mapping[str, set[str]]) -> set[str]:
    reached, pending = set(), list(names)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += includes.get(name, ())
    return reached


def _no_templates(folder: Path, has_templates: bool) -> Iterator[str]:
    """Yield a problem for every file whose name is similar to a template's name.

    Yield a problem for the folder if it contains no template and no file with a similar name.
    """
    file_names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix != SUFFIX)
    template_names, suggestions = overridable(), {}
    for name, lowered in ((name, name.lower()) for name in file_names):  # such as `form.html` or `FORM.HTML.J2`
        candidates = (f"{lowered}{SUFFIX}", f"{lowered.rpartition('.')[0]}{SUFFIX}", lowered)
        if template := next((template for template in template_names if template in candidates), ""):
            suggestions[name] = template
    for name, suggestion in suggestions.items():
        yield (
            f"{name}: its name does not end in {SUFFIX}, so it is not used for any page (did you mean {suggestion!r}?); "
            f"known: {', '.join(template_names)}"
        )
    if not (has_templates or suggestions):
        yield (
            f"templates: no file in this folder ends in {SUFFIX}, so no page would change; "
            f"found {join_names(file_names) or 'nothing'}; known: {', '.join(template_names)}"
        )


def overridable() -> list[str]:
    """Return the names of the built-in templates that a user's file may replace."""
    return sorted(path.name for path in bundled_files.templates().glob(f"*{SUFFIX}") if path.name not in NOT_OURS)


def _problems(path: Path, folder: Path, includes: dict[str, set[str]]) -> Iterator[str]:
    name = path.relative_to(folder).as_posix()
    env = environment(name, folder)
    try:
        source = path.read_text(encoding="utf-8")
        tree = env.parse(source, name)
        unknown = [node for node in tree.find_all(nodes.Filter) if node.name not in env.filters]
        if not unknown:
            env.compile(source, name)
    except (TemplateError, OSError, UnicodeDecodeError, RecursionError, SyntaxError, ValueError) as error:
        yield str(template_failure(name, error))
        return
    for node in unknown:
        yield f"template {name}, line {node.lineno}: {unknown_name_text('filter', node.name, env.filters)}"
    if unknown:
        return  # Jinja2 can check names only if it knows every filter
    includes[name] = {template for template in meta.find_referenced_templates(tree) if template}
    if name in TEMPLATES:
        variable_names = {field.name for field in fields(TEMPLATES[name])}
        for variable in sorted(meta.find_undeclared_variables(tree) - variable_names - set(env.globals)):
            lines = [node.lineno for node in tree.find_all(nodes.Name) if (node.name, node.ctx) == (variable, "load")]
            place = f"template {name}, line {min(lines)}" if lines else f"template {name}"
            yield f"{place}: {unknown_name_text('name', variable, variable_names)}"


@contextmanager
def unfinished(out: Path) -> Iterator[Path]:
    """Yield a new temporary folder inside `out` for unfinished pages.

    Because the folder is inside `out`, finished pages can be moved instead of copied. The folder is removed at the end. Temporary
    folders of killed processes are removed at the start.
    """
    out.mkdir(parents=True, exist_ok=True)
    for stale_folder in process_ownership.abandoned(out, ".*"):
        process_ownership.remove_quietly(stale_folder)
    with process_ownership.temp_dir(PREFIX, out) as folder:
        yield folder
