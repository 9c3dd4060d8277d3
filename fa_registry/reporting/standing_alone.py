"""A form as it lies beside a single run, away from the audit it belongs to."""

from __future__ import annotations

import re

# A link into the folder of the audit's pages. One into the page itself (#) or to another host still leads somewhere.
RELATIVE_LINK = re.compile(r"<a\b[^>]*\bhref=\"(?!#|[a-z]+:)[^\"]*\"[^>]*>(.*?)</a>", re.DOTALL)


def standing_alone(page: str) -> str:
    """The HTML `page` with every link to a neighbouring file turned into its words, for its neighbours are not there."""
    return RELATIVE_LINK.sub(r"\1", page)
