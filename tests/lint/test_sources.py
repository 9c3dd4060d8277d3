"""Which files are read, and what becomes of those that cannot be."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest

from fa_lint.errors import LintError
from fa_lint.python_files import as_python, cell_text, code_cells, python_files, read
from fa_lint.runner import lint_paths, silences
from tests.helpers.limited import ROOT
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
    with pytest.raises(LintError, match="no such file or folder: x, y.py"):
        python_files(["a.py", "x", "y.py"])


@pytest.mark.parametrize("path", ["b/e.txt", "b/__pycache__/none"])
def test_no_python_file_is_a_usage_error(tree, path):
    (tree / "b/__pycache__/none").mkdir()
    with pytest.raises(LintError, match="no .py or .ipynb file in"):
        python_files([path])


@pytest.mark.parametrize(
    ("content", "problem", "line"),
    [
        (b"x = 1\nprint 'x'\n", "is not valid Python", 2),
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
    assert problem in one.what and one.place.line == line


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("fa_lint.regular_files.os.open", refuse)  # the tests may run as root, who is refused nothing
    assert "Permission denied" in read(tmp_path / "x.py").unreadable[0].what


def test_a_declared_encoding_is_followed(tmp_path):
    path = tmp_path / "x.py"
    path.write_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    assert "é" in read(path).syntax.text


def test_a_broken_cell_leaves_the_others_readable(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_bytes(notebook("a = 1\nb = 2", "x = 1\ndef (", "c = 3"))
    source = read(path)
    assert [(finding.place.cell, finding.place.line) for finding in source.unreadable] == [(3, 2)]
    assert [source.syntax.locate(line) for line in (1, 2, 3)] == [(2, 1), (2, 2), (4, 1)]


def test_a_file_that_is_no_notebook_says_so(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_text('{"cells": 3}')
    assert "not a notebook" in read(path).unreadable[0].what


@pytest.mark.parametrize(
    ("cell", "python"),
    [
        ("x = 1", "x = 1"),
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("x = 1\n%time f(\nx = 2", "x = 1\npass\nx = 2"),
        ("!pip install 'x\nx = 1", "pass\nx = 1"),
        ("!echo a \\\n  b\nx = 1", "pass\n\nx = 1"),
        ("files = !ls -l\nx", "files = None\nx"),
        ("rows = %sql SELECT 1", "rows = None"),
        ("f?\nx = 1", "pass\nx = 1"),
        ("??f", "pass"),
        ("if x:\n    !ls\n    y = 1", "if x:\n    pass\n    y = 1"),
        ("%%time\nx = 1", "\nx = 1"),
        ("%%bash\nls | wc -l", "\n"),
        ("\n%%html\n<b>", "\n\n"),
        ("x = (5\n% 3)\n%who", "x = (5\n% 3)\npass"),
        ("", ""),
    ],
)
def test_magics_are_disarmed_line_for_line(cell, python):
    assert as_python(cell) == python
    assert ast.parse(as_python(cell)) is not None


@pytest.mark.parametrize("cell", ["def (", "x = 1\n y = 2", "%time x\nfor"])
def test_what_is_no_python_either_way_is_a_syntax_error(cell):
    with pytest.raises(SyntaxError):
        as_python(cell)


def cell(**fields):
    return {"cells": [{"cell_type": "code", **fields}, {"cell_type": "code", "source": "x = 1"}]}


@pytest.mark.parametrize(
    ("held", "problem", "number"),
    [
        (cell(source={"a": "b"}), "found {'a': 'b'}", 1),
        (cell(source=["a = 1", {"b": 1}]), "found ['a = 1', {'b': 1}]", 1),
        (cell(source=None), "found None", 1),
        (cell(source=3), "found 3", 1),
        (cell(source="x" * 3_000_000), "at most 2,097,152 bytes", 0),
        (cell(source="\ud800"), "surrogates not allowed", 1),
        ({"cells": {"a": 1}}, "not a notebook: expected a list of cells", 0),
        ({"cells": "abc"}, "not a notebook: expected a list of cells", 0),
        ({"worksheets": 3}, "not a notebook: expected a list of cells", 0),
        ({"worksheets": ["a"]}, "not a notebook: expected a list of cells", 0),
        ({"worksheets": [{"cells": "abc"}]}, "not a notebook: expected a list of cells", 0),
        ({"worksheets": [{"cells": None}, {}]}, "not a notebook: expected a list of cells", 0),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_notebook_whose_parts_are_of_other_types_says_so(tmp_path, held, problem, number):
    (tmp_path / "x.ipynb").write_text(json.dumps(held))
    (one,) = read(tmp_path / "x.ipynb").unreadable
    assert one.what.startswith("cannot be read: ") and problem in one.what and one.place.cell == number


@pytest.mark.parametrize(
    "held", [cell(), {"cells": [3, None, [], "x"]}, {"cells": [{"cell_type": []}], "metadata": 3}, {"worksheets": [{}]}]
)
def test_a_cell_of_no_known_kind_is_left_out(tmp_path, held):
    (tmp_path / "x.ipynb").write_text(json.dumps(held))
    source = read(tmp_path / "x.ipynb")
    assert source.unreadable == () and source.syntax is not None


def test_a_cell_of_a_hundred_thousand_magics_is_given_up(tmp_path):
    """Each magic is found by parsing the cell once more."""
    (tmp_path / "x.ipynb").write_bytes(notebook("%a\n" * 100_000, "x = 1"))
    source = read(tmp_path / "x.ipynb")
    assert ["16,777,216 characters" in one.what for one in source.unreadable] == [True] * 2


@pytest.fixture
def unfriendly(tmp_path, monkeypatch):
    """A folder of what is called as a Python file is and is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text("x = 1")
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "up.py").symlink_to(tmp_path)
    with open(os.fsencode(tmp_path) + b"/\xff.py", "w") as stream:
        stream.write("import torch\nx.norm(-1)")
    with (tmp_path / "huge.py").open("wb") as stream:
        stream.truncate(2**21 + 1)
    return tmp_path


