"""Every filter writes numbers and refuses everything else; third-party text stays text."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fa_registry import bundled_files
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Reading
from fa_registry.reporting.text import filters
from fa_registry.reporting.text.latex import (
    BREAK,
    LOWERED,
    MATH,
    RAISED,
    TEXT,
    latex_comment,
    latex_text,
)
from fa_registry.reporting.view_models import Estimate, Number

NUMBER_FILTERS = (filters.num, filters.sci, filters.pct, filters.pp, filters.cos, filters.exact, filters.compact)
NASTY = (
    "<script>alert(1)</script>{{7*7}}",
    "a|b\nc",
    "# heading",
    "- item",
    "1. item",
    "**bold** _it_ `code`",
    "---",
    "===",
    "+ item",
    "![x](http://evil/x.png)",
    "[x](javascript:alert(1))",
    "<!-- fa:blank motivation -->",
    "a\\",
    "&lt;b&gt;",
    "~~gone~~",
    "https://evil.example",
)


@pytest.mark.parametrize("write", NUMBER_FILTERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused(write, value):
    with pytest.raises(ValueError, match="finite"):
        write(value)


@pytest.mark.parametrize("write", NUMBER_FILTERS)
@pytest.mark.parametrize("value", [None, "1.0", True])
def test_what_is_no_number_is_refused(write, value):
    with pytest.raises(TypeError, match="expected a number"):
        write(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.934, "0.934"),
        (12.5, "12.5"),
        (136.9, "137"),
        (1437, "1,437"),
        (566026, "566,026"),
        (2105.6, "2,106"),
        (0.0, "0"),
        (-0.5, "−0.500"),
        (4.8e9, "4.80×10⁹"),
        (4.7e-8, "4.70×10⁻⁸"),
        (-1.5e-7, "−1.50×10⁻⁷"),
    ],
)
def test_num(value, text):
    assert filters.num(value) == text


def test_units_and_signs():
    assert filters.pct(0.9341) == "93.4\u00a0%"
    assert filters.pp(-1.04) == "−1.0\u00a0pp"
    assert filters.pp(13.5) == "+13.5\u00a0pp"
    assert filters.cos(-0.0624) == "−0.062"
    assert filters.cos(-0.0002) == "0.000"
    assert filters.exact(0.999999) == "0.999999"
    assert [filters.compact(value) for value in (50.0, 0.02, 1e-7, 1.28e-5, 1e5)] == [
        "50",
        "0.02",
        "10⁻⁷",
        "1.28×10⁻⁵",
        "10⁵",
    ]


def test_an_interval_is_ordered_and_finite():
    assert filters.ci((0.9, 0.95)).split(" to ") == ["90.0\u00a0%", "95.0\u00a0%"]
    for wrong in ((0.95, 0.9), (0.9, math.nan)):
        with pytest.raises(ValueError, match="low|finite"):
            filters.ci(wrong)


def test_an_interval_has_the_unit_of_its_quantity():
    assert filters.between((-0.5, 4.25), "pp").split(" to ") == ["−0.5\u00a0pp", "+4.2\u00a0pp"]
    assert filters.between((0.1, 0.1), "cos").startswith("0.100 to 0.100 (")
    for wrong in ((2.0, 1.0), (0.0, math.inf)):
        with pytest.raises(ValueError, match="low|finite"):
            filters.between(wrong, "pp")


def test_missing_and_not_finite_are_two_things():
    assert filters.na(Reading(None, "no feedback file")) == "N/A"
    assert filters.na(Reading.of(math.inf)) == "not finite"
    with pytest.raises(ValueError, match="expected a missing number"):
        filters.na(Reading(1.0))


def test_spread_shares_one_unit():
    def estimate(kind, mean, std):
        return Estimate(kind, (), 2, Number(Reading(mean), kind, ()), std, std, std)

    assert filters.spread(estimate("pct", 0.934, Reading(0.008))) == "93.4\u00a0±\u00a00.8\u00a0%"
    assert filters.spread(estimate("pp", 13.5, Reading(0.9))) == "+13.5\u00a0±\u00a00.9\u00a0pp"
    assert filters.spread(estimate("cos", 0.1, Reading(0.01))) == "0.100\u00a0±\u00a00.010"
    assert filters.spread(estimate("cos", 0.1, Reading(None, "one seed"))) == "0.100"


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("place", ["{}", "- {}", "| a |\n|---|\n| {} |"])
def test_foreign_text_in_markdown_is_read_back_as_that_text(text, place):
    """Parsed as GitHub would: what remains is plain text, and nothing that the place did not bring itself."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = list(_flat(parser.parse(place.format(filters.markdown_text(text)))))
    plain = list(_flat(parser.parse(place.format("text"))))
    assert [token.type for token in tokens] == [token.type for token in plain]
    assert "".join(token.content for token in tokens if token.type == "text").endswith(" ".join(text.split()))


