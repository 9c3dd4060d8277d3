"""Find the expressions that depend on the test set, and the functions that train.

Test data are recognised by the code that loads the data (`train=False`, `split="test"`, `data["test"]`) or by a name such as
`x_test`. Variables that are computed from test data depend on the test set too, under any name. A part of the test set does not
count as test data, because a split or a slice may be a validation set.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from fa_lint.rules._flow import elementwise, is_own
from fa_lint.rules._values import calls_in, returned, values_of
from fa_lint.syntax import Syntax, is_op, last_name

TEST = re.compile(
    r"(?!\w*(reward|return|episode))(\w+_)?test(_\w+|\d*|set|s|loaders?|data|dl|ds|iter|acc\w*|loss\w*|err\w*|x|y)|[xy]_?te",
    re.IGNORECASE,
)
OTHER = re.compile(
    r"(\w+_)?(val|valid|validation|dev|holdout|train|training)(_\w+|set|loader|data|acc\w*|loss\w*)?|[xy]_?(va|tr)",
    re.IGNORECASE,
)
TRAIN = re.compile(
    r"(\w+_)?train(ing)?(_?(data|ds|dl|set|loaders?|dataset|dataloaders?|x|y|images|labels))?|[xy]_?tr", re.I
)
VALIDATION = re.compile(
    r"(\w+_)?(val|valid|validation)(_?(data|ds|dl|set|loaders?|dataset|dataloaders?|x|y))?|eval_set", re.I
)
SPLITTING = ("random_split", "Subset", "train_test_split", "split", "chunk")
PARTS = (*SPLITTING, "select", "take", "skip", "permutation", "sample")
COUNTS = ("len", "range", "print", "isinstance", "id", "type")
UPDATES = ("step", "fit", "partial_fit", "sub_", "add_", "apply_gradients")
RATES = ("lr", "eta", "learning_rate", "step_size", "rate")


class TestSetUse:
    """The variables and functions of a file that depend on the test set.

    Args:
        syntax: Syntax tree of the file.
        updates: Names of the methods whose calls count as training.
    """

    def __init__(self, syntax: Syntax, updates: Sequence[str] = UPDATES):
        self.syntax = syntax
        self.values = values_of(syntax)
        self.updates = updates
        self.functions = self.values.functions
        self.training = self._training_functions()
        self.known: dict[ast.AST, bool] = {}  # whether variables and functions depend on the test set

    def has(self, node: ast.AST | None) -> bool:
        """Return whether an expression depends on the test set."""
        if isinstance(node, ast.Name):
            return self._once(node, self._variable)
        if isinstance(node, ast.Attribute):
            return not OTHER.fullmatch(node.attr) and (bool(TEST.fullmatch(node.attr)) or self.has(node.value))
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str):
                origins = self.values.of(node.value) if isinstance(node.value, ast.Name) else []
                is_test = TEST.fullmatch(key) is not None and not any(map(_takes_part, origins))
                return not OTHER.fullmatch(key) and (is_test or self.has(node.value))
            return not isinstance(node.slice, ast.Slice) and self.has(node.value)
        if isinstance(node, ast.Call):
            return self._call(node)
        if node is None or isinstance(node, (ast.Lambda, ast.Compare)):
            return isinstance(node, ast.Compare) and any(map(self.has, (node.left, *node.comparators)))
        return any(map(self.has, ast.iter_child_nodes(node)))

    def called(self, node: ast.AST) -> list[ast.AST]:
        """Return the functions of the file that code calls, directly or through other functions."""
        waiting, found = [node], []
        while waiting:
            names = _called_names(waiting.pop())
            new = [self.functions[name] for name in sorted(names & self.functions.keys())]
            new = [function for function in new if function not in found]
            found += new
            waiting += new
        return found

    def trains(self, node: ast.AST) -> bool:
        """Return whether code updates parameters, also in functions of the file that the code calls."""
        return _updates(node, self.updates) or bool(_called_names(node) & self.training)

    def _training_functions(self) -> set[str]:
        calls = {name: _called_names(node) for name, node in self.functions.items()}
        training = {name for name, node in self.functions.items() if _updates(node, self.updates)}
        while True:
            callers = {name for name, called in calls.items() if called & training}
            if callers <= training:
                return training
            training |= callers

    def _call(self, call: ast.Call) -> bool:
        name = last_name(call.func)
        if name in COUNTS:
            return False
        options = {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}
        if options.get("split") == "test" or (options.get("train") is False and name[:1].isupper()):
            return True
        function = self.functions.get(name)
        if name in self.training:
            return function is not None and self._once(function, self._returns_test)  # the result may be a model
        operands = [*call.args, *(keyword.value for keyword in call.keywords)]
        trained = calls_in(operands, self.training)  # in `score(fit(net, x), y)`, y is the data
        operands = [operand for operand in operands if operand not in trained]
        if any(_names_other(operand) for operand in operands):
            return False
        owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        return any(map(self.has, (*owner, *operands))) or (function is not None and self._once(function, self._reads))

    def _once(self, node: ast.AST, check: Callable[[Any], bool]) -> bool:
        """Return the result of a check, which is False while the same check is in progress."""
        if node not in self.known:
            self.known[node] = False
            self.known[node] = check(node)
        return self.known[node]

    def _returns_test(self, function: ast.AST) -> bool:
        """Return whether the result of a training function depends on the test set."""
        return any(map(self.has, returned(function)))

    def _reads(self, function: ast.AST) -> bool:
        """Return whether a function reads test data that are defined outside of the function."""
        parts = self.syntax.parts(function)
        outer = [part for part in parts if isinstance(part, ast.Name) and self.values.scope(part) is self.syntax.tree]
        has_own = any(TEST.fullmatch(part.attr) for part in parts if is_own(part))
        return has_own or any(self._variable(part) for part in outer if self.values.of(part))

    def _variable(self, name: ast.Name) -> bool:
        """Return whether a variable contains test data, according to its name or its values.

        A parameter contains test data if it receives test data in every call of its function.
        """
        entries = self.values.entries(name)
        whole = [(value, statement) for value, statement in entries if not _takes_part(value)]
        wholes = [part for value, _ in entries if _takes_part(value) for part in ast.walk(value) if part is not value]
        if TEST.fullmatch(name.id) and not any(map(self.has, wholes)):
            return True
        passed = [self.has(value) for value, statement in whole if statement is None]
        if passed and all(passed) and not OTHER.fullmatch(name.id):
            return True
        stated = [(value, statement) for value, statement in whole if statement is not None]
        return any(self.has(value) and self._keeps(value, statement) for value, statement in stated)

    def _keeps(self, value: ast.expr, statement: ast.AST) -> bool:
        """Return whether an assignment of test data makes each of its targets depend on the test set."""
        targets = getattr(statement, "targets", None) or [statement.target]
        names = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        names = [part for part in names if isinstance(part.ctx, ast.Store)]
        if len(names) > 1 and any(OTHER.fullmatch(part.id) for part in names):
            return isinstance(elementwise(value), ast.Tuple)  # one value for each set
        stored = {one.id for one in names}
        passed = [part for part in ast.walk(value) if getattr(part, "id", "") in stored]
        return not isinstance(value, ast.Call) or all(map(self.has, passed))  # model = update(model, …)


@lru_cache(maxsize=4)
def test_set_use(syntax: Syntax, updates: Sequence[str] = UPDATES) -> TestSetUse:
    """Return the use of the test set in the file that is checked; all rules share it."""
    return TestSetUse(syntax, updates)


def _called_names(node: ast.AST) -> set[str]:
    return {last_name(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}


def _updates(node: ast.AST, updates: Sequence[str]) -> bool:
    """Return whether code updates parameters: `optimizer.step()`, `model.fit(…)` or `weight -= …`."""
    for part in ast.walk(node):
        is_update = isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Sub)
        if is_update and not isinstance(part.value, ast.Constant):
            return True
        is_difference = is_op(part, ast.Sub) and isinstance(part.right, ast.BinOp)
        if is_difference and last_name(part.right.left) in RATES:  # `w - lr * g`
            return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in updates:
            return True
    return False


def _takes_part(value: ast.expr) -> bool:
    """Return whether an expression is a part of a data set: a slice, a split or a subset."""
    parts = list(ast.walk(value))
    return any(isinstance(part, ast.Slice) for part in parts) or bool(calls_in(parts, PARTS))


def _names_other(node: ast.expr) -> bool:
    names = [last_name(part) for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
    return any(map(OTHER.fullmatch, names))
