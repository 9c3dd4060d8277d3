"""Display of a record in a notebook: as HTML if the code of the pages is loaded, else as plain text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WRITERS: dict[type, Callable[[Any], str]] = {}  # filled by reporting.notebook, which formats numbers


class NotebookRepr:
    """Base class of records with an HTML form; code that audits or compares loads the pages' code."""

    def _repr_html_(self) -> str | None:
        writer = WRITERS.get(type(self))
        return writer(self) if writer else None
