"""What a rule is, and what the linter reports."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from fa_registry.lint.syntax import Syntax


@dataclass(frozen=True)
class RuleCard:
    """code: stable name, FA + the pitfall's number; from FA013 on, further rules. pitfall: its number in protocol §5, 0: none.

    why: what goes wrong, in one sentence. fix: what to write instead. cannot_see: what the syntax tree hides.
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
    """Where a rule fires, and the sentence that says what stands there."""

    node: ast.AST
    what: str


class LintRule(ABC):
    """One pitfall. Final subclasses give `card`, `words` and `hits`.

    words: groups of texts; a file in which a whole group is missing cannot fire and is not looked at.
    """

    card: RuleCard
    words: tuple[tuple[str, ...], ...] = ()

    @abstractmethod
    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Every place of one module (or one whole notebook) where the pitfall stands."""

    def possible(self, text: str) -> bool:
        """Whether the text holds a word of every group; an alias hides no word, as its import spells it out."""
        return all(any(word in text for word in group) for group in self.words)


@dataclass(frozen=True)
class SourceLocation:
    """Lines and columns count from 1, columns in characters. cell: 1 is a notebook's first cell of any kind; 0: no notebook."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int = 0

    @property
    def text(self) -> str:
        """`file.py:3:5`, or `file.ipynb:cell 2:3:5`."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{self.path}:{cell}{self.line}:{self.column}"


@dataclass(frozen=True)
class LintFinding:
    """One pitfall at one place. silenced: the reason given by its `fa: ok` comment, empty if it stands."""

    code: str
    pitfall: int
    place: SourceLocation
    what: str
    why: str
    fix: str
    silenced: str = ""


@dataclass(frozen=True)
class LintReport:
    """findings: what stands, in order of files and lines. silenced: what a comment with a reason puts aside."""

    files: int
    findings: tuple[LintFinding, ...]
    silenced: tuple[LintFinding, ...]
    cards: tuple[RuleCard, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.findings else 0
