"""The Jinja2 environment of the pages.

An undefined name is an error. A float must be printed with a filter. The function `finalize` receives and escapes
every printed expression. In Markdown templates, `finalize` converts plain text with `markdown_text`. In LaTeX templates,
`finalize` uses `latex_text`. Macros return Markup, so no text is escaped twice.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import (
    Environment,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
    nodes,
)
from jinja2.environment import TemplateModule
from jinja2.runtime import LoopContext, TemplateReference
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Cycler, Namespace, missing, object_type_repr
from markupsafe import Markup

from fa_registry import bundled_files
from fa_registry.errors import LONGEST_PROBLEM, UsageError, shortened, unknown_name_text
from fa_registry.reporting.text import filters, latex
from fa_registry.text_safety import escape_control

SECONDS = 60.0  # time limit of a page; an index of 66 runs needs less than one second
MEMORY = 2**30  # bytes that a page of user templates may use in addition to the process's present memory
LARGEST = 2**26  # characters of a page, and characters or entries of one operator's result
BITS = 2**12  # of an integer result
# Jinja2's filters, without those that switch escaping off or format numbers.
JINJA_FILTERS = (
    *("abs", "capitalize", "count", "dictsort", "e", "escape", "first", "groupby", "int", "items", "join", "last"),
    *("length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "select"),
    *("selectattr", "sort", "string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)
GLOBALS = ("range", "dict", "cycler", "joiner", "namespace")
# This package's filters for every language; those of one language are in LANGUAGES.
FILTERS = (
    *("num", "sci", "pct", "pp", "nats", "signed_nats", "cos", "exact", "compact", "ci", "between", "na", "number"),
    *("reading", "spread", "cell", "brief", "short", "describe_edition", "quantity"),
    *("gating_rules", "changed_rules"),
)
OLD_FIELDS = {"beside_control": "compared_with_control"}
OLD_FILTERS = {"edition_words": "describe_edition"}  # old names in user templates, valid for one release
# `default` hides undefined names, `format` prints nan, and the other filters switch escaping off or escape twice.
FORBIDDEN_FILTERS = ("default", "d", "format", "safe", "forceescape")
SUFFIX, MARKDOWN, LATEX, HTML = ".j2", ".md.j2", ".tex.j2", ".html.j2"
NESTED = "templates or macros are nested too deeply: one of them calls itself"
LOOP = ("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth")
LOOP += ("depth0", "cycle", "changed")
TEXT = ("lower", "upper", "title", "capitalize", "strip", "lstrip", "rstrip", "startswith", "endswith", "split")
TEXT += ("rsplit", "splitlines", "partition", "rpartition", "removeprefix", "removesuffix", "isdigit", "find", "count")
ALLOWED: tuple[tuple[type, tuple[str, ...]], ...] = (
    (str, TEXT),
    (Mapping, ("items", "keys", "values", "get")),
    (LoopContext, LOOP),
    (Cycler, ("next", "current", "reset")),
)
OPEN = (TemplateModule, Namespace, TemplateReference)  # objects with values that only templates set
TURNS = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)  # a long-running template repeats one of these nodes


class StrictUndefinedWithHint(StrictUndefined):
    """Value of an undefined name. Its error message lists the known names."""

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint or self._undefined_obj is missing or not isinstance(self._undefined_name, str):
            return super()._undefined_message
        allowed_names = touchable(self._undefined_obj)
        kind = "field" if dataclasses.is_dataclass(self._undefined_obj) else "attribute"
        return unknown_name_text(f"{kind} of {_kind(self._undefined_obj)}", self._undefined_name, allowed_names)


class UserEnvironment(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox with a list of allowed names, a time limit, and the filters of this package.

    The function `finalize` converts every printed value.
    """

    intercepted_binops = frozenset({"%", "*", "**", "+"})

    def __init__(self, finalize: Callable[[Any], Any], builtin_filters: Mapping[str, Callable], **options: Any):
        super().__init__(finalize=finalize, undefined=StrictUndefinedWithHint, **options)
        self.filters = {name: self.filters[name] for name in JINJA_FILTERS} | dict(builtin_filters)
        self.globals = {name: self.globals[name] for name in GLOBALS}
        self.started = time.monotonic()

    def tick(self) -> None:
        """Check the time limit of the page; every loop and every macro calls this method.

        Raises:
            SecurityError: The time limit is exceeded.
        """
        if time.monotonic() - self.started > SECONDS:
            raise SecurityError(f"the page takes more than {SECONDS:g} s; a loop or a macro does not end")

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute of an object; the old names of attributes are accepted too."""
        return super().getattr(obj, OLD_FIELDS.get(attribute, attribute))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return not attr.startswith("_") and (isinstance(obj, OPEN) or attr in touchable(obj))

    def unsafe_undefined(self, obj: Any, attribute: str) -> StrictUndefined:
        allowed_names = ", ".join(sorted(touchable(obj))) or "nothing"
        hint = f"a template cannot use {attribute!r} of {_kind(obj)}; it can use: {allowed_names}"
        return self.undefined(hint, name=attribute, exc=SecurityError)

    def wrap_str_format(self, value: Any) -> None:
        """Disable `"…".format()`, because this method can print nan."""
        return

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute `left operator right`. Raise SecurityError if the result would be too large."""
        if operator == "%" and isinstance(left, str):
            raise SecurityError(
                "the operator % of texts is not available; write numbers with the filters num, sci, pct and pp"
            )
        size, limit, unit = _result_size(operator, left, right)
        if size > limit:
            raise SecurityError(
                f"the operator {operator} gives a value of more than {limit:,} {unit}; use smaller values in the template"
            )
        return super().call_binop(context, operator, left, right)

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        """Insert a check of the time limit into every loop and macro."""
        for switch in source.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier)):
            raise TemplateSyntaxError(
                "autoescape cannot be changed, because run names are untrusted text", switch.lineno, name
            )
        for node in source.find_all(TURNS):
            check_call = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
            node.body.insert(0, nodes.ExprStmt(check_call, lineno=node.lineno).set_lineno(node.lineno))
        return super()._generate(source, name, filename, defer_init)


