"""Search for cosines and their two vectors, and for lower bounds of their norms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.rules._feedback import MEASURES
from fa_lint.syntax import Syntax, argument, is_op, last_name

PRODUCTS = ("dot", "vdot", "inner", "vecdot", "einsum", "matmul", "mm", "bmm", "mv", "sum")
NORMS = ("norm", "vector_norm")
FLOORS = ("clamp", "clamp_min", "clip", "max", "maximum", "fmax")
NAMED = re.compile(r"\w*norm\w*|den\w*", re.IGNORECASE)  # `norm_a`, `den`: variables that contain norms
COSINES = ("torch.nn.functional.cosine_similarity", "torch.cosine_similarity")
COSINE_LAYERS = ("torch.nn.CosineSimilarity", "torch.nn.modules.CosineSimilarity")
MEASURING = (*MEASURES, "angle", "similarity", "cosines", "gammas", "alignments")
FUNCTIONS_OF_ANGLES = ("torch.", "math.", "numpy.")  # torch.cos(x) is the cosine of an angle and compares no vectors
PAIRS = ("dot", "vdot", "inner", "vecdot", "matmul", "mm", "mv", "bmm")
HARMLESS_BELOW, LARGEST = 1e-10, 0.5  # a larger number is no lower bound of norms


def quotients(syntax: Syntax) -> Iterator[ast.BinOp]:
    """Yield each division of a vector product by at least two norms."""
    for node in syntax.every(ast.BinOp):
        if isinstance(node.op, ast.Div) and is_product(node.left) and _norms(node.right) > 1:
            yield node


def compared_vectors(syntax: Syntax) -> Iterator[tuple[ast.expr, tuple[ast.expr, ast.expr]]]:
    """Yield each call of a torch cosine, or of a function named like one, with its two vectors."""
    layers = {name for name, call in _assigned_calls(syntax) if syntax.resolve(call.func) in COSINE_LAYERS}
    for call, name in syntax.calls():
        left, right = argument(call, 0, "x1"), argument(call, 1, "x2")
        if left is not None and right is not None and _measures(syntax, call, name, layers):
            yield call, (left, right)


def _measures(syntax: Syntax, call: ast.Call, name: str, layers: set[str]) -> bool:
    if name in COSINES or last_name(call.func) in layers:
        return True
    if isinstance(call.func, ast.Call):
        return syntax.resolve(call.func.func) in COSINE_LAYERS
    has_measure_name = any(word in MEASURING for word in last_name(call.func).lower().split("_"))
    return has_measure_name and not name.startswith(FUNCTIONS_OF_ANGLES) and name not in COSINE_LAYERS


def _assigned_calls(syntax: Syntax) -> Iterator[tuple[str, ast.Call]]:
    for node in syntax.every(ast.Assign):
        if isinstance(node.value, ast.Call):
            yield from ((last_name(target), node.value) for target in node.targets)


def factors(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return the two vectors of a product such as `a @ b` or `torch.dot(a, b)`, or None."""
    if is_op(node, ast.MatMult, ast.Mult):
        return node.left, node.right
    if not isinstance(node, ast.Call) or (last_name(node.func) not in (*PAIRS, "einsum")):
        return None
    operands = node.args[1:] if last_name(node.func) == "einsum" else node.args
    if len(operands) == 1 and isinstance(node.func, ast.Attribute):
        operands = [node.func.value, *operands]
    return (operands[0], operands[1]) if len(operands) == 2 else None


def is_product(node: ast.AST) -> bool:
    """Return whether an expression contains `(a * b).sum()`, `a @ b` or a call such as `torch.dot(a, b)`."""
    for part in ast.walk(node):
        if is_op(part, ast.MatMult):
            return True
        if isinstance(part, ast.Call) and last_name(part.func) in PRODUCTS:
            summed = last_name(part.func) != "sum" or any(is_op(inner, ast.Mult) for inner in ast.walk(part))
            if summed:
                return True
    return False


def _norms(node: ast.AST) -> int:
    """Return the number of norms in an expression; a variable such as `den` counts as two norms."""
    calls = sum(isinstance(part, ast.Call) and last_name(part.func) in NORMS for part in ast.walk(node))
    functions = {part.func for part in ast.walk(node) if isinstance(part, ast.Call)}
    names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part not in functions]
    norm_names = [name for name in names if NAMED.fullmatch(name)]
    return calls + sum(2 if name.lower().startswith("den") else 1 for name in norm_names)


def floor(syntax: Syntax, node: ast.AST) -> float | None:
    """Return the lower bound that an addition or a clamp sets for norms, or None for any other expression."""
    if is_op(node, ast.Add):
        pairs = ((node.left, node.right), (node.right, node.left))
        return next(
            (eps for expression, constant in pairs if _norms(expression) and (eps := _small(syntax, constant))), None
        )
    if isinstance(node, ast.Call) and last_name(node.func) in FLOORS and _norms(node):
        candidates = [argument(node, position, "min", "other") for position in (0, 1)]
        return next((eps for value in candidates if value is not None and (eps := _small(syntax, value))), None)
    return None


def _small(syntax: Syntax, node: ast.AST) -> float | None:
    eps = syntax.number(node)
    return eps if eps is not None and HARMLESS_BELOW <= eps <= LARGEST else None
