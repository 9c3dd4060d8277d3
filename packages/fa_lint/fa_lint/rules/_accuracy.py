"""Search for accuracies, which compare the index of the largest model output with a label."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.rules._flow import assignments
from fa_lint.rules._values import calls_in
from fa_lint.syntax import Syntax, text_in

LARGEST = ("argmax", "topk")
LARGEST_OF_TWO = ("max",)  # `outputs.max(1)` is (value, index): a prediction only if the index is used


def accuracies(syntax: Syntax) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield each comparison of a prediction with a label, together with the label.

    Such a comparison is `prediction == label` or `prediction.eq(label)`.
    """
    for node in syntax.every(ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            sides = (node.left, node.comparators[0])
            for predicted, label in (sides, sides[::-1]):
                if _is_prediction(syntax, predicted) and not _is_prediction(syntax, label) and not _is_fixed(label):
                    yield node, label
                    break
    for node in syntax.every(ast.Call):
        compares = isinstance(node.func, ast.Attribute) and node.func.attr == "eq" and len(node.args) == 1
        if compares and _is_prediction(syntax, node.func.value):
            yield node, node.args[0]


def _is_prediction(syntax: Syntax, node: ast.expr) -> bool:
    """Return whether an expression or a variable contains the index of the largest model output."""
    if _takes_largest(node):
        return True
    if not isinstance(node, ast.Name):
        return False
    function = syntax.function_of(node)
    return any(_sets(part, node.id) for part in ast.walk(function))


def _is_fixed(node: ast.expr) -> bool:
    """Return whether an expression is a constant or a configuration value, and not a label."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Attribute) and "config" in text_in(node))


def _sets(node: ast.AST, name: str) -> bool:
    """Return whether a statement sets the variable `name` to the index of a largest output.

    Examples: `pred = outputs.argmax(1)` and `_, pred = outputs.max(1)`.
    """
    for target, value in assignments(node):
        if isinstance(target, ast.Name) and target.id == name and _takes_largest(value):
            return True
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        names = [getattr(target, "id", "") for target in node.targets[0].elts]
        return names[1:2] == [name] and bool(calls_in([node.value], (*LARGEST, *LARGEST_OF_TWO)))
    return False


def _takes_largest(node: ast.expr) -> bool:
    """Return whether an expression is `x.argmax(…)`, `x.max(…)[1]` or `x.max(…).indices`."""
    while True:
        if calls_in([node], LARGEST):
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 1:
            return bool(calls_in([node.value], LARGEST_OF_TWO))
        if isinstance(node, ast.Attribute) and node.attr == "indices":
            return bool(calls_in([node.value], LARGEST_OF_TWO))
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return False
        node = node.func.value