def _result_size(operator: str, left: Any, right: Any) -> tuple[int, int, str]:
    """Return an upper bound of the size of `left operator right`, the allowed maximum, and the unit.

    The bound is 0 if the result cannot be large.
    """
    numbers = isinstance(left, int) and isinstance(right, int)
    if numbers and operator == "**":
        return left.bit_length() * max(right, 0), BITS, "bits"
    if numbers and operator == "*":
        return left.bit_length() + right.bit_length(), BITS, "bits"
    lengths = [len(value) if isinstance(value, Sized) else None for value in (left, right)]
    if operator == "+" and None not in lengths:
        return sum(lengths), LARGEST, "characters or entries"
    times = [value for value in (left, right) if isinstance(value, int)]
    known_lengths = [length for length in lengths if length is not None]
    size = known_lengths[0] * max(times[0], 0) if operator == "*" and times and known_lengths else 0
    return size, LARGEST, "characters or entries"


ONE_PAGE = threading.Lock()  # only one page at a time may change the memory limit of the process


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Limit the additional memory of the process to MEMORY bytes inside the context.

    If the process needs more, Python raises MemoryError. The memory is not limited on Windows and macOS, where
    the limit cannot be set or the present memory cannot be read.
    """
    try:
        import resource

        used_memory = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    with ONE_PAGE:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limits = [limit for limit in (soft, hard, used_memory + MEMORY) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def touchable(obj: Any) -> tuple[str, ...]:
    """Return the names that a template may use: fields and properties of a record, some methods of a text."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        described = [name for name in dir(type(obj)) if isinstance(getattr(type(obj), name), property)]
        return (*(field.name for field in dataclasses.fields(obj)), *described)
    return next((names for kind, names in ALLOWED if isinstance(obj, kind)), ())


