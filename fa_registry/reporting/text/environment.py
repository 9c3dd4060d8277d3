"""The Jinja2 environment of the pages.

An undefined name is an error. A float must be printed with a filter. The function `finalize` receives and escapes
every printed expression. In Markdown templates, `finalize` converts plain text with `markdown_text`. In LaTeX templates,
`finalize` uses `latex_text`. Macros return Markup, so no text is escaped twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import (
    Environment,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
)
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from fa_registry import bundled_files
from fa_registry.errors import LONGEST_PROBLEM, UsageError, shortened, unknown_name_text
from fa_registry.reporting.text import filters, latex
from fa_registry.text_safety import escape_control

# This package's filters for every language; those of one language are in LANGUAGES.
FILTERS = (
    *(
        "num",
        "sci",
        "pct",
        "pp",
        "nats",
        "signed_nats",
        "cos",
        "exact",
        "compact",
        "ci",
        "between",
        "brackets",
        "bare",
        "unit",
        "na",
        "number",
    ),
    *(
        "reading",
        "spread",
        "interval",
        "cell",
        "answer",
        "brief",
        "short",
        "scalar",
        "describe_edition",
        "quantity",
        "error_parts",
    ),
    *("gating_rules", "changed_rules"),
)
# `default` hides undefined names, `format` prints nan, and the other filters switch escaping off or escape twice.
FORBIDDEN_FILTERS = ("default", "d", "format", "safe", "forceescape")
SUFFIX, MARKDOWN, LATEX, HTML = ".j2", ".md.j2", ".tex.j2", ".html.j2"
NESTED = "templates or macros are nested too deeply: one of them calls itself"


class StrictUndefinedWithHint(StrictUndefined):
    """Value of an undefined name. The error message for a field of a record lists the known fields."""

    @property
    def _undefined_message(self) -> str:
        record = self._undefined_obj
        if self._undefined_hint or not dataclasses.is_dataclass(record) or not isinstance(self._undefined_name, str):
            return super()._undefined_message
        properties = [name for name in dir(type(record)) if isinstance(getattr(type(record), name), property)]
        names = (*(field.name for field in dataclasses.fields(record)), *properties)
        return unknown_name_text(f"field of {type(record).__name__}", self._undefined_name, names)


def environment(name: str, user_templates: Path | None = None) -> Environment:
    """Return the Jinja2 environment for the template `name`, a file name.

    The files of the folder `user_templates` replace the built-in templates with the same name. With this folder, all templates
    run in Jinja2's sandbox, because a report may come with the templates of its author.
    """
    built_in = bundled_files.templates()
    if user_templates is None:
        return _built_in(mode(name), built_in)
    if not user_templates.is_dir():
        raise UsageError(f"templates: expected a folder with .j2 files, found no folder at {user_templates}")
    return _environment_of(name, [user_templates, built_in], ImmutableSandboxedEnvironment)


def _environment_of(name: str, folders: Sequence[Path], kind: type[Environment]) -> Environment:
    finalize, own_filters = LANGUAGES[mode(name)]
    builtin_filters = {filter_name: getattr(filters, filter_name) for filter_name in FILTERS} | own_filters
    template_environment = kind(
        undefined=StrictUndefinedWithHint,
        finalize=finalize,
        loader=FileSystemLoader(folders),
        autoescape=True,  # escapes text in .html.j2; in other templates, `finalize` has already converted text to Markup
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,  # otherwise each import of macros would check the files for changes
    )
    for forbidden in FORBIDDEN_FILTERS:
        del template_environment.filters[forbidden]
    template_environment.filters.update(builtin_filters)
    return template_environment


def mode(name: str) -> str:
    """Return the suffix of the language of a template: .md.j2, .tex.j2 or .html.j2.

    A file with another suffix, such as the style sheet, is part of an HTML page and has the mode of HTML.
    """
    return next((suffix for suffix in (MARKDOWN, LATEX) if name.endswith(suffix)), HTML)


class TemplateRenderer:
    """Renders pages, with the user templates of a folder if there is one, and compiles each template once."""

    def __init__(self, user_templates: Path | None = None):
        self._user_templates = user_templates
        self._environments: dict[str, Environment] = {}

    def render(self, name: str, context: dict[str, Any]) -> str:
        """Return the text of one page.

        Raises:
            UsageError: A template failed; the message names the template. Errors of Jinja2 are converted to UsageError.
        """
        try:
            return self._environment(name).get_template(name).render(context)
        except TemplateError as error:
            raise template_failure(name, error) from error
        except Exception as error:
            if self._user_templates is None:
                raise  # in a built-in template this is a bug, so its traceback is shown
            raise template_failure(name, error) from error

    def _environment(self, name: str) -> Environment:
        if self._user_templates is None:
            return environment(name)
        if mode(name) not in self._environments:
            self._environments[mode(name)] = environment(name, self._user_templates)
        return self._environments[mode(name)]


@cache
def _built_in(language: str, folder: Path) -> Environment:
    """Return the environment of a language with built-in templates, which all renderers share."""
    return _environment_of(language, [folder], Environment)


def _printable(write_text: Callable[[str], str], value: Any) -> Any:
    """Return a printed value as text in the language of the template.

    Raises:
        TypeError: The value is neither a text nor an integer; a float needs a filter.
    """
    if isinstance(value, (Markup, StrictUndefined)) or type(value) is int:
        return value
    if isinstance(value, str):
        return write_text(value)
    kind = repr(value) if isinstance(value, float) else type(value).__name__  # a list's repr could be endless
    raise TypeError(
        f"expected text or a whole number to print, found {kind}; write other numbers with num, sci, pct or pp"
    )


# Language of a template → the function that converts printed text, and the filters that only this language has.
LANGUAGES: Mapping[str, tuple[Callable[[Any], Any], Mapping[str, Callable[..., Any]]]] = MappingProxyType(
    {
        HTML: (partial(_printable, escape_control), {}),
        MARKDOWN: (partial(_printable, filters.markdown_text), {"fence": filters.fence, "verbatim": filters.verbatim}),
        LATEX: (partial(_printable, latex.latex_text), {"comment": latex.latex_comment}),
    }
)


def variables(context: Any) -> dict[str, Any]:
    """Return the variables of a template: the fields of its context."""
    return {field.name: getattr(context, field.name) for field in fields(context)}


def template_failure(page: str, error: Exception) -> UsageError:
    """Return the error of a failed template as a UsageError that names the innermost template or the page."""
    reason = shortened(error, LONGEST_PROBLEM)
    if isinstance(error, RecursionError):
        reason = NESTED
    elif isinstance(error, TemplateNotFound):
        reason = f"template {error.name} not found; a template can include files from its folder and built-in templates"
    return UsageError(f"template {_place(page, error)}: {type(error).__name__}: {reason}")


def _place(page: str, error: Exception) -> str:
    """Return the position of the error in a template: `form.html.j2, line 12`."""
    location = page
    step = error.__traceback__
    while step is not None:  # Jinja2 rewrites tracebacks so that their frames point to the templates
        if step.tb_frame.f_code.co_filename.endswith(SUFFIX):
            location = f"{Path(step.tb_frame.f_code.co_filename).name}, line {step.tb_lineno}"
        step = step.tb_next
    line = getattr(error, "lineno", None)  # a syntax error contains the line
    return f"{getattr(error, 'name', None) or page}, line {line}" if line else location
