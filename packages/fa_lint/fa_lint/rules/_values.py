"""Follow values through the variables, attributes, keys, loops and functions of a file.

The order of the statements is ignored: a value may come from every assignment to its variable. Comparisons end the search, because
their results are conditions and not values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator
from functools import cached_property, lru_cache

from fa_lint.rules._cosine import COSINES, MEASURING, NORMS, compared_vectors, factors, is_product, quotients
from fa_lint.rules._feedback import filled_in_place
from fa_lint.rules._flow import COMPREHENSIONS, assignments, elementwise
from fa_lint.syntax import FUNCTIONS, Syntax, last_name, text_in

ADDS = ("append", "extend", "insert", "add", "appendleft")
NO_VALUE = (ast.Compare, ast.Lambda, ast.JoinedStr, ast.Constant, ast.Dict)
OF_NUMBERS = ("abs", "float", "max", "min", "round", "sum")
LISTS = ("list", "tuple", "zip", "reversed", "enumerate")
PASSES = (*OF_NUMBERS, *LISTS, "filter", "map", "set", "sorted")
VIEWS = ("flatten", "reshape", "view", "squeeze", "unsqueeze", "ravel", "split")
SHAPES = (*VIEWS, "T", "mT", "t", "transpose", "permute")
TYPES = ("cpu", "cuda", "float", "double", "to", "numpy", "tolist", "item")
SAME_VALUES = (*SHAPES, *TYPES, "detach", "clone", "contiguous", "pop")
COPIES = (*LISTS, "float", "array", "asarray", "stack", "tensor", "from_numpy", "as_tensor")
SAME_KINDS = (ast.Name, ast.Subscript, ast.IfExp, ast.List, ast.Tuple, ast.Starred, *COMPREHENSIONS)
SAVED = ("saved_tensors", "saved_variables")  # attributes of the autograd context
RESULTS = {"acc", "accs", "accuracy", "accuracies"}
SPLITS = ("test", "val", "valid", "validation", "top1")
TEXT = re.compile(r"[A-Z]?[a-zγ]+|[A-Z]+(?![a-z])")


def text_of(name: str) -> set[str]:
    """Return the lower-case parts of a name: `test` and `acc` for `test_acc2`."""
    return {part.lower() for part in TEXT.findall(name)}


def label(node: ast.AST) -> str:
    """Return the name of a variable or attribute, or the strings in `record["name"]`."""
    key = node.slice if isinstance(node, ast.Subscript) else None
    keys = key.elts if isinstance(key, (ast.List, ast.Tuple)) else [key]
    texts = [part.value for part in keys if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return " ".join(texts) or last_name(node)


class Values:
    """The values that variables, attributes and keys of a file may have.

    Args:
        syntax: Syntax tree of the file.
    """

    def __init__(self, syntax: Syntax):
        self.syntax = syntax
        self.functions = {node.name: node for node in syntax.every(ast.FunctionDef)}
        self.bound: dict[tuple[ast.AST, str], list[tuple[ast.expr, ast.AST | None]]] = {}
        self.keyed: dict[str, list[ast.expr]] = {}
        self._saves = calls_in(syntax.every(ast.Call), ("save_for_backward",))
        scopes = (*FUNCTIONS, *COMPREHENSIONS)
        for name in syntax.every(ast.Name):
            if isinstance(name.ctx, ast.Store):
                scope = next((part for part in syntax.ancestors(name) if isinstance(part, scopes)), syntax.tree)
                self.bound.setdefault((scope, name.id), [])
        for part in syntax.every(ast.arg):
            self.bound.setdefault((syntax.function_of(part), part.arg), [])
        for node in syntax.parts(syntax.tree):
            self._read(node)

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of the file of functions or methods with one of the names."""
        return calls_in(self.syntax.every(ast.Call), names)

    def of(self, name: ast.Name) -> list[ast.expr]:
        """Return the values that a variable may have where code reads it."""
        return [value for value, _ in self.entries(name)]

    def entries(self, name: ast.Name) -> list[tuple[ast.expr, ast.AST | None]]:
        """Return the values that a variable may have where code reads it, each with its statement.

        An assignment in a block that contains this place replaces all earlier values. The statement is None if a function
        receives the value, or if a list contains it.
        """
        entries = self.bound.get((self.scope(name), name.id), [])
        blocks = {*self.syntax.ancestors(name)}
        reaching = []
        for value, statement in reversed(entries):
            is_before = statement is not None and statement.lineno < name.lineno
            replaces = is_before and not isinstance(statement, ast.AugAssign)
            if replaces and blocks & {statement, self.syntax.parents[statement]}:
                return [*reaching, *(entry for entry in entries if entry[1] is statement)]
            if is_before or statement is None:
                reaching.append((value, statement))
        return entries

    def sources(self, node: ast.AST) -> set[ast.AST]:
        """Return an expression and all expressions of the file from which its value is computed."""
        waiting, found = [node], set()
        while waiting:
            part = waiting.pop()
            if part not in found:
                found.add(part)
                waiting += self.operands(part)
        return found

    def same(self, node: ast.AST) -> set[ast.AST]:
        """Return an expression and all expressions whose values or elements it may pass on unchanged."""
        waiting, found = [node], set()
        while waiting:
            part = waiting.pop()
            found.add(part)
            function = part.func if isinstance(part, ast.Call) else part
            name = last_name(function)
            is_method = isinstance(function, ast.Attribute) and not self.syntax.resolve(function)
            if isinstance(part, SAME_KINDS) or (name in self.functions and part is not function):
                steps = self.operands(part)
            elif is_method and name in SAME_VALUES:
                steps = [function.value]
            elif part is function:
                steps = self.keyed.get(name, [])
            else:
                steps = part.args if name in COPIES else []
            waiting += [step for step in steps if step not in found]
        return found

    def near(self, node: ast.AST) -> list[ast.AST]:
        """Return all parts of an expression, and all parts of the values of its variables."""
        parts = self.syntax.parts(node)
        values = [value for part in parts if isinstance(part, ast.Name) for value in self.of(part)]
        return parts + [part for value in values for part in self.syntax.parts(value)]

    def dependencies(self, node: ast.AST) -> set[ast.AST]:
        """Return all parts of an expression and of the values of its variables in its function."""
        scopes = (self.syntax.function_of(node), self.syntax.tree)
        waiting, found = [node], set()
        while waiting:
            parts = {*self.syntax.parts(waiting.pop())} - found
            found |= parts
            names = [part for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
            waiting += [value for name in names for value in self.of(name) if self.syntax.function_of(value) in scopes]
        return found

    def is_cosine(self, node: ast.AST) -> bool:
        """Return whether a value is a cosine, or is computed from cosines."""
        sums = (ast.Add, ast.Sub, ast.MatMult)
        waiting, found = [node], set()
        while waiting:
            part = waiting.pop()
            if part in self.cosines or self._texts(part) & {*MEASURING}:
                return True
            is_sum = isinstance(part, ast.BinOp) and isinstance(part.op, sums)
            is_affine = is_sum and any(isinstance(inner, ast.MatMult) for inner in ast.walk(part))
            if part not in found and not is_affine:  # `W @ x + b` is an activation, also if "b" is elsewhere a cosine
                waiting += self.operands(part)
            found.add(part)
        return False

    def is_result(self, node: ast.AST) -> bool:
        """Return whether a value is an accuracy, according to the names of its sources."""
        keys = (label(part) in SPLITS and isinstance(part, ast.Subscript) for part in self.sources(node))
        return any(keys) or any(self._texts(part) & RESULTS for part in self.sources(node))

    def _texts(self, node: ast.AST) -> set[str]:
        """Return the parts of the name of a value, or of the function of the file or object that computes it."""
        named = node.func if isinstance(node, ast.Call) and not self.syntax.resolve(node.func) else node
        return text_of(label(named))

    @cached_property
    def cosines(self) -> set[ast.expr]:
        """The calls and divisions that compute a cosine."""
        found = {call for call, name in self.syntax.calls() if name in COSINES} | {*quotients(self.syntax)}
        for node in self.syntax.every(ast.BinOp):
            if isinstance(node.op, ast.Div) and any(map(is_product, self.near(node.left))):
                calls = [part for part in self.near(node.right) if isinstance(part, ast.Call)]
                if sum(last_name(call.func) in NORMS for call in calls) > 1:
                    found.add(node)
        return found

    @cached_property
    def pairs(self) -> list[tuple[ast.expr, tuple[ast.expr, ast.expr]]]:
        """The cosines, each with its two vectors."""
        quotients = [node for node in self.cosines if isinstance(node, ast.BinOp)]
        found = [(node, next(filter(None, map(factors, self.near(node.left))), None)) for node in quotients]
        return [*compared_vectors(self.syntax), *((node, sides) for node, sides in found if sides is not None)]

    def scope(self, name: ast.Name) -> ast.AST:
        """Return the function, comprehension or module that binds a variable."""
        scopes = (scope for scope in self.syntax.ancestors(name) if (scope, name.id) in self.bound)
        return next(scopes, self.syntax.tree)

    def _read(self, node: ast.AST) -> None:
        for target, value in assignments(node):
            self._bind(target, value, node)
        if isinstance(node, (ast.For, ast.comprehension)):
            self._bind(node.target, node.iter, node if isinstance(node, ast.For) else None)
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                self.keyed.setdefault(getattr(key, "value", ""), []).append(value)
        if isinstance(node, ast.Call):
            self._read_call(node)

    def _read_call(self, call: ast.Call) -> None:
        name, function = last_name(call.func), self.functions.get(last_name(call.func))
        if name in ADDS and isinstance(call.func, ast.Attribute) and call.args:
            self._bind(call.func.value, call.args[-1])
        filled = filled_in_place(self.syntax, call)
        if filled is not None:
            self._bind(filled, call)
        if name == "register_buffer" and len(call.args) > 1:
            self.keyed.setdefault(getattr(call.args[0], "value", ""), []).append(call.args[1])
        for part in call.keywords if name == "dict" else ():
            self.keyed.setdefault(part.arg or "", []).append(part.value)
        for parameter, value in arguments(function, call) if function else ():
            self.bound.setdefault((function, parameter), []).append((value, None))

    def _bind(self, target: ast.expr, value: ast.expr, statement: ast.AST | None = None) -> None:
        if isinstance(target, ast.Name):
            self.bound.setdefault((self.scope(target), target.id), []).append((value, statement))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for values in self._unpacked(len(target.elts), value):
                for element, part in zip(target.elts, values, strict=True):
                    self._bind(element, part, statement)
        elif isinstance(target, (ast.Attribute, ast.Subscript)):
            if label(target):
                self.keyed.setdefault(label(target), []).append(value)
            elif isinstance(target, ast.Subscript):
                self._bind(target.value, value)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, value, statement)

    def _unpacked(self, length: int, value: ast.expr) -> list[list[ast.expr]]:
        """Return the possible lists of values that a tuple of targets receives."""
        if isinstance(value, ast.Call) and last_name(value.func) in ("zip", "enumerate"):
            value = ast.Tuple([ast.Constant(0), *value.args] if last_name(value.func) == "enumerate" else value.args)
        function = self.functions.get(last_name(value.func)) if isinstance(value, ast.Call) else None
        candidates = returned(function) if function else [elementwise(value)]
        if isinstance(value, ast.Attribute) and value.attr in SAVED:
            candidates = [ast.Tuple(parts) for parts in self.kept(value)]
        parts = [part.elts for part in candidates if isinstance(part, (ast.Tuple, ast.List))]
        return [elements for elements in parts if len(elements) == length] or [[value] * length]

    def kept(self, node: ast.Attribute) -> list[list[ast.expr]]:
        """Return the values that `save_for_backward` may have kept where code reads `saved_tensors`."""
        if node.attr not in SAVED:
            return []
        owners = {part for part in self.syntax.ancestors(node) if isinstance(part, ast.ClassDef)}
        own = [call for call in self._saves if owners.intersection(self.syntax.ancestors(call))]
        return [call.args for call in own or self._saves]

    def operands(self, node: ast.AST) -> list[ast.AST]:
        """Return the expressions from which the value of an expression is computed directly."""
        if isinstance(node, NO_VALUE):
            return []
        if isinstance(node, ast.Name):
            return self.of(node)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            has_key = bool(label(node)) and (isinstance(node, ast.Subscript) or label(node) in self.keyed)
            return self.keyed.get(label(node), []) if has_key else [node.value]
        if isinstance(node, COMPREHENSIONS):
            return [node.value if isinstance(node, ast.DictComp) else node.elt]
        if isinstance(node, ast.IfExp):
            return [node.body, node.orelse]
        if isinstance(node, ast.Call):
            function = self.functions.get(last_name(node.func))
            if function:
                return returned(function)
            if isinstance(node.func, ast.Attribute) and not self.syntax.resolve(node.func):
                return [node.func.value]
            return node.args if self.syntax.resolve(node.func) or last_name(node.func) in PASSES else []
        return list(ast.iter_child_nodes(node))


