"""Search for code that uses only some values: filters, and the best value of several rounds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.rules._flow import COMPREHENSIONS, assignments, element_pairs
from fa_lint.rules._test_data import UPDATES, test_set_use
from fa_lint.rules._values import Values, calls_in, label, mentions, operands_of
from fa_lint.syntax import Syntax, is_op, last_name, number, text_in

MISSING = ("isnan", "isfinite", "isna", "notna", "isnull", "notnull", "isinf")
COUNTS = ("len", "any", "all", "print", "count_nonzero", "axhline", "axvline")
DRAWING = ("ylim", "xlim", "set_ylim", "set_xlim", "axhline", "axvline", "axis", "plot", "linspace", "arange")
SPREADS, POOLS = ("std", "stdev", "pstdev"), ("stack", "ravel", "flatten", "reshape", "concatenate", "hstack", "cat")
TABLES = ("groupby", "pivot", "pivot_table", "unstack")
MASKED = ("masked_fill", "masked_fill_", "index_fill", "index_fill_")
FILLS = (*MASKED, "fillna", "nan_to_num", "where", "putmask", "copyto")
ARRAYS = {1: ("ones", "ones_like", "tensor"), 0: ("zeros", "zeros_like", "tensor")}
MOST_FLOOR = 1e-3  # a norm below such a number counts as zero
LOOPS = (ast.For, ast.While)
FORMAT = re.compile(r"%[-+ 0#]*[\d.]*[a-z]")
SORTS = ("sort", "sorted", "argsort", "sort_values")
LARGEST = ("max", "amax", "nanmax", "maximum", "idxmax", "argmax", "nlargest")


def filters(values: Values) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """Yield each expression that keeps only some values, with all parts of its condition.

    A filter is a comprehension with `if`, an index such as `x[x > 0]`, a call of `filter`, a conditional `append`, or `continue`
    in a loop. Filters that are only counted or printed are left out.
    """
    syntax = values.syntax
    for node in syntax.parents:
        if isinstance(node, COMPREHENSIONS) and node.generators[0].ifs and _is_used(values, node):
            yield node, [part for test in node.generators[0].ifs for part in values.near(test)]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_used(values, node):
            yield node, values.near(node.slice)
        elif isinstance(node, ast.Call) and last_name(node.func) == "filter" and node.args:
            yield node, values.near(node.args[0])
        elif isinstance(node, ast.If) and _skips(node):
            yield node, values.near(node.test)


def _skips(node: ast.If) -> bool:
    """Return whether an `if` appends a value that it tests, or continues with the next round of a loop."""
    last = node.body[-1]
    calls = [part.value for part in node.body if isinstance(part, ast.Expr)]
    appended = [call.args[-1] for call in calls_in(calls, ("append",)) if call.args]
    is_tested = any(text_in(value) & text_in(node.test) for value in appended)
    return isinstance(last, ast.Continue) or (is_tested and not node.orelse)


def _is_used(values: Values, node: ast.expr) -> bool:
    """Return whether the selected values are used other than by counting or printing them."""
    parent = values.syntax.parents[node]
    if isinstance(getattr(node, "elt", None), ast.Constant):
        return False
    if isinstance(parent, ast.Call):
        return last_name(parent.func) not in COUNTS or node is not parent.args[0]
    names = [part for part in getattr(parent, "targets", []) if isinstance(part, ast.Name)]
    same = [part for part in values.syntax.every(ast.Name) if names and part.id == names[0].id]
    loads = [part for part in same if isinstance(part.ctx, ast.Load)]
    users = [last_name(getattr(values.syntax.parents[part], "func", part)) for part in loads]
    return not names or not {*users} <= {*COUNTS}


def best_of_rounds(values: Values) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield each maximum over all rounds of a training, together with the values of the rounds.

    The rounds are a list that a training loop fills, or the rows of a table for each seed.
    """
    use = test_set_use(values.syntax, (*UPDATES, "backward"))
    for call in values.syntax.every(ast.Call):
        is_method = isinstance(call.func, ast.Attribute) and not values.syntax.resolve(call.func)
        operands = [call.func.value] if is_method else call.args
        parents = {last_name(part.func) for part in values.syntax.ancestors(call) if isinstance(part, ast.Call)}
        if last_name(call.func) in LARGEST and len(operands) == 1 and parents.isdisjoint(DRAWING):
            tables = [part for part in values.near(operands[0]) if last_name(getattr(part, "func", part)) in TABLES]
            groups = [one for one in tables if isinstance(one, ast.Call)]
            is_table = any(mentions(one, "seed") or mentions(one, "epoch") for one in groups)
            if is_table or any(map(use.trains, _filling_loops(values, operands[0]))):
                yield call, operands[0]


def _filling_loops(values: Values, node: ast.expr) -> list[ast.AST]:
    """Return the loops that append to a list."""
    calls = [values.syntax.parents.get(value) for value in _values_of(values, node)]
    appends = calls_in(calls, ("append",))
    return [part for call in appends for part in values.syntax.ancestors(call) if isinstance(part, LOOPS)]


