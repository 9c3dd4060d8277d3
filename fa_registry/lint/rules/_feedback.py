"""What a text calls feedback and alignment, and which calls draw random numbers."""

from __future__ import annotations

import ast
import re

from fa_registry.lint.syntax import Syntax, words_in

FEEDBACK = re.compile(
    r"_*(B\d*|B_?(mat|mats|matrix|matrices|list|\d+|l|fixed|rand|random|T)|Bs|fb(_?\w+)?|\w+_fb|(\w+_)?feed_?backs?(_\w+)?"
    r"|(\w+_)?(backward|bwd)_?(weights?|matrix|matrices|mats?)(_\w+)?|(weights?|w)_(backward|back|bwd|fa|dfa))"
)
GAMMA = re.compile(r"Γ\w*|(\w+_)?(gammas?|alignments?)(_(mean|deep|value|cos|\d+|l))*", re.IGNORECASE)
TORCH = ("randn", "rand", "randint", "normal", "randn_like", "rand_like", "bernoulli")
NUMPY = ("randn", "rand", "normal", "uniform", "standard_normal", "choice", "random")
IN_PLACE = ("normal_", "uniform_", "bernoulli_", "random_", "cauchy_")
INITS = ("normal", "uniform", "orthogonal", "sparse", "trunc_normal", "xavier", "kaiming")  # with or without their _
# A name B alone is also the matrix of random Fourier features, and gamma alone a discount: the text itself must decide.
ALIGNMENT = re.compile(
    r"feedback[\s_-]*alignment|\bd?fa_|\bdfa|(random|fixed)[\s_]feedback|(feedback|backward)_?(w|mat|state)", re.I
)
FOURIER = re.compile("fourier", re.I)


def is_feedback(name: str) -> bool:
    """Whether a name is one that feedback matrices are given: B, B_mat, fb, feedback_weights, backward_weight …"""
    return FEEDBACK.fullmatch(name) is not None


def is_gamma(name: str) -> bool:
    return GAMMA.fullmatch(name) is not None


def on_alignment(syntax: Syntax) -> bool:
    """Whether a text, its comments included, is about feedback alignment; a torch text with a name `feedback` is, too."""
    if ALIGNMENT.search(syntax.text):
        return True
    return "torch" in syntax.names.packages and any(node.id == "feedback" for node in syntax.every(ast.Name))


def on_fourier_features(syntax: Syntax) -> bool:
    """Whether the random matrices of a text are rather those of Fourier features."""
    return FOURIER.search(syntax.text) is not None and not on_alignment(syntax)


def names_feedback(node: ast.AST) -> bool:
    """Whether an expression names a feedback matrix or a feedback state."""
    return any(is_feedback(word) for word in words_in(node))


def draws(syntax: Syntax, node: ast.AST) -> bool:
    """Whether an expression draws random numbers anywhere in it."""
    return any(isinstance(part, ast.Call) and _random(syntax, part) for part in ast.walk(node))


def filled_in_place(syntax: Syntax, call: ast.Call) -> ast.AST | None:
    """The tensor that a call such as t.normal_() or nn.init.orthogonal_(t) fills with random numbers."""
    name = syntax.resolve(call.func)
    if name.startswith("torch.nn.init.") and name.rpartition(".")[2].startswith(INITS) and call.args:
        return call.args[0]
    if not name and isinstance(call.func, ast.Attribute) and call.func.attr in IN_PLACE:
        return call.func.value
    return None


def _random(syntax: Syntax, call: ast.Call) -> bool:
    package, _, last = syntax.resolve(call.func).rpartition(".")
    if package in ("torch", "numpy.random"):
        return last in (TORCH if package == "torch" else NUMPY)
    if package:
        return filled_in_place(syntax, call) is not None
    unknown = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return unknown in (*IN_PLACE, "standard_normal")
