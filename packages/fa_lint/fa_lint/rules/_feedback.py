"""Search for feedback matrices, and for calls that draw random numbers."""

from __future__ import annotations

import ast
import re

from fa_lint.syntax import Syntax

MEASURES = ("gamma", "alignment", "align", "cosine", "cos", "cossim", "γ")
FEEDBACK = re.compile(
    r"_*(B\d*|B_?(mat|mats|matrix|matrices|list|\d+|l|fixed|rand|random|T)|Bs|fb(_?\w+)?|\w+_fb|(\w+_)?feed_?backs?(_\w+)?"
    r"|(\w+_)?(backward|bwd)_?(weights?|matrix|matrices|mats?)(_\w+)?|(weights?|w)_(backward|back|bwd|fa|dfa))"
)
GAMMA = re.compile(r"Γ\w*|(\w+_)?(gammas?|alignments?)(_(mean|deep|value|cos|\d+|l))*", re.IGNORECASE)
TORCH = ("randn", "rand", "randint", "normal", "randn_like", "rand_like", "bernoulli")
NUMPY = ("randn", "rand", "normal", "uniform", "standard_normal", "choice", "random")
IN_PLACE = ("normal_", "uniform_", "bernoulli_", "random_", "cauchy_")
INITS = ("normal", "uniform", "orthogonal", "sparse", "trunc_normal", "xavier", "kaiming")  # with or without a final _


def is_feedback(name: str) -> bool:
    """Return whether a name is usual for feedback, such as `B`, `fb` or `feedback_weights`."""
    return FEEDBACK.fullmatch(name) is not None


def is_gamma(name: str) -> bool:
    return GAMMA.fullmatch(name) is not None


PRODUCTS = ("matmul", "mm", "bmm", "einsum", "linear", "mv")


def draws(syntax: Syntax, node: ast.AST) -> bool:
    """Return whether any part of an expression draws random numbers."""
    return any(isinstance(part, ast.Call) and _random(syntax, part) for part in ast.walk(node))


def filled_in_place(syntax: Syntax, call: ast.Call) -> ast.AST | None:
    """Return the tensor that a call such as `t.normal_()` fills with random numbers.

    Returns:
        The expression of the tensor, or None if the call fills no tensor.
    """
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
