"""Run of the linter: read the files, apply the rules, and separate the silenced findings."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import tomllib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from fa_lint.base import Hit, LintFinding, LintReport, LintRule, RuleCard, SourceLocation
from fa_lint.errors import LintError, invalid, unknown_code_text
from fa_lint.python_files import UNREADABLE, Source, python_files, read, unreadable
from fa_lint.regular_files import UnreadableFile, read_file
from fa_lint.rules import all_rules

BAD_SILENCE = RuleCard(
    code="FA901",
    pitfall=0,
    name="silence-without-reason",
    title="an `fa: ok` comment without effect",
    why="without a reason, a reader cannot know whether the author considered the pitfall or overlooked it",
    fix="name the rule, and give the reason why the rule does not apply to this line",
)


def lint_paths(paths: Sequence[str], select: Sequence[str] = (), ignore: Sequence[str] = ()) -> LintReport:
    """Apply the lint rules to all Python files and notebooks under the paths.

    Defaults are read from the section [tool.fa-registry.lint] of pyproject.toml in the current folder. The section has the keys
    select, ignore and exclude. The value of exclude is a list of fnmatch patterns for file paths.

    Args:
        paths: Files and folders.
        select: Codes of the rules to apply. Without codes, pyproject.toml selects the rules; the default is all rules.
        ignore: Codes of the rules to leave out. Without codes, the codes in pyproject.toml are left out.

    Raises:
        LintError: If a path does not exist, if there is no Python file, or if a code or the section is not valid.
    """
    settings = configured(Path())
    rules = _chosen(select or settings.get("select", ()), ignore or settings.get("ignore", ()))
    excluded = settings.get("exclude", ())
    files = [path for path in python_files(paths) if not any(fnmatch(str(path), pattern) for pattern in excluded)]
    findings = [finding for path in files for finding in lint_source(read(path), rules)]
    return LintReport(
        files=len(files),
        findings=tuple(finding for finding in findings if not finding.silenced),
        silenced=tuple(finding for finding in findings if finding.silenced),
        cards=(*(rule.card for rule in rules), UNREADABLE, BAD_SILENCE),
    )


def _chosen(select: Sequence[str], ignore: Sequence[str]) -> list[LintRule]:
    rules = all_rules()
    known_codes = [rule.card.code for rule in rules]
    asked = [("select", code) for code in select] + [("ignore", code) for code in ignore]
    unknown = [(field, code) for field, code in asked if code not in known_codes]
    problems = [f"{field}: {unknown_code_text(code, known_codes)}" for field, code in unknown]
    if problems:
        raise invalid(problems)
    return [rule for rule in rules if rule.card.code in (select or known_codes) and rule.card.code not in ignore]


def configured(folder: Path) -> Mapping[str, Sequence[str]]:
    """Return the section [tool.fa-registry.lint] of pyproject.toml in a folder.

    Returns:
        The section, or an empty mapping if the file or the section does not exist.

    Raises:
        LintError: If the file is not valid TOML, or if the section has an unknown key or a value of the wrong type.
    """
    path = folder / "pyproject.toml"
    if not path.is_file():
        return {}
    section: Any = _read_toml(path)
    for name in SECTION:
        section = section.get(name, {}) if isinstance(section, dict) else {}
    section = section if isinstance(section, dict) else {"": section}
    problems = [
        f"{path}: [tool.fa-registry.lint] {name}: expected one of the keys {', '.join(FIELDS)} with a list of texts, "
        f"found {value!r}"
        for name, value in section.items()
        if name not in FIELDS or not isinstance(value, list) or not all(isinstance(part, str) for part in value)
    ]
    if problems:
        raise invalid(problems)
    return section


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = read_file(path, MOST_TOML).decode("utf-8")
        if DOTTED.search(text):
            raise ValueError("nested too deeply")
        return tomllib.loads(text)
    except (
        UnreadableFile,
        ValueError,
        RecursionError,
    ) as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise LintError(f"lint: {path} cannot be read as TOML: {error}") from error


MOST_TOML = 2**20  # largest pyproject.toml in bytes
DOTTED = re.compile(r"(?:\.[ \t]*+[\w-]*+[ \t]*+){100}")  # tomllib needs minutes for a name of 100,000 parts
SECTION = ("tool", "fa-registry", "lint")
FIELDS = ("select", "ignore", "exclude")


def lint_source(source: Source, rules: Sequence[LintRule]) -> list[LintFinding]:
    """Return the findings of one file, including silenced findings, ordered by position."""
    findings, syntax = list(source.unreadable), source.syntax
    if syntax is not None:
        comments = list(silences(syntax.text, {rule.card.code for rule in all_rules()}))
        findings += [_bad_silence(source, comment) for comment in comments if comment.problem]
        for rule in rules:
            if rule.possible(syntax.text):
                findings += _judged(source, rule, comments)
    return sorted(findings, key=lambda one: (one.place.cell, one.place.line, one.place.column, one.code))


def _judged(source: Source, rule: LintRule, comments: Sequence[Silence]) -> list[LintFinding]:
    """Return the findings of one rule, or the finding FA900 if the code is too deeply nested or branched."""
    try:
        hits = {id(hit.node): hit for hit in rule.hits(source.syntax)}  # a node is reported once
        return [_finding(source, rule.card, hit, comments) for hit in hits.values()]
    except RecursionError:
        problem = f"rule {rule.card.code} cannot check the file, because its code is nested too deeply or has too many branches"
        return [unreadable(source.path, problem)]


def _finding(source: Source, card: RuleCard, hit: Hit, comments: Sequence[Silence]) -> LintFinding:
    node = hit.node
    valid = [comment for comment in comments if not comment.problem and card.code in comment.codes]
    reasons = [comment.reason for comment in valid if node.lineno <= comment.line <= node.end_lineno]
    reason = reasons[0] if reasons else ""
    return LintFinding(card.code, card.pitfall, _place(source, node), hit.what, card.why, card.fix, reason)


def _place(source: Source, node: ast.AST) -> SourceLocation:
    """Return the location of a node, and convert its columns from UTF-8 bytes to characters."""
    lines = source.syntax.lines
    cell, line = source.syntax.locate(node.lineno)
    return SourceLocation(
        source.path,
        line,
        _characters(lines[node.lineno - 1], node.col_offset),
        source.syntax.locate(node.end_lineno)[1],
        _characters(lines[node.end_lineno - 1], node.end_col_offset),
        cell,
    )


def _characters(line: str, offset: int) -> int:
    return len(line.encode()[:offset].decode(errors="replace")) + 1


def _bad_silence(source: Source, comment: Silence) -> LintFinding:
    cell, line = source.syntax.locate(comment.line)
    location = SourceLocation(source.path, line, comment.column, line, comment.end_column, cell)
    return LintFinding(
        BAD_SILENCE.code, 0, location, f"this comment {comment.problem}", BAD_SILENCE.why, BAD_SILENCE.fix
    )


# Comments that silence a rule on their line: `# fa: ok FA002 why`. The reason is required.


COMMENT = re.compile(r"#\s*fa:\s*ok\b(?P<codes>(?:[\s,]*\bFA\d{3}\b)*)(?P<rest>.*)$", re.IGNORECASE)
CODE = re.compile(r"FA\d{3}", re.IGNORECASE)


@dataclass(frozen=True)
class Silence:
    """Comment `# fa: ok CODE reason`.

    The comment silences the findings about code that includes the line of the comment.

    Args:
        line: Line of the comment in the file, or in the joined text of a notebook.
        column: First column of the comment.
        end_column: Column after the last character of the comment.
        codes: Codes of the rules.
        reason: Reason that the author gives.
        problem: Reason why the comment silences no rule, or an empty string if the comment is valid.
    """

    line: int
    column: int
    end_column: int
    codes: tuple[str, ...]
    reason: str
    problem: str


def silences(text: str, known_codes: Container[str]) -> Iterator[Silence]:
    """Yield each `# fa: ok` comment of a source text.

    Args:
        text: Python code without syntax errors.
        known_codes: Codes of all rules, including rules that are not applied.
    """
    if "fa:" not in text.lower():  # tokenizing takes as long as parsing
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        match = COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if not match:
            continue
        codes = tuple(code.upper() for code in CODE.findall(match["codes"]))
        reason = match["rest"].strip(" \t:,;-–—")
        yield Silence(
            token.start[0],
            token.start[1] + match.start() + 1,
            token.end[1] + 1,
            codes,
            reason,
            _silence_problem(codes, reason, known_codes),
        )


def _silence_problem(codes: tuple[str, ...], reason: str, known_codes: Container[str]) -> str:
    unknown = [code for code in codes if code not in known_codes]
    if not codes:
        return "names no rule; write a code and a reason, such as `# fa: ok FA002 reason`"
    if unknown:
        return f"names {', '.join(unknown)}, but no rule has this code"
    if not reason:
        return f"gives no reason; write `# fa: ok {', '.join(codes)} reason`"
    return ""


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: LintReport, version: str, program: str = "fa-lint") -> dict[str, Any]:
    """Return the report as a SARIF 2.1.0 log.

    The log contains silenced findings with their reason, because SARIF requires them.

    Args:
        report: Result of a run of the linter.
        version: Version of the program.
        program: Name of the command that the user called.
    """
    order = {card.code: index for index, card in enumerate(report.cards)}
    run = {
        "tool": {"driver": {"name": program, "version": version, "rules": [_rule(card) for card in report.cards]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, order[finding.code]) for finding in (*report.findings, *report.silenced)],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(card: RuleCard) -> dict[str, Any]:
    rule = {
        "id": card.code,
        "name": card.name,
        "shortDescription": {"text": card.title},
        "fullDescription": {"text": card.why},
        "help": {"text": card.fix},
        "defaultConfiguration": {"level": "warning"},
    }
    return {**rule, "properties": {"pitfall": card.pitfall}} if card.pitfall else rule


def _result(finding: LintFinding, index: int) -> dict[str, Any]:
    result = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": "warning",
        "message": {"text": f"{finding.what}. {finding.why}. Fix: {finding.fix}."},
        "locations": [_location(finding)],
    }
    if finding.silenced:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.silenced}]
    return result


def _location(finding: LintFinding) -> dict[str, Any]:
    """Return the SARIF location of a finding.

    In a notebook, a logical location names the cell and the line, because the lines of the file are lines of JSON.
    """
    location = finding.place
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(location.path)}}
    if location.cell:
        name = f"cell {location.cell}, line {location.line}"
        return {"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": name}]}
    physical["region"] = {
        "startLine": location.line,
        "startColumn": location.column,
        "endLine": location.end_line,
        "endColumn": location.end_column,
    }
    return {"physicalLocation": physical}


def _uri(path: str) -> str:
    return ("file://" if PurePosixPath(path).is_absolute() else "") + quote(os.fsencode(path))
