"""Which LaTeX command writes which character: what pdflatex with T1 fonts would refuse, misread or join into another sign."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from types import MappingProxyType

SPECIAL: Mapping[str, str] = MappingProxyType(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "'": r"\textquotesingle{}",
        "`": r"\textasciigrave{}",
    }
)
TEXT: Mapping[str, str] = MappingProxyType(
    {
        "\u00a0": "~",
        "·": r"\textperiodcentered{}",
        "…": r"\dots{}",
        "–": r"\textendash{}",
        "—": r"\textemdash{}",
        "‘": r"\textquoteleft{}",
        "’": r"\textquoteright{}",
        "“": r"\textquotedblleft{}",
        "”": r"\textquotedblright{}",
        "§": r"\S{}",
        "°": r"\textdegree{}",
        "©": r"\textcopyright{}",
        "µ": r"\textmu{}",
        "ø": r"\o{}",
        "Ø": r"\O{}",
        "æ": r"\ae{}",
        "Æ": r"\AE{}",
        "å": r"\aa{}",
        "Å": r"\AA{}",
        "œ": r"\oe{}",
        "Œ": r"\OE{}",
        "ß": r"\ss{}",
        "ł": r"\l{}",
        "Ł": r"\L{}",
        "đ": r"\dj{}",
        "ı": r"\i{}",
    }
)
VARIANTS = {"ε": "varepsilon", "ϵ": "epsilon", "φ": "varphi", "ϕ": "phi"}


def _greek(letter: str) -> str:
    """\\gamma, \\Gamma, by the letter's name in Unicode, which spells lambda without its b."""
    name = unicodedata.name(letter).rpartition(" ")[2].replace("LAMDA", "LAMBDA")
    return "\\" + VARIANTS.get(letter, name.title() if letter.isupper() else name.lower())


SIGNS = {
    "−": "-",
    "±": r"\pm",
    "×": r"\times",
    "÷": r"\div",
    "⋅": r"\cdot",
    "∘": r"\circ",
    "∗": r"\ast",
    "✕": r"\times",
    "⊙": r"\odot",
    "⊗": r"\otimes",
    "≤": r"\le",
    "≥": r"\ge",
    "≠": r"\ne",
    "≈": r"\approx",
    "≡": r"\equiv",
    "∼": r"\sim",
    "∝": r"\propto",
    "≪": r"\ll",
    "≫": r"\gg",
    "→": r"\rightarrow",
    "←": r"\leftarrow",
    "↔": r"\leftrightarrow",
    "↑": r"\uparrow",
    "↓": r"\downarrow",
    "⇒": r"\Rightarrow",
    "↦": r"\mapsto",
    "‖": r"\|",
    "∥": r"\|",
    "⟨": r"\langle",
    "⟩": r"\rangle",
    "⌊": r"\lfloor",
    "⌋": r"\rfloor",
    "⌈": r"\lceil",
    "⌉": r"\rceil",
    "∂": r"\partial",
    "∇": r"\nabla",
    "∑": r"\sum",
    "∏": r"\prod",
    "∫": r"\int",
    "√": r"\surd",
    "∞": r"\infty",
    "∈": r"\in",
    "∉": r"\notin",
    "⊂": r"\subset",
    "∪": r"\cup",
    "∩": r"\cap",
    "∅": r"\emptyset",
    "∀": r"\forall",
    "∃": r"\exists",
    "¬": r"\neg",
    "∧": r"\wedge",
    "∨": r"\vee",
    "ℓ": r"\ell",
    "ℝ": r"\mathbf{R}",
    "†": r"\dagger",
    "✔": r"\surd",
    "✓": r"\surd",
    "✘": r"\times",
    "½": r"\frac{1}{2}",
    "¼": r"\frac{1}{4}",
    "•": r"\bullet",
    "′": r"{}'",
}
MATH: Mapping[str, str] = MappingProxyType(
    {**{letter: _greek(letter) for letter in "αβγδεϵζηθικλμνξπρστυφϕχψωΓΔΘΛΞΠΣΥΦΨΩ"}, **SIGNS}
)
RAISED: Mapping[str, str] = MappingProxyType(
    dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺⁽⁾ⁿⁱᵀᵏˡ", [*"0123456789-+()ni", r"\top", "k", "l"], strict=True))
)
LOWERED: Mapping[str, str] = MappingProxyType(dict(zip("₀₁₂₃₄₅₆₇₈₉₋₊₍₎ₗₖₙₜᵢⱼₓ", "0123456789-+()lkntijx", strict=True)))
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
