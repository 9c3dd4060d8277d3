"""Data flow in one function: find the mean-reduced losses and the gradients of these losses.

The data flow is that of one function in the checked code. The module also finds assignments, and the tensors that a torch module
saves in its state dict.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.syntax import SCOPES, Syntax, argument, last_name, open_ended, text_in

KEPT = ("register_buffer", "register_parameter", "add_module", "register_module")
OWN_SAVING = ("state_dict", "_save_to_state_dict", "get_extra_state", "__getstate__", "on_save_checkpoint")
WRAPPERS = ("Parameter", "Buffer", "ParameterList", "ParameterDict", "BufferList", "UninitializedParameter")


def torch_modules(syntax: Syntax) -> Iterator[ast.ClassDef]:
    """Return the classes that derive from torch.nn.Module, directly or indirectly.

    Every class from torch.nn and every unknown class whose name ends in Module counts as torch.nn.Module.
    """
    classes = {node.name: node for node in syntax.every(ast.ClassDef)}

    def derives(node: ast.ClassDef, visited: tuple[str, ...] = ()) -> bool:
        """Return whether the class derives from torch.nn.Module, also through other classes."""
        for base in node.bases:
            base_class = classes.get(base.id) if isinstance(base, ast.Name) else None
            if base_class is not None and base_class.name not in (*visited, node.name):
                if derives(base_class, (*visited, node.name)):
                    return True
            elif syntax.resolve(base).startswith("torch.nn.") or last_name(base).endswith("Module"):
                return True
        return False

    return (node for node in classes.values() if derives(node))


def saved_names(syntax: Syntax, owner: ast.ClassDef) -> set[str] | None:
    """Return the names of the attributes that a torch module saves in its state dict.

    Returns:
        The names, or None if the names are unknown. The names are unknown if the class registers a tensor under a computed name, or
        if the class defines a method that saves its state.
    """
    if any(isinstance(statement, ast.FunctionDef) and statement.name in OWN_SAVING for statement in owner.body):
        return None
    names = set()
    for node in ast.walk(owner):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEPT:
            name = argument(node, 0, "name")
            if not isinstance(name, ast.Constant):
                return None
            if not transient(node):
                names.add(name.value)
        for target, value in assignments(node):
            if is_own(target) and wrapped(value):
                names.add(target.attr)
    return names


def transient(call: ast.Call) -> bool:
    """Return whether a register_buffer call has persistent=False, so the buffer is not saved."""
    persistent = argument(call, 2, "persistent")
    return isinstance(persistent, ast.Constant) and persistent.value is False


def wrapped(value: ast.AST) -> bool:
    """Return whether an expression creates a torch parameter or buffer, also inside a list or a condition."""
    return any(isinstance(node, ast.Call) and last_name(node.func) in WRAPPERS for node in ast.walk(value))


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each (target, value) pair of an assignment, and no pair for another node."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        yield node.target, node.value


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def elementwise(value: ast.expr) -> ast.expr:
    """Return the tuple in `[f(x) for x in (a, b)]` or `map(f, (a, b))`, and any other expression unchanged."""
    if isinstance(value, COMPREHENSIONS) and len(value.generators) == 1:
        return value.generators[0].iter
    is_map = isinstance(value, ast.Call) and last_name(value.func) == "map" and len(value.args) == 2
    return value.args[1] if is_map else value


def element_pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each element of a tuple of targets with its value; if the values are unknown, yield the pair itself."""
    parts = elementwise(value)
    if isinstance(target, ast.Tuple) and isinstance(parts, ast.Tuple) and len(target.elts) == len(parts.elts):
        yield from zip(target.elts, parts.elts, strict=True)
    else:
        yield target, value


