"""Base class of lint rules, and the records of rules, findings and reports."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from fa_lint.syntax import Syntax


@dataclass(frozen=True)
class RuleCard:
    """Description of a lint rule.

    Args:
        code: Stable identifier: FA and the number of the pitfall. The exceptions are FA013 (pitfall 7), FA014 (pitfall 13), FA015
            (pitfall 6), FA016 (pitfall 8), and FA017 and FA018, which belong to no pitfall.
        pitfall: Number of the pitfall in protocol §5, or 0 if the rule belongs to no pitfall.
        name: Short name with hyphens, such as `negative-norm`.
        title: The pitfall in a few words.
        why: Consequence of the pitfall, in one sentence.
        fix: Code to write instead.
    """

    code: str
    pitfall: int
    name: str
    title: str
    why: str
    fix: str


@dataclass(frozen=True)
class Hit:
    """Syntax node that a rule reports.

    Args:
        what: Sentence that quotes the source code of the node and names the problem, without a full stop.
    """

    node: ast.AST
    what: str


class LintRule(ABC):
    """Base class of lint rules; each rule defines `card`, `clues` and `hits`.

    Attributes:
        card: Description of the rule.
        clues: Groups of substrings. The rule checks a file only if the file contains at least one substring of each group.
    """

    card: RuleCard
    clues: tuple[tuple[str, ...], ...] = ()

    @abstractmethod
    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield one hit for each place in a Python module or a notebook that has the pitfall.

        Args:
            syntax: Syntax tree of the module, or of all code cells of the notebook together.
        """

    def possible(self, text: str) -> bool:
        """Return whether a source text contains at least one substring of every group in `clues`."""
        return all(any(clue in text for clue in group) for group in self.clues)


@dataclass(frozen=True)
class SourceLocation:
    """Range of lines and columns in a file.

    Lines and columns count from 1. Columns count characters.

    Args:
        path: Path of the file.
        line: First line.
        column: First column.
        end_line: Last line.
        end_column: Column after the last character.
        cell: Number of the notebook cell, counted from 1 over cells of every type; 0 for a Python file.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int = 0

    @property
    def text(self) -> str:
        """Location as text: `file.py:3:5`, or `file.ipynb:cell 2, line 3` in a notebook."""
        return f"{self.path}:" + (f"cell {self.cell}, line {self.line}" if self.cell else f"{self.line}:{self.column}")


@dataclass(frozen=True)
class LintFinding:
    """Pitfall, or code that cannot be checked, at one location.

    Args:
        code: Code of the rule.
        pitfall: Number of the pitfall in protocol §5, or 0.
        place: Location in the file.
        what: Sentence that quotes the source code at this location and names the problem, without a full stop.
        why: Consequence of the pitfall.
        fix: Code to write instead.
        silenced: Reason from a `# fa: ok` comment, or an empty string if no comment silences the finding.
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
    """Result of one run of the linter.

    Args:
        files: Number of files that were checked.
        findings: Findings that are not silenced, ordered by file and line.
        silenced: Findings that a `# fa: ok` comment with a reason silences.
        cards: Descriptions of the rules that were applied.
    """

    files: int
    findings: tuple[LintFinding, ...]
    silenced: tuple[LintFinding, ...]
    cards: tuple[RuleCard, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.findings else 0
