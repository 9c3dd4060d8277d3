"""The Jinja2 environment of the pages: undefined names are errors, text is escaped, numbers must pass a filter.

Escaping is the default and cannot be forgotten: `finalize` sees every printed expression. In a Markdown template it
writes plain text through `markdown_text`, in a LaTeX one through `latex_text`; macros return Markup there too, so
nothing is escaped twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound
from markupsafe import Markup

from fa_registry import resources
from fa_registry.errors import UsageError
from fa_registry.reporting.text import filters, latex
from fa_registry.reporting.text.sandbox import UserEnvironment, rendered

FILTERS = (
    "num",
    "sci",
    "pct",
    "pp",
    "cos",
    "exact",
    "compact",
    "ci",
    "between",
    "na",
    "number",
    "reading",
    "spread",
    "cell",
    "brief",
    "short",
    "edition_words",
)
# `default` hides a name that does not exist; `format` prints nan; the others switch escaping off or double it.
FORBIDDEN_FILTERS = ("default", "d", "format", "safe", "forceescape")
MARKDOWN, LATEX, HTML = ".md.j2", ".tex.j2", ".html.j2"


def environment(name: str, user_templates: Path | None = None) -> Environment:
    """The environment in which the template called `name` is rendered.

    user_templates: a folder whose files stand in for the shipped ones of the same name. Its templates come from
    strangers, so everything then runs in Jinja2's sandbox.
    """
    folders = [resources.templates()]
    if user_templates is not None:
        if not user_templates.is_dir():
            raise UsageError(f"templates: expected a folder with .j2 files, found no folder at {user_templates}")
        folders.insert(0, user_templates)
    ours = {known: getattr(filters, known) for known in FILTERS} | OWN_FILTERS[mode(name)]
    finalize = FINALIZE[mode(name)]
    options = {
        "loader": FileSystemLoader(folders),
        "autoescape": True,  # .html.j2: HTML escaping; else `finalize` has already turned text into Markup
        "trim_blocks": True,
        "lstrip_blocks": True,
        "keep_trailing_newline": True,
        "auto_reload": False,  # a page imports its macros each time, and would look each time whether the files changed
    }
    if user_templates is not None:
        return UserEnvironment(finalize, ours, **options)
    made = Environment(undefined=StrictUndefined, finalize=finalize, **options)
    for forbidden in FORBIDDEN_FILTERS:
        del made.filters[forbidden]
    made.filters.update(ours)
    return made


def mode(name: str) -> str:
    """What a template writes, by the end of its name; any other file is HTML or stands inside of it, like the style sheet."""
    return next((known for known in (MARKDOWN, LATEX) if name.endswith(known)), HTML)


class Pages:
    """The templates of one rendering, each compiled once. user_templates: see `environment`."""

    def __init__(self, user_templates: Path | None = None):
        self._user_templates = user_templates
        self._environments: dict[str, Environment] = {}

    def render(self, name: str, context: dict[str, Any]) -> str:
        """The text of one page. A template that fails is a UsageError that names it; raises nothing of Jinja2's own."""
        try:
            return rendered(self._environment(name).get_template(name), context)
        except TemplateError as error:
            raise template_failure(name, error) from error
        except Exception as error:
            if self._user_templates is None:
                raise  # of a shipped template: a bug, which shows its traceback
            raise template_failure(name, error) from error

    def _environment(self, name: str) -> Environment:
        if mode(name) not in self._environments:
            self._environments[mode(name)] = environment(name, self._user_templates)
        return self._environments[mode(name)]


def html_value(value: Any) -> Any:
    """What an HTML template may print: text, whole numbers, Markup. A float comes from a filter, never bare."""
    return filters.visible(value) if type(value) is str else _printable(value)


def markdown_value(value: Any) -> Any:
    return filters.markdown_text(value) if type(value) is str else _printable(value)


def latex_value(value: Any) -> Any:
    return latex.latex_text(value) if type(value) is str else _printable(value)


def _printable(value: Any) -> Any:
    if isinstance(value, (Markup, StrictUndefined)) or type(value) is int:
        return value
    found = repr(value) if isinstance(value, float) else type(value).__name__  # a list within lists has no end
    raise TypeError(
        f"a template may print text and whole numbers, found {found}; write numbers with num, sci, pct or pp"
    )


FINALIZE: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {HTML: html_value, MARKDOWN: markdown_value, LATEX: latex_value}
)
OWN_FILTERS: Mapping[str, Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        HTML: {},
        MARKDOWN: {"fence": filters.fence, "verbatim": filters.verbatim},
        LATEX: {"block": latex.latex_block, "comment": latex.latex_comment, "parts": latex.parts},
    }
)


def variables(context: Any) -> dict[str, Any]:
    """The template's variables: the fields of the context, any page's, as they are."""
    return {field.name: getattr(context, field.name) for field in fields(context)}


# What is said of a template that fails: which one, in which line, and why.


SUFFIX = ".j2"
NESTED = "templates or macros are nested too deeply: one of them calls itself"


def template_failure(page: str, error: Exception) -> UsageError:
    """The error of a page as a UsageError; `page` is named where the error tells of no template inside it."""
    return UsageError(f"template {_place(page, error)}: {type(error).__name__}: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return NESTED
    if isinstance(error, TemplateNotFound):
        return f"there is no {error.name}; a template takes others from its own folder and from the shipped ones"
    return str(error)


def _place(page: str, error: Exception) -> str:
    """`form.html.j2, line 12`: the innermost template that was at work."""
    found = page
    step = error.__traceback__
    while step is not None:  # Jinja2 rewrites tracebacks so that their frames lie in the templates
        if step.tb_frame.f_code.co_filename.endswith(SUFFIX):
            found = f"{Path(step.tb_frame.f_code.co_filename).name}, line {step.tb_lineno}"
        step = step.tb_next
    line = getattr(error, "lineno", None)  # of a syntax error
    return f"{getattr(error, 'name', None) or page}, line {line}" if line else found
