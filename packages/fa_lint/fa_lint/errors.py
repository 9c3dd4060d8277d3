"""Error for a request that the linter cannot carry out, and the texts of its messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

LONGEST_NAME = 200  # characters of a name in a message: enough for a path, not for the content of a file
LONGEST_IN_LIST, MOST_NAMES = 80, 10  # characters of each name in a list, and most names in a list
LONGEST_PROBLEM, MOST_PROBLEMS = 1_000, 20


class LintError(Exception):
    """Error for a request that cannot be carried out; the exit code is 2."""


def invalid(problems: Sequence[str]) -> LintError:
    """Return an error that lists the problems of one request."""
    count = f"{len(problems):,} problem{'s' if len(problems) != 1 else ''}"
    lines = [f"  - {shortened(problem, LONGEST_PROBLEM)}" for problem in problems[:MOST_PROBLEMS]]
    return LintError("\n".join([f"lint: {count}", *lines]))


def unknown_code_text(code: str, known_codes: Iterable[str]) -> str:
    """Return the message for an unknown code of a rule, with the known codes and a similar code."""
    codes = sorted(known_codes)
    matches = difflib.get_close_matches(shortened(code), codes, n=1)
    hint = f" (did you mean {matches[0]!r}?)" if matches else ""
    return f"unknown rule {shortened(code)!r}{hint}; known: {', '.join(codes)}"


def shortened(name: object, limit: int = LONGEST_NAME) -> str:
    """Return a name as text; cut a text of more than `limit` characters and append `…`."""
    text = str(name)
    return text if len(text) <= limit else f"{text[:limit]}…"


def join_names(names: Collection[str]) -> str:
    """Return a comma-separated list of at most MOST_NAMES names, and the number of the other names."""
    notes = [f"and {len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*(shortened(name, LONGEST_IN_LIST) for name in islice(names, MOST_NAMES)), *notes])
