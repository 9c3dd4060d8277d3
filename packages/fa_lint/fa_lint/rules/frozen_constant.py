"""Pitfall 10: the result of the frozen control is written into the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._accuracy import accuracies
from fa_lint.rules._flow import assignments
from fa_lint.rules._selections import printed
from fa_lint.rules._topic import on_alignment
from fa_lint.syntax import Syntax, is_op, last_name, number

CONTROL = r"(frozen|freeze|freezed|untrained|readout_only|head_only|random_blocks|random_features)"
RESULT = r"(acc|accs|accuracy|accuracies|top1|score|baseline|control|result|perf|performance|test|eval|reference|ref)"
NAMED = re.compile(rf"(\w+_)?{CONTROL}_(\w+_)?{RESULT}(_\w+)?|(\w+_)?{RESULT}_(\w+_)?{CONTROL}(_\w+)?", re.IGNORECASE)
IN_COMMENT = re.compile(r"#.*\bfrozen\b.*\b(control|accuracy|acc|baseline|run|network|model|blocks?)\b", re.IGNORECASE)
MEASURED = re.compile(r"(\w+_)?(acc|accuracy|accuracies|top1)(_\w+)?", re.IGNORECASE)


class FrozenConstant(LintRule):
    """Report a number in the code that is used as the result of the frozen control.

    The number is recognised by its name, such as `frozen_accuracy`, or by a comment about the frozen control on its line. In the
    second case, the code must also compare the number with an accuracy. 0 and 1 are not reported, because 0 and 1 are usual start
    values.

    In code about feedback alignment, no name is needed if the number is subtracted from an accuracy that a function of the code
    computes. Chance levels (1/n) are not reported.
    """

    card = RuleCard(
        code="FA010",
        pitfall=10,
        name="frozen-constant",
        title="the result of the frozen control is a number in the code",
        why="the number stays the same if data, network or seed change, so it is a control of another setting",
        fix="train the control with frozen blocks in the same setting and with the same seed, and read its result from that run",
    )
    clues = (("rozen", "FROZEN", "freeze", "ntrained", "UNTRAINED", "_only", "random_", "backward("),)

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each number that is the result of a frozen control."""
        for name, value in printed(syntax):
            commented = bool(IN_COMMENT.search(syntax.lines[value.lineno - 1])) and _compared(syntax, name)
            result = number(value)
            is_result = (NAMED.fullmatch(name) and "margin" not in name.lower()) or commented  # a margin is a limit
            if result is not None and 0 < result <= 100 and result != 1 and is_result:
                yield Hit(value, f"`{name}` is the fixed number {result:g}, not the result of a trained frozen control")
        if on_alignment(syntax):
            for node, result in _margins(syntax):
                text = f"is a margin over the fixed number {result:g}, not over a control that was trained"
                yield Hit(node, f"`{syntax.snippet(node)}` {text}")


def _margins(syntax: Syntax) -> Iterator[tuple[ast.BinOp, float]]:
    """Yield each difference of an accuracy and a number in the code, with this number."""
    scorers = {getattr(syntax.function_of(node), "name", "") for node, _ in accuracies(syntax)} - {""}
    variables = {last_name(target): value for node in syntax.parents for target, value in assignments(node)}
    for node in syntax.every(ast.BinOp):
        score, fixed = (variables.get(getattr(side, "id", ""), side) for side in (node.left, node.right))
        result = number(fixed)
        is_score = isinstance(score, ast.Call) and last_name(score.func) in scorers
        if isinstance(node.op, ast.Sub) and is_score and result is not None and 0 < result < 100:
            classes = (1 if result < 1 else 100) / result
            if not NAMED.fullmatch(last_name(node.right)) and abs(classes - round(classes)) > 1e-6:
                yield node, result


def _compared(syntax: Syntax, name: str) -> bool:
    """Return whether code compares a variable with an accuracy, or subtracts one from the other."""
    for node in syntax.parents:
        if is_op(node, ast.Sub):
            sides = [node.left, node.right]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        else:
            continue
        names = [{last_name(part) for part in ast.walk(side)} for side in sides]
        others = {one for side in names for one in side - {name}}
        if any(name in side for side in names) and any(map(MEASURED.fullmatch, others)):
            return True
    return False


RULE = FrozenConstant()
