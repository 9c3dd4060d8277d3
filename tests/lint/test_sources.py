"""Which files are read, and what becomes of those that cannot be."""

from __future__ import annotations

import pytest

from fa_registry.errors import UsageError
from fa_registry.lint.python_files import python_files, read
from tests.lint.samples import notebook


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder with everything in it that should be read, and everything that should not."""
    for name in ("a.py", "b/c.py", "b/d.ipynb", "b/e.txt", ".git/f.py", "b/__pycache__/g.py", "env/lib/h.py", "i.pyc"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "env/pyvenv.cfg").write_text("")
    (tmp_path / "dangling.py").symlink_to("nowhere.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*paths: str) -> list[str]:
    return [path.as_posix() for path in python_files(paths)]


def test_python_files_and_notebooks_below_a_folder(tree):
    assert names(".") == ["a.py", "b/c.py", "b/d.ipynb"]


def test_a_path_that_is_named_is_read_wherever_it_is(tree):
    assert names(".git", "env/lib", "b/__pycache__/g.py") == [".git/f.py", "env/lib/h.py", "b/__pycache__/g.py"]


def test_a_file_named_twice_is_read_once(tree):
    assert names("b/c.py", "b", "./b/c.py") == ["b/c.py", "b/d.ipynb"]


def test_all_missing_paths_are_named(tree):
    with pytest.raises(UsageError, match="no such file or folder: x, y.py"):
        python_files(["a.py", "x", "y.py"])


@pytest.mark.parametrize("path", ["b/e.txt", "b/__pycache__/none"])
def test_no_python_file_is_a_usage_error(tree, path):
    (tree / "b/__pycache__/none").mkdir()
    with pytest.raises(UsageError, match="no .py or .ipynb file in"):
        python_files([path])


@pytest.mark.parametrize(
    ("content", "problem", "line"),
    [
        (b"x = 1\nprint 'x'\n", "does not parse as Python", 2),
        (b"x = 1\0\n", "null bytes", 1),
        (b"# coding: nonsense\n", "unknown encoding", 1),
        (b"x = '\xff'\n", "invalid", 1),
        (b"(" * 5000 + b")" * 5000, "", 1),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, content, problem, line):
    path = tmp_path / "x.py"
    path.write_bytes(content)
    source = read(path)
    (one,) = source.unreadable
    assert source.syntax is None
    assert problem in one.problem and one.line == line


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)  # the tests may run as root, who is refused nothing
    assert "Permission denied" in read(tmp_path / "x.py").unreadable[0].problem


def test_a_declared_encoding_is_followed(tmp_path):
    path = tmp_path / "x.py"
    path.write_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    assert "é" in read(path).syntax.text


def test_a_broken_cell_leaves_the_others_readable(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_bytes(notebook("a = 1\nb = 2", "x = 1\ndef (", "c = 3"))
    source = read(path)
    assert [(one.cell, one.line) for one in source.unreadable] == [(3, 2)]
    assert [source.locate(line) for line in (1, 2, 3)] == [(2, 1), (2, 2), (4, 1)]


def test_a_file_that_is_no_notebook_says_so(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_text('{"cells": 3}')
    assert "not a notebook" in read(path).unreadable[0].problem
