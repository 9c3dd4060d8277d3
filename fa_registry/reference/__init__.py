"""Generator of the reference pages in docs/ and of parts of the README.

The contents come from the code: plug-ins, commands, files and templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]  # a checkout of the repository, because an installed package has no pages
BEGIN, END = "<!-- generated: python -m fa_registry.reference --write -->", "<!-- /generated -->"


def filled(page: str, *parts: str) -> str:
    """Return a page with new text for each generated part. `page` is a path relative to the checkout.

    The HTML comments BEGIN and END enclose a generated part. The other text is unchanged.
    """
    prose, *sections = (CHECKOUT / page).read_text(encoding="utf-8").split(BEGIN)
    following_texts = [text.partition(END)[2] for text in sections]
    pieces = (f"{BEGIN}\n{part}\n{END}{text}" for part, text in zip(parts, following_texts, strict=True))
    return "".join([prose, *pieces])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose cells are any text."""
    return "\n".join([_row(header), f"|{'---|' * len(header)}", *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
