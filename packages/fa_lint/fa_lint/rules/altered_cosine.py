"""Pitfall 6: a cosine is changed, or cosines are selected by their value, before the mean is reported."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._cosine import is_product
from fa_lint.rules._selections import MISSING, best_of_rounds, filled, filters
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import VIEWS, Values, calls_in, operands_of, orders
from fa_lint.syntax import argument, last_name, number, option

MEANS = ("mean", "sum", "median", "average", "fmean", "nanmean", "std")
SIGNS = ("sign", "sgn")
ABSOLUTE = ("abs", "abs_", "fabs", "absolute")
LIMITS = ("clip", "clamp", "clamp_", "clamp_min", "maximum", "max", "relu", "relu_")


class AlteredCosine(CreditRule):
    """Report a cosine that is changed, or cosines of which only some are used.

    A cosine is changed by its absolute value, by a lower limit of 0, or by the signs of its vectors. Cosines are selected by a
    condition on their value, and by their maximum over the training.
    """

    card = RuleCard(
        code="FA015",
        pitfall=6,
        name="altered-cosine",
        title="a cosine is changed, or cosines are selected by their value",
        why="without negative, small or undefined cosines, every method looks more aligned than it is",
        fix="report the mean of all unchanged cosines; if one is undefined, report N/A and how many are undefined",
    )
    clues = (("cos", "norm", "align", "angle", "gamma"),)


def _changes(values: Values) -> Iterator[tuple[ast.AST, str]]:
    quotients = [cosine for cosine in values.cosines if isinstance(cosine, ast.BinOp)]
    numerators = {part for node in quotients for part in values.near(node.left)}
    for call in values.syntax.every(ast.Call):
        operands, name = operands_of(values.syntax, call), last_name(call.func)
        parents = list(values.syntax.ancestors(call))
        is_test = any(isinstance(part, (ast.Compare, ast.Assert)) for part in parents)
        if is_test or not operands or name not in (*ABSOLUTE, *LIMITS):
            continue
        has_difference = any(isinstance(part, ast.Sub) for part in ast.walk(operands[0]))
        is_cosine = values.is_cosine(operands[0]) or (call in numerators and is_product(operands[0]))
        if name in ABSOLUTE and not has_difference and is_cosine:
            yield call, "is the absolute value of a cosine"
        limits = operands[1:2] + [part.value for part in call.keywords if part.arg in ("min", "a_min")]
        is_zero = name.startswith("relu") or any(number(limit) == 0 for limit in limits)
        if name in LIMITS and is_zero and is_cosine:
            yield call, "replaces negative cosines by 0"


def _samples(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield cosines of other vectors than the credit and the gradient of one layer."""
    for call, sides in values.pairs:
        parts = [values.same(side) for side in sides]
        joined = [calls_in(side, ("cat", "concatenate", "hstack", "parameters_to_vector")) for side in parts]
        inner = [one for side in joined for call in side for part in call.args for one in (call, *values.same(part))]
        if all(joined) and calls_in(inner, (*VIEWS, "parameters_to_vector")):
            yield call, "is one cosine of all layers together, so the layer with the largest gradient decides it"
        rows = [part for side in parts for part in calls_in(side, ("reshape", "view", "flatten")) if _has_rows(part)]
        if rows and isinstance(call, ast.Call) and option(call, "dim", 1) == 0:
            yield call, "compares the samples of each parameter, and not the parameters of each sample"


def _has_rows(call: ast.Call) -> bool:
    """Return whether a call makes one row for each sample: `x.reshape(n, -1)` or `x.flatten(1)`."""
    start = number(argument(call, 0, "start_dim"))
    return start == 1 if last_name(call.func) == "flatten" else len(call.args) == 2 and number(call.args[1]) == -1


def _zeros(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for call in filled(values, 0):
        yield call, "counts undefined cosines as 0"


def _signs(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for cosine in values.cosines:
        if calls_in(values.near(cosine), SIGNS):
            yield cosine, "compares the signs of the vectors, and not the vectors"


def _selections(values: Values) -> Iterator[tuple[ast.AST, str]]:
    means = [call for call in values.syntax.every(ast.Call) if last_name(call.func) in MEANS]
    operands = [operand for call in means for operand in operands_of(values.syntax, call)]
    averaged = {part for operand in operands for part in values.sources(operand)}
    counted = {part for call in values.calls("len") for size in call.args for part in values.sources(size)}
    for node, condition in filters(values):
        compared = [side for pair in orders(condition) for side in pair]
        if node not in counted:  # code that reports how many cosines are defined may leave out the others
            compared += [call.args[0] for call in calls_in(condition, MISSING) if call.args]
        kept = [part for side in compared for part in values.sources(side)] if isinstance(node, ast.If) else [node]
        if not averaged.isdisjoint(kept) and any(map(values.is_cosine, compared)):
            yield node, "leaves out cosines by their value"


def _best(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for call, rounds in best_of_rounds(values):
        if values.is_cosine(rounds):
            yield call, "is the best cosine of the training, and not the cosine of the reported network"


AlteredCosine.patterns = (_changes, _samples, _zeros, _signs, _selections, _best)
RULE = AlteredCosine()
