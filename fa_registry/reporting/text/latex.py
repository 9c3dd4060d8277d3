"""Filters for the LaTeX table of an audit: they escape text and convert formulas.

All characters are converted to commands that pdflatex supports.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from markupsafe import Markup

from fa_registry.text_safety import escape_control

PLAIN = re.compile(r"[A-Za-z0-9 .:;()/=!]*")  # texts that need no conversion; most words match
LONG = 20  # longer words (digests, paths, command options) may need line breaks
STEP = 8  # letters between line breaks in a long word without punctuation
BREAKS = "/._-=:,+()[]{}&?"
BREAK = r"\allowbreak{}"
ACCENTS: Mapping[str, str] = MappingProxyType(  # combining mark → the command for it in text and in math mode
    {
        "\u0300": (r"\`", r"\grave"),
        "\u0301": (r"\'", r"\acute"),
        "\u0302": (r"\^", r"\hat"),
        "\u0303": (r"\~", r"\tilde"),
        "\u0304": (r"\=", r"\bar"),
        "\u0306": (r"\u", r"\breve"),
        "\u0307": (r"\.", r"\dot"),
        "\u0308": (r"\"", r"\ddot"),
        "\u030a": (r"\r", r"\mathring"),
        "\u030b": (r"\H", ""),
        "\u030c": (r"\v", r"\check"),
        "\u0327": (r"\c", ""),
        "\u0328": (r"\k", ""),
    }
)
RAISED: Mapping[str, str] = MappingProxyType(
    dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺⁽⁾ⁿⁱᵀᵏˡ", [*"0123456789-+()ni", r"\top", "k", "l"], strict=True))
)
LOWERED: Mapping[str, str] = MappingProxyType(dict(zip("₀₁₂₃₄₅₆₇₈₉₋₊₍₎ₗₖₙₜᵢⱼₓ", "0123456789-+()lkntijx", strict=True)))
TOKEN = re.compile(
    rf"(?P<raised>[{''.join(RAISED)}]+)|(?P<lowered>[{''.join(LOWERED)}]+)"
    rf"|(?P<accented>.[{''.join(ACCENTS)}])|(?P<joined>--+|,,+)|(?P<char>.)",
    re.DOTALL,
)


def latex_text(text: str) -> Markup:
    """Return untrusted text for a LaTeX page, in one line and without commands.

    LaTeX may break long words. Formulas (‖h_L‖₂, Γ_l, 1.2×10⁻⁷) are converted to math mode. A character without a LaTeX
    command is written as its number, ⟨U+4E2D⟩, so every text compiles.
    """
    line = re.sub(r"[ \t\n]+", " ", escape_control(text)).strip(" ")
    return Markup(_set(line))


def latex_comment(text: str) -> Markup:
    """Return untrusted text for a LaTeX comment (%), in one line and without escaping."""
    return Markup(re.sub(r"[ \t\n]+", " ", escape_control(text)).strip(" "))


@lru_cache(maxsize=8192)  # the same texts occur in every form of an audit
def _set(text: str) -> str:
    pieces, end = [], 0
    text = unicodedata.normalize("NFC", text)
    for match in FORMULA.finditer(text):
        pieces += [_encoded(text[end : match.start()]), f"${_formula(match.group())}$"]
        end = match.end()
    return "".join([*pieces, _encoded(text[end:])])


def _formula(text: str) -> str:
    result = ""
    for match in IN_FORMULA.finditer(text):
        part = _part(match)
        needs_space = part[:1].isalpha() and re.search(r"\\[A-Za-z]+$", result)
        result += f" {part}" if needs_space else part
    return result


def _part(match: re.Match[str]) -> str:
    if match["index"]:
        return f"_{{{_formula(match['index'].strip('_{}'))}}}"
    if match["raised"]:
        return f"^{{{''.join(RAISED[char] for char in match['raised'])}}}"
    if match["lowered"]:
        return f"_{{{''.join(LOWERED[char] for char in match['lowered'])}}}"
    if match["accented"]:
        letter, mark = match["accented"]
        return f"{ACCENTS[mark][1]}{{{MATH.get(letter, letter)}}}"
    return "{,}" if match["char"] == "," else MATH.get(match["char"], match["char"])


@lru_cache(maxsize=8192)
def _encoded(text: str) -> str:
    return " ".join(_word(word) for word in unicodedata.normalize("NFC", text).split(" "))


def _word(word: str) -> str:
    """Return one word as LaTeX; LaTeX may break a long word at the end of a line."""
    if len(word) <= LONG:
        return _symbols(word)
    pieces = re.findall(rf"[^{re.escape(BREAKS)}]{{1,{STEP}}}[{re.escape(BREAKS)}]*|[{re.escape(BREAKS)}]+", word)
    return BREAK.join(_symbols(piece) for piece in pieces)


def _symbols(text: str) -> str:
    if PLAIN.fullmatch(text):
        return text
    return "".join(_symbol(match) for match in TOKEN.finditer(unicodedata.normalize("NFC", text)))


def _symbol(match: re.Match[str]) -> str:
    text = match.group()
    if match["raised"]:
        return f"$^{{{''.join(RAISED[char] for char in text)}}}$"
    if match["lowered"]:
        return f"$_{{{''.join(LOWERED[char] for char in text)}}}$"
    if match["joined"]:  # TeX would convert -- to a dash, also in command options, and ,, to a quotation mark
        return "{}".join(text)
    return _accented(*text) if match["accented"] else _char(text)


def _char(char: str) -> str:
    if char in TEXT:
        return TEXT[char]
    if char in MATH:
        return f"${MATH[char]}$"
    if " " <= char <= "~":
        return char
    parts = unicodedata.normalize("NFD", char)
    if len(parts) == 2 and parts[1] in ACCENTS:
        return _accented(*parts)
    return _symbols(f"⟨U+{ord(char):04X}⟩")


def _accented(letter: str, mark: str) -> str:
    """Return a letter with an accent as LaTeX, in text (é) or in math mode (V̄)."""
    text, math = ACCENTS[mark]
    if letter.isascii() and letter.isalpha():
        return rf"{text}{{{letter}}}"
    if letter in MATH and math:
        return f"${math}{{{MATH[letter]}}}$"
    return _char(letter) + _symbols(f"⟨U+{ord(mark):04X}⟩")


# The LaTeX command of every character that pdflatex with T1 fonts would reject, misread or join with another.
TEXT: Mapping[str, str] = MappingProxyType(
    {
        # special characters of TeX
        **{"\\": r"\textbackslash{}", **{char: f"\\{char}" for char in "{}$&#%_"}},
        **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"},
        **{"|": r"\textbar{}", '"': r"\textquotedbl{}", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}"},
        # punctuation
        **{"\u00a0": "~", "·": r"\textperiodcentered{}", "…": r"\dots{}", "–": r"\textendash{}", "—": r"\textemdash{}"},
        **{"‘": r"\textquoteleft{}", "’": r"\textquoteright{}"},
        **{"“": r"\textquotedblleft{}", "”": r"\textquotedblright{}"},
        **{"§": r"\S{}", "°": r"\textdegree{}", "©": r"\textcopyright{}", "µ": r"\textmu{}"},
        # letters that are not an accented letter
        **{"ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "å": r"\aa{}", "Å": r"\AA{}", "œ": r"\oe{}"},
        **{"Œ": r"\OE{}", "ß": r"\ss{}", "ł": r"\l{}", "Ł": r"\L{}", "đ": r"\dj{}", "ı": r"\i{}"},
    }
)
VARIANTS = {"ε": "varepsilon", "ϵ": "epsilon", "φ": "varphi", "ϕ": "phi"}


def _greek(letter: str) -> str:
    name = unicodedata.name(letter).rpartition(" ")[2].replace("LAMDA", "LAMBDA")
    return "\\" + VARIANTS.get(letter, name.title() if letter.isupper() else name.lower())


SIGNS = {
    # operators
    **{"−": "-", "±": r"\pm", "×": r"\times", "÷": r"\div", "⋅": r"\cdot", "∘": r"\circ", "∗": r"\ast", "✕": r"\times"},
    **{"⊙": r"\odot", "⊗": r"\otimes", "∂": r"\partial", "∇": r"\nabla", "∑": r"\sum", "∏": r"\prod", "∫": r"\int"},
    **{"√": r"\surd", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "′": r"{}'"},
    # relations, sets, logic
    **{"≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx", "≡": r"\equiv", "∼": r"\sim", "∝": r"\propto"},
    **{"≪": r"\ll", "≫": r"\gg", "∈": r"\in", "∉": r"\notin", "⊂": r"\subset", "∪": r"\cup", "∩": r"\cap"},
    **{"∅": r"\emptyset", "∀": r"\forall", "∃": r"\exists", "¬": r"\neg", "∧": r"\wedge", "∨": r"\vee"},
    # arrows
    **{"→": r"\rightarrow", "←": r"\leftarrow", "↔": r"\leftrightarrow", "↑": r"\uparrow", "↓": r"\downarrow"},
    **{"⇒": r"\Rightarrow", "↦": r"\mapsto"},
    # brackets
    **{"‖": r"\|", "∥": r"\|", "⟨": r"\langle", "⟩": r"\rangle"},
    **{"⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil"},
    # letters and marks
    **{"∞": r"\infty", "ℓ": r"\ell", "ℝ": r"\mathbf{R}", "†": r"\dagger", "✔": r"\surd", "✓": r"\surd"},
    **{"✘": r"\times", "•": r"\bullet"},
}
MATH: Mapping[str, str] = MappingProxyType(
    {**{letter: _greek(letter) for letter in "αβγδεϵζηθικλμνξπρστυφϕχψωΓΔΘΛΞΠΣΥΦΨΩ"}, **SIGNS}
)


# Formulas in a line of text: a letter with an index or accent, a Greek letter, a norm, a power of ten, a negative
# number. A Latin letter alone, or in a name such as d_hidden, is not a formula.


def _formulas() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return two patterns: one for a whole formula, one for the parts of a formula."""
    greek, marks = "".join(letter for letter in MATH if letter.isalpha()), "".join(m for m in ACCENTS if ACCENTS[m][1])
    raised, lowered = f"[{''.join(RAISED)}]+", f"[{''.join(LOWERED)}]+"
    index = rf"_(?:\{{[A-Za-z0-9−+, ]{{1,9}}\}}|[A-Za-z0-9{greek}](?:−1)?)(?![A-Za-z0-9_])"
    word_start = r"(?<![A-Za-z0-9_\\])"
    signs = rf"(?:(?:{index}|{lowered})(?:{raised})?|{raised})"
    term = rf"(?:[{greek}][{marks}]?{signs}?(?![{marks}])|{word_start}[A-Za-z](?:[{marks}]{signs}?|{signs}))"
    norm = rf"‖(?:{term}|{word_start}[A-Za-z](?![A-Za-z])|[ 0-9−+·/()])+‖(?:{index}|{lowered})?"
    number = rf"(?<![\w.,])−?\d(?:[\d.,]*\d)?×10{raised}|(?<![\w.,])−\d(?:[\d.,]*\d)?"
    parts = rf"(?P<index>{index})|(?P<raised>{raised})|(?P<lowered>{lowered})|(?P<accented>.[{marks}])|(?P<char>.)"
    return re.compile(f"{norm}|{number}|{term}"), re.compile(parts, re.DOTALL)


FORMULA, IN_FORMULA = _formulas()
