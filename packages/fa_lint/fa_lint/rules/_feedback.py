"""Search for feedback matrices, and for calls that draw random numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.rules._flow import assignments
from fa_lint.syntax import Syntax, argument, text_in

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
# B is also a name for the matrix of random Fourier features, and gamma for a discount: the rest of the code decides.
ALIGNMENT = re.compile(
    r"feedback[\s_-]*alignment|\bd?fa_|\bdfa|(random|fixed)[\s_]feedback|(feedback|backward)_?(w|mat|state)", re.I
)
FOURIER = re.compile("fourier", re.I)


def is_feedback(name: str) -> bool:
    """Return whether a name is usual for feedback, such as `B`, `fb` or `feedback_weights`."""
    return FEEDBACK.fullmatch(name) is not None


def is_gamma(name: str) -> bool:
    return GAMMA.fullmatch(name) is not None


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


def names_feedback(node: ast.AST) -> bool:
    """Return whether an expression contains a usual name for a feedback matrix or a feedback state."""
    return any(is_feedback(word) for word in text_in(node))


PRODUCTS = ("matmul", "mm", "bmm", "einsum", "linear", "mv")
SHAPES = ("T", "mT", "t", "transpose", "detach", "to", "cuda", "float", "reshape", "view", "flatten", "div", "mul")


def feedback_factors(syntax: Syntax) -> set[str]:
    """Return the names of the matrices whose product with an error starts a backward pass.

    Examples: B in `state.backward(error @ B)`, and `paths` in `for B in self.paths: state.backward(error @ B)`.
    """
    names: set[str] = set()
    for call, name in syntax.calls() if "backward(" in syntax.text else ():
        is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not name
        start = argument(call, 0, "gradient") if is_method else None
        if name == "torch.autograd.backward":
            start = argument(call, 1, "grad_tensors")
        for product in _sources(syntax, start, set()) if start is not None else ():
            for factor in _factors(product):
                sources = list(_sources(syntax, factor, set()))
                names |= {getattr(one, "attr", "") or getattr(one, "id", "") for one in (factor, *sources)}
    return names - {""}


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return [_core(node.left), _core(node.right)]
    function = node.func if isinstance(node, ast.Call) else None
    last = getattr(function, "attr", "") or getattr(function, "id", "")
    return [_core(one) for one in node.args] if last in PRODUCTS else []


def _core(node: ast.expr) -> ast.expr:
    """Return an expression without changes of shape, indices and scaling."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SHAPES:
            node = node.func.value
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in SHAPES):
            node = node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
            node = node.left
        else:
            return node


def _sources(syntax: Syntax, node: ast.expr, visited: set[str]) -> Iterator[ast.expr]:
    """Yield an expression, then the values that its variable can have.

    These are values of assignments in its function, and the iterables of loops.
    """
    node = _core(node)
    yield node
    if not isinstance(node, ast.Name) or node.id in visited:
        return
    for part in ast.walk(syntax.function_of(node)):
        pairs = list(assignments(part))
        if isinstance(part, (ast.For, ast.comprehension)):
            iterated = part.iter.args if isinstance(part.iter, ast.Call) else [part.iter]
            targets = part.target.elts if isinstance(part.target, ast.Tuple) else [part.target]
            offset = len(targets) - len(iterated)  # enumerate has one target more than arguments
            pairs += [*zip(targets[offset:] if offset > 0 else targets, iterated, strict=False)]
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id == node.id:
                yield from _sources(syntax, value, visited | {node.id})


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
