"""Find the variable names on which a value depends, without running the code.

Each function is read from top to bottom, and each branch is followed separately. If the source code is ambiguous, a value gets
all names that it may depend on. A rule that searches for a missing weight therefore reports nothing in ambiguous cases.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fa_lint.rules._feedback import INITS, TORCH
from fa_lint.syntax import Syntax, argument

UNKNOWN, RANDOM = "<unknown>", "<random numbers>"
SAVED = "@saved_tensors"  # environment keys that begin with @ are attributes of the autograd context
SAVED_ATTRIBUTES = ("saved_tensors", "saved_variables")
MOST_BRANCHES = 32  # most execution paths through a function; more paths are merged
MOST_STATEMENTS = 20_000  # a statement counts once for each execution path
MOST_NAMES, MOST_OWNERS, DEEPEST = 200, 8, 5  # most names of a value, owners of an attribute, dots in a name

LIBRARIES = ("torch", "numpy", "math", "typing")
VIEWS = ("T", "mT", "H", "mH", "data", "real", "values", "indices")
NO_NUMBERS = (
    "shape",
    "dtype",
    "device",
    "ndim",
    "size",
    "dim",
    "numel",
    "stride",
    "is_cuda",
    "requires_grad",
    "layout",
)
NO_NUMBER_CALLS = (*NO_NUMBERS, "len", "isinstance", "type", "hasattr", "is_contiguous", "element_size", "range")
CONSTANTS = ("zeros", "ones", "empty", "eye", "full", "arange")
SIGNS = ("sign", "sgn", "sign_", "sgn_", "signbit", "heaviside", "argmax", "argmin", "argsort", "nonzero")
SCALES = ("norm", "mean", "std", "var", "max", "min", "vector_norm", "matrix_norm")  # one number per tensor
FILLS = ("normal_", "uniform_", "bernoulli_", "random_", "cauchy_")

# Name of a function that computes a product → position and keywords of each factor.
FIRST_TWO = ((0, ("input", "self", "tensor", "a", "A")), (1, ("weight", "mat2", "other", "vec", "b", "B", "tensor2")))
ADDED = ((1, ("mat1", "batch1", "mat")), (2, ("mat2", "batch2", "vec")))
METHODS = {
    **dict.fromkeys(("mm", "matmul", "bmm", "mv", "dot", "inner", "__matmul__"), FIRST_TWO),
    **dict.fromkeys(("addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "addmv", "addmv_"), ADDED),
}
LAYERS = ("linear", *(f"conv{kind}{n}d" for n in (1, 2, 3) for kind in ("", "_transpose")))
PRODUCTS = {
    **METHODS,
    **dict.fromkeys(("tensordot", *LAYERS), FIRST_TWO),
    **{f"conv{n}d_input": ((1, ("weight",)), (2, ("grad_output",))) for n in (1, 2, 3)},
    **{f"conv{n}d_weight": ((0, ("input",)), (2, ("grad_output",))) for n in (1, 2, 3)},
    "convolution_backward": ((0, ("grad_output",)), (1, ("input",)), (2, ("weight",))),
}


@dataclass(frozen=True)
class Value:
    """Names and matrix products on which a value in the source code depends.

    Attributes:
        names: Dotted names of variables. The value depends on the numbers in these variables.
        signs: Dotted names of variables. The value depends only on the signs of the numbers in these variables.
        products: Matrix products in the computation of the value.
        parts: Values of the elements of a tuple or list. None if the value is no sequence or has an unknown length.
    """

    names: frozenset[str] = frozenset()
    signs: frozenset[str] = frozenset()
    products: frozenset[Product] = frozenset()
    parts: tuple[Value, ...] | None = None

    @property
    def whole(self) -> Value:
        """Copy of the value without the values of its elements."""
        return replace(self, parts=None)

    @property
    def origins(self) -> frozenset[str]:
        return self.names | self.signs


@dataclass(frozen=True)
class Product:
    """Matrix product in the source code.

    Attributes:
        node: Expression of the product.
        factors: Names on which each factor depends. Products inside a factor are left out.
    """

    node: ast.AST
    factors: tuple[Value, ...]

    @property
    def by_layer(self) -> bool:
        """Whether the second factor is a weight because of its position, as in `F.linear(x, weight)`."""
        callee = getattr(self.node, "func", None)
        return (getattr(callee, "attr", "") or getattr(callee, "id", "")) in LAYERS


Environment = dict[str, Value]
NOTHING = Value()


def join(values: Iterable[Value]) -> Value:
    """Return one value with the names and products of all values; too many names become UNKNOWN."""
    values = list(values)
    if len(values) == 1:
        return values[0]
    lengths = {None if value.parts is None else len(value.parts) for value in values}
    elementwise = len(lengths) == 1 and None not in lengths
    names = frozenset().union(*(value.names for value in values))
    return Value(
        names if len(names) <= MOST_NAMES else frozenset({UNKNOWN}),
        frozenset().union(*(value.signs for value in values)),
        frozenset().union(*(value.products for value in values)),
        tuple(map(join, zip(*(value.parts for value in values), strict=True))) if elementwise else None,
    )


def merge(environments: Sequence[Environment]) -> Environment:
    """Combine the variables of several branches into one environment."""
    keys = dict.fromkeys(key for environment in environments for key in environment)
    return {key: join(environment[key] for environment in environments if key in environment) for key in keys}


def observe(syntax: Syntax, nodes: Iterable[ast.expr]) -> dict[ast.expr, Value]:
    """Return the names and products on which each expression depends.

    The functions that contain the expressions are read. Module code is read for expressions outside of functions.

    Args:
        syntax: Syntax tree of the file.
        nodes: Expressions in this tree.
    """
    watched: dict[ast.expr, Value] = dict.fromkeys(nodes, NOTHING)
    for scope in dict.fromkeys(map(syntax.function_of, watched)):
        reading = NameReading(syntax, watched=watched, branches=1)
        if isinstance(scope, ast.Lambda):
            reading.value(scope.body, {})
        else:
            reading.run(scope.body, {})
    return watched


class NameReading:
    """Interpreter of one function that records for each value the names that affect the value.

    Attributes:
        context: Name of the autograd context in this function, or an empty string if the function has no context.
        returns: One value for each `return` and each path to this `return`.
        ends: Variables at the end of each execution path.
        watched: Expressions whose values the caller requests.
        branches: Maximum number of execution paths that are followed separately.
    """

    def __init__(
        self,
        syntax: Syntax,
        context: str = "",
        watched: dict[ast.expr, Value] | None = None,
        branches: int = MOST_BRANCHES,
    ):
        self.syntax = syntax
        self.context = context
        self.watched = {} if watched is None else watched
        self.branches = branches
        self.statements = 0
        self.returns: list[Value] = []
        self.ends: list[Environment] = []

    def run(self, body: Sequence[ast.stmt], environment: Environment) -> None:
        """Read the statements of a function.

        Args:
            body: The statements.
            environment: Names and values that are defined before the first statement.
        """
        self.ends += self._block(body, [environment])

    # Each method reads a statement in one environment and returns the environments after this statement.

    def _block(self, body: Sequence[ast.stmt], environments: list[Environment]) -> list[Environment]:
        for statement in body:
            environments = [
                next_environment
                for environment in environments
                for next_environment in self._statement(statement, environment)
            ]
            if len(environments) > self.branches:
                environments = [merge(environments)]
        return environments

    def _statement(self, node: ast.stmt, env: Environment) -> list[Environment]:
        self.statements += 1
        if self.statements > MOST_STATEMENTS:
            raise RecursionError(
                f"one function has more than {MOST_STATEMENTS:,} statements, counted once per execution path"
            )
        if isinstance(node, ast.Return):
            self.returns += [NOTHING] if node.value is None else self._alternatives(node.value, env)
            self.ends.append(env)
            return []
        if isinstance(node, ast.Raise):
            return []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            return self._assign(node, env)
        if isinstance(node, ast.AugAssign):
            self._absorb(node.target, self._arithmetic(node, [node.target, node.value], env), env)
        elif isinstance(node, ast.Expr):
            self._expression(node.value, env)
        elif isinstance(node, ast.Assert):
            self.value(node.test, env)
        elif isinstance(node, ast.If):
            self.value(node.test, env)
            return self._block(node.body, [dict(env)]) + self._block(node.orelse, [dict(env)])
        elif isinstance(node, ast.Match):
            return [
                env,
                *(next_environment for case in node.cases for next_environment in self._block(case.body, [dict(env)])),
            ]
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(node, env)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                context = self.value(item.context_expr, env)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, context.whole, env)
            return self._block(node.body, [env])
        elif isinstance(node, (ast.Try, ast.TryStar)):
            completed = self._block([*node.body, *node.orelse], [dict(env)])
            failed = [
                next_environment
                for handler in node.handlers
                for next_environment in self._block(handler.body, [merge([env, *completed])])
            ]
            return self._block(node.finalbody, [*completed, *failed])
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            env[node.name] = self._closure(node, env)
        return [env]

    def _assign(self, node: ast.Assign | ast.AnnAssign, env: Environment) -> list[Environment]:
        if node.value is None:
            return [env]
        values = self._alternatives(node.value, env)
        environments = [env, *(dict(env) for _ in values[1:])]
        for value, environment in zip(values, environments, strict=True):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._bind(target, value, environment)
        return environments

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, env: Environment) -> list[Environment]:
        for _ in range(2):  # the next iteration can read what the body has set
            inside = dict(env)
            if isinstance(node, ast.While):
                self.value(node.test, inside)
            else:
                self._bind_rounds(node.target, node.iter, inside)
            env = merge([env, *self._block(node.body, [inside])])
        return self._block(node.orelse, [env])

    def _bind_rounds(self, target: ast.expr, source: ast.expr, env: Environment) -> None:
        """Set the loop variables; zip and enumerate give each variable the values of a different iterable."""
        function_name = source.func.id if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) else ""
        elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        if function_name == "zip" and len(elements) == len(source.args):
            for element, argument_ in zip(elements, source.args, strict=True):
                self._bind_rounds(element, argument_, env)
        elif function_name == "enumerate" and len(elements) == 2 and source.args:
            self._bind(elements[0], NOTHING, env)
            self._bind_rounds(elements[1], source.args[0], env)
        else:
            value = self.value(source, env)
            self._bind(target, join(value.parts) if value.parts else value.whole, env)

    def _expression(self, node: ast.expr, env: Environment) -> None:
        """Read an expression statement, and assume that a call changes its object and its arguments."""
        value = self.value(node, env).whole
        if not isinstance(node, ast.Call) or getattr(node.func, "id", "") == "print":
            return
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if self._is_context(owner):
            if node.func.attr == "save_for_backward":
                saved = self._sequence(node.args, env)
                env[SAVED] = join([env[SAVED], saved]) if SAVED in env else saved
            return
        helper = any(map(self._is_context, node.args))  # a function that saves its other arguments in the context
        if not helper and getattr(node.func, "attr", "") not in FILLS:
            for target in [*([owner] if owner is not None else []), *node.args]:
                self._absorb(target, value, env)

    def _bind(self, target: ast.AST, value: Value, env: Environment) -> None:
        if isinstance(target, ast.Name):
            env[target.id] = value
        elif isinstance(target, ast.Attribute):
            for key in self._keys(target, env):
                env[key] = value
        elif isinstance(target, ast.Subscript):
            self._absorb(target, value.whole, env)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, value, env)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element, part in zip(target.elts, _unpacked(target.elts, value), strict=True):
                self._bind(element, part, env)

    def _absorb(self, target: ast.AST, value: Value, env: Environment) -> None:
        """Add the names of a value to the names on which a variable already depends."""
        while True:
            if isinstance(target, (ast.Subscript, ast.Starred)) or getattr(target, "attr", "") in VIEWS:
                target = target.value
            elif isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
                target = target.func.value  # x.view(-1).copy_(y)
            else:
                break
        is_name = isinstance(target, ast.Name) and not self.syntax.resolve(target)
        keys = [target.id] if is_name else self._keys(target, env)
        for key in keys:
            env[key] = join([env[key] if key in env else Value(frozenset({key})), value]).whole

    def _keys(self, target: ast.AST, env: Environment) -> list[str]:
        """Return the environment keys of an attribute such as `ctx.name` or `layer.name`."""
        if not isinstance(target, ast.Attribute):
            return []
        if self._is_context(target.value):
            return [SAVED if target.attr in SAVED_ATTRIBUTES else f"@{target.attr}"]
        owners = self.value(target.value, env).names if not self.syntax.resolve(target.value) else ()
        return [f"{name}.{target.attr}" for name in owners] if len(owners) <= MOST_OWNERS else []

    # Expressions.

    def value(self, node: ast.expr, env: Environment) -> Value:
        """Return the names and products on which an expression depends."""
        visitor: Callable[[ast.expr, Environment], Value] = getattr(
            self, f"_{type(node).__name__.lower()}", self._other
        )
        value = visitor(node, env)
        if node in self.watched:
            self.watched[node] = join([self.watched[node], value.whole])
        return value

    def _alternatives(self, node: ast.expr, env: Environment) -> list[Value]:
        """Return one value for each branch of `a if test else b`, and one value for another expression."""
        if isinstance(node, ast.IfExp):
            return [*self._alternatives(node.body, env), *self._alternatives(node.orelse, env)]
        return [self.value(node, env)]

    def _sequence(self, nodes: Sequence[ast.expr], env: Environment) -> Value:
        values: list[Value] = []
        complete = True
        for node in nodes:
            value = self.value(node, env)
            if not isinstance(node, ast.Starred):
                values.append(value)
            elif value.parts is None:
                complete = False
                values.append(value)
            else:
                values += value.parts
        return replace(join([NOTHING, *values]), parts=tuple(values) if complete else None)

    def _constant(self, node: ast.Constant, env: Environment) -> Value:
        return NOTHING

    def _name(self, node: ast.Name, env: Environment) -> Value:
        if node.id == self.context:  # an expression with the context can use everything that the context saves
            return join([Value(frozenset({UNKNOWN})), *(env[key] for key in env if key.startswith("@"))]).whole
        if node.id in env:
            return env[node.id]
        return NOTHING if self._library(node) else Value(frozenset({node.id}))

    def _attribute(self, node: ast.Attribute, env: Environment) -> Value:
        if node.attr in NO_NUMBERS or node.attr == "needs_input_grad" or self._library(node):
            return NOTHING
        if self._is_context(node.value):
            saved = node.attr in SAVED_ATTRIBUTES
            default_name = UNKNOWN if saved else f"{self.context}.{node.attr}"
            return env.get(SAVED if saved else f"@{node.attr}", Value(frozenset({default_name})))
        owner = self.value(node.value, env)
        if node.attr in VIEWS:
            return owner.whole
        special_names = (UNKNOWN, RANDOM)
        names = [
            name if name in special_names or name.count(".") > DEEPEST else f"{name}.{node.attr}"
            for name in owner.names
        ]
        return join(
            [replace(owner.whole, names=frozenset()), *(env.get(name, Value(frozenset({name}))) for name in names)]
        ).whole

    def _subscript(self, node: ast.Subscript, env: Environment) -> Value:
        owner = self.value(node.value, env)
        if owner.parts is None:
            return owner
        try:
            index = ast.literal_eval(node.slice)
            return owner.parts[index]
        except (ValueError, TypeError, IndexError):
            return owner.whole

    def _tuple(self, node: ast.Tuple | ast.List, env: Environment) -> Value:
        return self._sequence(node.elts, env)

    _list = _tuple

    def _starred(self, node: ast.Starred, env: Environment) -> Value:
        return self.value(node.value, env)

    def _namedexpr(self, node: ast.NamedExpr, env: Environment) -> Value:
        self._bind(node.target, self.value(node.value, env), env)
        return env[node.target.id]

    def _ifexp(self, node: ast.IfExp, env: Environment) -> Value:
        self.value(node.test, env)
        return join([self.value(node.body, env), self.value(node.orelse, env)])

    def _compare(self, node: ast.Compare, env: Environment) -> Value:
        return _signs_of(join([self.value(node.left, env), *(self.value(part, env) for part in node.comparators)]))

    def _binop(self, node: ast.BinOp, env: Environment) -> Value:
        return self._arithmetic(node, [node.left, node.right], env)

    def _arithmetic(self, node: ast.BinOp | ast.AugAssign, sides: Sequence[ast.expr], env: Environment) -> Value:
        left, right = (self.value(side, env) for side in sides)
        parts = None
        if isinstance(node.op, ast.Add) and left.parts is not None and right.parts is not None:
            parts = left.parts + right.parts
        elif isinstance(node.op, ast.Mult) and left.parts is not None and isinstance(sides[1], ast.Constant):
            parts = left.parts * sides[1].value if isinstance(sides[1].value, int) and sides[1].value < 100 else None
        result = replace(join([left, right]), parts=parts)
        return _multiplied(node, result, [left, right]) if isinstance(node.op, ast.MatMult) else result

    def _lambda(self, node: ast.Lambda, env: Environment) -> Value:
        return self._closure(node, env)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, env: Environment) -> Value:
        inside = dict(env)
        for generator in node.generators:
            self._bind_rounds(generator.target, generator.iter, inside)
        return self.value(node.elt, inside).whole

    _generatorexp = _setcomp = _listcomp

    def _dictcomp(self, node: ast.DictComp, env: Environment) -> Value:
        inside = dict(env)
        for generator in node.generators:
            self._bind_rounds(generator.target, generator.iter, inside)
        return self.value(node.value, inside).whole

    def _other(self, node: ast.expr, env: Environment) -> Value:
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return join([NOTHING, *(self.value(child, env) for child in inner)]).whole

    def _closure(self, node: ast.AST, env: Environment) -> Value:
        """Return a value that depends on all names in the body of a nested function."""
        body = node.body if isinstance(node.body, list) else [node.body]
        names = [part for statement in body for part in ast.walk(statement) if isinstance(part, ast.Name)]
        return replace(join([NOTHING, *(self._name(name, env) for name in names)]).whole, products=frozenset())

    def _call(self, node: ast.Call, env: Environment) -> Value:
        dotted = self.syntax.resolve(node.func)
        library = dotted.startswith(tuple(f"{name}." for name in LIBRARIES))
        last = dotted.rpartition(".")[2] or getattr(node.func, "attr", "") or getattr(node.func, "id", "")
        is_method = isinstance(node.func, ast.Attribute) and not dotted
        receiver = [node.func.value] if is_method else []
        operands = [*receiver, *node.args, *(keyword.value for keyword in node.keywords)]
        values = [self.value(operand, env) for operand in operands]
        if not is_method and not dotted:
            values.append(self.value(node.func, env))  # the function is an argument or has a closure
        result = join([NOTHING, *values]).whole
        if (special := self._special(node, last, library, is_method, values, env)) is not None:
            return special
        factors = _factors(node, last, library, is_method)
        if factors:
            values_by_operand = dict(zip(operands, values, strict=False))
            result = _multiplied(node, result, [values_by_operand[factor] for factor in factors])
        for keyword in node.keywords:
            if keyword.arg == "out":
                self._absorb(keyword.value, result, env)
        return result

    def _special(
        self, node: ast.Call, last: str, library: bool, is_method: bool, values: Sequence[Value], env: Environment
    ) -> Value | None:
        """Return the value of a special call, such as sign(x) or zeros_like(x), or None for another call."""
        package = self.syntax.resolve(node.func).rpartition(".")[0]
        if last in ("tuple", "list") and len(node.args) == 1:
            return values[0]
        if last == "grad" and package == "torch.autograd":
            return Value(frozenset(f"{name}.grad" for value in values for name in value.names))
        if last.endswith("_like") or last.startswith("new_"):
            return Value(frozenset({RANDOM})) if last.startswith(("rand", "new_rand")) else NOTHING
        if package == "torch" and last in (*TORCH, *CONSTANTS):
            return NOTHING if last in CONSTANTS else Value(frozenset({RANDOM}))
        fills = is_method and last in FILLS
        if fills or (package == "torch.nn.init" and last.startswith(INITS)):
            target = node.func.value if fills else node.args[0] if node.args else None
            self._bind(target, Value(frozenset({RANDOM})), env)
            return Value(frozenset({RANDOM}))
        if last in NO_NUMBER_CALLS and (is_method or isinstance(node.func, ast.Name)):
            return NOTHING
        if last in SIGNS and (library or is_method):
            return _signs_of(join(values))
        if last in SCALES and (library or is_method) and len(values) == 1:
            return NOTHING
        return None

    def _is_context(self, node: ast.AST | None) -> bool:
        return bool(self.context) and isinstance(node, ast.Name) and node.id == self.context

    def _library(self, node: ast.AST) -> bool:
        return self.syntax.resolve(node).partition(".")[0] in LIBRARIES


def _factors(node: ast.Call, last: str, library: bool, is_method: bool) -> list[ast.expr]:
    """Return the factors if the call is a matrix product, and an empty list for another call."""
    if library and last == "einsum":
        return [part for part in node.args[1:] if not isinstance(part, ast.Starred)]
    factor_positions: Mapping[str, tuple[tuple[int, tuple[str, ...]], ...]] = (
        PRODUCTS if library else METHODS if is_method else {}
    )
    candidates = []
    for position, keywords in factor_positions.get(last, ()):
        first = is_method and position == 0
        candidates.append(node.func.value if first else argument(node, position - is_method, *keywords))
    return (
        [factor for factor in candidates if factor is not None]
        if len(candidates) > 1 and None not in candidates
        else []
    )


def _multiplied(node: ast.AST, value: Value, factors: Sequence[Value]) -> Value:
    plain_factors = tuple(Value(factor.names, factor.signs) for factor in factors)
    return replace(value, products=value.products | {Product(node, plain_factors)})


def _signs_of(value: Value) -> Value:
    return Value(signs=value.names | value.signs)


def _unpacked(targets: Sequence[ast.expr], value: Value) -> list[Value]:
    """Return the value of each target; if the lengths may differ, each target gets the complete value."""
    parts = value.parts
    star = next((index for index, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
    if parts is not None and star is None and len(parts) == len(targets):
        return list(parts)
    if parts is not None and star is not None and len(parts) >= len(targets) - 1:
        trailing = len(targets) - star - 1
        middle = parts[star : len(parts) - trailing]
        starred = replace(join([NOTHING, *middle]), parts=middle)
        return [*parts[:star], starred, *parts[len(parts) - trailing :]]
    return [value.whole] * len(targets)
