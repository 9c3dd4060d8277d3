"""Display of records in a notebook, as HTML or plain text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WRITERS: dict[type, Callable[[Any], str]] = {}  # filled by reporting.notebook, which formats numbers


class NotebookRepr:
    """Base class of records that a notebook can show as HTML.

    HTML is available only if the module reporting.notebook was imported. The modules for audits and comparisons import it.
    """

    def _repr_html_(self) -> str | None:
        writer = WRITERS.get(type(self))
        return writer(self) if writer else None