UNFRIENDLY = {
    "pipe.py": "cannot be read: is no regular file",
    "zero.py": "cannot be read: is no regular file",
    "huge.py": "cannot be read: contains 2,097,153 bytes of Python, but the linter checks at most 2,097,152 bytes",
}


def test_what_is_called_like_a_file_and_is_none_cannot_be_read(unfriendly):
    report = lint_paths(["."])
    found = {finding.place.path: (finding.code, finding.what) for finding in report.findings}
    assert found.pop("\udcff.py")[0] == "FA001"
    assert found == {name: ("FA900", what) for name, what in UNFRIENDLY.items()} and report.exit_code == 1


@pytest.mark.parametrize("name", UNFRIENDLY)
def test_such_a_file_that_is_named_cannot_be_read_either(unfriendly, name):
    (finding,) = lint_paths([name]).findings
    assert (finding.code, finding.what) == ("FA900", UNFRIENDLY[name])


@pytest.mark.parametrize("name", ["loop.py", "x" * 300 + ".py", "a/" * 3_000 + "x.py", "a\0.py"])
def test_a_name_that_no_file_can_have_is_of_no_file(unfriendly, name):
    with pytest.raises(LintError, match="^no such file or folder: ") as caught:
        python_files([name])
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("form", [[], ["--json"], ["--sarif"]])
def test_a_folder_of_such_files_is_reported_without_a_traceback(unfriendly, form):
    ended = subprocess.run(
        [sys.executable, "-m", "fa_registry", "lint", ".", *form],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/packages/fa_lint"},
    )
    assert ended.returncode == 1 and b"Traceback" not in ended.stderr + ended.stdout
    assert b"is no regular file" in ended.stdout and b"FA001" in ended.stdout


def test_cells_keep_their_place_among_all_cells():
    assert [(number, cell_text(source)) for number, source in code_cells(notebook("a\nb", "c"))] == [
        (2, "a\nb"),
        (3, "c"),
    ]


def test_source_may_be_one_text_and_the_format_an_old_one():
    new = {"cells": [{"cell_type": "code", "source": "x\ny"}]}
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x\n", "y"]}]}]}
    for written in (new, old):
        assert [cell_text(source) for _, source in code_cells(json.dumps(written).encode())] == ["x\ny"]


def test_a_notebook_in_another_language_has_no_python_cells():
    assert list(code_cells(notebook("x <- c(1, 2)", language="R"))) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"cells": 3}', b"\xff\xfe"])
def test_what_is_no_notebook_is_a_value_error(content):
    with pytest.raises(ValueError):
        list(code_cells(content))


KNOWN = ("FA001", "FA002")


@pytest.mark.parametrize(
    ("comment", "codes", "reason"),
    [
        ("# fa: ok FA002 unit vectors", ("FA002",), "unit vectors"),
        ("#fa:ok FA002: unit vectors", ("FA002",), "unit vectors"),
        ("# fa: ok FA001, FA002 - unit vectors", ("FA001", "FA002"), "unit vectors"),
        ("# noqa: E501  # fa: ok fa001 Unit vectors", ("FA001",), "Unit vectors"),
    ],
)
def test_codes_and_reason(comment, codes, reason):
    (silence,) = silences(f"x = 1  {comment}\n", KNOWN)
    assert (silence.codes, silence.reason, silence.problem, silence.line) == (codes, reason, "", 1)


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ("# fa: ok FA002", "gives no reason"),
        ("# fa: ok FA002 -", "gives no reason"),
        ("# fa: ok", "names no rule"),
        ("# fa: ok unit vectors", "names no rule"),
        ("# fa: ok FA099 unit vectors", "names FA099"),
    ],
)
def test_what_silences_nothing_says_why(comment, problem):
    (silence,) = silences(f"x = 1  {comment}\n", KNOWN)
    assert problem in silence.problem


@pytest.mark.parametrize("text", ['x = "# fa: ok FA002"\n', "# alfa: ok then\n", "# fa: okay FA002\n", "x = 1\n"])
def test_other_texts_are_no_such_comment(text):
    assert list(silences(text, KNOWN)) == []
