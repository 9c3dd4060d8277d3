"""How a record shows itself in a notebook: as whoever can write pages has said, else as plain text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WRITERS: dict[type, Callable[[Any], str]] = {}  # filled by reporting.notebook, which knows how numbers are written


class NotebookRepr:
    """A record with an HTML form, once the pages' code is loaded: whatever audits or compares loads it."""

    def _repr_html_(self) -> str | None:
        writer = WRITERS.get(type(self))
        return writer(self) if writer else None