def returned(function: ast.AST) -> list[ast.expr]:
    """Return the expressions that a function returns."""
    return [part.value for part in ast.walk(function) if isinstance(part, ast.Return) and part.value is not None]


def arguments(function: ast.FunctionDef, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters of a function of the file, each with the value that a call passes."""
    names = [part.arg for part in function.args.args]
    if isinstance(call.func, ast.Attribute) and names[:1] == ["self"]:
        names = names[1:]
    yield from zip(names, call.args, strict=False)
    yield from ((part.arg, part.value) for part in call.keywords if part.arg)


def operands_of(syntax: Syntax, call: ast.Call) -> list[ast.expr]:
    """Return the object of a method call, and the positional arguments of any call."""
    is_method = isinstance(call.func, ast.Attribute) and not syntax.resolve(call.func)
    return [*([call.func.value] if is_method else []), *call.args]


def orders(parts: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield both sides of each comparison such as `value > limit`."""
    for part in parts:
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], (ast.Gt, ast.GtE, ast.Lt, ast.LtE)):
            yield part.left, part.comparators[0]


def calls_in(parts: Iterable[ast.AST], names: Container[str]) -> list[ast.Call]:
    """Return the calls of functions or methods with one of the names."""
    return [part for part in parts if isinstance(part, ast.Call) and last_name(part.func) in names]


def has_call(node: ast.AST, *names: str) -> bool:
    """Return whether a node contains a call of a function or method with one of the names."""
    return bool(calls_in(ast.walk(node), names))


def mentions(node: ast.AST, word: str) -> bool:
    """Return whether a word is part of a name or string inside an expression."""
    return any(word in text.lower() for text in text_in(node))


@lru_cache(maxsize=1)
def values_of(syntax: Syntax) -> Values:
    """Return the values of the file that is checked; all rules share them."""
    return Values(syntax)
