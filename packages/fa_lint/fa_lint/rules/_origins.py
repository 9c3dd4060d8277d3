"""Find the inputs of a custom autograd Function on which a value in its methods depends.

If the source code is ambiguous, a value gets all names that it may depend on. A rule that searches for a missing weight therefore
reports nothing in ambiguous cases.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from fa_lint.rules._feedback import draws
from fa_lint.rules._values import Values, calls_in
from fa_lint.syntax import argument, is_op, last_name, number

GRADIENT, UNKNOWN, RANDOM = "<gradient of the output>", "<unknown>", "<random numbers>"
SIGN = "sign of "  # prefix of a name if only the signs of its numbers are used
DEEPEST = 5  # most attributes of a name

LIBRARIES = ("torch", "numpy", "math", "typing")
VIEWS = ("T", "mT", "H", "mH", "data", "real", "values", "indices")
SIZES = ("shape", "dtype", "device", "ndim", "size", "dim", "numel")
NO_NUMBERS = (*SIZES, "requires_grad", "needs_input_grad", "len", "range")
CONSTANTS = ("zeros", "ones", "empty", "eye", "full", "arange")
SIGNS = ("sign", "sgn", "sign_", "sgn_", "signbit", "heaviside", "argmax", "argmin", "argsort", "nonzero")
SCALES = ("norm", "mean", "std", "var", "max", "min", "vector_norm", "matrix_norm")  # one number per tensor

# Name of a function that computes a product → position and keywords of each factor.
FIRST_TWO = ((0, ("input", "self", "tensor", "a", "A")), (1, ("weight", "mat2", "other", "vec", "b", "B", "tensor2")))
ADDED = ((1, ("mat1", "batch1", "mat")), (2, ("mat2", "batch2", "vec")))
LAYERS = ("linear", *(f"conv{kind}{n}d" for n in (1, 2, 3) for kind in ("", "_transpose")))
METHODS = {
    **dict.fromkeys(("mm", "matmul", "bmm", "mv", "dot", "inner"), FIRST_TWO),
    **dict.fromkeys(("addmm", "addmm_", "baddbmm", "baddbmm_", "addmv", "addmv_"), ADDED),
}
PRODUCTS = {
    **METHODS,
    **dict.fromkeys(("tensordot", *LAYERS), FIRST_TWO),
    **{f"conv{n}d_input": ((1, ("weight",)), (2, ("grad_output",))) for n in (1, 2, 3)},
    **{f"conv{n}d_weight": ((0, ("input",)), (2, ("grad_output",))) for n in (1, 2, 3)},
    "convolution_backward": ((0, ("grad_output",)), (1, ("input",)), (2, ("weight",))),
}
Names = frozenset[str]


@dataclass(frozen=True)
class Product:
    """Matrix product in the source code.

    Attributes:
        node: Expression of the product.
        factors: Names on which each factor depends.
    """

    node: ast.AST
    factors: tuple[Names, ...]

    @property
    def by_layer(self) -> bool:
        """Whether the second factor is a weight because of its position, as in `F.linear(x, weight)`."""
        return last_name(getattr(self.node, "func", self.node)) in LAYERS


class Origins:
    """The names on which values in the methods of a custom Function depend.

    Args:
        values: Values of the file.
        methods: The methods `forward`, `backward` and `setup_context`.
        given: Name of the value of each parameter, by method and name of the parameter: an input, GRADIENT, or UNKNOWN for the
            autograd context.
    """

    def __init__(self, values: Values, methods: list[ast.FunctionDef], given: dict[tuple[ast.AST, str], str]):
        self.values = values
        self.syntax = values.syntax
        self.methods = methods
        self.given = given

    def names(self, *nodes: ast.AST) -> Names:
        """Return the dotted names on which expressions depend, and GRADIENT, RANDOM and UNKNOWN."""
        return self._trace(nodes)[0]

    def products(self, *nodes: ast.AST) -> list[Product]:
        """Return the matrix products in the computation of expressions, in the order of the source code."""
        products = [(part, self._factors(part)) for part in self._trace(nodes)[1]]
        found = [Product(part, tuple(map(self.names, factors))) for part, factors in products if factors]
        return sorted(found, key=lambda product: (product.node.lineno, product.node.col_offset))

    def _trace(self, nodes: tuple[ast.AST, ...]) -> tuple[Names, set[ast.AST]]:
        """Return the names on which expressions depend, and all parts of which more than the sign is used."""
        waiting, found, names = [(node, "", False) for node in nodes], set(), set()
        while waiting:
            step = waiting.pop()
            if step in found:
                continue
            found.add(step)
            part, path, is_sign = step
            name = self._name(part)
            if name:
                names.add(name if name.startswith("<") else f"{SIGN if is_sign else ''}{name}{path}")
            if isinstance(part, ast.Attribute) and part.attr not in VIEWS and not self._is_context(part.value):
                path = f".{part.attr}{path}" if path.count(".") < DEEPEST else path
            takes_sign = isinstance(part, ast.Compare) or bool(calls_in([part], SIGNS))
            waiting += [(operand, path, is_sign or takes_sign) for operand in self._operands(part)]
        return frozenset(names), {part for part, _, is_sign in found if not is_sign}

    def _name(self, node: ast.AST) -> str:
        """Return the name of a value whose computation the methods do not show, or an empty string."""
        if isinstance(node, ast.Name) and not self.syntax.resolve(node):
            scope = self.values.scope(node)
            is_local = scope in self.methods or self.syntax.function_of(scope) in self.methods
            return self.given.get((scope, node.id), "" if is_local else node.id)
        if isinstance(node, ast.Attribute) and self._is_context(node.value) and node.attr not in NO_NUMBERS:
            return "" if self.values.keyed.get(node.attr) else UNKNOWN
        return RANDOM if isinstance(node, ast.Call) and self._is_random(node) else ""

    def _operands(self, node: ast.AST) -> list[ast.AST]:
        if isinstance(node, ast.Name):
            return self.values.of(node)
        if isinstance(node, ast.Attribute):
            if node.attr in NO_NUMBERS or self._in_library(node):
                return []
            return self.values.keyed.get(node.attr, []) if self._is_context(node.value) else [node.value]
        if isinstance(node, ast.Subscript):
            index = number(node.slice)
            kept = self.values.kept(node.value) if isinstance(node.value, ast.Attribute) else []
            return [parts[index] for parts in kept if index is not None and index < len(parts)] or [node.value]
        if isinstance(node, ast.Call):
            return self._call_operands(node)
        return [node.body, node.orelse] if isinstance(node, ast.IfExp) else list(ast.iter_child_nodes(node))

    def _call_operands(self, call: ast.Call) -> list[ast.AST]:
        name = last_name(call.func)
        owner = [] if self.syntax.resolve(call.func) else [getattr(call.func, "value", call.func)]
        if owner and self._is_context(owner[0]):
            owner = [call.func]
        operands = [*owner, *call.args, *(part.value for part in call.keywords)]
        is_constant = name.endswith("_like") or name.startswith("new_") or name in (*NO_NUMBERS, *CONSTANTS)
        is_scale = name in SCALES and len(operands) == 1
        return [] if is_constant or is_scale or self._is_random(call) else operands

    def _is_random(self, call: ast.Call) -> bool:
        return draws(self.syntax, ast.Call(call.func, [], []))

    def _is_context(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and self.given.get((self.values.scope(node), node.id)) == UNKNOWN

    def _in_library(self, node: ast.AST) -> bool:
        return self.syntax.resolve(node).partition(".")[0] in LIBRARIES

    def _factors(self, node: ast.AST) -> list[ast.expr]:
        """Return the factors if an expression is a matrix product, and an empty list for another expression."""
        if is_op(node, ast.MatMult):
            return [node.left, node.right]
        if not isinstance(node, ast.Call):
            return []
        is_method = isinstance(node.func, ast.Attribute) and not self.syntax.resolve(node.func)
        if last_name(node.func) == "einsum" and not is_method:
            return node.args[1:]
        operands = {0: node.func.value} if is_method else {}
        positions = (METHODS if is_method else PRODUCTS).get(last_name(node.func), ())
        found = [operands.get(one) or argument(node, one - is_method, *keywords) for one, keywords in positions]
        return found if None not in found else []


def alternatives(values: Values, node: ast.expr) -> Iterator[ast.expr]:
    """Yield each possible value of a variable or conditional expression, or the expression itself."""
    waiting, found = [node], set()
    while waiting:
        part = waiting.pop()
        options = values.of(part) if isinstance(part, ast.Name) else []
        options = [part.body, part.orelse] if isinstance(part, ast.IfExp) else options
        waiting += [option for option in options if option not in found]
        found.update(options)
        if not options:
            yield part
