"""Tables on a narrow terminal: no word is cut, no line is longer than the terminal, and rows that differ look different."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import fa_registry
from fa_registry.audits.audit_command import AuditResult
from fa_registry.cli.audit import audited
from fa_registry.cli.tables import NO_BREAK, table
from tests.reporting.runs import SEEDS, make_record
from tests.reporting.sample_reports import make_report

PACKAGE = Path(fa_registry.__file__).parent
HEADER = ["method", "verdict", "seeds"]
ROWS = [["dfa+pen λ=0.01", f"WARN(D3{NO_BREAK}undecided)", "3"], ["[/] \\", "PASS", "3"]]


@pytest.fixture
def printed(capsys, monkeypatch):
    """What is printed at so many columns."""

    def show(columns: int, print_it) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        print_it()
        return capsys.readouterr().out.replace(NO_BREAK, " ")

    return show


def drawn(printed, columns: int) -> list[str]:
    return printed(columns, lambda: table(HEADER, ROWS, "")).splitlines()


def test_a_table_has_its_frame_where_there_is_room(printed):
    lines = drawn(printed, 80)
    assert [cell.strip() for cell in lines[3].split("│")[1:-1]] == ["dfa+pen λ=0.01", "WARN(D3 undecided)", "3"]


def test_the_frame_goes_before_a_cell_is_wrapped(printed):
    lines = [line.rstrip() for line in drawn(printed, 43)]
    assert [cell.strip() for cell in lines[1].split("  ")] == ["dfa+pen λ=0.01", "WARN(D3 undecided)", "3"]


def test_cells_are_wrapped_between_words(printed):
    lines = [line.split() for line in drawn(printed, 36)]
    assert lines == [HEADER, ["dfa+pen", "WARN(D3", "undecided)", "3"], ["λ=0.01"], ["[/]", "\\", "PASS", "3"]]


def test_rows_stand_one_below_the_other_where_nothing_else_fits(printed):
    assert drawn(printed, 30) == [
        "dfa+pen λ=0.01",
        "  verdict: WARN(D3 undecided)",
        "  seeds: 3",
        "[/] \\",
        "  verdict: PASS",
        "  seeds: 3",
    ]


def test_what_is_longer_than_the_terminal_stays_whole_to_be_copied(printed):
    digest = "0123456789abcdef" * 4
    text = printed(60, lambda: table(["file", "SHA-256"], [["spec.json", digest]], "recorded"))
    assert text.splitlines() == ["recorded", "spec.json", "  SHA-256:", f"  {digest}"]


def variants():
    """A report of one method in two options, that differ in nothing else, and in their seeds."""

    def optioned(seed: int, sigma: float, accuracy: float):
        record = make_record("dtp", seed, accuracy, 3.0, 0.1, 0.1)
        options = {"hidden": 256, "sigma": sigma, "skip": False, "target_step": 1.0}
        return dataclasses.replace(record, spec=dataclasses.replace(record.spec, method_options=options))

    frozen = [make_record("bp", seed, 0.8, 1.02, 0.4, 0.0, control="frozen") for seed in SEEDS]
    first = [optioned(seed, 0.3, 0.9) for seed in SEEDS]
    second = [optioned(seed, 0.5, 0.9 if seed == SEEDS[0] else 0.7) for seed in SEEDS]
    return make_report([*first, *second, *frozen], others=["2026-12", "2026-04"])


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_an_audit_fits_the_terminal_and_two_variants_are_two(printed, columns):
    report = variants()
    result = AuditResult(report, (Path("reports/index.html"),), "", 1)
    lines = printed(columns, lambda: audited(result, as_json=False)).splitlines()
    table_lines = lines[: next(place for place, line in enumerate(lines) if line.startswith("replay:"))]
    assert max(map(len, table_lines)) <= columns
    text = "\n".join(table_lines)
    for sigma in ("sigma=0.3,", "sigma=0.5,"):
        assert text.count(sigma) == 1
    for run in report.runs:
        assert run.verdict.label in text
    assert text.count(report.runs[0].record.setting) == 1  # above the rows that share it


def test_seeds_are_distinguished_only_where_their_verdicts_differ(printed):
    report = variants()
    text = printed(80, lambda: audited(AuditResult(report, (Path("index.html"),), "", 1), as_json=False))
    (line,) = [line for line in text.splitlines() if line.startswith("by seed: ")]
    assert "sigma=0.5" in line and f"s{SEEDS[0]} " in line and "FAIL(D3)" in line


def test_nothing_is_printed_but_by_the_one_who_looks_at_the_signs_of_names():
    own = {
        "cli/tables.py",
        "reference/__main__.py",
        "conformance/__main__.py",
    }  # names of the package
    calls = re.compile(r"\b(click\.s?echo|print|Console|sys\.std(out|err)\.write)\(")
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if calls.search(path.read_text(encoding="utf-8"))
    }
    escaping = {"studies/progress.py", "external/track.py", "external/frozen_control.py"}
    assert found - own == escaping  # else a name reaches the terminal past fa_registry.text_safety
