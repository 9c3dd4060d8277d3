"""Pitfall 6: a mean over layers leaves out undefined values."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._flow import COMPREHENSIONS
from fa_lint.rules._topic import on_credit
from fa_lint.rules._values import Values, mentions, values_of
from fa_lint.syntax import Syntax, argument, last_name, number

MEANS = ("nanmean", "nanmedian", "nansum", "nanquantile", "masked_invalid")
LIBRARIES = ("numpy", "numpy.ma", "torch", "jax.numpy", "bottleneck")
MEMBERS = ("children", "modules", "named_modules", "named_children", "parameters", "named_parameters")
CONTAINERS = ("torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential", "torch.nn.ParameterList")
NAMES_OF_LAYERS = ("layers", "blocks")
THROUGH = (
    "zip",
    "enumerate",
    "reversed",
    "list",
    "tuple",
    "range",
    "len",
    "items",
    "values",
    "keys",
    "sorted",
    "filter",
)
LOOPS = (ast.For, ast.AsyncFor, ast.While, *COMPREHENSIONS)


class NanMean(LintRule):
    """Report a mean over the cosines of several layers if the mean leaves out NaN.

    A loop is over layers if it is over the modules or parameters of a model, over a ModuleList, over the result of
    torch.autograd.grad, or over a variable such as `layers`. Means over samples or over seeds are not reported.
    """

    card = RuleCard(
        code="FA006",
        pitfall=6,
        name="nan-mean",
        title="a mean over layers leaves out layers without a value",
        why="a cosine is NaN if a credit or a gradient is zero, so the mean describes only the other layers: a method "
        "without signal in the deep layers looks as if it were aligned",
        fix="report the value of each layer; if a layer has no value, report the mean as N/A with the reason",
    )
    clues = (("nanmean", "nanmedian", "nansum", "nanquantile", "masked_invalid"),)

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each mean over a list of one cosine per layer, if the mean leaves out NaN."""
        values = values_of(syntax)
        for call in syntax.every(ast.Call):
            mean_of = _mean_of(syntax, call)
            if mean_of is not None and (_is_over_layers(values, mean_of) or _over_several_axes(values, call, mean_of)):
                yield Hit(
                    call, f"`{syntax.snippet(call)}` is a mean over layers that leaves out layers whose cosine is NaN"
                )


def _mean_of(syntax: Syntax, call: ast.Call) -> ast.expr | None:
    """Return the values over which a call computes a mean that leaves out NaN.

    The mean must be over all values or over axis 0. For any other call, return None.
    """
    name = syntax.resolve(call.func)
    package, _, last = name.rpartition(".")
    if last in MEANS and package in LIBRARIES:
        values, axis = argument(call, 0, "a", "input"), argument(call, 1, "axis", "dim")
    elif not name and isinstance(call.func, ast.Attribute) and call.func.attr in MEANS:
        values, axis = call.func.value, argument(call, 0, "dim", "axis")
    else:
        return None
    is_all = isinstance(axis, ast.Tuple) or (isinstance(axis, ast.Constant) and axis.value is None)
    return values if axis is None or is_all or number(axis) == 0 else None


def _over_several_axes(values: Values, call: ast.Call, mean_of: ast.expr) -> bool:
    """Return whether a mean is over several axes of cosines, so not only over samples."""
    axes = [part for part in (*call.args, *(keyword.value for keyword in call.keywords)) if isinstance(part, ast.Tuple)]
    return bool(axes) and on_credit(values.syntax) and values.is_cosine(mean_of)


def _is_over_layers(values: Values, node: ast.expr) -> bool:
    """Return whether the elements of a list or dictionary are one cosine for each layer."""
    cosines = {cosine for cosine, _ in values.pairs}
    waiting, found = [node], set()
    while waiting:
        part = waiting.pop()
        found.add(part)
        parents = values.syntax.ancestors(part)
        loop = (
            part if isinstance(part, COMPREHENSIONS) else next((one for one in parents if isinstance(one, LOOPS)), None)
        )
        element = getattr(part, "elt", getattr(part, "value", part)) if loop is part else part
        is_element = loop is part or isinstance(values.syntax.parents.get(part), (ast.Call, ast.Assign))
        if (
            loop
            and is_element
            and not cosines.isdisjoint(values.near(element))
            and _is_layer_loop(values, loop, cosines)
        ):
            return True
        if loop is not part and part not in cosines:
            operands = [operand for operand in values.operands(part) if operand not in found]
            waiting += [operand for operand in operands if not _is_nested(values.syntax.parents.get(operand), operand)]
    return False


def _is_nested(parent: ast.AST | None, node: ast.AST) -> bool:
    """Return whether a variable contains elements of a list, or a list contains lists."""
    appends = isinstance(parent, ast.Call) and last_name(parent.func) == "append" and isinstance(node, COMPREHENSIONS)
    return appends or getattr(parent, "iter", None) is node


def _is_layer_loop(values: Values, loop: ast.AST, cosines: set[ast.expr]) -> bool:
    """Return whether a loop is over layers, or pairs the elements of two lists for a cosine."""
    generators = getattr(loop, "generators", [loop])
    source = getattr(generators[0], "iter", None)
    is_zip = isinstance(source, ast.Call) and last_name(source.func) == "zip" and isinstance(loop, COMPREHENSIONS)
    pairs = is_zip and not cosines.isdisjoint(values.syntax.parts(loop))
    if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and not mentions(loop, "seed"):
        inside = {*values.syntax.parts(loop)}
        pairs = any(
            all(_indexes(side, loop.target.id) for side in sides) for node, sides in values.pairs if node in inside
        )
    return len(generators) == 1 and source is not None and (pairs or _is_layers(values, source))


def _indexes(node: ast.expr, name: str) -> bool:
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Subscript)]
    return any(isinstance(part.slice, ast.Name) and part.slice.id == name for part in parts)


def _is_layers(values: Values, node: ast.expr) -> bool:
    if isinstance(node, (ast.Name, ast.Attribute)):
        sources = values.of(node) if isinstance(node, ast.Name) else values.keyed.get(node.attr, [])
        return last_name(node) in NAMES_OF_LAYERS or any(_creates_layers(values, source) for source in sources)
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _is_layers(values, node.value)
    if not isinstance(node, ast.Call) or _creates_layers(values, node):
        return isinstance(node, ast.Call)
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return last_name(node.func) in THROUGH and any(_is_layers(values, part) for part in (*owner, *node.args))


def _creates_layers(values: Values, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = values.syntax.resolve(node.func)
    if last_name(node.func) in ("list", "tuple") and node.args:
        return _creates_layers(values, node.args[0])
    if name == "torch.autograd.grad":
        inputs = argument(node, 1, "inputs")
        return not isinstance(inputs, (ast.List, ast.Tuple)) or len(inputs.elts) > 1
    return name in CONTAINERS or (isinstance(node.func, ast.Attribute) and not name and node.func.attr in MEMBERS)


RULE = NanMean()
