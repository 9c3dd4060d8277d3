"""Any two values as what changed between them, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fa_registry import jsonio
from fa_registry.reporting.audit_diff.records import Change

LONGEST = 200  # characters that still say something to a reader


def text_of(value: Any) -> str:
    """The value in words; of a long one its SHA-256."""
    text = value if isinstance(value, str) else jsonio.canonical(value)
    return text if len(text) <= LONGEST else f"SHA-256 {jsonio.digest_of(value)}"


def changed(what: str, before: Any, after: Any) -> Iterator[Change]:
    """One change, or none where the values are equal."""
    if before != after:
        yield Change(what, text_of(before), text_of(after))


def changed_entries(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """One change for every key whose value is not the same, or that only one of the two has."""
    for key in dict.fromkeys((*before, *after)):
        yield from changed(f"{what} {key}", before.get(key, ""), after.get(key, ""))
