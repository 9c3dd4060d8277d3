"""Display of records in a notebook, as HTML or plain text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WRITERS: dict[type, Callable[[Any], str]] = {}  # filled by reporting.notebook, which formats numbers


class NotebookRepr:
    """Base class of records that a notebook can show as HTML.

    The HTML needs reporting.notebook, which the code for audits and comparisons imports.
    """

    def _repr_html_(self) -> str | None:
        writer = WRITERS.get(type(self))
        return writer(self) if writer else None
