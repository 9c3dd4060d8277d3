"""Pitfall 13: the best epoch or the best setting is chosen by results on the test set."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._flow import assignments, element_pairs
from fa_lint.rules._selections import DRAWING, best_of_rounds, printed, sort_key, sorted_picks
from fa_lint.rules._test_data import TEST, UPDATES, VALIDATION, TestSetUse, test_set_use
from fa_lint.rules._values import Values, calls_in, label, operands_of, returned, values_of
from fa_lint.syntax import FUNCTIONS, Syntax, last_name, number

LOOPS = (ast.For, ast.AsyncFor, ast.While)
ORDERS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)
BEST = ("max", "min", "maximum", "minimum", "fmax", "fmin", "amax", "amin")
BEST_OF_LIST = (*BEST, "argmax", "argmin", "nanmax", "nanmin", "nanargmax", "nanargmin")
CHOOSES = re.compile(r"checkpoint|early_?stop|best", re.I)


class BestEpoch(LintRule):
    """Report a best value that a training loop chooses from results on the test set.

    A best value is `if result > best: best = result`, `best = max(best, result)`, or the maximum of a list that the loop fills. A
    function that the loop calls may choose the best value too, if that value remains after the call: a global variable, an
    attribute or an element. A loop that does not train is not checked, because such a loop compares final results and selects no
    epoch.
    """

    card = RuleCard(
        code="FA014",
        pitfall=13,
        name="best-epoch",
        title="the best epoch is chosen on the test set",
        why="the best of many results on the test set is larger than the result of the network on new samples",
        fix="choose the epoch on a validation set that is split from the training set, or always take the last epoch",
    )
    clues = (
        ("test", "Test", "train=False", "_te", "xte", "Xte"),
        ("max", "min", "if ", "sort", "heckpoint", "topping"),
        (".step(", "fit(", ".backward(", "-=", "sub_(", "add_(", "apply_gradients(", "lr", "groupby", "pivot", "val"),
    )

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each expression that chooses the best round by results on the test set."""
        data = test_set_use(syntax, (*UPDATES, "backward"))
        loops = [loop for loop in syntax.parents if isinstance(loop, LOOPS) and data.trains(loop)]
        searches = (_choices, _in_functions, _after_loop)
        found = [node for loop in loops for search in searches for node in search(data, loop)]
        for node in dict.fromkeys([*found, *_by_key(data)]) if loops else ():
            yield Hit(node, f"`{syntax.snippet(node)}` chooses the best round by results on the test set")
        for node in _validation(data):
            yield Hit(node, f"`{syntax.snippet(node)}` is the test set, and this set chooses the network")
        for node in _of_rounds(values_of(syntax)):
            yield Hit(node, f"`{syntax.snippet(node)}` is the best of many results on the test set")


def _in_functions(data: TestSetUse, loop: ast.stmt) -> Iterator[ast.expr]:
    """Yield each choice in a function that the loop calls, if the best value remains after the call."""
    for function in data.called(loop):
        yield from _choices(data, function, _Kept(function).has)


class _Kept:
    """The variables of a function whose values remain after a call."""

    def __init__(self, function: ast.AST):
        parts = list(ast.walk(function))
        declared = (name for part in parts if isinstance(part, (ast.Global, ast.Nonlocal)) for name in part.names)
        names = [part for value in returned(function) for part in ast.walk(value) if isinstance(part, ast.Name)]
        parameters = {part.arg for part in parts if isinstance(part, ast.arg)}
        self._names = {*declared, *({name.id for name in names} & parameters)}
        self._stored = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}

    def has(self, target: ast.expr) -> bool:
        """Return whether a target remains after a call.

        It is a global variable, an attribute or element of an outer object, or a returned parameter.
        """
        root = target
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if not isinstance(root, ast.Name):
            return False
        return root.id in self._names or (root is not target and root.id not in self._stored)


def _choices(
    data: TestSetUse, block: ast.AST, is_kept: Callable[[ast.expr], bool] = lambda target: True
) -> Iterator[ast.expr]:
    for node in _without_functions(block):
        if isinstance(node, ast.If):
            pairs = list(_assigned(node.body))
            yield from (part for part in ast.walk(node.test) if _improves(data, part, pairs, is_kept))
        chosen = [*assignments(node)]
        if isinstance(node, ast.Return) and isinstance(node.value, ast.IfExp):
            chosen.append((node.value.orelse, node.value))
        for target, value in chosen:
            if isinstance(value, ast.IfExp):
                pairs = list(element_pairs(target, value.body))
                yield from (part for part in ast.walk(value.test) if _improves(data, part, pairs, is_kept))
            values = value.args if isinstance(value, ast.Call) and last_name(value.func) in BEST else []
            results = [part for part in values if data.has(part)]
            if results and ast.unparse(target) in map(ast.unparse, values) and is_kept(target):
                yield value


