"""How a LaTeX page is written: foreign text as itself, in characters that pdflatex knows, and tables that fit the paper."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from markupsafe import Markup

from fa_registry.text_safety import escape_control

T = TypeVar("T")
PLAIN = re.compile(r"[A-Za-z0-9 .:;()/=!]*")  # most words: TeX writes these as they are
LONG = 20  # a word of more letters may have to be broken: digests, paths, options of a command
STEP = 8  # of a long word without any sign: after so many letters
BREAKS = "/._-=:,+()[]{}&?"
BREAK = r"\allowbreak{}"
ACCENTS: Mapping[str, str] = MappingProxyType(  # combining mark → the command that puts it on a letter; in math mode
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
    """Foreign text for a LaTeX page, on one line: no command, comment or paragraph in it; long words can be broken.

    What is a formula in it (‖h_L‖₂, Γ_l, 1.2×10⁻⁷) is set as one. A character without a LaTeX command is shown by its number,
    ⟨U+4E2D⟩, so that every text compiles.
    """
    line = re.sub(r"[ \t\n]+", " ", escape_control(text)).strip(" ")
    return Markup(_set(line))


def latex_block(text: str) -> Markup:
    """Several lines of foreign text, each a paragraph of its own, their indentation kept; for a flushleft surrounding.

    No formula in them: what stands in a command or an entry of BibTeX is to be copied.
    """
    return Markup("\n".join(f"{_indented(line, _encoded)}\\par" for line in _lines(text)))


def latex_formulas(text: str) -> Markup:
    """As latex_block, with its formulas set as such: for equations."""
    return Markup("\n".join(f"{_indented(line, _set)}\\par" for line in _lines(text)))


def latex_comment(text: str) -> Markup:
    """Foreign text for the rest of a line that begins with %: as it is, to be searched for; TeX reads nothing there."""
    return Markup(re.sub(r"[ \t\n]+", " ", escape_control(text)).strip(" "))


def parts(items: Sequence[T], most: int) -> tuple[tuple[tuple[int, T], ...], ...]:
    """The items with their places, at most so many together: a table that is too wide for paper is set in parts."""
    placed = tuple(enumerate(items))
    return tuple(placed[start : start + most] for start in range(0, len(placed), most))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in escape_control(text).replace("\t", "    ").strip("\n").split("\n")]


def _indented(line: str, write: Callable[[str], str]) -> str:
    bare = line.lstrip(" ")
    # \leavevmode: without it TeX drops the spaces at the beginning of a paragraph, and an empty line altogether
    return r"\leavevmode\hangindent=1.5em\relax " + "~" * (len(line) - len(bare)) + write(bare)


@lru_cache(maxsize=8192)  # the same words stand in every form of an audit
def _set(text: str) -> str:
    """Words as words, formulas as formulas."""
    made, end = [], 0
    text = unicodedata.normalize("NFC", text)
    for match in FORMULA.finditer(text):
        made += [_encoded(text[end : match.start()]), f"${_formula(match.group())}$"]
        end = match.end()
    return "".join([*made, _encoded(text[end:])])


def _formula(text: str) -> str:
    """The inside of a formula. A command's name ends where a letter that is none of it would follow."""
    written = ""
    for match in IN_FORMULA.finditer(text):
        part = _part(match)
        apart = part[:1].isalpha() and re.search(r"\\[A-Za-z]+$", written)
        written += f" {part}" if apart else part
    return written


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
    """One word; a long one with places where a line may end, an even piece of letters and digits at a time."""
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
    if match["joined"]:  # TeX would make a dash of --, also in the options of a command, and a quotation mark of ,,
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
    """A letter under its accent: é, or in formulas V̄."""
    text, math = ACCENTS[mark]
    if letter.isascii() and letter.isalpha():
        return rf"{text}{{{letter}}}"
    if letter in MATH and math:
        return f"${math}{{{MATH[letter]}}}$"
    return _char(letter) + _symbols(f"⟨U+{ord(mark):04X}⟩")


# Which LaTeX command writes which character: what pdflatex with T1 fonts would refuse, misread or join into another sign.


TEXT: Mapping[str, str] = MappingProxyType(
    {
        # what TeX itself reads
        **{
            "\\": r"\textbackslash{}",
            "{": r"\{",
            "}": r"\}",
            "$": r"\$",
            "&": r"\&",
            "#": r"\#",
            "%": r"\%",
            "_": r"\_",
        },
        **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"},
        **{"|": r"\textbar{}", '"': r"\textquotedbl{}", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}"},
        # punctuation
        **{"\u00a0": "~", "·": r"\textperiodcentered{}", "…": r"\dots{}", "–": r"\textendash{}", "—": r"\textemdash{}"},
        **{
            "‘": r"\textquoteleft{}",
            "’": r"\textquoteright{}",
            "“": r"\textquotedblleft{}",
            "”": r"\textquotedblright{}",
        },
        **{"§": r"\S{}", "°": r"\textdegree{}", "©": r"\textcopyright{}", "µ": r"\textmu{}"},
        # letters that are no letter under an accent
        **{"ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "å": r"\aa{}", "Å": r"\AA{}", "œ": r"\oe{}"},
        **{"Œ": r"\OE{}", "ß": r"\ss{}", "ł": r"\l{}", "Ł": r"\L{}", "đ": r"\dj{}", "ı": r"\i{}"},
    }
)
VARIANTS = {"ε": "varepsilon", "ϵ": "epsilon", "φ": "varphi", "ϕ": "phi"}


def _greek(letter: str) -> str:
    """\\gamma, \\Gamma, by the letter's name in Unicode, which spells lambda without its b."""
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


# What is a formula in a line of words: a letter with an index or a sign on it, a Greek letter, a norm, a power of ten, a negative
# number. A Latin letter alone, or in a name such as d_hidden, is none.


def _formulas() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """(a whole formula; its parts)"""
    greek, marks = "".join(letter for letter in MATH if letter.isalpha()), "".join(m for m in ACCENTS if ACCENTS[m][1])
    raised, lowered = f"[{''.join(RAISED)}]+", f"[{''.join(LOWERED)}]+"
    index = rf"_(?:\{{[A-Za-z0-9−+, ]{{1,9}}\}}|[A-Za-z0-9{greek}](?:−1)?)(?![A-Za-z0-9_])"
    alone = r"(?<![A-Za-z0-9_\\])"
    signs = rf"(?:(?:{index}|{lowered})(?:{raised})?|{raised})"
    term = rf"(?:[{greek}][{marks}]?{signs}?(?![{marks}])|{alone}[A-Za-z](?:[{marks}]{signs}?|{signs}))"
    norm = rf"‖(?:{term}|{alone}[A-Za-z](?![A-Za-z])|[ 0-9−+·/()])+‖(?:{index}|{lowered})?"
    number = rf"(?<![\w.,])−?\d(?:[\d.,]*\d)?×10{raised}|(?<![\w.,])−\d(?:[\d.,]*\d)?"
    parts = rf"(?P<index>{index})|(?P<raised>{raised})|(?P<lowered>{lowered})|(?P<accented>.[{marks}])|(?P<char>.)"
    return re.compile(f"{norm}|{number}|{term}"), re.compile(parts, re.DOTALL)


FORMULA, IN_FORMULA = _formulas()
