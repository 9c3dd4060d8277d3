"""Every error this package raises on purpose.

RegistryError
├── UsageError                  exit 2: the request cannot be carried out as written
│   ├── UnknownName             a name that no catalog contains, with the nearest names
│   ├── InvalidFields           one or many wrong fields, all reported at once
│   ├── StoreError              the tracking store cannot be opened, read or written
│   └── NothingSelected         an audit that selects no run
├── PluginError                 exit 2: a plug-in is registered twice or does not match its plug-in kind
├── IntegrityError              exit 3: a file is not the one that was recorded
└── Interrupted                 exit 130: stopped on request, resumable

The only warning is EvidenceWarning, a UserWarning: a result rests on less evidence than it should.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice


class EvidenceWarning(UserWarning):
    """Warning that a metric rests on less evidence than it should; never raised as an exception."""


class RegistryError(Exception):
    """Base class of all errors; `exit_code` is what the command line returns for it.

    A message is cut after LONGEST_MESSAGE characters, because it may quote a file.
    """

    exit_code = 1

    def __init__(self, message: object = ""):
        super().__init__(shortened(message, LONGEST_MESSAGE))


class UsageError(RegistryError):
    exit_code = 2


class UnknownName(UsageError):
    """A name that a plug-in kind does not contain; the message lists the known names."""

    def __init__(self, family: str, name: str, known: Iterable[str]):
        super().__init__(unknown_name_text(family, name, known))


class InvalidFields(UsageError):
    """Several wrong fields of one request, reported together.

    Args:
        subject: the file or record that has the fields.
        problems: one sentence per field, each starting with the field's name.
    """

    def __init__(self, subject: str, problems: Sequence[str]):
        self.problems = tuple(problems)
        count = f"{len(problems):,} problem{'s' if len(problems) != 1 else ''}"
        super().__init__("\n".join([f"{subject}: {count}", *(f"  - {problem}" for problem in _first(problems))]))


class StoreError(UsageError):
    pass


class NothingSelected(UsageError):
    pass


class PluginError(RegistryError):
    exit_code = 2


class IntegrityError(RegistryError):
    exit_code = 3


class Interrupted(RegistryError):
    exit_code = 130


LONGEST_NAME = 200  # characters of a name in an error: enough for a path, not for a file's content
LONGEST_IN_LIST = 80  # characters of each name in a list of names
MOST_NAMES, MOST_KNOWN = 10, 100  # names in an error: names from a file, known names
# Longest texts in characters: one problem in an error, the list of all problems, a whole message.
LONGEST_PROBLEM, LONGEST_LIST, LONGEST_MESSAGE = 1_000, 3_000, 3_900


def unknown_name_text(family: str, name: object, known: Iterable[str]) -> str:
    """Return one sentence for an unknown name: the nearest match, if any, and the known names."""
    names = sorted(known)
    near = difflib.get_close_matches(shortened(name), names, n=1)
    hint = f" (did you mean {shortened(near[0])!r}?)" if near else ""
    return f"unknown {family} {shortened(name)!r}{hint}; known: {join_names(names, MOST_KNOWN) or 'none'}"


def unknown_field_text(where: str, kind: str, name: str, known: Iterable[str]) -> str:
    """Return the line of InvalidFields for a field that is not declared.

    `where` is the prefix of the field's name, for example `rule[0].`; `kind` is the noun in the message.
    """
    return f"{where}{shortened(name)}: {unknown_name_text(kind, name, known)}"


def shortened(name: object, most: int = LONGEST_NAME) -> str:
    """Return a name in at most `most` characters, short enough for an error message."""
    text = str(name)
    return text if len(text) <= most else f"{text[:most]}…"


def join_names(names: Collection[object], most: int = MOST_NAMES) -> str:
    """Join names for an error: `a, b, c`, and `…, and 99,990 more` if there are more than `most`."""
    shown = [shortened(name, LONGEST_IN_LIST) for name in islice(names, most)]
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*shown, *more])


def _first(problems: Sequence[str]) -> Iterator[str]:
    """Yield the first problems that fit in a message, then the number of the others (a lower bound)."""
    length = 0
    for place, problem in enumerate(problems):
        line = shortened(problem, LONGEST_PROBLEM)
        length += len(line) + 5  # "  - " and a line end
        if length > LONGEST_LIST:
            yield f"and at least {len(problems) - place:,} more"
            return
        yield line