def _improves(
    data: TestSetUse, node: ast.AST, pairs: list[tuple[ast.expr, ast.expr]], is_kept: Callable[[ast.expr], bool]
) -> bool:
    """Return whether a comparison decides whether assignments replace a best value by a test result."""
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ORDERS)):
        return False
    sides = (node.left, node.comparators[0])
    for result, best in (sides, sides[::-1]):
        bests = {ast.unparse(best), ast.unparse(_record(best))}
        new_values = [value for target, value in pairs if ast.unparse(target) in bests and is_kept(target)]
        if any(ast.unparse(_record(result)) in ast.unparse(value) for value in new_values) and data.has(result):
            return True
    return False


def _record(node: ast.expr) -> ast.expr:
    """Return `metrics` for `metrics["accuracy"]`, and any other expression unchanged."""
    key = getattr(getattr(node, "slice", None), "value", None)
    return node.value if isinstance(key, str) else node


def _by_key(data: TestSetUse) -> Iterator[ast.expr]:
    """Yield each selection by a test result, such as `max(runs, key=lambda r: r["test"])`."""
    picks = [(node, key) for node, key in sorted_picks(data.values) if number(node.slice) is not None]
    calls = [call for call in data.syntax.every(ast.Call) if last_name(call.func) in BEST]
    picks += [(call, sort_key(data.syntax, call)) for call in calls if any(part.arg == "key" for part in call.keywords)]
    for node, key in picks:
        if data.has(key):
            yield node


def _of_rounds(values: Values) -> Iterator[ast.expr]:
    """Yield each maximum over all rounds that a name, column or printed text calls a test result."""
    labels = {value: text for text, value in printed(values.syntax)}
    for call, rounds in best_of_rounds(values):
        texts = [label(part) for part in values.near(rounds)]
        constants = [getattr(part, "value", "") for part in values.near(rounds)]
        texts += [value for value in constants if isinstance(value, str)]
        is_test = any(TEST.fullmatch(word) for text in texts for word in text.split())
        if is_test or "test" in labels.get(call, "").lower():
            yield call


def _validation(data: TestSetUse) -> Iterator[ast.expr]:
    """Yield test data that code uses as validation data, if the code also chooses a network."""
    pairs = [(part.arg or "", part.value) for part in data.syntax.every(ast.keyword)]
    pairs += [(name, value) for (_, name), entries in data.values.bound.items() for value, one in entries if one]
    pairs += [(function.name, value) for function in data.functions.values() for value in returned(function)]
    watched = [(part.arg, part.value) for part in data.syntax.every(ast.keyword) if part.arg == "monitor"]
    yield from (value for _, value in watched if TEST.fullmatch(str(getattr(value, "value", ""))))
    for name, value in pairs if CHOOSES.search(data.syntax.text) else ():
        if VALIDATION.fullmatch(name) and not name.endswith(("val", "valid", "validation")) and data.has(value):
            yield value


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target with its value; elements of tuples are separate targets."""
    for statement in body:
        for part in ast.walk(statement):
            for target, value in assignments(part):
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    yield from zip(target.elts, value.elts, strict=False)
                yield target, value


def _after_loop(data: TestSetUse, loop: ast.stmt) -> Iterator[ast.expr]:
    """Yield each best value of a list to which the loop appends results on the test set."""
    appends = [call for call in calls_in(_without_functions(loop), ("append",)) if call.args and data.has(call.args[0])]
    lists = {ast.unparse(call.func.value) for call in appends if isinstance(call.func, ast.Attribute)}
    pairs = (pair for node in _without_functions(loop) for pair in assignments(node))
    elements = [target for target, value in pairs if isinstance(target, ast.Subscript) and data.has(value)]
    lists |= {ast.unparse(target.value) for target in elements}
    if not lists:
        return
    syntax = data.syntax
    for node in calls_in(ast.walk(syntax.function_of(loop)), BEST_OF_LIST):
        if node.lineno <= loop.end_lineno or any(isinstance(part.value, ast.Lambda) for part in node.keywords):
            continue
        operands = operands_of(syntax, node)[:2]
        parts = [part for operand in operands for part in ast.walk(operand) if isinstance(part, ast.expr)]
        calls = [ancestor for ancestor in syntax.ancestors(node) if isinstance(ancestor, ast.Call)]
        is_drawn = any(last_name(call.func) in DRAWING for call in calls)
        if not is_drawn and lists & set(map(ast.unparse, parts)):
            yield node


def _without_functions(loop: ast.AST) -> Iterator[ast.AST]:
    waiting = list(ast.iter_child_nodes(loop))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))


RULE = BestEpoch()
