"""Pitfall 6: a mean over layers leaves out undefined values."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._cosine import compared_vectors
from fa_lint.rules._flow import assignments
from fa_lint.rules._values import Values, on_credit, values_of
from fa_lint.syntax import Syntax, argument, last_name, number

MEANS = ("nanmean", "nanmedian", "nansum", "nanquantile")
LIBRARIES = ("numpy", "torch", "jax.numpy", "bottleneck")
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
        cannot_see="layers in a variable with another name; a loop that removes NaN by a condition; values that another "
        "file aggregates",
    )
    clues = (("nanmean", "nanmedian", "nansum", "nanquantile", "cat", "hstack", "parameters_to_vector"),)

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each mean over a list of one cosine per layer, if the mean leaves out NaN."""
        for node in _joined_layers(values_of(syntax)) if on_credit(syntax) else ():
            yield Hit(
                node, f"`{syntax.snippet(node)}` is one cosine over all layers, which a single large layer decides"
            )
        cosines = {node for node, _ in compared_vectors(syntax)}
        layered = _LayerLoops(syntax)
        filled = set(_filled(syntax, layered, cosines))
        for call in syntax.every(ast.Call):
            values = _mean_of(syntax, call)
            if values is None:
                continue
            texts = {ast.unparse(part) for part in ast.walk(values) if isinstance(part, (ast.Name, ast.Attribute))}
            inline = any(
                (layered.comprehends(part) and _has(part, cosines)) or _pairs(part, cosines)
                for part in ast.walk(values)
            )
            if inline or texts & filled or _over_several_axes(syntax, call, values):
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


def _joined_layers(values: Values) -> Iterator[ast.AST]:
    """Yield the cosine of a file whose vectors contain the gradients of all layers, if there is no cosine of a layer."""
    pairs = [(node, [part for side in sides for part in values.near(side)]) for node, sides in values.pairs]
    if all(any(isinstance(part, ast.Call) and _joins(part) for part in parts) for _, parts in pairs):
        yield from (node for node, _ in pairs)


def _joins(call: ast.Call) -> bool:
    """Return whether a call concatenates the flat gradients of several layers."""
    is_comprehension = bool(call.args) and isinstance(call.args[0], (ast.ListComp, ast.GeneratorExp))
    flat = [part for part in ast.walk(call) if last_name(part) in ("flatten", "view", "reshape", "ravel")]
    return last_name(call.func) == "parameters_to_vector" or (
        last_name(call.func) in ("cat", "concatenate", "hstack") and is_comprehension and bool(flat)
    )


def _over_several_axes(syntax: Syntax, call: ast.Call, values: ast.expr) -> bool:
    """Return whether a mean is over several axes of an array of cosines, so at least one axis is not that of the samples."""
    axes = [part for part in (*call.args, *(keyword.value for keyword in call.keywords)) if isinstance(part, ast.Tuple)]
    return bool(axes) and on_credit(syntax) and values_of(syntax).is_cosine(values)


def _pairs(node: ast.AST, cosines: set[ast.expr]) -> bool:
    """Return whether a comprehension computes one cosine for each pair of elements of two lists."""
    generators = getattr(node, "generators", [])
    is_zip = (
        len(generators) == 1
        and isinstance(generators[0].iter, ast.Call)
        and last_name(generators[0].iter.func) == "zip"
    )
    return is_zip and _has(node, cosines)


def _filled(syntax: Syntax, layered: _LayerLoops, cosines: set[ast.expr]) -> Iterator[str]:
    """Yield the lists and dictionaries to which a loop over layers adds one cosine per layer."""
    named = {
        ast.unparse(target)
        for node in syntax.parents
        for target, value in assignments(node)
        if _has(value, cosines) and isinstance(target, ast.Name)
    }

    def is_cosine(node: ast.AST) -> bool:
        return _has(node, cosines) or any(isinstance(part, ast.Name) and part.id in named for part in ast.walk(node))

    for node in syntax.parents:
        for target, value in assignments(node):
            if any(
                (layered.comprehends(part) and is_cosine(part)) or _pairs(part, cosines) for part in ast.walk(value)
            ):
                yield ast.unparse(target)
            elif isinstance(target, ast.Subscript) and is_cosine(value) and layered.contains(node):
                yield ast.unparse(target.value)
        is_append = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        if is_append and node.args and is_cosine(node.args[0]) and layered.contains(node):
            yield ast.unparse(node.func.value)


def _has(node: ast.AST, cosines: set[ast.expr]) -> bool:
    return any(part in cosines for part in ast.walk(node))


class _LayerLoops:
    """The loops over layers in a file.

    Args:
        syntax: Syntax tree of the file.
    """

    def __init__(self, syntax: Syntax):
        self.syntax = syntax
        self.names = {
            ast.unparse(target)
            for node in syntax.parents
            for target, value in assignments(node)
            if self._creates_layers(value)
        }

    def contains(self, node: ast.AST) -> bool:
        """Return whether the innermost loop that contains a node is over layers."""
        loops = (
            ancestor
            for ancestor in self.syntax.ancestors(node)
            if isinstance(ancestor, (ast.For, ast.AsyncFor, ast.While))
        )
        loop = next(loops, None)
        return isinstance(loop, (ast.For, ast.AsyncFor)) and self._is_layers(loop.iter)

    def comprehends(self, node: ast.AST) -> bool:
        """Return whether a node is a comprehension over layers."""
        generators = getattr(node, "generators", [])
        return len(generators) == 1 and self._is_layers(generators[0].iter)

    def _is_layers(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Name, ast.Attribute)):
            return ast.unparse(node) in self.names or last_name(node) in NAMES_OF_LAYERS
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self._is_layers(node.value)
        if not isinstance(node, ast.Call):
            return False
        if self._creates_layers(node):
            return True
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return last_name(node.func) in THROUGH and any(map(self._is_layers, (*owner, *node.args)))

    def _creates_layers(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = self.syntax.resolve(node.func)
        if name in ("list", "tuple") or (not name and last_name(node.func) in ("list", "tuple")):
            return bool(node.args) and self._creates_layers(node.args[0])
        is_member = isinstance(node.func, ast.Attribute) and not name and node.func.attr in MEMBERS
        if name == "torch.autograd.grad":
            inputs = argument(node, 1, "inputs")
            return not isinstance(inputs, (ast.List, ast.Tuple)) or len(inputs.elts) > 1
        return is_member or name in CONTAINERS


RULE = NanMean()
