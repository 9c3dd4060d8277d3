"""`# fa: ok FA002 why` at the end of a line silences that rule on that line. The reason is not optional."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Container, Iterator
from dataclasses import dataclass

COMMENT = re.compile(r"#\s*fa:\s*ok\b(?P<codes>(?:[\s,]*\bFA\d{3}\b)*)(?P<rest>.*)$", re.IGNORECASE)
CODE = re.compile(r"FA\d{3}", re.IGNORECASE)


@dataclass(frozen=True)
class Silence:
    """One comment. problem: why it silences nothing; empty if it is in order."""

    line: int
    column: int
    end_column: int
    codes: tuple[str, ...]
    reason: str
    problem: str


def silences(text: str, known: Container[str]) -> Iterator[Silence]:
    """Every such comment of a text that parses; columns count from 1."""
    if "fa:" not in text.lower():  # tokenizing takes as long as parsing
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        match = COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if not match:
            continue
        codes = tuple(code.upper() for code in CODE.findall(match["codes"]))
        reason = match["rest"].strip(" \t:,;-–—")
        yield Silence(
            token.start[0],
            token.start[1] + match.start() + 1,
            token.end[1] + 1,
            codes,
            reason,
            _problem(codes, reason, known),
        )


def _problem(codes: tuple[str, ...], reason: str, known: Container[str]) -> str:
    unknown = [code for code in codes if code not in known]
    if not codes:
        return "names no rule; write `# fa: ok FA002 reason`"
    if unknown:
        return f"names {', '.join(unknown)}, which no rule is called"
    if not reason:
        return f"gives no reason; write `# fa: ok {', '.join(codes)} reason`"
    return ""
