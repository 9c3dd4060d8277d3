"""Find the expressions that depend on the test set, and the functions that train.

Test data are recognised by the code that loads the data (`train=False`, `split="test"`, `data["test"]`) or by a name such as
`x_test`. Variables that are computed from test data depend on the test set too, under any name. A part of the test set does not
count as test data, because a split or a slice may be a validation set.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from fa_lint.rules._flow import assignments, element_pairs, is_own
from fa_lint.syntax import FUNCTIONS, Syntax, last_name

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
PARTS = (
    "random_split",
    "Subset",
    "train_test_split",
    "split",
    "chunk",
    "select",
    "take",
    "skip",
    "permutation",
    "sample",
)
COUNTS = ("len", "range", "print", "isinstance", "id", "type")
UPDATES = ("step", "fit", "partial_fit", "sub_", "add_", "apply_gradients")
RATES = ("lr", "eta", "learning_rate", "step_size", "rate")
MOST_ROUNDS = 8  # assignments are read again until no further variable depends on the test set


class TestSetUse:
    """The variables and functions of a file that depend on the test set.

    Args:
        syntax: Syntax tree of the file.
        updates: Names of the methods whose calls count as training.
    """

    def __init__(self, syntax: Syntax, updates: Sequence[str] = UPDATES):
        self.syntax = syntax
        self.updates = updates
        definitions = [node for node in syntax.parents if isinstance(node, FUNCTIONS)]
        self.bound = {node: _bound_names(node) for node in definitions}
        self.functions = {node.name: node for node in definitions if not isinstance(node, ast.Lambda)}
        self.training = self._training_functions()
        self.stores: dict[tuple[ast.AST, str], list[ast.Name]] = {}
        self.statements: dict[ast.Name, ast.AST] = {}
        for name in syntax.every(ast.Name):
            if isinstance(name.ctx, ast.Store):
                self.stores.setdefault(self._key(name), []).append(name)
                self.statements[name] = next(part for part in syntax.ancestors(name) if isinstance(part, ast.stmt))
        self.reaching: dict[ast.Name, list[ast.Name]] = {}
        self.dependent: set[ast.Name] = set()  # assigned names whose value depends on the test set
        self.parts: set[ast.Name] = set()  # assigned names whose value is a part of a data set
        self.passed: set[tuple[ast.AST, str]] = set()  # parameters that are test data in every call of their function
        self.pairs: list[tuple[ast.expr, ast.expr]] = []
        self.active: set[ast.AST] = set()  # training functions whose results are being checked

    def follow(self) -> None:
        """Find all assignments whose value depends on the test set."""
        self.pairs = pairs = list(self._assigned())
        for target, value in pairs:
            if _takes_part(value):
                self.parts |= {name for name in ast.walk(target) if isinstance(name, ast.Name)}
        pairs = [(target, value) for target, value in pairs if not _takes_part(value)]
        for _ in range(MOST_ROUNDS):
            found = {name for target, value in pairs if self.has(value) for name in self._dependent(target, value)}
            passed = self._passed()
            if found <= self.dependent and passed <= self.passed:
                return
            self.dependent |= found
            self.passed |= passed

    def has(self, node: ast.AST | None) -> bool:
        """Return whether an expression depends on the test set."""
        if isinstance(node, ast.Name):
            stores = self._reaching(node)
            is_named = TEST.fullmatch(node.id) is not None and self.parts.isdisjoint(stores)
            is_passed = not stores and self._key(node) in self.passed
            return is_named or is_passed or not self.dependent.isdisjoint(stores)
        if isinstance(node, ast.Attribute):
            return not OTHER.fullmatch(node.attr) and (bool(TEST.fullmatch(node.attr)) or self.has(node.value))
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str):
                is_split = isinstance(node.value, ast.Name) and not self.parts.isdisjoint(self._reaching(node.value))
                is_test = TEST.fullmatch(key) is not None and not is_split
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
            return self._returns_test(function)  # the result, such as a model, need not be a measurement
        operands = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(_names_other(operand) for operand in operands):
            return False
        owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        return any(map(self.has, (*owner, *operands))) or (function is not None and self._reads(function))

    def _returns_test(self, function: ast.AST | None) -> bool:
        """Return whether the result of a training function depends on the test set."""
        if function is None or function in self.active:
            return False
        self.active.add(function)
        results = [part.value for part in ast.walk(function) if isinstance(part, ast.Return) and part.value is not None]
        found = any(map(self.has, results))
        self.active.remove(function)
        return found

    def _passed(self) -> set[tuple[ast.AST, str]]:
        """Return the parameters that receive test data in every call of their function in the file."""
        values: dict[tuple[ast.AST, str], list[bool]] = {}
        for call in self.syntax.every(ast.Call):
            function = self.functions.get(last_name(call.func))
            if function is None:
                continue
            names = [part.arg for part in function.args.args]
            if isinstance(call.func, ast.Attribute) and names[:1] == ["self"]:
                names = names[1:]
            given = [*zip(names, call.args, strict=False), *((keyword.arg, keyword.value) for keyword in call.keywords)]
            for name, value in given:
                values.setdefault((function, name), []).append(self.has(value))
        return {key for key, flags in values.items() if all(flags) and not OTHER.fullmatch(key[1] or "")}

    def _reads(self, function: ast.AST) -> bool:
        """Return whether a function reads test data that are defined outside of the function."""
        attributes = [part for part in ast.walk(function) if isinstance(part, ast.Attribute) and is_own(part)]
        if any(TEST.fullmatch(part.attr) for part in attributes) and function.name not in self.training:
            return True
        loads = {part.id for part in ast.walk(function) if isinstance(part, ast.Name)} - self.bound[function]
        return any(store in self.dependent for name in loads for store in self.stores.get((self.syntax.tree, name), ()))

    def _reaching(self, name: ast.Name) -> list[ast.Name]:
        """Return the assignments from which a variable may have its value at `name`.

        `name` is a place where code reads the variable. An assignment in a block that contains this place replaces all earlier
        values. If no such assignment precedes the place, all assignments to the variable are returned, because the place may be in
        a loop or in another function.
        """
        if name not in self.reaching:
            self.reaching[name] = [name] if isinstance(name.ctx, ast.Store) else self._find_reaching(name)
        return self.reaching[name]

    def _find_reaching(self, name: ast.Name) -> list[ast.Name]:
        stores = self.stores.get(self._key(name), [])
        if len(stores) < 2:
            return stores
        blocks = set(self.syntax.ancestors(name))
        reaching = []
        for store in reversed(stores):
            if store.lineno < name.lineno:
                reaching.append(store)
                statement = self.statements[store]
                if not isinstance(statement, ast.AugAssign) and self.syntax.parents[statement] in blocks:
                    return reaching
        return stores

    def _key(self, name: ast.Name) -> tuple[ast.AST, str]:
        scope = self.syntax.function_of(name)
        return (scope if name.id in self.bound.get(scope, ()) else self.syntax.tree), name.id

    def _assigned(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield each target with its value, in assignments and in `for` statements."""
        for node in self.syntax.parents:
            if isinstance(node, (ast.For, ast.AsyncFor)):
                yield node.target, node.iter
            for target, value in assignments(node):
                yield from element_pairs(target, value)

    def _dependent(self, target: ast.expr, value: ast.expr) -> list[ast.Name]:
        """Return those variables of an assignment target that depend on the test set.

        The caller has found that the assigned `value` depends on the test set.
        """
        names = [part for part in ast.walk(target) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
        passed = (
            {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
            if isinstance(value, ast.Call)
            else set()
        )
        if any(name.id in passed for name in names if not self.has(name)) or any(
            OTHER.fullmatch(name.id) for name in names[1:]
        ):
            return []  # model = update(model, …), or one value for each set
        return [] if len(names) > 1 and any(OTHER.fullmatch(name.id) for name in names) else names


def _bound_names(function: ast.AST) -> set[str]:
    """Return the parameters and the local variables of a function."""
    parts = list(ast.walk(function))
    stored = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return stored | {part.arg for part in parts if isinstance(part, ast.arg)}


def _called_names(node: ast.AST) -> set[str]:
    return {last_name(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}


def _updates(node: ast.AST, updates: Sequence[str]) -> bool:
    """Return whether code updates parameters: `optimizer.step()`, `model.fit(…)` or `weight -= …`."""
    for part in ast.walk(node):
        if (
            isinstance(part, ast.AugAssign)
            and isinstance(part.op, ast.Sub)
            and not isinstance(part.value, ast.Constant)
        ):
            return True
        is_difference = (
            isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and isinstance(part.right, ast.BinOp)
        )
        if is_difference and last_name(part.right.left) in RATES:  # `w - lr * g`
            return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in updates:
            return True
    return False


def _takes_part(value: ast.expr) -> bool:
    """Return whether an expression is a part of a data set: a slice, a split or a subset."""
    calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
    return any(isinstance(part, ast.Slice) for part in ast.walk(value)) or any(
        last_name(call.func) in PARTS for call in calls
    )


def _names_other(node: ast.expr) -> bool:
    return any(
        OTHER.fullmatch(last_name(part)) for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))
    )
