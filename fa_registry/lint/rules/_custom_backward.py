"""Find custom autograd Functions whose backward pass is not the gradient of their forward pass.

If the forward pass multiplies an input by a weight, the gradient with respect to the input depends on that weight. A backward
pass that does not use the weight therefore returns a feedback signal instead of the gradient.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fa_registry.lint.base import Hit
from fa_registry.lint.rules._feedback import is_feedback, on_alignment
from fa_registry.lint.rules._provenance import (
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
from fa_registry.lint.syntax import Syntax

BASES = (
    "torch.autograd.Function",
    "torch.autograd.function.Function",
    "torch.autograd.function.InplaceFunction",
    "torch.autograd.function.NestedIOFunction",
)
GRADIENT = "<gradient of the output>"
WEIGHT = re.compile(r"(\w+_)?(weights?|w|wt|kernels?|filters?|theta)\d*(_\w+)?", re.IGNORECASE)
FEEDBACK_TEXT = ("fa", "dfa", "fb", "feedback", "back", "backward", "bwd", "random", "rand", "asym")
BACKWARD_WEIGHT = re.compile(r"(weights?|w)_?b", re.IGNORECASE)  # used together with a weight_f or W_f
MOST_ENDS = 8  # more ways through a forward pass than this are merged
# Words of names for the forward's own weight in another layout or precision.
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
        weights: Weights of the product. Empty if the source code shows no product, such as for an identity or a call of a function.
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


def feedback_functions(syntax: Syntax) -> Iterator[Hit]:
    """Yield one hit for each autograd Function that multiplies by another matrix than the weight."""
    for function in _custom_functions(syntax):
        hit = _judge(syntax, function)
        if hit is not None:
            yield hit


def _custom_functions(syntax: Syntax) -> Iterator[CustomFunction]:
    classes = {node.name: node for node in syntax.every(ast.ClassDef)}
    for owner in syntax.every(ast.ClassDef):
        line = _ancestry(owner, classes)
        if not any(syntax.resolve(base) in BASES for one in line for base in one.bases):
            continue
        methods: dict[str, ast.FunctionDef] = {}
        for one in line:
            for node in one.body:
                if isinstance(node, ast.FunctionDef):
                    methods.setdefault(node.name, node)
        forward, backward = methods.get("forward"), methods.get("backward") or methods.get("vjp")
        if forward is not None and backward is not None:
            yield CustomFunction(owner, forward, backward, methods.get("setup_context"))


def _ancestry(owner: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """Return a class and its base classes that are defined in the same file."""
    line = [owner]
    for one in line:
        bases = [classes.get(base.id) for base in one.bases if isinstance(base, ast.Name)]
        line += [base for base in bases if base is not None and base not in line]
    return line


def _judge(syntax: Syntax, function: CustomFunction) -> Hit | None:
    output, ends = _read_forward(syntax, function)
    multiplications = list(_multiplications(output, function.inputs))
    returned = [value for kept in ends for value in _read_backward(syntax, function, kept)]
    for one in multiplications:
        position = function.inputs.index(one.source)
        gradients = [value for value in (_part(whole, position) for whole in returned) if value is not None]
        exact = [value for value in gradients if _uses(value, one)]
        for value in gradients:
            products = [] if value in exact or UNKNOWN in value.origins else _candidates(value)
            for product in products:
                if _is_certain(syntax, function, one, product, bool(exact)):
                    return _hit(syntax, function, one, product)
    return None


def _read_forward(syntax: Syntax, function: CustomFunction) -> tuple[Value, list[Environment]]:
    """Return the output of the forward pass, and the saved values at each end of the forward pass."""
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


def _read_backward(syntax: Syntax, function: CustomFunction, kept: Environment) -> list[Value]:
    names = _parameters(function.backward)
    variable = function.backward.args.vararg
    gradients = [*names[1:], *([variable.arg] if variable else [])]
    reading = NameReading(syntax, context=(names or [""])[0])
    reading.run(function.backward.body, {**kept, **dict.fromkeys(gradients, Value(frozenset({GRADIENT})))})
    return reading.returns


def _multiplications(output: Value, inputs: list[str]) -> Iterator[Multiplication]:
    """Yield each input with its weights; without a product, yield the inputs without weights."""
    if not output.products:
        for name in inputs:
            if name in output.names:
                yield Multiplication(name, Value(), False, output.names - {name})
    for product in _in_order(output.products):
        for place, left in enumerate(product.factors):
            for other, right in enumerate(product.factors):
                by_layer = product.by_layer and place == 0
                if place == other or left.names & right.names or (product.by_layer and not by_layer):
                    continue
                weights = Value(*(frozenset(filter(_is_weight, names)) for names in (right.names, right.signs)))
                weights = weights if weights.origins else Value(right.names, right.signs)
                named = by_layer or any(map(_is_weight, weights.origins))
                if not weights.origins:
                    continue
                for name in sorted(left.names & set(inputs)):
                    if by_layer or not _is_weight(name):
                        yield Multiplication(name, weights, named, output.names - {name})


def _uses(value: Value, one: Multiplication) -> bool:
    """Return whether a gradient depends on the weights of the forward pass.

    If the forward pass uses only the signs of the weights, a gradient that depends on these signs is enough.
    """
    used = value.names | (value.signs if one.weights.signs else frozenset())
    return any(_same(name, weight) for name in used for weight in one.weights.origins or one.others)


def _same(name: str, other: str) -> bool:
    """Return whether two dotted names are equal, or one name is an attribute of the other."""
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")


def _candidates(value: Value) -> list[Product]:
    """Return the products that contain the gradient of the output, or all products if none does."""
    products = _in_order(value.products)
    return [one for one in products if any(GRADIENT in factor.origins for factor in one.factors)] or products


def _in_order(products: Iterable[Product]) -> list[Product]:
    """Sort products by their position in the source code, which makes the first finding reproducible."""
    return sorted(
        products,
        key=lambda one: (one.node.lineno, one.node.col_offset, [sorted(factor.origins) for factor in one.factors]),
    )


def _is_certain(syntax: Syntax, function: CustomFunction, one: Multiplication, product: Product, mixed: bool) -> bool:
    """Return whether the factor that replaces the weight is certainly not another form of the weight.

    Args:
        mixed: Whether another branch of the backward pass uses the weight.
    """
    origins = _replacement(product)
    signs = frozenset().union(*(factor.signs for factor in product.factors))
    if any(map(names_feedback, origins)):
        return not _same_weight(syntax, function, one, origins)
    if not one.weights.origins:
        return False  # the text does not show how the forward pass is computed
    if RANDOM in origins or any(_same(name, weight) for name in signs for weight in one.weights.names):
        return True
    if mixed or not (one.named or on_alignment(syntax)):
        return False
    if not origins:
        return True  # a constant matrix
    foreign = origins - {one.source}
    if not foreign or not foreign <= set(function.inputs) or any(map(_is_version, foreign | one.weights.origins)):
        return False
    return not any(map(_is_weight, foreign)) and not _same_weight(syntax, function, one, origins)


def _replacement(product: Product) -> frozenset[str]:
    """Return the names that the factors of a product depend on, without the gradient of the output."""
    factors = [factor for factor in product.factors if GRADIENT not in factor.origins] or product.factors
    return frozenset().union(*(factor.origins for factor in factors)) - {GRADIENT}


def _same_weight(syntax: Syntax, function: CustomFunction, one: Multiplication, origins: frozenset[str]) -> bool:
    """Return whether every call of `apply` passes the weight itself as the replacement of the weight."""
    inputs = function.inputs
    positions = [inputs.index(name) for name in sorted(origins) if name in inputs]
    weights = [inputs.index(name) for name in sorted(one.weights.origins) if name in inputs]
    calls = [call for call in syntax.every(ast.Call) if _applies(syntax, call, function.owner.name)]
    calls = [call for call in calls if len(call.args) > max([*positions, *weights], default=-1)]
    if not calls or not positions or not weights:
        return False
    values = observe(syntax, [call.args[place] for call in calls for place in {*positions, *weights}])
    return all(
        any(
            _same(name, weight)
            for place in positions
            for name in values[call.args[place]].names
            for other in weights
            for weight in values[call.args[other]].names
        )
        for call in calls
    )


def _applies(syntax: Syntax, call: ast.Call, owner: str) -> bool:
    """Return whether a call is `Owner.apply(…)`, or calls a variable that is set to `Owner.apply`."""
    called = call.func
    if isinstance(called, ast.Name):
        values = [node.value for node in syntax.every(ast.Assign) if _sets(node, called.id)]
        called = values[0] if len(values) == 1 else called
    return isinstance(called, ast.Attribute) and called.attr == "apply" and getattr(called.value, "id", "") == owner


def _sets(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _hit(syntax: Syntax, function: CustomFunction, one: Multiplication, product: Product) -> Hit:
    weights = " and ".join(f"`{name}`" for name in sorted(one.weights.origins))
    expected = (
        f"a product with {weights}, as in the forward pass" if weights else "the values that the forward pass uses"
    )
    where = f"{function.owner.name}.{function.backward.name}"
    return Hit(
        product.node,
        f"`{syntax.snippet(product.node)}` in {where} is not the gradient: for `{one.source}` expected {expected}, "
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
    named = is_feedback(last) or BACKWARD_WEIGHT.fullmatch(last) is not None
    return named or any(word in FEEDBACK_TEXT for word in _text(name))


def _is_version(name: str) -> bool:
    return any(VERSION.fullmatch(word) for word in _text(name))


def _text(name: str) -> list[str]:
    return [word.lower() for word in TEXT.findall(_last(name))]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _part(whole: Value, position: int) -> Value | None:
    """Return the gradient at one position of a backward pass's result, or None if it has no such position."""
    if whole.parts is None:
        return whole if position == 0 else None
    return whole.parts[position] if position < len(whole.parts) else None


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]


def _tuple(values: list[Value]) -> Value:
    whole = join([Value(), *values])
    return Value(whole.names, whole.signs, whole.products, tuple(values))
