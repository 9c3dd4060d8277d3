"""A form as it lies beside a single run, away from the audit it belongs to."""

from __future__ import annotations

import html
import re

# A link into the folder of the audit's pages. One into the page itself (#) or to another host still leads somewhere.
RELATIVE_LINK = re.compile(r"<a\b[^>]*\bhref=\"(?!#|[a-z]+:)[^\"]*\"[^>]*>(.*?)</a>", re.DOTALL)


def standing_alone(page: str) -> str:
    """The HTML `page` with every link to a neighbouring file turned into its words, for its neighbours are not there."""
    return RELATIVE_LINK.sub(r"\1", page)


def in_place_of_a_form(note: str) -> str:
    """A page for a run that has an older audit's form among its files and is not judged any more. note: shown as it is."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>NOT JUDGED</title></head>'
        f'<body><main><h1>NOT JUDGED</h1><p style="white-space: pre-wrap">{html.escape(note)}</p></main></body></html>\n'
    )
