"""Pitfall 6: a mean over layers or runs leaves out undefined values."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._flow import COMPREHENSIONS
from fa_lint.rules._selections import MISSING
from fa_lint.rules._topic import on_credit
from fa_lint.rules._values import Values, calls_in, has_call, operands_of, values_of
from fa_lint.syntax import Syntax, argument, number

MEANS = ("nanmean", "nanmedian", "nansum", "nanquantile", "masked_invalid")
LIBRARIES = ("numpy", "numpy.ma", "torch", "jax.numpy", "bottleneck")


class NanMean(LintRule):
    """Report a mean over the cosines of several layers or runs if the mean leaves out NaN.

    The cosines must be the elements of a list or dictionary. Means over samples, and functions that count the undefined values, are
    not reported.
    """

    card = RuleCard(
        code="FA006",
        pitfall=6,
        name="nan-mean",
        title="a mean leaves out layers or runs without a value",
        why="a method without signal in the deep layers looks aligned, because the mean describes only the others",
        fix="report the value of each layer; if a layer has no value, report the mean as N/A with the reason",
    )
    clues = (("nanmean", "nanmedian", "nansum", "nanquantile", "masked_invalid"),)

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each mean over a list of cosines that leaves out NaN, if nothing counts what is left out."""
        values = values_of(syntax)
        for call in syntax.every(ast.Call):
            mean_of = _mean_of(syntax, call)
            counts = calls_in(syntax.parts(syntax.function_of(call)), ("sum", "count_nonzero", "any", "all"))
            is_counted = any(has_call(count, *MISSING) for count in counts)
            if mean_of is None or is_counted or not _are_cosines(values, mean_of):
                continue
            if _is_list(values, call, mean_of):
                yield Hit(call, f"`{syntax.snippet(call)}` leaves out layers or runs whose cosine is NaN")


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


def _are_cosines(values: Values, node: ast.expr) -> bool:
    return not values.cosines.isdisjoint(values.sources(node)) or (on_credit(values.syntax) and values.is_cosine(node))


def _is_list(values: Values, call: ast.Call, node: ast.expr) -> bool:
    """Return whether values are collected from several layers or runs, or a mean is over several axes."""
    waiting, found = [node], set()
    while waiting:
        part = waiting.pop()
        found.add(part)
        new = values.of(part) if isinstance(part, ast.Name) else values.keyed.get(getattr(part, "attr", ""), [])
        parents = [values.syntax.parents.get(value) for value in new]
        collects = [parent for parent in parents if isinstance(getattr(parent, "targets", [0])[0], ast.Subscript)]
        if isinstance(part, COMPREHENSIONS) or calls_in(parents, ("append",)) or collects:
            return True
        steps = operands_of(values.syntax, part)[:1] if isinstance(part, ast.Call) else new
        loops = [getattr(values.syntax.parents.get(step), "iter", None) for step in steps]
        waiting += [step for step in steps if step not in found and step not in loops]
    return any(isinstance(part, ast.Tuple) for part in (*call.args, *(keyword.value for keyword in call.keywords)))


RULE = NanMean()
