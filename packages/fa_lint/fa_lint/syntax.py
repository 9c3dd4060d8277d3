"""Syntax tree of a source text, and queries for nodes, parents, imported names and literals."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


class Syntax:
    """Source text with its syntax tree.

    Data that are derived from the tree are computed at the first access and then stored.

    Args:
        text: Python code of a file, or of all code cells of a notebook.
        cells: For each notebook cell in the text, its number and the number of lines before the cell. Empty for a Python file.
    """

    def __init__(self, text: str, cells: Sequence[tuple[int, int]] = ()):
        self.text = text
        self.cells = cells
        self.tree = parse(text)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Mapping from each node except the module to its parent, in the order of the source code."""
        parent_of: dict[ast.AST, ast.AST] = {}
        waiting: list[ast.AST] = [self.tree]
        while waiting:  # a loop, since generated code may nest deeper than Python's recursion limit
            node = waiting.pop()
            children = list(ast.iter_child_nodes(node))
            parent_of.update(dict.fromkeys(children, node))
            waiting.extend(reversed(children))
        return parent_of

    @cached_property
    def names(self) -> Names:
        return Names(self.tree, self.parents)

    @cached_property
    def lines(self) -> list[str]:
        """Lines with the same numbers as in the syntax tree.

        In contrast to str.splitlines, a form feed does not end a line.
        """
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def every(self, kind: type[Node]) -> Iterator[Node]:
        """Yield all nodes of a node class, in the order of the source code."""
        return iter(self._kinds.get(kind, ()))

    @cached_property
    def _kinds(self) -> dict[type, list[ast.AST]]:
        kinds: dict[type, list[ast.AST]] = {}
        for node in self.parents:
            kinds.setdefault(type(node), []).append(node)
        return kinds

    def parts(self, node: ast.AST) -> list[ast.AST]:
        """Return a node of the tree and all nodes inside it, in the order of the source code."""
        start = self._positions.get(node)
        return list(ast.walk(node)) if start is None else self._order[start : self._ends[node]]

    @cached_property
    def _order(self) -> list[ast.AST]:
        order, waiting = [], [self.tree]
        while waiting:
            order.append(waiting.pop())
            waiting += reversed([part for part in ast.iter_child_nodes(order[-1]) if part._fields or part._attributes])
        return order

    @cached_property
    def _positions(self) -> dict[ast.AST, int]:
        return {node: index for index, node in enumerate(self._order)}

    @cached_property
    def _ends(self) -> dict[ast.AST, int]:
        """Mapping from each node to the position after its last inner node."""
        ends = {node: index + 1 for node, index in self._positions.items()}
        for node in reversed(self._order[1:]):
            ends[self.parents[node]] = max(ends[self.parents[node]], ends[node])
        return ends

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Yield each call together with the dotted name of the called function.

        The name is an empty string if the function is not imported.
        """
        return ((call, self.resolve(call.func)) for call in self.every(ast.Call))

    def resolve(self, node: ast.AST) -> str:
        return self.names.resolve(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function_of(self, node: ast.AST) -> ast.AST:
        """Return the innermost function that contains a node, or the module."""
        return next((ancestor for ancestor in self.ancestors(node) if isinstance(ancestor, FUNCTIONS)), self.tree)

    def locate(self, line: int) -> tuple[int, int]:
        """Return the cell number and the line in this cell for a line of the text.

        The cell number is 0 in a Python file.
        """
        started_cells = (start for start in self.cells if start[1] < line)
        cell, lines_before = max(started_cells, key=lambda start: start[1], default=(0, 0))
        return cell, line - lines_before

    def line_text(self, node: ast.AST) -> str:
        """Return the line of a node for a message: `line 3`, or `cell 2, line 3` in a notebook."""
        cell, line = self.locate(node.lineno)
        return f"cell {cell}, line {line}" if cell else f"line {line}"

    def number(self, node: ast.AST | None) -> float | None:
        """Return the value of a number literal or of a module constant such as `EPS = 1e-30`.

        Returns:
            The number, or None if the node is neither a literal nor a constant with a single assignment.
        """
        if isinstance(node, ast.Name):
            node = self._constants.get(node.id)
        return number(node)

    def snippet(self, node: ast.AST, limit: int = 60) -> str:
        """Return the source code of a node on one line, shortened to `limit` characters."""
        source = " ".join((ast.get_source_segment(self.text, node) or "").split())
        return source if len(source) <= limit else source[: limit - 1] + "…"

    @cached_property
    def _constants(self) -> dict[str, ast.expr | None]:
        values: dict[str, ast.expr | None] = {}
        for node in self.every(ast.Name):
            if isinstance(node.ctx, ast.Store):
                parent = self.parents[node]
                once = node.id not in values and isinstance(parent, ast.Assign) and parent in self.tree.body
                values[node.id] = parent.value if once else None
        for node in self.every(ast.arg):
            values[node.arg] = None  # a parameter has the same name, so the constant is ambiguous
        return values


def parse(text: str) -> ast.Module:
    """Parse Python code without warnings about invalid escape sequences.

    Under `python -W error` these warnings would be exceptions.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def number(node: ast.AST | None) -> float | None:
    """Return the value of a number literal, including its sign.

    Returns:
        The number, or None for any other node, including True and False.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = number(node.operand)
        return -value if value is not None and isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    return None


def argument(call: ast.Call, position: int, *keywords: str) -> ast.expr | None:
    """Return the argument that a call passes at a position or by keyword.

    Args:
        call: The call.
        position: Position of the argument, from 0.
        *keywords: Possible names of the argument.

    Returns:
        The argument, or None if the call does not contain it or may pass it by unpacking.
    """
    for keyword in call.keywords:
        if keyword.arg in keywords:
            return keyword.value
    positional = call.args[: position + 1]
    if len(positional) <= position or any(isinstance(argument, ast.Starred) for argument in positional):
        return None
    return positional[position]


def option(call: ast.Call, keyword: str, default: object = None) -> object:
    """Return the constant that a call passes by keyword, or a default."""
    values = [part.value for part in call.keywords if part.arg == keyword]
    return getattr(values[0], "value", default) if values else default


def is_op(node: ast.AST | None, *kinds: type[ast.operator]) -> bool:
    """Return whether a node is an operation of one of the kinds, such as ast.MatMult."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, kinds)