def sorted_picks(values: Values) -> Iterator[tuple[ast.Subscript, ast.expr]]:
    """Yield each part of sorted values, such as `sorted(x)[1:]`, with the values or their sort key.

    The values may be sorted by an earlier call of `x.sort(…)`.
    """
    syntax = values.syntax
    for node in syntax.every(ast.Subscript):
        index = node.slice
        is_part = isinstance(index, ast.Slice) and (index.lower or index.upper) is not None
        if not isinstance(node.ctx, ast.Load) or not (is_part or number(index) in (0, -1)):
            continue
        orders_of_value = [
            part
            for value in (node.value, *_values_of(values, node.value))
            for part in (value, getattr(value, "value", value))
            if last_name(getattr(part, "func", part)) in SORTS
        ]
        scope = syntax.function_of(node)
        sorts = [call for call in calls_in(syntax.parts(scope), ("sort",)) if isinstance(call.func, ast.Attribute)]
        orders_of_value += [part for part in sorts if ast.unparse(part.func.value) == ast.unparse(node.value)]
        for call in orders_of_value:
            if isinstance(call, ast.Call):
                yield node, sort_key(syntax, call)


def sort_key(syntax: Syntax, call: ast.Call) -> ast.expr:
    """Return the result of the function `key` of a sort or maximum; without `key`, return the values."""
    key = next((part.value for part in call.keywords if part.arg in ("key", "by")), None)
    owner = call.func.value if isinstance(call.func, ast.Attribute) and not syntax.resolve(call.func) else None
    values = owner if owner is not None else (call.args or [call])[0]
    return key.body if isinstance(key, ast.Lambda) else values


def _values_of(values: Values, node: ast.expr) -> list[ast.expr]:
    return values.of(node) if isinstance(node, ast.Name) else []


def printed(syntax: Syntax) -> Iterator[tuple[str, ast.expr]]:
    """Yield each value that code prints or stores, together with the text or name before it."""
    for node in syntax.parents:
        if isinstance(node, ast.JoinedStr):
            for before, value in zip(["", *node.values], node.values, strict=False):
                if isinstance(value, ast.FormattedValue):
                    yield _text(before), value.value
        elif is_op(node, ast.Mod) and isinstance(node.left, ast.Constant):
            values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            yield from zip(FORMAT.split(str(node.left.value)), values, strict=False)
        elif isinstance(node, ast.Dict):
            yield from ((_text(key), value) for key, value in zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Call):
            yield from ((_text(text), value) for text, value in zip(node.args, node.args[1:], strict=False))
            yield from ((part.arg or "", part.value) for part in node.keywords)
        elif isinstance(node, ast.arguments):
            parameters = [*node.posonlyargs, *node.args][::-1]
            pairs = [*zip(parameters, node.defaults[::-1], strict=False)]  # defaults belong to the last parameters
            pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
            yield from ((parameter.arg, value) for parameter, value in pairs if value is not None)
        elif not isinstance(node, ast.AugAssign):
            pairs = [pair for target, value in assignments(node) for pair in element_pairs(target, value)]
            pairs += [(part, value) for target, value in pairs for part in getattr(target, "elts", [])]
            yield from ((label(target), value) for target, value in pairs)


def _text(node: ast.AST | str | None) -> str:
    return str(getattr(node, "value", ""))


def filled(values: Values, value: int) -> Iterator[ast.AST]:
    """Yield each expression that sets the undefined part of an array of cosines to 0 or 1."""
    syntax = values.syntax
    for node in syntax.parents:
        for target, new in assignments(node):
            index = target.slice if isinstance(target, ast.Subscript) else None
            is_mask = index is not None and number(index) is None and not label(target)
            is_part = is_mask or isinstance(index, ast.Tuple)
            is_missing = value == 1 or (is_part and calls_in(values.near(index), MISSING))
            array = target if label(target) else getattr(target, "value", target)
            if is_part and is_missing and number(new) == value and values.is_cosine(array):
                yield node
        is_choice = isinstance(node, ast.IfExp) and number(node.body) == value and is_empty_test(node.test)
        if is_choice and values.is_cosine(node):
            yield node
        name = last_name(node.func) if isinstance(node, ast.Call) else ""
        operands = [*operands_of(syntax, node), *(part.value for part in node.keywords)] if name in FILLS else []
        default = [0] if name == "nan_to_num" and not operands[1:] else []
        arrays = [call for call in calls_in(operands, ARRAYS[value]) if call.args]
        filling = arrays or [part for part in operands if number(part) == value]
        if (filling or value in default) and any(map(values.is_cosine, operands)):
            yield node


def is_empty_test(test: ast.expr) -> bool:
    """Return whether a condition tests for a missing or zero value, such as `credit is None`."""
    if isinstance(test, ast.BoolOp):
        return any(map(is_empty_test, test.values))
    if isinstance(test, ast.Compare):
        limit = number(test.comparators[0])
        zero = isinstance(test.ops[0], (ast.Eq, ast.Lt, ast.LtE)) and limit is not None and 0 <= limit <= MOST_FLOOR
        return zero or isinstance(test.ops[0], (ast.Is, ast.NotIn))
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
