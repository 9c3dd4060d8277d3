"""The verb: what it prints and what it exits with."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from fa_registry.cli import main
from tests.lint.samples import CLAMPED_COSINE, NEGATIVE_NORM, PITFALLS, notebook


@pytest.fixture
def lint(tmp_path, monkeypatch):
    """Runs the verb in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, ["lint", *arguments])


@pytest.mark.parametrize("code", sorted(PITFALLS))
def test_a_pitfall_exits_1_and_says_where_what_why_and_how(lint, tmp_path, code):
    (tmp_path / "sample.py").write_text(PITFALLS[code])
    result = lint("sample.py")
    place, why, fix, summary = result.stdout.splitlines()
    assert result.exit_code == 1
    assert place.startswith("sample.py:") and f": {code} `" in place
    assert why.startswith("    why: ") and fix.startswith("    fix: ")
    assert summary == f"1 finding in 1 file: {code} ×1"


def test_clean_code_exits_0(lint, tmp_path):
    (tmp_path / "clean.py").write_text("x = 1\n")
    result = lint(".")
    assert (result.exit_code, result.stdout) == (0, "no pitfall in 1 file\n")


def test_a_silenced_finding_exits_0_and_is_counted(lint, tmp_path):
    (tmp_path / "a.py").write_text(NEGATIVE_NORM.replace("norm(-1)", "norm(-1)  # fa: ok FA001 meant so"))
    result = lint(".")
    assert (result.exit_code, result.stdout) == (0, "no pitfall in 1 file; 1 silenced with a reason\n")


def test_a_notebook_is_named_with_its_cell(lint, tmp_path):
    (tmp_path / "n.ipynb").write_bytes(notebook("import torch", "x.norm(-1)"))
    assert "n.ipynb:cell 3:1:1: FA001" in lint("n.ipynb").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "no such file or folder: nowhere"),
        (("empty",), "no .py or .ipynb file in empty"),
        (("empty", "--json", "--sarif"), "choose one"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_linted_exits_2(lint, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    result = lint(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr and result.stdout == ""


def test_json_holds_every_field(lint, tmp_path):
    silenced = CLAMPED_COSINE.replace("dim=1)", "dim=1)  # fa: ok FA002 unit vectors")
    (tmp_path / "a.py").write_text(NEGATIVE_NORM)
    (tmp_path / "b.py").write_text(silenced)
    result = lint(".", "--json")
    shown = json.loads(result.stdout)
    (finding,) = shown["findings"]
    assert result.exit_code == 1 and shown["files"] == 2
    assert (finding["code"], finding["pitfall"], finding["silenced"]) == ("FA001", 1, "")
    assert finding["place"] == {"path": "a.py", "line": 4, "column": 12, "end_line": 4, "end_column": 22, "cell": 0}
    assert finding["what"] and finding["why"] and finding["fix"] == "norm(dim=-1)"
    assert [one["silenced"] for one in shown["silenced"]] == ["unit vectors"]


def test_sarif_is_printed_with_the_version(lint, tmp_path):
    (tmp_path / "a.py").write_text(NEGATIVE_NORM)
    result = lint("a.py", "--sarif")
    run = json.loads(result.stdout)["runs"][0]
    assert result.exit_code == 1
    assert run["tool"]["driver"]["version"] and run["results"][0]["ruleId"] == "FA001"


def test_help_shows_examples(lint):
    assert "fa-registry lint src --sarif > pitfalls.sarif" in lint("--help").stdout
