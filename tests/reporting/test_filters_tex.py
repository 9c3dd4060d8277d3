"""Foreign text in LaTeX: nothing in it is a command, and no character is left that pdflatex does not know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_registry import resources
from fa_registry.reporting.text.latex import (
    BREAK,
    LOWERED,
    MATH,
    RAISED,
    SPECIAL,
    TEXT,
    latex_block,
    latex_comment,
    latex_text,
    parts,
)

FALLBACK = r"\ensuremath{\langle}U+"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("100%_#$&{}~^\\", r"100\%\_\#\$\&\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("‖h_L‖₂", r"\ensuremath{\|}h\_L\ensuremath{\|}\ensuremath{_{2}}"),
        ("→ 1.2×10⁻⁷", r"\ensuremath{\rightarrow} 1.2\ensuremath{\times}10\ensuremath{^{-7}}"),
        ("Γ = .1, λ ≥ 2 · x", r"\ensuremath{\Gamma} = .1, \ensuremath{\lambda} \ensuremath{\ge} 2 \textperiodcentered{} x"),
        ("B_lᵀ and V̄ and é and ø", r"B\_l\ensuremath{^{\top}} and \={V} and \'{e} and \o{}"),
        ("--data x,,y", "-{}-data x,{},y"),
        ("two\n\n\\par lines\t%", r"two \textbackslash{}par lines \%"),
        ("中", FALLBACK + r"4E2D\ensuremath{\rangle}"),
        ("a\u202eb\udc80", rf"a{FALLBACK}202E\ensuremath{{\rangle}}b{FALLBACK}DC80\ensuremath{{\rangle}}"),
    ],
)  # fmt: skip
def test_text_is_shown_as_it_is(text, written):
    assert latex_text(text) == written


def test_long_words_can_be_broken_and_short_ones_are_left_alone():
    assert latex_text("ab" * 32).replace(BREAK, "") == "ab" * 32
    assert max(map(len, latex_text("ab" * 32).split(BREAK))) <= 8
    assert BREAK not in latex_text("gamma_deep_mean") and BREAK in latex_text(
        "architecture.num_blocks=4,architecture.x=1"
    )


def test_a_block_keeps_its_lines_and_their_indentation():
    start = r"\leavevmode\hangindent=1.5em\relax "
    assert latex_block("@misc{a,\n  b\n\nc}\n") == "\n".join(
        [rf"{start}@misc\{{a,\par", rf"{start}~~b\par", rf"{start}\par", rf"{start}c\}}\par"]
    )


def test_a_wide_table_is_set_in_parts():
    assert parts("abc", 2) == (((0, "a"), (1, "b")), ((2, "c"),))
    assert parts((), 2) == ()


def test_a_comment_stays_on_its_line():
    assert latex_comment("100%_#\n\\input{x}\r\u2028") == "100%_# \\input{x}⟨U+000D⟩⟨U+2028⟩"


@given(st.text())
def test_whatever_comes_in_only_known_commands_come_out(text):
    written = str(latex_text(text))
    assert written.isascii() and "\n" not in written
    depth = 0
    for place, char in enumerate(written):  # braces that are no text are balanced at every point
        if char in "{}" and written[place - 1 : place] != "\\":
            depth += 1 if char == "{" else -1
        assert depth >= 0
    assert depth == 0
    bare = written.replace(r"\%", "").replace(r"\#", "").replace(r"\$", "").replace(r"\&", "")
    assert not set("%#$&") & set(bare)


def test_no_character_is_in_two_tables():
    tables = [SPECIAL, TEXT, MATH, RAISED, LOWERED]
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_every_character_this_project_prints_has_a_command():
    """Cards, rules, words of the pages: none of them is shown by its number."""
    package = resources.templates().parent / "fa_registry"
    folders = ("methods", "architectures", "datasets", "diagnostics", "protocol", "reporting", "studies")
    files = [path for folder in folders for path in (package / folder).rglob("*") if path.suffix in (".py", ".toml")]
    assert len(files) > 80
    strange = {path.name: latex_text(path.read_text("utf-8")).count(FALLBACK) for path in files}
    left = {name for name, count in strange.items() if count}
    assert left <= {"latex.py", "filters.py", "csv.py"}  # they speak of such characters
