"""The distribution fa_lint: it needs the standard library only, and both commands report the same."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import fa_lint
from fa_lint.command import main as fa_lint_main
from fa_registry.cli import main as fa_registry_main
from tests.helpers.limited import ROOT
from tests.lint.samples import NEGATIVE_NORM, PITFALLS, TRAINING_MODE, notebook

PACKAGE = ROOT / "packages" / "fa_lint"
MODULES = sorted((PACKAGE / "fa_lint").rglob("*.py"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_only_the_standard_library_is_imported(path):
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"fa_lint"}


def test_the_tests_read_the_checkout():
    assert Path(fa_lint.__file__).is_relative_to(PACKAGE)


def isolated(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run fa-lint in a Python without installed packages."""
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from fa_lint.command import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, str(PACKAGE), *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, **options)


def test_the_command_needs_no_other_package(folder):
    (folder / "sample.py").write_text(NEGATIVE_NORM)
    ended = isolated("sample.py", "--json", stdout=subprocess.PIPE)
    assert ended.returncode == 1 and [one["code"] for one in json.loads(ended.stdout)["findings"]] == ["FA001"]


def test_a_closed_pipe_does_not_change_the_exit_code(folder):
    (folder / "sample.py").write_text(NEGATIVE_NORM)
    reader, writer = os.pipe()
    os.close(reader)
    ended = isolated("sample.py", stdout=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


def output_of(capsys, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code of fa-lint and what it prints."""
    with pytest.raises(SystemExit) as ended:
        fa_lint_main(arguments)
    return ended.value.code, *capsys.readouterr()


@pytest.mark.parametrize("options", [(), ("--json",), ("--select", "FA001, FA002"), ("--ignore", "FA001")], ids=str)
def test_both_commands_print_the_same(folder, capsys, options):
    for code, text in PITFALLS.items():
        (folder / f"{code}.py").write_text(text)
    (folder / "analysis.ipynb").write_bytes(notebook("import torch", "x.norm(-1)  # fa: ok FA001 meant so\ny.norm(-1)"))
    code, printed, _ = output_of(capsys, ".", *options)
    result = CliRunner().invoke(fa_registry_main, ["lint", ".", *options])
    assert result.exit_code == code == 1
    if "--json" in options:
        assert json.loads(result.stdout) == json.loads(printed)
    else:
        assert result.stdout == printed


def test_sarif_names_the_command(folder, capsys):
    (folder / "sample.py").write_text(NEGATIVE_NORM)
    driver = json.loads(output_of(capsys, "sample.py", "--sarif")[1])["runs"][0]["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("fa-lint", fa_lint.__version__)
    log = json.loads(CliRunner().invoke(fa_registry_main, ["lint", "sample.py", "--sarif"]).stdout)
    assert log["runs"][0]["tool"]["driver"]["name"] == "fa-registry lint"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "fa-lint: no such file or folder: nowhere\n"),
        (
            ("sample.py", "--select", "FA0O1"),
            "fa-lint: lint: 1 problem\n  - select: unknown rule 'FA0O1' (did you mean ",
        ),
        (("sample.py", "--json", "--sarif"), "not allowed with argument"),
        ((), "required: PATH"),
    ],
)
def test_a_wrong_request_exits_2(folder, capsys, arguments, message):
    (folder / "sample.py").write_text(NEGATIVE_NORM)
    code, printed, error = output_of(capsys, *arguments)
    assert (code, printed) == (2, "") and message in error


def test_hidden_characters_of_a_file_name_are_shown(folder, capsys):
    (folder / "a\x1b[2J\u202e.py").write_text(NEGATIVE_NORM)
    assert output_of(capsys, ".")[1].startswith("a⟨U+001B⟩[2J⟨U+202E⟩.py:4:12: FA001")


def test_a_missing_distribution_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "fa_lint", None)
    result = CliRunner().invoke(fa_registry_main, ["lint", "."])
    assert result.exit_code == 2 and "pip install ./packages/fa_lint" in result.stderr


def test_a_message_about_another_line_of_a_notebook_names_its_cell(folder, capsys):
    model, _, measurement = TRAINING_MODE.partition("\n\ndef")
    (folder / "n.ipynb").write_bytes(notebook("import torch\n", model, f"def{measurement}"))
    code, printed, _ = output_of(capsys, "n.ipynb")
    assert printed.startswith("n.ipynb:cell 4, line 2:") and "(cell 3, line 3)" in printed
