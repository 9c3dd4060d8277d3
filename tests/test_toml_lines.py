"""Lines of the keys of a TOML text, and the line of its first error."""

from __future__ import annotations

import tomllib

import pytest

from fa_registry.jsonio import read_toml
from fa_registry.toml_lines import error_line, key_lines

TEXT = '''# a comment with [brackets] and "quotes
a = 1
b.c."d e" = [
  1, # ]
  "]",
]
s = """
x = 3
[no]
\\""" ["""
l = \'\'\'
[no]''\'\'\'
"#" = '["'
[[grid]]
m = {x = 1, y = {z = [1, {q = 2}]}}
[grid.recipe]
e = 3
[[grid]]
[grid.recipe]
e = 4
[[grid.sub]]
k = 1
[[grid.sub]]
k = 2
["q.r".'s']
t = 1'''
EXPECTED = {
    ("a",): 2,
    ("b", "c", "d e"): 3,
    ("b", "c", "d e", 1): 3,
    ("s",): 7,
    ("l",): 11,
    ("#",): 13,
    ("grid", 0): 14,
    ("grid", 0, "m", "y", "z", 1, "q"): 15,
    ("grid", 0, "recipe"): 16,
    ("grid", 0, "recipe", "e"): 17,
    ("grid", 1): 18,
    ("grid", 1, "recipe", "e"): 20,
    ("grid", 1, "sub", 0, "k"): 22,
    ("grid", 1, "sub", 1): 23,
    ("grid", 1, "sub", 1, "k"): 24,
    ("q.r", "s"): 25,
    ("q.r", "s", "t"): 26,
}


def paths(value, steps=()):
    """All paths to the values in a table."""
    for step, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*steps, step)
        if isinstance(item, (dict, list)):
            yield from paths(item, (*steps, step))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_key_has_the_line_at_which_its_statement_begins(end):
    found = key_lines(TEXT.replace("\n", end))
    assert {steps: found[steps] for steps in EXPECTED} == EXPECTED


def test_every_key_and_entry_has_a_line():
    assert set(key_lines(TEXT)) - {()} == set(paths(tomllib.loads(TEXT)))


@pytest.mark.parametrize("line", range(1, TEXT.count("\n") + 2))
def test_a_wrong_statement_has_the_line_at_which_it_begins(line):
    lines = TEXT.split("\n")
    starts = sorted({1, *key_lines(TEXT).values()})
    if line in starts:
        assert error_line("\n".join([*lines[: line - 1], "= wrong", *lines[line - 1 :]])) == line


def test_a_long_list_is_read_at_once(tmp_path):
    """A scan that parsed the list again at each line would take minutes."""
    (tmp_path / "a.toml").write_text("a = [\n" + "[1],\n" * 50_000 + "]\nb = 1\n", encoding="utf-8")
    assert read_toml(tmp_path / "a.toml", "a").lines["b",] == 50_003