def test_a_fence_is_longer_than_the_back_ticks_inside_and_holds_no_marker():
    block = filters.fence("```\n<!-- fa:blank motivation -->\n````")
    assert block.startswith("`````\n") and block.endswith("\n`````")
    assert "<!-- fa:blank" not in block


def _flat(tokens):
    for token in tokens:
        if token.children is None:
            yield token
        else:
            yield from (child for child in token.children if child.type != "text" or child.content)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.99999999999987, "0.999999"),
        (1.0, "1.000000"),
        (0.998, "0.998000"),
        (0, "0.000000"),
        (-0.1234567, "−0.123457"),
    ],
)
def test_a_lower_bound_is_rounded_down(value, shown):
    assert filters.at_least(value) == shown


def test_a_mean_and_its_deviation_have_one_power_of_ten_and_the_means_decimals():
    def both(mean, deviation, kind="num"):
        return filters.plus_minus(mean, deviation, kind).replace("\u00a0", " ")

    assert both(1.18e5, 29964.0) == "(1.18 ± 0.30)×10⁵"
    assert both(15.1, 0.307) == "15.1 ± 0.3"
    assert both(1234.5, 17.3) == "1,234 ± 17"
    assert both(2.5e-7, 4e-9, "sci") == "(2.50 ± 0.04)×10⁻⁷"
    assert both(-2.5e-7, 4e-3, "sci") == "(−0.00 ± 4.00)×10⁻³"
    assert both(15.1, 0.003) == "15.1 ± < 0.1" and both(15.1, 0.0) == "15.1 ± 0.0"
    assert both(0.0, 0.0) == "0 ± 0"


def test_the_ends_of_an_interval_share_a_power_of_ten():
    assert filters.between((9.5e4, 1.2e5), "num") == "(0.95 to 1.20)×10⁵"
    assert filters.between((0.5, 12.0), "num") == "0.500 to 12.0"


def test_a_heading_is_cut_where_it_would_fill_the_screen():
    assert filters.brief("short") == "short" and filters.brief("x" * 160) == "x" * 160
    assert filters.brief("x" * 10_000) == "x" * 159 + "…" and filters.brief("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("factor", "text"),
    [(1.131, "1,812 ×/÷ 1.13"), (1.004, "1,812 ×/÷ < 1.01"), (1.0, "1,812 ×/÷ 1.00"), (2.5e6, "1,812 ×/÷ 2.50×10⁶")],
)
def test_the_deviation_of_a_geometric_mean_is_a_factor(factor, text):
    std = Reading(factor)
    shown = Estimate("num", (), 2, Number(Reading(1812.0), "num", ()), std, std, std, average="geometric")
    assert filters.spread(shown).replace("\u00a0", " ") == text


