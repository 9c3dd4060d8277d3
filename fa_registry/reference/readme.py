"""What README lists of the families that it speaks of: every method, every edition."""

from __future__ import annotations

import textwrap

from fa_registry import methods
from fa_registry.protocol.rules import Edition, shipped_editions
from fa_registry.reference import filled
from fa_registry.workflows.editions import DEFAULT_EDITION

WIDTH = 132


def readme_reference() -> str:
    """README.md with its list of methods and its table of editions as they are now."""
    listed = textwrap.fill(", ".join(f"`{name}`" for name in methods.CATALOG.names()) + ".", WIDTH)
    rows = [_row(edition) for edition in shipped_editions()]
    return filled("README.md", listed, "\n".join(["| edition | judges by | from |", "|---|---|---|", *rows]))


def _row(edition: Edition) -> str:
    default = ", the default" if edition.name == DEFAULT_EDITION else ""
    cells = (f"`{edition.name}`{default}", edition.title, edition.source)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
