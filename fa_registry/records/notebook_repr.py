"""Display of records by `print` and in a notebook, as text or HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Writer(NamedTuple):
    """Functions that return a record as HTML and as text."""

    html: Callable[[Any], str]
    text: Callable[[Any], str]


WRITERS: dict[type, Writer] = {}  # filled by reporting.notebook, which formats numbers


class NotebookRepr:
    """Base class of records that `print` and notebooks show in a readable form.

    The readable form is available only if the module reporting.notebook was imported. The modules for audits and comparisons
    import that module. Without that import, `str` returns the line of `repr`.
    """

    def _repr_html_(self) -> str | None:
        writer = WRITERS.get(type(self))
        return writer.html(self) if writer else None

    def __str__(self) -> str:
        writer = WRITERS.get(type(self))
        return writer.text(self) if writer else repr(self)
