"""The project keeps the rules it enforces."""

from __future__ import annotations

from pathlib import Path

from fa_registry.cli.looking import run_lint

ROOT = Path(__file__).resolve().parents[2]


def test_no_pitfall_in_this_projects_own_sources():
    result = run_lint(tuple(str(ROOT / name) for name in ("fa_registry", "tests", "benchmarks")), False, False)
    assert [str(finding) for finding in result.findings] == []