def is_own(node: ast.AST) -> bool:
    """Return whether a node is an attribute of `self`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


LOSS, GRADIENT, CRITERION = "mean loss", "gradient of a mean loss", "mean-reduced criterion"
LOSSES = (
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
)
CRITERIA = ("CrossEntropyLoss", "NLLLoss", "MSELoss", "BCELoss", "BCEWithLogitsLoss")
SHAPES = ("flatten", "reshape", "view", "squeeze", "unsqueeze", "contiguous", "T", "mT", "transpose", "permute")
SAME_VALUES = (*SHAPES, "detach", "clone", "cpu", "cuda", "float", "double", "to", "abs")
PARAMETERS = {"parameters", "named_parameters", "weight", "bias", "weights", "params", "param", "p", "W", "w", "b"}


class Flow:
    """Tracker for the types of variables while the statements of a function are read in order.

    The types are mean-reduced loss, gradient of such a loss, and mean-reduced loss function.

    Attributes:
        kinds: Type of each variable name and of each "self.name".
        backward: Whether the last call of backward() was on a mean-reduced loss, so `.grad` contains its gradient.
    """

    def __init__(self, syntax: Syntax, kinds: dict[str, str]):
        self.syntax = syntax
        self.kinds = dict(kinds)
        self.backward = False

    def run(self, body: list[ast.stmt]) -> Iterator[ast.expr]:
        """Process statements in order, and yield each expression.

        While the caller handles an expression, `kinds` contains the types that are valid at this expression.
        """
        for statement in body:
            inner = [value for _, value in ast.iter_fields(statement)]
            blocks = [field for field in inner if isinstance(field, list) and field and isinstance(field[0], ast.stmt)]
            handlers = getattr(statement, "handlers", [])
            if isinstance(statement, SCOPES):
                continue  # processed separately
            if isinstance(statement, (ast.For, ast.AsyncFor)):
                self._bind_loop(statement.target, statement.iter)
            yield from self._expressions(statement)
            self._assign(statement)
            for block in [*blocks, *(handler.body for handler in handlers)]:
                yield from self.run(block)
            for case in getattr(statement, "cases", []):
                yield from self.run(case.body)

    def kind(self, node: ast.AST | None) -> str:
        """Return the type of an expression: LOSS, GRADIENT, CRITERION or an empty string.

        The type of a product or quotient is an empty string if neither side is a number.
        """
        if isinstance(node, ast.Name):
            return self.kinds.get(node.id, "")
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.kind(node.value) if self.kind(node.value) == GRADIENT else ""
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self._comprehension(node)
        return ""

    def _call(self, call: ast.Call) -> str:
        name = self.syntax.resolve(call.func)
        package, _, last = name.rpartition(".")
        if package == "torch.nn.functional" and last in LOSSES:
            return LOSS if _mean_reduced(call) and not _one_sample(call) else ""
        if package in ("torch.nn", "torch.nn.modules.loss") and last in CRITERIA:
            return CRITERION if _mean_reduced(call) else ""
        if self.kind(call.func) == CRITERION:
            return "" if _one_sample(call) else LOSS
        if name == "torch.autograd.grad":
            source, inputs = argument(call, 0, "outputs"), argument(call, 1, "inputs")
            return GRADIENT if self.kind(source) == LOSS and inputs is not None and not _parameters(inputs) else ""
        if isinstance(call.func, ast.Attribute) and call.func.attr in SAME_VALUES:
            return self.kind(call.func.value)
        if isinstance(call.func, ast.Name) and call.func.id in ("list", "tuple", "reversed") and call.args:
            return self.kind(call.args[0])
        return ""

    def _attribute(self, node: ast.Attribute) -> str:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and f"self.{node.attr}" in self.kinds:
            return self.kinds[f"self.{node.attr}"]
        if node.attr == "grad":
            return GRADIENT if self.backward and not _parameters(node.value) else ""
        return self.kind(node.value) if node.attr in SAME_VALUES else ""

    def _arithmetic(self, node: ast.BinOp) -> str:
        left, right = self.kind(node.left), self.kind(node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return left or right
        if isinstance(node.op, (ast.Mult, ast.Div)):
            constant = any(isinstance(side, ast.Constant) for side in (node.left, node.right))
            return (left or right) if constant else ""
        return ""

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp) -> str:
        outer = dict(self.kinds)
        self._bind_generators(node)
        kind = self.kind(node.elt)
        self.kinds = outer
        return kind

    def _bind_generators(self, node: ast.AST) -> None:
        for generator in getattr(node, "generators", []):
            self._bind_loop(generator.target, generator.iter)

    def _bind_loop(self, target: ast.expr, source: ast.expr) -> None:
        """Set the types of the variables of a `for` loop, also for loops over zip and enumerate."""
        name = source.func.id if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) else ""
        unpacked = isinstance(target, (ast.Tuple, ast.List))
        if name == "zip" and unpacked and len(target.elts) == len(source.args):
            for element, argument_ in zip(target.elts, source.args, strict=True):
                self._bind(element, self.kind(argument_))
        elif name == "enumerate" and unpacked and len(target.elts) == 2 and source.args:
            self._bind(target.elts[0], "")
            self._bind_loop(target.elts[1], source.args[0])
        else:
            kind = self.kind(source)
            self._bind(target, kind if kind == GRADIENT else "")

    def _expressions(self, statement: ast.stmt) -> Iterator[ast.expr]:
        """Yield the expressions of one statement, without the statements inside it."""
        waiting = [child for child in ast.iter_child_nodes(statement) if isinstance(child, (ast.expr, ast.withitem))]
        while waiting:
            node = waiting.pop()
            outer = None
            if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)):
                outer = dict(self.kinds)
                self._bind_generators(node)
            if isinstance(node, ast.Call):
                self._notice_backward(node)
            if isinstance(node, ast.expr):
                yield node
            inner = [child for child in ast.iter_child_nodes(node) if not isinstance(node, ast.Lambda)]
            if outer is None:
                waiting.extend(inner)
            else:
                yield from (
                    expression for child in inner for expression in ast.walk(child) if isinstance(expression, ast.expr)
                )
                self.kinds = outer

    def _notice_backward(self, call: ast.Call) -> None:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not self.syntax.resolve(call.func):
            self.backward = self.kind(call.func.value) == LOSS

    def _assign(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                self._bind(target, self.kind(statement.value))
        elif isinstance(statement, ast.AugAssign):
            operation = ast.BinOp(left=statement.target, op=statement.op, right=statement.value)
            self._bind(statement.target, self._arithmetic(operation))

    def _bind(self, target: ast.AST, kind: str) -> None:
        """Set the type of a target; if a gradient is unpacked, each variable gets the type GRADIENT."""
        if isinstance(target, ast.Name):
            self.kinds[target.id] = kind
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._bind(element, kind if kind == GRADIENT else "")
        elif isinstance(target, ast.Starred):
            self._bind(target.value, kind)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            self.kinds[f"self.{target.attr}"] = kind


def _mean_reduced(call: ast.Call) -> bool:
    """Return whether a loss has the reduction "mean", which is also the default.

    The result is False if the call contains one of the old arguments size_average and reduce, or if the call unpacks arguments.
    """
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if open_ended(call) or keywords.keys() & {"size_average", "reduce"}:
        return False
    reduction = keywords.get("reduction")
    return reduction is None or (isinstance(reduction, ast.Constant) and reduction.value == "mean")


def _one_sample(call: ast.Call) -> bool:
    """Return whether an argument is a batch of one sample, such as `x[None]` or `x.unsqueeze(0)`."""
    for argument_ in call.args:
        if isinstance(argument_, ast.Call) and getattr(argument_.func, "attr", "") == "unsqueeze":
            return True
        if isinstance(argument_, ast.Subscript) and any(
            isinstance(part, ast.Constant) and part.value is None for part in ast.walk(argument_.slice)
        ):
            return True
    return False


def _parameters(node: ast.AST) -> bool:
    """Return whether an expression names parameters, whose gradients have no sample axis."""
    return bool(text_in(node) & PARAMETERS)
