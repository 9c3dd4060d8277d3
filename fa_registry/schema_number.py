"""Schema number of stores, bundles, editions and JSON files.

A change of a format that this package reads back increases the number. Files of another number are not read.
"""

from __future__ import annotations

from typing import Any

from fa_registry.errors import UsageError, shortened

SCHEMA = 3
KEY = "schema"  # field of a file that contains the number


def check_schema(subject: str, found: Any, advice: str) -> None:
    """Raise UsageError if `found` is not the number of the installed package.

    Args:
        subject: name of the file or run in the message.
        found: the number in the file, as a number or as text; None if the file contains no number.
        advice: what the user can do.
    """
    if type(found) in (int, str) and str(found) == str(SCHEMA):
        return
    maker = "without a schema number" if found is None else f"by schema {shortened(repr(found)).strip(chr(39))}"
    raise UsageError(f"{subject}: made {maker}, but this fa_registry reads schema {SCHEMA}; {advice}")
