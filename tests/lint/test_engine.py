"""Every rule on its fixture: as a file, in a notebook, silenced; order, places, and no false alarm on this package."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

import fa_registry
from fa_registry.lint.linting import BAD_SILENCE, UNREADABLE, lint_paths
from fa_registry.lint.rules import all_rules
from tests.lint.samples import CLAMPED_COSINE, MEAN_REDUCED, NEGATIVE_NORM, PITFALLS, codes, found, notebook

CODES = sorted(PITFALLS)


def test_every_rule_has_a_fixture_and_a_whole_card():
    cards = [rule.card for rule in all_rules()]
    assert [card.code for card in cards] == CODES
    assert [card.pitfall for card in cards] == [1, 2, 3, 7, 8]
    for card in cards:
        assert card.code == f"FA{card.pitfall:03d}"
        assert all((card.name, card.title, card.why, card.fix, card.cannot_see))


@pytest.mark.parametrize("code", CODES)
def test_each_pitfall_is_found_once_and_nothing_else(code):
    assert codes(PITFALLS[code]) == [code]


@pytest.mark.parametrize("code", CODES)
def test_each_pitfall_is_found_in_a_notebook_with_cell_and_line(code, tmp_path):
    path = tmp_path / "analysis.ipynb"
    head, _, rest = PITFALLS[code].partition("\n\n")  # imports in one cell, their use in the next
    path.write_bytes(notebook(f"%matplotlib inline\n{head}", "!ls", rest))
    (alone,) = found(PITFALLS[code])
    (finding,) = lint_paths([str(path)]).findings
    assert (finding.code, finding.place.cell) == (code, 4)
    assert finding.place.line == alone.place.line - len(head.splitlines()) - 1
    assert finding.place.column == alone.place.column


@pytest.mark.parametrize("code", CODES)
def test_a_comment_with_a_reason_silences_that_line(code):
    (alone,) = found(PITFALLS[code])
    lines = PITFALLS[code].splitlines()
    lines[alone.place.line - 1] += f"  # fa: ok {code} measured elsewhere"
    (finding,) = found("\n".join(lines))
    assert (finding.code, finding.silenced) == (code, "measured elsewhere")


@pytest.mark.parametrize("code", CODES)
def test_a_comment_for_another_rule_or_on_another_line_silences_nothing(code):
    (alone,) = found(PITFALLS[code])
    lines = PITFALLS[code].splitlines()
    other = CODES[CODES.index(code) - 1]
    lines[alone.place.line - 1] += f"  # fa: ok {other} measured elsewhere"
    lines[0] += f"  # fa: ok {code} measured elsewhere"
    (finding,) = found("\n".join(lines))
    assert not finding.silenced


def test_a_comment_on_the_last_line_of_a_call_counts():
    text = CLAMPED_COSINE.replace("gradient, dim=1)", "gradient, dim=1\n    )  # fa: ok FA002 inputs are unit vectors")
    assert [one.silenced for one in found(text)] == ["inputs are unit vectors"]


def test_a_comment_without_reason_is_a_finding_and_silences_nothing():
    findings = found(NEGATIVE_NORM.replace("norm(-1)", "norm(-1)  # fa: ok FA001"))
    assert [(one.code, one.silenced) for one in findings] == [("FA001", ""), ("FA901", "")]
    assert findings[1].place.text == "sample.py:4:24"
    assert "no reason" in findings[1].what


def test_a_comment_with_an_unknown_code_silences_nothing_at_all():
    findings = found(NEGATIVE_NORM.replace("norm(-1)", "norm(-1)  # fa: ok FA001, FA099 meant so"))
    assert [(one.code, one.silenced) for one in findings] == [("FA001", ""), ("FA901", "")]


def test_columns_count_characters_and_findings_come_in_order():
    findings = found('import torch\nγ = "é"; x.norm(-1); y.norm(-1)\nz.norm(-1)\n')
    assert [(one.place.line, one.place.column, one.place.end_column) for one in findings] == [
        (2, 10, 20),
        (2, 22, 32),
        (3, 1, 11),
    ]


def test_a_file_that_does_not_parse_is_a_finding_beside_the_others(tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\ndef (\n")
    (tmp_path / "good.py").write_text(NEGATIVE_NORM)
    report = lint_paths([str(tmp_path)])
    assert [(one.code, one.place.line) for one in report.findings] == [(UNREADABLE.code, 2), ("FA001", 4)]
    assert (report.files, report.exit_code) == (2, 1)


def test_an_expression_too_deep_for_a_rule_is_a_finding():
    deep = MEAN_REDUCED.replace("loss, h)", "loss" + " + loss" * 2000 + ", h)")
    assert [(one.code, one.what) for one in found(deep)] == [("FA900", "nested too deeply for FA008 to check")]


def test_nothing_is_imported(tmp_path):
    (tmp_path / "bomb.py").write_text("raise SystemExit('imported')\n")
    assert lint_paths([str(tmp_path)]).findings == ()


def test_every_code_has_a_card_in_the_report(tmp_path):
    (tmp_path / "one.py").write_text("")
    assert [card.code for card in lint_paths([str(tmp_path)]).cards] == [*CODES, UNREADABLE.code, BAD_SILENCE.code]


def test_no_false_alarm_on_this_package_and_on_the_norms_of_numpy():
    paths = [Path(fa_registry.__file__).parent, Path(numpy.__file__).parent / "linalg"]
    report = lint_paths([str(path) for path in paths])
    assert [one.place.text for one in report.findings] == []
    assert report.files > 100
