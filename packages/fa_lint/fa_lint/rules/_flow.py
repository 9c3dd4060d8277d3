"""Search for assignments, torch modules, and the tensors that a torch module saves."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.syntax import Syntax, argument, last_name

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
    """Return the tuple in `[f(x) for x in (a, b)]` or `map(f, (a, b))`, or the expression itself."""
    if isinstance(value, COMPREHENSIONS) and len(value.generators) == 1:
        return value.generators[0].iter
    is_map = isinstance(value, ast.Call) and last_name(value.func) == "map" and len(value.args) == 2
    return value.args[1] if is_map else value


def element_pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each element of a tuple of targets with its value, or the pair itself."""
    parts = elementwise(value)
    if isinstance(target, ast.Tuple) and isinstance(parts, ast.Tuple) and len(target.elts) == len(parts.elts):
        yield from zip(target.elts, parts.elts, strict=True)
    else:
        yield target, value


def is_own(node: ast.AST) -> bool:
    """Return whether a node is an attribute of `self`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
