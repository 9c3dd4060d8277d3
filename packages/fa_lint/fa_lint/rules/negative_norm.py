"""Pitfall 1: the author means −1 as the dimension, but torch uses −1 as the order p of the norm."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.syntax import Syntax, argument, number, open_ended

# Dotted name → negative orders that are not reported: for a matrix, −2 means the smallest singular value.
VECTOR_NORMS = ("torch.norm", "torch.functional.norm", "torch.Tensor.norm", "torch.linalg.vector_norm")
FUNCTIONS = {**dict.fromkeys(VECTOR_NORMS, ()), "torch.linalg.norm": (-2,)}
HARMLESS = sys.stdlib_module_names | {"", "numpy"}  # "" is a relative import
NOT_TENSORS = ("sympy", "sage", "mpmath", "flint", "numpy", "scipy", "jax", "tensorflow", "cupy")


class NegativeNorm(LintRule):
    """Report a torch norm with a negative integer as its order p and without a dimension.

    Some cases are not reported. The keyword `p=-1` means the order. The float −1.0 cannot be a dimension. The call `x.norm(-1, 0)`
    passes a dimension. In numpy, norm(x, -1) is a norm of a matrix, and its argument is not a tensor.
    """

    card = RuleCard(
        code="FA001",
        pitfall=1,
        name="negative-norm",
        title="norm(-1) computes the L₋₁ norm of all elements",
        why="the first argument of norm is the order p, and not the dimension: the result is the single number "
        "(Σ|x|⁻¹)⁻¹ over all elements, which is close to zero, and torch raises no error",
        fix="norm(dim=-1)",
    )
    clues = (("norm(", "norm as", "import norm", "torch.norm", "linalg.norm"), ("-1", "-2", "-3"))

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each torch norm with a negative integer as its order and without a dimension."""
        for call, name in syntax.calls():
            allowed_orders = FUNCTIONS.get(name)
            first = 1 if allowed_orders is not None else 0
            if allowed_orders is None and not _is_tensor_method(syntax, call, name):
                continue
            order = number(argument(call, first))
            if type(order) is not int or order >= 0 or order in (allowed_orders or ()) or open_ended(call):
                continue
            if argument(call, first + 1, "dim", "axis") is None:
                yield Hit(call, f"`{syntax.snippet(call)}` uses {order} as the order p of a norm over all elements")


def _is_tensor_method(syntax: Syntax, call: ast.Call, name: str) -> bool:
    """Return whether a call may be Tensor.norm: a method of an object that is no module and not `self`."""
    function = call.func
    if name or not isinstance(function, ast.Attribute) or function.attr != "norm":
        return False
    root = function.value
    while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
        root = root.func if isinstance(root, ast.Call) else root.value
    if syntax.resolve(root).split(".")[0] in NOT_TENSORS:
        return False
    if isinstance(function.value, ast.Name) and function.value.id in ("self", "cls"):
        return False  # the method or layer `self.norm` of the class
    return _about_tensors(syntax.names.packages)


def _about_tensors(packages: frozenset[str]) -> bool:
    """Return whether an unknown object may be a tensor, according to the imported packages.

    The result is True if torch is imported, or if only the standard library, numpy and relative modules are imported.
    """
    return "torch" in packages or packages <= HARMLESS


RULE = NegativeNorm()
