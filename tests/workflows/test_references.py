"""An audit beside its study's reference.toml: on the terminal, in --json, in the pages; and what it refuses first."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from fa_registry import jsonio
from fa_registry.cli import main
from fa_registry.records import AuditReport
from fa_registry.workflows.audit import study_reference
from fa_registry.workflows.requests import Chosen

REFERENCE = """
title = "Figures of nobody"
source = "A Paper"

[setting.tiny]
architecture = "resmlp"
architecture_options = { d_hidden = 16, num_blocks = 2 }
dataset = "digits"
epochs = 2

[setting.large]
architecture = "resmlp"
dataset = "cifar10"
epochs = 100

[margin.pp]
value = 0.02
why = "small"

[[table]]
quantity = "accuracy"
setting = "tiny"
margin = "pp"
where = "table 1"
figures = [
  { method = "bp", value = 0.9 },
  { method = "bp", control = "frozen", value = 0.9 },
  { method = "dfa", setting = "large", value = 0.306 },
  { method = "ep", value = 0.3 },
]
"""
AUDIT = ("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--exit-zero")


@pytest.fixture
def referenced(trained, workplace):
    """The trained tiny study (one seed) with published figures beside it."""
    (workplace / "tiny" / "reference.toml").write_text(REFERENCE, encoding="utf-8")
    return trained


def test_the_terminal_shows_what_was_compared_and_counts_the_rest(referenced):
    output = " ".join(referenced(*AUDIT).output.split())
    assert "Reproduction" in output and "one run has no spread to test with" in output
    assert "data set: published on cifar10, here digits" in output
    assert "0 reproduced, 2 not shown, 0 differs, 1 not comparable, 1 not measured" in output


def test_json_and_pages_hold_every_figure(referenced, workplace):
    printed = json.loads(referenced(*AUDIT, "--json").stdout)
    report = jsonio.decode(AuditReport, printed["report"])
    outcomes = [row.outcome for row in report.reproduction.rows]
    assert outcomes == ["not shown", "not shown", "not comparable", "not measured"]
    assert jsonio.decode(AuditReport, json.loads((workplace / "reports" / "audit.json").read_text())) == report
    assert "Figures of nobody" in (workplace / "reports" / "index.html").read_text(encoding="utf-8")


def test_a_study_without_figures_prints_none(trained):
    assert "eproduction" not in trained(*AUDIT).output


def test_a_wrong_reference_is_refused_before_anything_is_opened(workplace, registry):
    text = REFERENCE.replace("value = 0.9 }", "valu = 0.9 }").replace('margin = "pp"', 'margin = "p"')
    (workplace / "tiny" / "reference.toml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, (*AUDIT, "--edition", "2026-13"))
    assert result.exit_code == 2
    assert "unknown key 'valu'" in result.stderr and "unknown margin 'p'" in result.stderr
    assert "2026-13" in result.stderr


def test_no_study_and_an_unknown_one_have_no_reference():
    problems: list[str] = []
    assert study_reference(Chosen(), problems) is study_reference(Chosen("nobody's"), problems) is None
    assert problems == []
