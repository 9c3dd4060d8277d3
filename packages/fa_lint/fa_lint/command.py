"""The command `fa-lint`, and its output as text and as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from fa_lint import __version__
from fa_lint.base import LintFinding, LintReport
from fa_lint.errors import LintError
from fa_lint.runner import lint_paths, sarif


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit.

    Exit codes: 0 without findings, 1 with findings, 2 if the request cannot be carried out.

    Args:
        arguments: Arguments of the command line, by default those of the process.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # the encoding may lack a character of a file name or of a message
        sys.stdout.reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    try:
        report = lint_paths(options.paths, codes_in(options.select), codes_in(options.ignore))
    except LintError as error:
        print(f"fa-lint: {_visible(str(error), line_ends=True)}", file=sys.stderr)
        sys.exit(2)
    try:
        print(_output(report, options), flush=True)
    except BrokenPipeError:  # the reader, for example `head`, has enough lines
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(report.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fa-lint",
        description="Find pitfalls of feedback-alignment experiments in Python code. The code is read but not imported.",
        epilog="Exit 0: no finding, 1: findings, 2: there is no file to read.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="Python file, notebook or folder.")
    parser.add_argument("--select", default="", metavar="CODES", help="Rules to apply, e.g. FA002,FA007 [all].")
    parser.add_argument("--ignore", default="", metavar="CODES", help="Rules to ignore [none].")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="Print JSON.")
    form.add_argument("--sarif", action="store_true", help="Print SARIF 2.1.0, which code hosts and editors read.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def _output(report: LintReport, options: argparse.Namespace) -> str:
    if options.json or options.sarif:
        value = json_value(report) if options.json else sarif(report, __version__)
        return json.dumps(value, indent=1)
    return "\n".join(map(_visible, text_lines(report)))


def codes_in(text: str) -> tuple[str, ...]:
    """Return the codes of rules in a text such as `FA001, FA002`."""
    return tuple(filter(None, text.replace(" ", "").split(",")))


def json_value(report: LintReport) -> dict[str, Any]:
    """Return the report as JSON values: the number of files, the findings and the silenced findings."""
    return {
        "files": report.files,
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
        "silenced": [dataclasses.asdict(finding) for finding in report.silenced],
    }


def text_lines(report: LintReport) -> Iterator[str]:
    """Yield the lines of the report as text; the names in a line may contain hidden characters."""
    for _, group in groupby(sorted(report.findings, key=_reported_with), key=_reported_with):
        findings = list(group)
        yield from (f"{finding.place.text}: {finding.code} {finding.what}" for finding in findings)
        yield f"    why: {findings[0].why}"
        yield f"    fix: {findings[0].fix}"
    yield _summary(report)


def _reported_with(finding: LintFinding) -> tuple[str, str, str]:
    """Return a key that groups findings by file, rule and reason."""
    return finding.place.path, finding.code, finding.why


def _summary(report: LintReport) -> str:
    silenced = f"; findings silenced with a reason: {len(report.silenced)}" if report.silenced else ""
    files = f"{report.files} file{'s' if report.files != 1 else ''}"
    if not report.findings:
        return f"no pitfall in {files}{silenced}"
    counts = Counter(finding.code for finding in report.findings)
    codes = ", ".join(f"{code} ×{count}" for code, count in sorted(counts.items()))
    return f"{len(report.findings)} finding{'s' if len(report.findings) != 1 else ''} in {files}: {codes}{silenced}"


def _visible(text: str, line_ends: bool = False) -> str:
    """Return the text with a code such as ⟨U+202E⟩ for each hidden character.

    Args:
        text: The text.
        line_ends: Whether to keep line ends. If False, each line end is replaced by a code too.
    """
    return "".join(
        char if char.isprintable() or (line_ends and char == "\n") else f"⟨U+{ord(char):04X}⟩" for char in text
    )
