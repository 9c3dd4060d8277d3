"""Removal of hidden characters, extra lines and passwords from untrusted text.

Names come from stores, files and packages of other people. ESC and C1 characters can move the cursor of a terminal and
delete its text. Bidirectional overrides reorder a line. A name with a line end can imitate a message of this program.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable

# Control, format (including bidirectional overrides), private use, surrogates, line separators, paragraph separators.
CATEGORIES = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
NO_CHARACTERS = "\ufffe\uffff"  # not allowed in XML
NOT_PLAIN = re.compile(r"[^\n\t -~]")  # characters that may be hidden
INDENT = "  "
LONGEST = 200  # characters of a name; MLflow accepts 250 for a run and 500 for an experiment


def _passwords(sign: str) -> re.Pattern[str]:
    # A password is before the host or has a name. In an address of a database, a password may contain / and ?, as in
    # SQLAlchemy. `sign` is the pattern of a password's character, except for / ? and @.
    return re.compile(
        rf'((?:postgres|mysql|mariadb|mssql|oracle)[\w+]*://[^\s/:@"\\]*:)(?:{sign}|[/?])+(?=@)'
        rf'|(://[^\s/:@"\\]*:){sign}+(?=@)'
        rf"|(\b\w{{0,30}}(?:password|pwd)(?:=|%3D))(?:(?![&;%]){sign}|[/?@])+",
        re.IGNORECASE,
    )


PASSWORD = _passwords(r"[^\s/?@]")
PASSWORD_IN_JSON = _passwords(r'(?:[^\s/?@"\\]|\\[^nrt])')  # a JSON text ends at a quotation mark, a line at \n


def escape_control(text: str) -> str:
    """Remove passwords, and replace hidden characters except tabs and line ends by e.g. ⟨U+202E⟩."""
    return without_password(_replaced(text, lambda char: f"⟨U+{ord(char):04X}⟩"))


def escape_to_one_line(text: str) -> str:
    """Escape a text in the same way as `escape_control` does; replace line ends and tabs by spaces."""
    return re.sub(r"[\t\n]+", " ", escape_control(text))


def escape_message(text: str) -> str:
    """Escape a text of several lines, for a log or a terminal, in the same way as `escape_control` does.

    All lines after the first line are indented, so these lines cannot imitate a new message.
    """
    first_line, *following = escape_control(text).replace("\t", " ").split("\n")
    return "\n".join(
        [first_line, *(line if line.startswith(INDENT) or not line else INDENT + line for line in following)]
    )


def json_text(text: str) -> str:
    r"""Return equivalent JSON with escapes such as \u202e for hidden characters."""
    return _replaced(text, lambda char: json.dumps(char)[1:-1])


def ascii_json(text: str) -> str:
    r"""Return equivalent JSON with escapes such as \u0393 for all characters outside of ASCII."""
    return re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match[0])[1:-1], text)


def without_password(text: str) -> str:
    """Return the text with each password in an address replaced by `…`."""
    return PASSWORD.sub(r"\1\2\3…", text) if "://" in text else text


def json_without_password(text: str) -> str:
    """Return JSON text with each password in an address replaced by `…`.

    Use this function instead of `without_password` for JSON text, because quotation marks are escaped in JSON strings.
    """
    return PASSWORD_IN_JSON.sub(r"\1\2\3…", text) if "://" in text else text


def name_problem(name: str) -> str:
    """Return why a new object must not have this name; empty if the name is allowed."""
    if len(name) > LONGEST:
        return f"expected a name of at most {LONGEST} characters, found {len(name):,}"
    if not name.strip() or escape_to_one_line(name) != name:
        return f"expected a name of visible characters, without control or text direction characters, found {name!r}"
    return ""


def _replaced(text: str, escape: Callable[[str], str]) -> str:
    def shown(match: re.Match[str]) -> str:
        hidden = unicodedata.category(match[0]) in CATEGORIES or match[0] in NO_CHARACTERS
        return escape(match[0]) if hidden else match[0]

    return text if text.isprintable() else NOT_PLAIN.sub(shown, text)  # nearly all texts are printable
