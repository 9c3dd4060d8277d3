"""Generator of the reference pages in docs/ and of parts of the README.

The contents come from the code: plug-ins, commands, files and templates.
"""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]  # an installed package has no pages
BEGIN, END = "<!-- generated: python -m fa_registry.reference --write -->", "<!-- /generated -->"


def filled(page: str, *parts: str) -> str:
    """Return a page with new generated parts and unchanged other text.

    Args:
        page: path of the page, relative to the checkout.
        parts: new text between the marks, one per pair of marks.
    """
    prose, *sections = (CHECKOUT / page).read_text(encoding="utf-8").split(BEGIN)
    following_texts = [text.partition(END)[2] for text in sections]
    pieces = (f"{BEGIN}\n{part}\n{END}{text}" for part, text in zip(parts, following_texts, strict=True))
    return "".join([prose, *pieces])