def open_ended(call: ast.Call) -> bool:
    """Return whether a call unpacks *args or **kwargs, so its arguments are unknown."""
    has_star = any(isinstance(part, ast.Starred) for part in call.args)
    return has_star or any(keyword.arg is None for keyword in call.keywords)


def last_name(node: ast.AST) -> str:
    """Return the name of a variable, or the last part of a dotted name; empty for another node."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def text_in(node: ast.AST) -> set[str]:
    """Return all variable names, attribute names and strings inside a node."""
    text = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            text.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            text.add(inner.attr)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            text.add(inner.value)
    return text


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Module)


@dataclass
class Scope:
    """Names that a module, a class body or a function defines.

    Args:
        imports: Mapping from each imported name to its dotted name.
        aliases: Mapping from each assigned variable to the name or attribute that is assigned to it. The value is None if the
            variable is assigned several times, or if anything else is assigned.
        stars: Modules that are imported with `*`.
    """

    imports: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, ast.expr | None] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


class Names:
    """Resolver that finds the imported object to which a name in a syntax tree refers.

    Args:
        tree: Syntax tree of the module.
        parents: Mapping from each node to its parent.
    """

    def __init__(self, tree: ast.Module, parents: Mapping[ast.AST, ast.AST]):
        self.tree = tree
        self.parents = parents
        self.scopes: dict[ast.AST, Scope] = {tree: Scope()}
        for node in parents:
            self._bind(node)

    def resolve(self, node: ast.AST) -> str:
        """Return the dotted name of the object in an expression such as `F.cosine_similarity`.

        The result is an empty string if the object is not imported.
        """
        return self._resolve(node, frozenset())

    @cached_property
    def packages(self) -> frozenset[str]:
        """Top-level names of all imported packages; a relative import adds an empty string."""
        scopes = self.scopes.values()
        names = [dotted for scope in scopes for dotted in (*scope.imports.values(), *scope.stars)]
        return frozenset(dotted.partition(".")[0] for dotted in names)

    def scope_of(self, node: ast.AST) -> ast.AST:
        """Return the innermost function, class or module that contains a node."""
        node = self.parents.get(node, self.tree)
        while not isinstance(node, SCOPES):
            node = self.parents[node]
        return node

    def _resolve(self, node: ast.AST, visited: frozenset[str]) -> str:
        if isinstance(node, ast.Attribute):
            base = self._resolve(node.value, visited)
            return f"{base}.{node.attr}" if base else ""
        if not isinstance(node, ast.Name) or node.id in visited:
            return ""
        for scope in self._visible(node):
            if node.id in scope.imports:
                return scope.imports[node.id]
            if node.id in scope.aliases:
                value = scope.aliases[node.id]
                return self._resolve(value, visited | {node.id}) if value is not None else ""
        stars = [star for star in self.scopes[self.tree].stars if star.partition(".")[0] == "torch"]
        return f"{stars[0]}.{node.id}" if stars else ""

    def _visible(self, node: ast.AST) -> Iterator[Scope]:
        """Yield the scopes that are visible from a name, innermost scope first."""
        owner = self.scope_of(node)
        innermost = owner
        while True:
            if owner in self.scopes and (owner is innermost or not isinstance(owner, ast.ClassDef)):
                yield self.scopes[owner]
            if owner is self.tree:
                return
            owner = self.scope_of(owner)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                self._scope(node).imports[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            self._bind_from(node)
        elif isinstance(node, FUNCTIONS):
            self._bind_function(node)
        elif isinstance(node, ast.ClassDef):
            self._scope(node).aliases[node.name] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._bind_assignment(node)

    def _bind_from(self, node: ast.ImportFrom) -> None:
        scope = self._scope(node)
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                scope.stars.append(module)
            else:
                scope.imports.setdefault(alias.asname or alias.name, f"{module}.{alias.name}")

    def _bind_function(self, node: ast.AST) -> None:
        if not isinstance(node, ast.Lambda):
            self._scope(node).aliases[node.name] = None
        scope = self.scopes.setdefault(node, Scope())
        arguments = node.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            scope.aliases[argument.arg] = None
        for argument in (arguments.vararg, arguments.kwarg):
            if argument:
                scope.aliases[argument.arg] = None

    def _bind_assignment(self, node: ast.Name) -> None:
        """Record an alias such as `cos = F.cosine_similarity`; for any other assignment, record None."""
        if isinstance(self.parents[node], ast.comprehension):
            return  # bound inside the comprehension only
        scope = self._scope(node)
        parent = self.parents[node]
        alias = isinstance(parent, ast.Assign) and isinstance(parent.value, (ast.Attribute, ast.Name))
        first = node.id not in scope.aliases
        scope.aliases[node.id] = parent.value if alias and first else None

    def _scope(self, node: ast.AST) -> Scope:
        return self.scopes.setdefault(self.scope_of(node), Scope())
