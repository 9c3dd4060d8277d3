"""Cells, magics and everything else IPython allows."""

from __future__ import annotations

import ast
import json

import pytest

from fa_registry.lint.python_files import as_python, code_cells
from tests.lint.samples import notebook


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


def test_cells_keep_their_place_among_all_cells():
    assert [(cell.number, cell.text) for cell in code_cells(notebook("a\nb", "c"))] == [(2, "a\nb"), (3, "c")]


def test_source_may_be_one_text_and_the_format_an_old_one():
    new = {"cells": [{"cell_type": "code", "source": "x\ny"}]}
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x\n", "y"]}]}]}
    for written in (new, old):
        assert [cell.text for cell in code_cells(json.dumps(written).encode())] == ["x\ny"]


def test_a_notebook_in_another_language_has_no_python_cells():
    assert list(code_cells(notebook("x <- c(1, 2)", language="R"))) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"cells": 3}', b"\xff\xfe"])
def test_what_is_no_notebook_is_a_value_error(content):
    with pytest.raises(ValueError):
        list(code_cells(content))
