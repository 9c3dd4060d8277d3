"""Interface of lint rules, and the records that the linter reports."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from fa_registry.lint.syntax import Syntax


@dataclass(frozen=True)
class RuleCard:
    """The description of a rule.

    Args:
        code: Stable name, FA + the pitfall's number; from FA013 on, further rules.
        pitfall: Number in protocol §5; 0 for none.
        why: The consequence, in one sentence.
        fix: What to write instead.
        cannot_see: Cases that the syntax tree does not show.
    """

    code: str
    pitfall: int
    name: str
    title: str
    why: str
    fix: str
    cannot_see: str


@dataclass(frozen=True)
class Hit:
    """A node where a rule fires, and a sentence about its source."""

    node: ast.AST
    what: str


class LintRule(ABC):
    """One pitfall; final subclasses define `card`, `clues` and `hits`.

    `clues` are groups of texts. A file without any text of a group cannot fire and is skipped.
    """

    card: RuleCard
    clues: tuple[tuple[str, ...], ...] = ()

    @abstractmethod
    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield every place of one module (or one whole notebook) that has the pitfall."""

    def possible(self, text: str) -> bool:
        """Return whether the text has a word of every group; an import that makes an alias contains the word."""
        return all(any(word in text for word in group) for group in self.clues)


@dataclass(frozen=True)
class SourceLocation:
    """A place in a file; lines and columns count from 1, columns in characters.

    Args:
        cell: 1 is a notebook's first cell of any kind; 0 for other files.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int = 0

    @property
    def text(self) -> str:
        """Return `file.py:3:5` or `file.ipynb:cell 2:3:5`."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{self.path}:{cell}{self.line}:{self.column}"


@dataclass(frozen=True)
class LintFinding:
    """One pitfall at one place.

    Args:
        silenced: The reason in its `fa: ok` comment, or empty.
    """

    code: str
    pitfall: int
    place: SourceLocation
    what: str
    why: str
    fix: str
    silenced: str = ""


@dataclass(frozen=True)
class LintReport:
    """The result of a run of the linter.

    Args:
        findings: Findings that are not silenced, in order of files and lines.
        silenced: Findings that are silenced by a comment with a reason.
    """

    files: int
    findings: tuple[LintFinding, ...]
    silenced: tuple[LintFinding, ...]
    cards: tuple[RuleCard, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.findings else 0
