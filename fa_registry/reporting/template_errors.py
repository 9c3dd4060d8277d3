"""What is said of a template that fails: which one, in which line, and why."""

from __future__ import annotations

from pathlib import Path

from jinja2 import TemplateNotFound

from fa_registry.errors import UsageError

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
