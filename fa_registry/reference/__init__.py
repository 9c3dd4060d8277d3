"""Generated parts of docs/ and README: plug-ins, commands, files and templates, from the code."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]  # an installed package has no pages
BEGIN, END = "<!-- generated: python -m fa_registry.reference --write -->", "<!-- /generated -->"


def filled(page: str, *parts: str) -> str:
    """Return the page, a path in the checkout, with these parts between its marks; the prose is unchanged."""
    prose, *rest = (CHECKOUT / page).read_text(encoding="utf-8").split(BEGIN)
    after = [text.partition(END)[2] for text in rest]
    pieces = (f"{BEGIN}\n{part}\n{END}{text}" for part, text in zip(parts, after, strict=True))
    return "".join([prose, *pieces])
