"""Which classes are torch modules, and which of their attributes end up in the state dict."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_registry.lint.syntax import Syntax, argument

KEPT = ("register_buffer", "register_parameter", "add_module", "register_module")
OWN_SAVING = ("state_dict", "_save_to_state_dict", "get_extra_state", "__getstate__", "on_save_checkpoint")
WRAPPERS = ("Parameter", "Buffer", "ParameterList", "ParameterDict", "BufferList", "UninitializedParameter")


def torch_modules(syntax: Syntax) -> Iterator[ast.ClassDef]:
    """Classes that derive from torch.nn.Module, by way of other classes of the same text or a base called …Module."""
    classes = {node.name: node for node in syntax.every(ast.ClassDef)}

    def derives(node: ast.ClassDef, seen: tuple[str, ...] = ()) -> bool:
        """Whether one of the bases is a torch module; seen: what was asked before, as classes may name each other."""
        for base in node.bases:
            own = classes.get(base.id) if isinstance(base, ast.Name) else None
            if own is not None and own.name not in (*seen, node.name):
                if derives(own, (*seen, node.name)):
                    return True
            elif syntax.resolve(base).startswith("torch.nn.") or _last(base).endswith("Module"):
                return True
        return False

    return (node for node in classes.values() if derives(node))


def saved_names(syntax: Syntax, owner: ast.ClassDef) -> set[str] | None:
    """Attributes of a class that its state dict holds; None if the tree cannot tell (computed names, own saving code)."""
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
    """Whether a register_buffer call says persistent=False: such a buffer moves with the module but is never saved."""
    persistent = argument(call, 2, "persistent")
    return isinstance(persistent, ast.Constant) and persistent.value is False


def wrapped(value: ast.AST) -> bool:
    """Whether a value is made a parameter or a buffer, also inside a list or under a condition."""
    return any(isinstance(node, ast.Call) and _last(node.func) in WRAPPERS for node in ast.walk(value))


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of an assignment with a value; none for any other node."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        yield node.target, node.value


def is_own(node: ast.AST) -> bool:
    """Whether a node is self.something."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
