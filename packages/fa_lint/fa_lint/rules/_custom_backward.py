"""Find custom autograd Functions whose backward pass does not compute the gradient.

If the forward pass multiplies an input by a weight, the gradient with respect to the input depends on that weight. A backward
pass that does not use the weight therefore returns a feedback signal instead of the gradient.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fa_lint.base import Hit
from fa_lint.rules._feedback import is_feedback, on_alignment
from fa_lint.rules._provenance import (
    RANDOM,
    UNKNOWN,
    Environment,
    NameReading,
    Product,
    Value,
    join,
    merge,
    observe,
)
from fa_lint.syntax import Syntax

BASES = (
    "torch.autograd.Function",
    "torch.autograd.function.Function",
    "torch.autograd.function.InplaceFunction",
    "torch.autograd.function.NestedIOFunction",
)
GRADIENT = "<gradient of the output>"
WEIGHT = re.compile(r"(\w+_)?(weights?|w|wt|kernels?|filters?|theta)\d*(_\w+)?", re.IGNORECASE)
FEEDBACK_TEXT = ("fa", "dfa", "fb", "feedback", "back", "backward", "bwd", "random", "rand", "asym")
BACKWARD_WEIGHT = re.compile(r"(weights?|w)_?b", re.IGNORECASE)  # such as W_b, which is used together with W_f
MOST_ENDS = 8  # most execution paths through a forward pass; more paths are merged
# Words in the names of variables that contain the weight itself in another layout or precision, such as w_fp8.
VERSION = re.compile(
    r"t|tr|trans|transposed?|adj|adjoint|h|conj|inv|pinv|(fp|bf|f|int|i|uint|nf)\d+|half|float|lp|hp|q|qs?|quant(ized)?|deq\w*"
    r"|packed|cast|copy|local|full|shard(ed)?|gathered|main|data|contig(uous)?|cached?|cpu|cuda"
)
TEXT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")


@dataclass(frozen=True)
class Multiplication:
    """Product of an input and weights in a forward pass.

    Attributes:
        source: Name of the input.
        weights: Names of the weights. Empty if the source code shows no product, for example if the forward pass only calls
            another function.
        named: Whether a variable name or an argument position identifies the weight among the factors.
        others: Names that the output depends on, except the input.
    """

    source: str
    weights: Value
    named: bool
    others: frozenset[str]


@dataclass(frozen=True)
class CustomFunction:
    """Autograd Function that is defined as a class with a forward and a backward method.

    Attributes:
        owner: The class.
        forward: The method `forward`.
        backward: The method `backward` or `vjp`.
        setup: The method `setup_context`, or None if the class does not define this method.
    """

    owner: ast.ClassDef
    forward: ast.FunctionDef
    backward: ast.FunctionDef
    setup: ast.FunctionDef | None

    @property
    def inputs(self) -> list[str]:
        """Parameter names of the forward pass, in the order of the arguments of `apply`."""
        names = _parameters(self.forward)
        return names if self.setup is not None else names[1:]


def feedback_functions(syntax: Syntax) -> Iterator[tuple[str, Hit]]:
    """Yield the name of each Function whose backward pass multiplies by a matrix that is not the weight."""
    for function in _custom_functions(syntax):
        hit = _judge(syntax, function)
        if hit is not None:
            yield function.owner.name, hit


def _custom_functions(syntax: Syntax) -> Iterator[CustomFunction]:
    classes = {node.name: node for node in syntax.every(ast.ClassDef)}
    for owner in syntax.every(ast.ClassDef):
        ancestry = _ancestry(owner, classes)
        if not any(syntax.resolve(base) in BASES for ancestor in ancestry for base in ancestor.bases):
            continue
        methods: dict[str, ast.FunctionDef] = {}
        for class_node in ancestry:
            for node in class_node.body:
                if isinstance(node, ast.FunctionDef):
                    methods.setdefault(node.name, node)
        forward, backward = methods.get("forward"), methods.get("backward") or methods.get("vjp")
        if forward is not None and backward is not None:
            yield CustomFunction(owner, forward, backward, methods.get("setup_context"))


def _ancestry(owner: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """Return a class and its base classes that are defined in the same file."""
    ancestry = [owner]
    for class_node in ancestry:
        bases = [classes.get(base.id) for base in class_node.bases if isinstance(base, ast.Name)]
        ancestry += [base for base in bases if base is not None and base not in ancestry]
    return ancestry


def _judge(syntax: Syntax, function: CustomFunction) -> Hit | None:
    output, ends = _read_forward(syntax, function)
    multiplications = list(_multiplications(output, function.inputs))
    returned = [value for environment in ends for value in _read_backward(syntax, function, environment)]
    for multiplication in multiplications:
        position = function.inputs.index(multiplication.source)
        gradients = [value for value in (_part(result, position) for result in returned) if value is not None]
        exact = [value for value in gradients if _uses(value, multiplication)]
        for value in gradients:
            products = [] if value in exact or UNKNOWN in value.origins else _candidates(value)
            for product in products:
                if _is_certain(syntax, function, multiplication, product, bool(exact)):
                    return _hit(syntax, function, multiplication, product)
    return None


def _read_forward(syntax: Syntax, function: CustomFunction) -> tuple[Value, list[Environment]]:
    """Return the output of the forward pass, and the saved values at the end of each execution path."""
    names = _parameters(function.forward)
    start = {name: Value(frozenset({name})) for name in function.inputs}
    reading = NameReading(syntax, context="" if function.setup else (names or [""])[0])
    reading.run(function.forward.body, dict(start))
    output, ends = join([Value(), *reading.returns]), reading.ends
    if function.setup is not None:
        context, inputs, result = (*_parameters(function.setup), "", "", "")[:3]
        setup = NameReading(syntax, context=context)
        setup.run(
            function.setup.body,
            {**merge(ends), inputs: _tuple([start[name] for name in function.inputs]), result: output},
        )
        ends = setup.ends
    ends = ends if len(ends) <= MOST_ENDS else [merge(ends)]
    return output, [{key: value for key, value in end.items() if key.startswith("@") or "." in key} for end in ends]


def _read_backward(syntax: Syntax, function: CustomFunction, environment: Environment) -> list[Value]:
    names = _parameters(function.backward)
    variable = function.backward.args.vararg
    gradients = [*names[1:], *([variable.arg] if variable else [])]
    reading = NameReading(syntax, context=(names or [""])[0])
    reading.run(function.backward.body, {**environment, **dict.fromkeys(gradients, Value(frozenset({GRADIENT})))})
    return reading.returns


def _multiplications(output: Value, inputs: list[str]) -> Iterator[Multiplication]:
    """Yield each input and the weights that multiply this input; if there is no product, yield no weights."""
    if not output.products:
        for name in inputs:
            if name in output.names:
                yield Multiplication(name, Value(), False, output.names - {name})
    for product in _in_order(output.products):
        for left_index, left in enumerate(product.factors):
            for right_index, right in enumerate(product.factors):
                by_layer = product.by_layer and left_index == 0
                if left_index == right_index or left.names & right.names or (product.by_layer and not by_layer):
                    continue
                weights = Value(*(frozenset(filter(_is_weight, names)) for names in (right.names, right.signs)))
                weights = weights if weights.origins else Value(right.names, right.signs)
                is_named = by_layer or any(map(_is_weight, weights.origins))
                if not weights.origins:
                    continue
                for name in sorted(left.names & set(inputs)):
                    if by_layer or not _is_weight(name):
                        yield Multiplication(name, weights, is_named, output.names - {name})


def _uses(value: Value, multiplication: Multiplication) -> bool:
    """Return whether a gradient depends on the weights of the forward pass.

    If the forward pass uses only the signs of the weights, a gradient that depends on these signs is enough.
    """
    used_names = value.names | (value.signs if multiplication.weights.signs else frozenset())
    return any(
        _same(name, weight) for name in used_names for weight in multiplication.weights.origins or multiplication.others
    )


def _same(name: str, other: str) -> bool:
    """Return whether two dotted names are equal, or one name is an attribute of the other."""
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")


def _candidates(value: Value) -> list[Product]:
    """Return the products with the gradient of the output as a factor, or all if there is no such product."""
    products = _in_order(value.products)
    return [
        product for product in products if any(GRADIENT in factor.origins for factor in product.factors)
    ] or products


def _in_order(products: Iterable[Product]) -> list[Product]:
    """Sort products by their position in the source code, which makes the first finding reproducible."""
    return sorted(
        products,
        key=lambda one: (one.node.lineno, one.node.col_offset, [sorted(factor.origins) for factor in one.factors]),
    )


def _is_certain(
    syntax: Syntax, function: CustomFunction, multiplication: Multiplication, product: Product, mixed: bool
) -> bool:
    """Return whether a product in the backward pass certainly uses a matrix that is not the weight.

    Args:
        mixed: Whether another branch of the backward pass uses the weight.
    """
    origins = _replacement(product)
    signs = frozenset().union(*(factor.signs for factor in product.factors))
    if any(map(names_feedback, origins)):
        return not _same_weight(syntax, function, multiplication, origins)
    if not multiplication.weights.origins:
        return False  # the source code does not show how the forward pass is computed
    if RANDOM in origins or any(_same(name, weight) for name in signs for weight in multiplication.weights.names):
        return True
    if mixed or not (multiplication.named or on_alignment(syntax)):
        return False
    if not origins:
        return True  # a constant matrix
    other_origins = origins - {multiplication.source}
    if (
        not other_origins
        or not other_origins <= set(function.inputs)
        or any(map(_is_version, other_origins | multiplication.weights.origins))
    ):
        return False
    return not any(map(_is_weight, other_origins)) and not _same_weight(syntax, function, multiplication, origins)


def _replacement(product: Product) -> frozenset[str]:
    """Return the names on which the factors of a product depend, without the gradient of the output."""
    factors = [factor for factor in product.factors if GRADIENT not in factor.origins] or product.factors
    return frozenset().union(*(factor.origins for factor in factors)) - {GRADIENT}


def _same_weight(
    syntax: Syntax, function: CustomFunction, multiplication: Multiplication, origins: frozenset[str]
) -> bool:
    """Return whether the weight and its replacement are the same tensor in every call of `apply`."""
    inputs = function.inputs
    positions = [inputs.index(name) for name in sorted(origins) if name in inputs]
    weight_positions = [inputs.index(name) for name in sorted(multiplication.weights.origins) if name in inputs]
    calls = [call for call in syntax.every(ast.Call) if applies(syntax, call, function.owner.name)]
    calls = [call for call in calls if len(call.args) > max([*positions, *weight_positions], default=-1)]
    if not calls or not positions or not weight_positions:
        return False
    values = observe(syntax, [call.args[position] for call in calls for position in {*positions, *weight_positions}])
    return all(
        any(
            _same(name, weight)
            for position in positions
            for name in values[call.args[position]].names
            for weight_position in weight_positions
            for weight in values[call.args[weight_position]].names
        )
        for call in calls
    )


def applies(syntax: Syntax, call: ast.Call, owner: str) -> bool:
    """Return whether a call is `Owner.apply(…)`, or calls a variable that is set to `Owner.apply`."""
    callee = call.func
    if isinstance(callee, ast.Name):
        values = [node.value for node in syntax.every(ast.Assign) if _sets(node, callee.id)]
        callee = values[0] if len(values) == 1 else callee
    return isinstance(callee, ast.Attribute) and callee.attr == "apply" and getattr(callee.value, "id", "") == owner


def _sets(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _hit(syntax: Syntax, function: CustomFunction, multiplication: Multiplication, product: Product) -> Hit:
    weights = " and ".join(f"`{name}`" for name in sorted(multiplication.weights.origins))
    expected = (
        f"a product with {weights}, as in the forward pass" if weights else "the values that the forward pass uses"
    )
    method = f"{function.owner.name}.{function.backward.name}"
    return Hit(
        product.node,
        f"`{syntax.snippet(product.node)}` in {method} is not the gradient: for `{multiplication.source}` expected {expected}, "
        f"found {_described(product)}",
    )


def _described(product: Product) -> str:
    """Return a description of the factors that replace the weight."""
    factors = [factor for factor in product.factors if GRADIENT not in factor.origins] or product.factors
    signs = frozenset().union(*(factor.signs for factor in factors)) - {GRADIENT}
    names = [f"`{name}`" for name in sorted(_replacement(product) - signs - {RANDOM})]
    random = ["fresh random numbers"] if RANDOM in _replacement(product) else []
    described = [*names, *random, *(f"only the sign of `{name}`" for name in sorted(signs))]
    return " and ".join(described) or "a constant"


def _is_weight(name: str) -> bool:
    return WEIGHT.fullmatch(_last(name)) is not None and not names_feedback(name)


def names_feedback(name: str) -> bool:
    """Return whether the last part of a dotted name is a usual name for feedback.

    Examples: `B`, `weight_fa`, `layer.feedback`, `W_b`.
    """
    last = _last(name)
    is_named = is_feedback(last) or BACKWARD_WEIGHT.fullmatch(last) is not None
    return is_named or any(word in FEEDBACK_TEXT for word in _text(name))


def _is_version(name: str) -> bool:
    return any(VERSION.fullmatch(word) for word in _text(name))


def _text(name: str) -> list[str]:
    return [word.lower() for word in TEXT.findall(_last(name))]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _part(result: Value, position: int) -> Value | None:
    """Return the gradient that a backward pass returns at one position, or None if there is none."""
    if result.parts is None:
        return result if position == 0 else None
    return result.parts[position] if position < len(result.parts) else None


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]


def _tuple(values: list[Value]) -> Value:
    joined = join([Value(), *values])
    return Value(joined.names, joined.signs, joined.products, tuple(values))
