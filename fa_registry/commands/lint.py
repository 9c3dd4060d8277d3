"""The lint verb: pitfalls of protocol §5 in anyone's code, from syntax trees."""

from __future__ import annotations

from collections.abc import Sequence

from fa_registry.errors import UsageError
from fa_registry.lint.base import LintReport
from fa_registry.lint.engine import lint_paths


def run_lint(paths: Sequence[str], as_json: bool = False, as_sarif: bool = False) -> LintReport:
    """What the rules find under the paths; UsageError for a missing path, no Python file, or two output formats at once."""
    if as_json and as_sarif:
        raise UsageError("--json and --sarif are two formats for one output; choose one")
    return lint_paths(paths)
