"""Line numbers of the keys in a TOML text, which tomllib does not report.

A text is split into statements, and tomllib reads each of them alone. So this module finds only strings, comments and brackets.
"""

from __future__ import annotations

import bisect
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fa_registry.errors import Steps

STRINGS = r'"""(?:\\.|[^\\])*?"{3,5}|"(?:\\.|[^"\\\n])*"', r"'''.*?'{3,5}|'[^'\n]*'"
TOKEN = re.compile("|".join((*STRINGS, r"#[^\n]*|[\[\]{}\n]")), re.DOTALL)
DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}


def key_lines(text: str) -> dict[Steps, int]:
    """Return the line of each key, table and list entry of a valid TOML text, counted from 1.

    The entries of a list have the line at which the list begins.
    """
    found: dict[Steps, int] = {}
    table: Steps = ()
    entries: Counter[Steps] = Counter()  # tables of each array of tables
    for line, statement in _statements(text):
        values = tomllib.loads(statement)
        is_header = statement.lstrip().startswith("[")
        table = _header(values, entries) if is_header else table
        for length in range(1, len(table)):
            found.setdefault(table[:length], line)
        _add(table, {} if is_header else values, line, found)
    return found


def error_line(text: str) -> int:
    """Return the line at which the first wrong statement of an invalid TOML text begins, counted from 1."""
    lines, statements = zip(*_statements(text), strict=True)
    ends = range(1, len(lines))
    return lines[bisect.bisect_left(ends, True, key=lambda end: _is_wrong("".join(statements[:end])))]


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of each statement and each empty line.

    The last statement of an invalid text may be incomplete.
    """
    text = text.replace("\r\n", "\n")
    start = first = line = depth = 0
    for token in TOKEN.finditer(text):
        line += token[0].count("\n")
        depth += DEPTH.get(token[0], 0)
        if token[0] == "\n" and depth <= 0:
            yield first + 1, text[start : token.end()]
            start, first, depth = token.end(), line, 0
    yield first + 1, text[start:]


def _is_wrong(text: str) -> bool:
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _header(statement: Any, entries: Counter[Steps]) -> Steps:
    """Return the path of the table that a header such as `[grid.recipe]` begins."""
    table: Steps = ()
    while statement:
        ((name, statement),) = statement.items()
        table = (*table, name)
        if isinstance(statement, list):
            entries[table] += 1
            statement = statement[0]
        if entries[table]:
            table = (*table, entries[table] - 1)
    return table


def _add(path: Steps, value: Any, line: int, found: dict[Steps, int]) -> None:
    """Set the line of a path, unless it has one, and of all paths in its value."""
    found.setdefault(path, line)
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        _add((*path, step), item, line, found)