FALLBACK = r"$\langle$U+"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("100%_#$&{}~^\\", r"100\%\_\#\$\&\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("‖h_L‖₂ ‖h_l−1‖", r"$\|h_{L}\|_{2}$ $\|h_{l-1}\|$"),
        ("→ 1.2×10⁻⁷ and 2,345×10³", r"$\rightarrow$ $1.2\times10^{-7}$ and $2{,}345\times10^{3}$"),
        ("−36.9 pp, 3−4", r"$-36.9$ pp, 3$-$4"),
        ("Γ = .1, λ ≥ 2 · x", r"$\Gamma$ = .1, $\lambda$ $\ge$ 2 \textperiodcentered{} x"),
        ("B_lᵀ and V̄ and é and ø", r"$B_{l}^{\top}$ and $\bar{V}$ and \'{e} and \o{}"),
        ("d_hidden, gamma_deep_mean, a_b_c, V_φ", r"d\_hidden, gamma\_deep\_mean, a\_b\_c, $V_{\varphi}$"),
        ("γβ ∂γ", r"$\gamma$$\beta$ $\partial$$\gamma$"),
        ("--replace-dataset x,,y", "-{}-replace-dataset x,{},y"),
        ("two\n\n\\par lines\t%", r"two \textbackslash{}par lines \%"),
        ("中", FALLBACK + r"4E2D$\rangle$"),
        ("a\u202eb\udc80", rf"a{FALLBACK}202E$\rangle$b{FALLBACK}DC80$\rangle$"),
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


def test_a_dollar_sign_begins_no_formula_in_markdown():
    """pandoc and MLflow's pages read $…$ as TeX, also across the cells of a table."""
    assert filters.markdown_text(r"$\input{x}$ costs 5 $") == r"\$\\input{x}\$ costs 5 \$"


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
    assert not set("%#&") & set(bare)
    formulas = bare.split("$")[1::2]  # none is empty, which would begin one on a separate line, and none is left open
    assert all(formulas) and bare.count("$") == 2 * len(formulas)
    outside = "".join(bare.split("$")[::2]).replace(r"\_", "").replace(r"\^", "")
    assert not set("_^") & set(outside)


def test_an_edition_is_named_by_what_its_gating_rules_measure():
    newest = load_edition("2026-12").reference
    assert re.findall(r"\((\w+)\)", filters.gating_rules(newest)) == ["D1", "D2", "D3"]  # D4 and S do not gate
    theirs = dataclasses.replace(newest, digest="0" * 64, title="Rules of ours")
    assert filters.gating_rules(theirs) == "Rules of ours" and filters.changed_rules(theirs) == []


def test_the_rules_that_the_published_edition_does_not_have_are_listed_with_their_reason():
    changes = dict(filters.changed_rules(load_edition("2026-12").reference))
    assert list(changes) == [
        "D1 scale stability",
        "D2 reference validity",
        "D3 depth utility",
        "D4 credit distribution",
        "S cross-batch stability",
    ]
    assert len(set(changes.values())) == len(changes) and all(changes.values())
    for name in ("2026-04", "2026-05", "2026-05:strict"):
        assert filters.changed_rules(load_edition(name).reference) == []


def test_no_character_is_in_two_tables():
    tables = [TEXT, MATH, RAISED, LOWERED]
    assert sum(map(len, tables)) == len(set().union(*tables))


@pytest.mark.long
def test_every_character_this_project_prints_has_a_command():
    """Cards, rules, words of the pages: none of them is shown by its number."""
    package = bundled_files.templates().parent / "fa_registry"
    folders = ("methods", "architectures", "datasets", "diagnostics", "protocol", "reporting", "studies")
    files = [path for folder in folders for path in (package / folder).rglob("*") if path.suffix in (".py", ".toml")]
    assert len(files) > 80
    strange = {path.name: latex_text(path.read_text("utf-8")).count(FALLBACK) for path in files}
    left = {name for name, count in strange.items() if count}
    assert left <= {"latex.py", "schemas.py", "csv.py"}  # they speak of such characters


@pytest.mark.parametrize(
    ("shares", "numbers"), [((0.32, 0.51), (51, 32, 71)), ((0.9, 0.0), (0, 90, 0)), ((0, 1), (100, 0, 100))]
)
def test_the_parts_of_an_error_end_with_what_more_seeds_leave(shares, numbers):
    """The standard error of infinitely many seeds is the root of the test set's share."""
    assert tuple(map(int, re.findall(r"(\d+) %", filters.error_parts(shares)))) == numbers
