"""Literals and arguments as the tree writes them."""

from __future__ import annotations

import ast

import pytest

from fa_registry.lint.syntax import Syntax, argument, number, open_ended


def call(text: str) -> ast.Call:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "value"), [("-1", -1), ("+2", 2), ("1e-8", 1e-8), ("True", None), ("n", None), ("'1'", None)]
)
def test_number(text, value):
    assert number(ast.parse(text, mode="eval").body) == value


def test_minus_one_stays_a_whole_number():
    assert type(number(ast.parse("-1", mode="eval").body)) is int


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(1, 2)", "2"),
        ("f(1, dim=3)", "3"),
        ("f(1)", None),
        ("f(*a, 2)", None),
        ("f(1, other=2)", None),
    ],
)
def test_argument_by_position_or_name(text, expected):
    node = argument(call(text), 1, "dim", "axis")
    assert (ast.unparse(node) if node else None) == expected


@pytest.mark.parametrize(("text", "is_open"), [("f(*a)", True), ("f(**a)", True), ("f(a, b=c)", False)])
def test_open_ended(text, is_open):
    assert open_ended(call(text)) is is_open


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("E = 1e-30\nf(E)", 1e-30),
        ("E = 1e-30\nE = 1\nf(E)", None),
        ("def g(E):\n    f(E)\nE = 1e-30", None),
        ("def g():\n    E = 1e-30\nf(E)", None),
    ],
)
def test_a_constant_of_the_module_counts_if_it_is_set_once(text, value):
    syntax = Syntax(text)
    (found,) = syntax.every(ast.Call)
    assert syntax.number(found.args[0]) == value


def test_bad_escapes_warn_nobody():
    assert Syntax('import torch\nx = "\\d"\n').tree.body  # warnings are errors in this suite


def test_a_long_snippet_is_shortened_to_one_line():
    syntax = Syntax("f(\n    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,\n    bbbbbbbbbbbbbbbbbbbbbbbbbbbbb,\n)")
    (found,) = syntax.every(ast.Call)
    assert len(syntax.snippet(found)) == 60 and syntax.snippet(found).endswith("…")
