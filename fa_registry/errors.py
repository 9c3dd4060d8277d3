"""Every error this package raises on purpose.

RegistryError
├── UsageError                  exit 2: the request cannot be carried out as written
│   ├── UnknownName             a name no catalog holds, with the nearest ones
│   ├── InvalidFields           one or many wrong fields, all named at once
│   ├── StoreError              the tracking store cannot be opened, read or written
│   └── NothingSelected         an audit that selects no run
├── PluginError                 exit 2: a plugin is registered twice or is not what its family asks for
├── IntegrityError              exit 3: a file is not the one that was recorded
└── Interrupted                 exit 130: stopped on request, resumable

And the one warning, a UserWarning: EvidenceWarning, a result that rests on less than it should; it says on what.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice


class EvidenceWarning(UserWarning):
    """A figure was computed as asked, but rests on less evidence than it should. Never raised by this package itself."""


class RegistryError(Exception):
    """Root of the tree; `exit_code` is what the command line returns for it.

    A message is cut after LONGEST_MESSAGE characters, whatever a file had in it.
    """

    exit_code = 1

    def __init__(self, message: object = ""):
        super().__init__(shortened(message, LONGEST_MESSAGE))


class UsageError(RegistryError):
    exit_code = 2


class UnknownName(UsageError):
    """A name that is not in a family; says which names are."""

    def __init__(self, family: str, name: str, known: Iterable[str]):
        super().__init__(unknown_name_text(family, name, known))


class InvalidFields(UsageError):
    """Several wrong fields of one request, reported together.

    problems: one sentence a field, each starting with the field's name.
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


LONGEST_NAME = 200  # characters of a name that an error repeats; a path fits, a file in the place of a name does not
LONGEST_IN_LIST = 80  # characters of a name of many
MOST_NAMES, MOST_KNOWN = 10, 100  # names that an error lists, of a file, and of what exists here
# Characters of one problem that an error repeats, of all of them, and of a whole message.
LONGEST_PROBLEM, LONGEST_LIST, LONGEST_MESSAGE = 1_000, 3_000, 3_900


def unknown_name_text(family: str, name: object, known: Iterable[str]) -> str:
    """One sentence for an unknown name: the nearest match if there is one, and the list of names that exist."""
    names = sorted(known)
    near = difflib.get_close_matches(shortened(name), names, n=1)
    hint = f" (did you mean {shortened(near[0])!r}?)" if near else ""
    return f"unknown {family} {shortened(name)!r}{hint}; known: {join_names(names, MOST_KNOWN) or 'none'}"


def unknown_field_text(where: str, kind: str, name: str, known: Iterable[str]) -> str:
    """The line of InvalidFields for a field that nobody declared. where: what stands before its name, `rule[0].`."""
    return f"{where}{shortened(name)}: {unknown_name_text(kind, name, known)}"


def shortened(name: object, most: int = LONGEST_NAME) -> str:
    """A name as an error can repeat it, in at most so many characters, whatever somebody wrote in its place."""
    text = str(name)
    return text if len(text) <= most else f"{text[:most]}…"


def join_names(names: Collection[object], most: int = MOST_NAMES) -> str:
    """Join names for an error: `a, b, c`, and `…, and 99,990 more` if a file has more of them than a person reads.

    Args:
        names: of tensors, fields or files, as a third-party file has them.
        most: how many of them are repeated.
    """
    shown = [shortened(name, LONGEST_IN_LIST) for name in islice(names, most)]
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*shown, *more])


def _first(problems: Sequence[str]) -> Iterator[str]:
    """Yield the first problems, as many as a person reads, and how many there are beside them at least."""
    length = 0
    for place, problem in enumerate(problems):
        line = shortened(problem, LONGEST_PROBLEM)
        length += len(line) + 5  # "  - " and a line end
        if length > LONGEST_LIST:
            yield f"and at least {len(problems) - place:,} more"
            return
        yield line
