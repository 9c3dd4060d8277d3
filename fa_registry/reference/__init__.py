"""What is generated of docs/ and README: what the code says of its own members and verbs, so that it is never said twice."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]  # an installed package has no pages
BEGIN, END = "<!-- generated: python -m fa_registry.reference --write -->", "<!-- /generated -->"


def filled(page: str, *parts: str) -> str:
    """The page, named from the checkout, with these parts between its marks in order; the prose around them as it stands."""
    prose, *rest = (CHECKOUT / page).read_text(encoding="utf-8").split(BEGIN)
    after = [text.partition(END)[2] for text in rest]
    pieces = (f"{BEGIN}\n{part}\n{END}{text}" for part, text in zip(parts, after, strict=True))
    return "".join([prose, *pieces])