def _kind(obj: Any) -> str:
    return type(obj).__name__ if dataclasses.is_dataclass(obj) else object_type_repr(obj)


def environment(name: str, user_templates: Path | None = None) -> Environment:
    """Return the Jinja2 environment for the template `name`, a file name.

    The files of the folder `user_templates` replace the built-in templates with the same name. User templates are untrusted, so
    with this folder all templates run in Jinja2's sandbox.
    """
    folders = [bundled_files.templates()]
    if user_templates is not None:
        if not user_templates.is_dir():
            raise UsageError(f"templates: expected a folder with .j2 files, found no folder at {user_templates}")
        folders.insert(0, user_templates)
    finalize, own_filters = LANGUAGES[mode(name)]
    builtin_filters = {filter_name: getattr(filters, filter_name) for filter_name in FILTERS} | own_filters
    builtin_filters |= {old: builtin_filters[new] for old, new in OLD_FILTERS.items()}
    options = {
        "loader": FileSystemLoader(folders),
        "autoescape": True,  # escapes text in .html.j2; in other templates, `finalize` has already converted text to Markup
        "trim_blocks": True,
        "lstrip_blocks": True,
        "keep_trailing_newline": True,
        "auto_reload": False,  # otherwise each import of macros would check the files for changes
    }
    if user_templates is not None:
        return UserEnvironment(finalize, builtin_filters, **options)
    template_environment = Environment(undefined=StrictUndefined, finalize=finalize, **options)
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
            template_environment = self._environment(name)
            if not isinstance(template_environment, UserEnvironment):
                return template_environment.get_template(name).render(context)
            template_environment.started = time.monotonic()  # the time limit of user templates applies to each page
            with bounded_memory():
                text = template_environment.get_template(name).render(context)
            if len(text) > LARGEST:
                raise SecurityError(f"expected a page of at most {LARGEST:,} characters, found {len(text):,}")
            return text
        except TemplateError as error:
            raise template_failure(name, error) from error
        except Exception as error:
            if self._user_templates is None:
                raise  # in a built-in template this is a bug, so its traceback is shown
            raise template_failure(name, error) from error

    def _environment(self, name: str) -> Environment:
        if mode(name) not in self._environments:
            self._environments[mode(name)] = environment(name, self._user_templates)
        return self._environments[mode(name)]


def _printable(write_text: Callable[[str], str], value: Any) -> Any:
    """Return a printed value as text in the language of the template.

    Raises:
        TypeError: The value is neither a text nor an integer; a float needs a filter.
    """
    if type(value) is str:
        return write_text(value)
    if isinstance(value, (Markup, StrictUndefined)) or type(value) is int:
        return value
    kind = repr(value) if isinstance(value, float) else type(value).__name__  # a list's repr could be endless
    raise TypeError(
        f"expected text or a whole number to print, found {kind}; write other numbers with num, sci, pct or pp"
    )


LATEX_FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "block": latex.latex_block,
        "formulas": latex.latex_formulas,
        "comment": latex.latex_comment,
        "parts": latex.parts,
    }
)
# Language of a template → the function that converts printed text, and the filters that only this language has.
LANGUAGES: Mapping[str, tuple[Callable[[Any], Any], Mapping[str, Callable[..., Any]]]] = MappingProxyType(
    {
        HTML: (partial(_printable, escape_control), {}),
        MARKDOWN: (partial(_printable, filters.markdown_text), {"fence": filters.fence, "verbatim": filters.verbatim}),
        LATEX: (partial(_printable, latex.latex_text), LATEX_FILTERS),
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
    elif isinstance(error, MemoryError):
        reason = f"the page needs more than {MEMORY:,} bytes of memory; shorten the page"
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
