"""Search for source code about feedback alignment or a similar method."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from fa_lint.base import Hit, LintRule
from fa_lint.rules._feedback import PRODUCTS
from fa_lint.rules._values import Values, calls_in, values_of
from fa_lint.syntax import Syntax, argument, is_op, last_name

SHAPES = ("T", "mT", "t", "transpose", "detach", "to", "cuda", "float", "reshape", "view", "flatten", "div", "mul")
# B is also a name for the matrix of random Fourier features, and gamma for a discount: the rest of the code decides.
ALIGNMENT = re.compile(
    r"feedback[\s_-]*alignment|\bd?fa_|\bdfa|(random|fixed)[\s_-]feedback|(feedback|backward)_?(w|mat|state)", re.I
)
FOURIER = re.compile("fourier", re.I)
CREDIT = re.compile(
    r"(?i:kolen|weight[\s_-]mirror|target[\s_-]prop|sign[\s_-]symmetr|predictive[\s_-]coding|forward[\s_-]forward"
    r"|equilibrium[\s_-]prop|local[\s_](loss|learning))|\bFA\b.{0,60}\bBP\b|\bBP\b.{0,60}\bFA\b"
)


def on_alignment(syntax: Syntax) -> bool:
    """Return whether source code is about feedback alignment.

    This is the case if the code or a comment mentions feedback alignment, if the code imports torch and uses a variable
    `feedback`, or if a backward pass starts from a product with a matrix.
    """
    if ALIGNMENT.search(syntax.text) or feedback_factors(syntax):
        return True
    return "torch" in syntax.names.packages and any(node.id == "feedback" for node in syntax.every(ast.Name))


def on_fourier_features(syntax: Syntax) -> bool:
    """Return whether the random matrices in source code probably belong to random Fourier features."""
    return FOURIER.search(syntax.text) is not None and not on_alignment(syntax)


def feedback_factors(syntax: Syntax) -> set[str]:
    """Return the names of the matrices whose product with an error starts a backward pass.

    Examples: B in `state.backward(error @ B)`, and `paths` in `for B in self.paths: state.backward(error @ B)`.
    """
    if "backward(" not in syntax.text:
        return set()
    values = values_of(syntax)
    calls = [call for call in calls_in(syntax.every(ast.Call), ("backward",)) if isinstance(call.func, ast.Attribute)]
    starts = [argument(call, 1 if syntax.resolve(call.func) else 0, "gradient", "grad_tensors") for call in calls]
    products = [part for start in starts if start is not None for part in _cores(values, start)]
    factors = [factor for product in products for factor in _factors(product)]
    return {last_name(part) for factor in factors for part in _cores(values, factor)} - {""}


def _cores(values: Values, node: ast.expr) -> list[ast.expr]:
    """Return an expression and the values of its variables, without changes of shape, indices and scaling."""
    waiting, found = [node], []
    while waiting:
        part = _core(waiting.pop())
        if part not in found:
            found.append(part)
            waiting += values.of(part) if isinstance(part, ast.Name) else []
    return found


def _factors(node: ast.expr) -> list[ast.expr]:
    if is_op(node, ast.MatMult):
        return [node.left, node.right]
    return node.args if calls_in([node], PRODUCTS) else []


def _core(node: ast.expr) -> ast.expr:
    """Return an expression without changes of shape, indices and scaling."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SHAPES:
            node = node.func.value
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in SHAPES):
            node = node.value
        elif is_op(node, ast.Div, ast.Mult):
            node = node.left
        else:
            return node


def on_credit(syntax: Syntax) -> bool:
    """Return whether source code is about a method that replaces backpropagation."""
    if syntax.names.packages.isdisjoint(("torch", "numpy", "pandas", "jax")):
        return False
    return on_alignment(syntax) or CREDIT.search(syntax.text) is not None


class CreditRule(LintRule):
    """Base class of rules that follow values in source code about feedback alignment or a similar method.

    Attributes:
        patterns: Functions that yield each node with the pitfall, together with the end of the sentence about this node.
    """

    patterns: tuple[Callable[[Values], Iterator[tuple[ast.AST, str]]], ...]

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each node that one of the patterns finds."""
        for pattern in self.patterns if on_credit(syntax) else ():
            for node, text in pattern(values_of(syntax)):
                yield Hit(node, f"`{syntax.snippet(node)}` {text}")
