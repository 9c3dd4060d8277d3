"""Find custom autograd Functions whose backward pass does not compute the gradient.

If the forward pass multiplies an input by a weight, the gradient with respect to the input depends on that weight. A backward
pass that does not use the weight therefore returns a feedback signal instead of the gradient.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from fa_lint.base import Hit
from fa_lint.rules._feedback import is_feedback
from fa_lint.rules._flow import assignments
from fa_lint.rules._origins import GRADIENT, RANDOM, SIGN, UNKNOWN, VIEWS, Names, Origins, Product, alternatives
from fa_lint.rules._topic import on_alignment
from fa_lint.rules._values import Values, returned, values_of
from fa_lint.syntax import Syntax, last_name

BASES = tuple(f"torch.autograd.{name}" for name in ("Function", "function.Function", "function.InplaceFunction"))
WEIGHT = re.compile(r"(\w+_)?(weights?|w|wt|kernels?|filters?|theta)\d*(_\w+)?", re.IGNORECASE)
FEEDBACK_TEXT = ("fa", "dfa", "fb", "feedback", "back", "backward", "bwd", "random", "rand", "asym")
BACKWARD_WEIGHT = re.compile(r"(weights?|w)_?b", re.IGNORECASE)  # such as W_b, which is used together with W_f
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
    weights: Names
    named: bool
    others: Names


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

    def origins(self, values: Values) -> Origins:
        """Return the origins of the values in the methods."""
        given = {(self.forward, name): name for name in self.inputs}
        contexts = [self.backward, self.setup or self.forward]
        gradients = [*_parameters(self.backward)[1:], getattr(self.backward.args.vararg, "arg", "")]
        given |= {(self.backward, name): GRADIENT for name in gradients}
        given |= {(method, name): UNKNOWN for method in contexts for name in _parameters(method)[:1]}
        for node in ast.walk(self.setup) if self.setup else ():
            for target, _ in assignments(node):  # x, weight = inputs
                names = [last_name(part) for part in getattr(target, "elts", [])]
                given |= {(self.setup, name): source for name, source in zip(names, self.inputs, strict=False)}
        return Origins(values, [self.forward, self.backward, *([self.setup] if self.setup else [])], given)


def feedback_functions(syntax: Syntax) -> Iterator[tuple[str, Hit]]:
    """Yield the name of each Function whose backward pass multiplies by a matrix that is not the weight."""
    for function in custom_functions(syntax):
        hit = _judge(syntax, function)
        if hit is not None:
            yield function.owner.name, hit


def custom_functions(syntax: Syntax) -> Iterator[CustomFunction]:
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
    values = values_of(syntax)
    origins = function.origins(values)
    for multiplication in _multiplications(origins, function):
        gradients = _gradients(values, function.backward, function.inputs.index(multiplication.source))
        used = {node: origins.names(node) for node in gradients}
        exact = [node for node, names in used.items() if _uses(names, multiplication)]
        for node in used:
            products = [] if node in exact or UNKNOWN in used[node] else _candidates(origins.products(node))
            for product in products:
                if _is_certain(syntax, function, multiplication, product, bool(exact)):
                    return _hit(syntax, function, multiplication, product)
    return None


def _gradients(values: Values, backward: ast.FunctionDef, position: int) -> Iterator[ast.expr]:
    """Yield each expression that a backward pass may return at one position."""
    for result in (result for value in returned(backward) for result in alternatives(values, value)):
        if isinstance(result, (ast.Tuple, ast.List)):
            for part in result.elts[position : position + 1]:
                yield from alternatives(values, part)
        elif position == 0:
            yield result


def _multiplications(origins: Origins, function: CustomFunction) -> Iterator[Multiplication]:
    """Yield each input and the weights that multiply this input; if there is no product, yield no weights."""
    results = returned(function.forward)
    output, products = origins.names(*results), origins.products(*results)
    for name in function.inputs if not products else ():
        if name in output:
            yield Multiplication(name, frozenset(), False, output - {name})
    for product in products:
        for left, right in itertools.permutations(product.factors, 2):
            by_layer = product.by_layer and left is product.factors[0]
            if left & right or not right or (product.by_layer and not by_layer):
                continue
            weights = frozenset(filter(_is_weight, right))
            for name in sorted(left & set(function.inputs)):
                if by_layer or not _is_weight(name):
                    yield Multiplication(name, weights or right, by_layer or bool(weights), output - {name})


def _uses(names: Names, multiplication: Multiplication) -> bool:
    """Return whether a gradient depends on the weights of the forward pass.

    If the forward pass uses only the signs of the weights, a gradient that depends on these signs is enough.
    """
    weights = multiplication.weights or multiplication.others
    if any(weight.startswith(SIGN) for weight in weights):
        names = frozenset(name.removeprefix(SIGN) for name in names)
    return any(_same(name, weight.removeprefix(SIGN)) for name in names for weight in weights)


def _same(name: str, other: str) -> bool:
    """Return whether two dotted names are equal, or one name is an attribute of the other."""
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")


def _candidates(products: list[Product]) -> list[Product]:
    """Return the products with the gradient of the output as a factor, or all if there is no such product."""
    return [product for product in products if any(GRADIENT in factor for factor in product.factors)] or products


def _is_certain(
    syntax: Syntax, function: CustomFunction, multiplication: Multiplication, product: Product, mixed: bool
) -> bool:
    """Return whether a product in the backward pass certainly uses a matrix that is not the weight.

    Args:
        mixed: Whether another branch of the backward pass uses the weight.
    """
    origins, weights = _replacement(product), multiplication.weights
    if any(map(names_feedback, origins)):
        return not _same_weight(syntax, function, multiplication, origins)
    signs = [name.removeprefix(SIGN) for name in origins if name.startswith(SIGN)]
    if RANDOM in origins or any(_same(name, weight) for name in signs for weight in weights):
        return bool(weights)  # without weights, the source code does not show how the forward pass is computed
    if mixed or not (multiplication.named or on_alignment(syntax)):
        return False
    others = origins - {multiplication.source}
    if not weights or not others or not others <= {*function.inputs} or any(map(_is_version, others | weights)):
        return False
    return not any(map(_is_weight, others)) and not _same_weight(syntax, function, multiplication, origins)


def _replacement(product: Product) -> Names:
    """Return the names on which the factors of a product depend, without the gradient of the output."""
    factors = [factor for factor in product.factors if GRADIENT not in factor] or product.factors
    return frozenset().union(*factors) - {GRADIENT}


def _same_weight(syntax: Syntax, function: CustomFunction, multiplication: Multiplication, origins: Names) -> bool:
    """Return whether the weight and its replacement are the same tensor in every call of `apply`."""
    values, inputs = values_of(syntax), function.inputs
    sides = (origins, multiplication.weights)
    positions = [[inputs.index(name) for name in sorted(names) if name in inputs] for names in sides]
    calls = [call for call in syntax.every(ast.Call) if applies(syntax, call, function.owner.name)]
    calls = [call for call in calls if len(call.args) > max(itertools.chain(*positions), default=-1)]
    passed = [[_sources(values, [call.args[one] for one in part]) for part in positions] for call in calls]
    return bool(calls) and all(replacement & weight for replacement, weight in passed)


def _sources(values: Values, nodes: list[ast.expr]) -> set[str]:
    """Return the variables and attributes from which expressions are computed, without their owners."""
    parts = [part for node in nodes for part in values.sources(node) if isinstance(part, (ast.Name, ast.Attribute))]
    parents = values.syntax.parents
    attributes = [part for part in parts if isinstance(part, ast.Attribute)]
    owners = {part.value for part in attributes if getattr(parents[part], "func", None) is not part}
    return {ast.unparse(part) for part in parts if part not in owners or last_name(parents[part]) in VIEWS}


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
    weights = " and ".join(f"`{name}`" for name in sorted(multiplication.weights))
    known = f"a product with {weights}, as in the forward pass"
    expected = known if weights else "the values that the forward pass uses"
    method = f"{function.owner.name}.{function.backward.name}"
    return Hit(
        product.node,
        f"`{syntax.snippet(product.node)}` in {method} is not the gradient: for `{multiplication.source}` expected {expected}, "
        f"found {' and '.join(map(_described, sorted(_replacement(product))))}",
    )


def _described(name: str) -> str:
    """Return a description of a value that replaces the weight."""
    if name == RANDOM:
        return "fresh random numbers"
    return f"only the sign of `{name.removeprefix(SIGN)}`" if name.startswith(SIGN) else f"`{name}`"


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


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
