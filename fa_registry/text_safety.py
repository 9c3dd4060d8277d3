"""Foreign text shown to a person: no sign in it that is not seen, and no line that it begins by itself.

Names come from stores, files and packages of others. ESC and C1 signs move the cursor of a terminal and wipe what stands there,
bidirectional overrides rewrite the line they stand in, and a line end lets a name write a line of ours.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable

# Control, format (the bidirectional overrides too), private use, surrogates, line and paragraph separators.
CATEGORIES = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
NO_CHARACTERS = "\ufffe\uffff"  # which XML has no way to write
NOT_PLAIN = re.compile(r"[^\n\t -~]")  # of which some are hidden
INDENT = "  "
LONGEST = 200  # characters of a name; MLflow takes 250 of a run's and 500 of an experiment's


def _passwords(sign: str) -> re.Pattern[str]:
    """Passwords in stores' addresses, with what comes before them in a group. sign: of a password, but for `/`, `?` and `@`.

    They stand before the host, where those of databases may hold `/` and `?` as SQLAlchemy reads them, or are named.
    """
    return re.compile(
        rf'((?:postgres|mysql|mariadb|mssql|oracle)[\w+]*://[^\s/:@"\\]*:)(?:{sign}|[/?])+(?=@)'
        rf'|(://[^\s/:@"\\]*:){sign}+(?=@)'
        rf"|(\b\w{{0,30}}(?:password|pwd)(?:=|%3D))(?:(?![&;%]){sign}|[/?@])+",
        re.IGNORECASE,
    )


PASSWORD = _passwords(r"[^\s/?@]")
PASSWORD_IN_JSON = _passwords(r'(?:[^\s/?@"\\]|\\[^nrt])')  # there a text ends at a quotation mark, and a line at \n


def escape_control(text: str) -> str:
    """The text with its control and direction-changing characters shown as ⟨U+202E⟩, tabs and line ends kept, no password."""
    return without_password(_replaced(text, lambda char: f"⟨U+{ord(char):04X}⟩"))


def escape_to_one_line(text: str) -> str:
    """As `visible`, with a space for line ends and tabs."""
    return re.sub(r"[\t\n]+", " ", escape_control(text))


def escape_message(text: str) -> str:
    """As `visible`, of words that may have several lines: only the first begins at the margin."""
    first, *others = escape_control(text).replace("\t", " ").split("\n")
    return "\n".join([first, *(line if line.startswith(INDENT) or not line else INDENT + line for line in others)])


def json_text(text: str) -> str:
    r"""JSON that means the same, with \u202e for what is not seen."""
    return _replaced(text, lambda char: json.dumps(char)[1:-1])


def without_password(text: str) -> str:
    """The text, with no password in the addresses that it names."""
    return PASSWORD.sub(r"\1\2\3…", text) if "://" in text else text


def json_without_password(text: str) -> str:
    """The same of JSON, in whose texts a quotation mark is escaped."""
    return PASSWORD_IN_JSON.sub(r"\1\2\3…", text) if "://" in text else text


def name_problem(name: str) -> str:
    """Why nothing may be called so, for what is yet to be written; empty where it may."""
    if len(name) > LONGEST:
        return f"expected a name of at most {LONGEST} characters, found {len(name):,}"
    if not name.strip() or escape_to_one_line(name) != name:
        return f"expected a name of signs that are seen, without control or direction signs, found {name!r}"
    return ""


def _replaced(text: str, write: Callable[[str], str]) -> str:
    def shown(match: re.Match[str]) -> str:
        hidden = unicodedata.category(match[0]) in CATEGORIES or match[0] in NO_CHARACTERS
        return write(match[0]) if hidden else match[0]

    return text if text.isprintable() else NOT_PLAIN.sub(shown, text)  # printable: nearly every text there is
