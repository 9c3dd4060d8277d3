"""Exceptions and warnings that this package raises deliberately.

RegistryError
├── UsageError                  exit 2: the request cannot be carried out as written
│   ├── UnknownName             an unknown name; the message lists the known names
│   ├── InvalidFields           one or more wrong fields, all reported at once
│   ├── StoreError              the tracking store cannot be opened, read or written
│   ├── NothingSelected         the options of a command select no run
│   └── PromotionRefused        exit 4: the verdict on a run does not allow its promotion without a reason
├── PluginError                 exit 2: a plug-in violates its contract or is registered twice
├── IntegrityError              exit 3: a file is unreadable or differs from the recorded file
└── Interrupted                 exit 130: the user or a signal stopped the command, which can be repeated

The only warning is EvidenceWarning, a UserWarning: a result is based on less evidence than required.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

Steps = tuple[str | int, ...]


class EvidenceWarning(UserWarning):
    """Warning that a result is based on less evidence than required.

    The package reports this warning with `warnings.warn` and never raises it as an exception.
    """


class RegistryError(Exception):
    """Base class of all errors of this package.

    The class attribute `exit_code` is the exit code of the command `fa-registry` for this error. A message is cut after
    LONGEST_MESSAGE characters, because the message may quote the content of a file.
    """

    exit_code = 1

    def __init__(self, message: object = ""):
        super().__init__(shortened(message, LONGEST_MESSAGE))


class UsageError(RegistryError):
    exit_code = 2


class UnknownName(UsageError):
    """Error for a name that is missing in a list of known names, such as the plug-ins of a kind.

    The message begins with `family`, the noun for the kind of name, lists the known names and ends with the sentence `hint`.
    """

    def __init__(self, family: str, name: str, known_names: Iterable[str], hint: str = ""):
        super().__init__("; ".join(filter(None, (unknown_name_text(family, name, known_names), hint))))


class Problem(str):
    """One problem of an InvalidFields error as text, e.g. `study.toml:12: recipe.epochs: missing`.

    Attributes:
        steps: names and indices that lead to the wrong field, e.g. `("grid", 0, "seeds")`; empty for the whole file or request.
        text: what is wrong, without the name of the field.
        file: path of the file that contains the field; empty if the field is not in a file.
        line: line in this file, counted from 1; 0 if unknown.
    """

    steps: Steps
    text: str
    file: str
    line: int

    def __new__(cls, steps: Steps, text: str, file: str = "", line: int = 0) -> Problem:
        field = field_path(steps)
        place = f"{file}:{line}" if line else file
        problem = super().__new__(cls, ": ".join(filter(None, (place, field, text))))
        problem.steps, problem.text, problem.file, problem.line = steps, text, file, line
        return problem

    @property
    def fields(self) -> dict[str, str | int | None]:
        """The facts for JSON; the line is None if unknown."""
        return {"file": self.file, "line": self.line or None, "field": field_path(self.steps), "text": self.text}


def field_path(steps: Steps) -> str:
    """Return the path of a field in a message, e.g. `grid[0].seeds`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{shortened(step)}" for step in steps).lstrip(".")


class InvalidFields(UsageError):
    """Error that reports all wrong fields of one request together.

    `subject` is the file or record that contains the fields. `problems` contains one sentence per wrong field. Each sentence
    starts with the name of the field.
    """

    def __init__(self, subject: str, problems: Sequence[str]):
        self.problems = tuple(each if isinstance(each, Problem) else Problem((), each) for each in problems)
        count = pluralise(len(problems), "problem")
        super().__init__("\n".join([f"{subject}: {count}", *(f"  - {problem}" for problem in _first(problems))]))


class StoreError(UsageError):
    pass


class NothingSelected(UsageError):
    pass


class PromotionRefused(UsageError):
    exit_code = 4


class PluginError(RegistryError):
    exit_code = 2


class IntegrityError(RegistryError):
    exit_code = 3


class Interrupted(RegistryError):
    exit_code = 130


LONGEST_NAME = 200  # characters of a name in an error: enough for a path, not for a file's content
LONGEST_IN_LIST = 80  # characters of each name in a list of names
MOST_NAMES, MOST_KNOWN = 10, 100  # largest number of names in an error: names from a file, known names
# Longest texts in characters: one problem in an error, the list of all problems, a whole message.
LONGEST_PROBLEM, LONGEST_LIST, LONGEST_MESSAGE = 1_000, 3_000, 3_900


def unknown_name_text(family: str, name: object, known_names: Iterable[str]) -> str:
    """Return the error message for an unknown name.

    The message lists the known names. If a known name is similar, the message suggests this name. `family` is a noun for the
    kind of name, for example `method`.
    """
    names = sorted(known_names)
    closest = closest_name(name, names)
    hint = f" (did you mean {shortened(closest)!r}?)" if closest else ""
    return f"unknown {family} {shortened(name)!r}{hint}; known: {join_names(names, MOST_KNOWN) or 'none'}"


def closest_name(name: object, known_names: Iterable[str]) -> str:
    """Return the known name that is most similar to `name`; empty if no known name is similar."""
    return (difflib.get_close_matches(shortened(name), known_names, n=1) or [""])[0]


def shortened(name: object, limit: int = LONGEST_NAME) -> str:
    """Return a name as text; cut a text of more than `limit` characters and append `…`."""
    text = str(name)
    return text if len(text) <= limit else f"{text[:limit]}…"


def pluralise(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def join_names(names: Collection[object], limit: int = MOST_NAMES) -> str:
    """Return a comma-separated list of at most `limit` names for an error message.

    If there are more names, the text ends with a count, for example `…, and 99,990 more`.
    """
    visible_names = [shortened(name, LONGEST_IN_LIST) for name in islice(names, limit)]
    truncation_notes = [f"and {len(names) - limit:,} more"] if len(names) > limit else []
    return ", ".join([*visible_names, *truncation_notes])


def _first(problems: Sequence[str]) -> Iterator[str]:
    """Yield the problems that fit in a message, then a line with the number of the other problems."""
    length = 0
    for index, problem in enumerate(problems):
        line = shortened(problem, LONGEST_PROBLEM)
        length += len(line) + 5  # "  - " and a line end
        if length > LONGEST_LIST:
            yield f"and at least {len(problems) - index:,} more problems"
            return
        yield line
