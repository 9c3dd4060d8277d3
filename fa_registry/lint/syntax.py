"""A parsed text with the queries of all rules: nodes by kind, parents, resolved names, literals."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


class Syntax:
    """A source text with its syntax tree and derived data, which is computed once when first used."""

    def __init__(self, text: str):
        self.text = text
        self.tree = parse(text)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Return node → its parent, for every node except the module, in source order."""
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
        """Return the lines as the tree counts them: unlike in str.splitlines, a form feed does not end a line."""
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def every(self, kind: type[Node]) -> Iterator[Node]:
        """Return all nodes of a kind."""
        return (node for node in self.parents if isinstance(node, kind))

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Return every call with the dotted name of the called object, empty if it is not imported."""
        return ((call, self.resolve(call.func)) for call in self.every(ast.Call))

    def resolve(self, node: ast.AST) -> str:
        return self.names.resolve(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function_of(self, node: ast.AST) -> ast.AST:
        """Return the innermost function around a node, or the module."""
        return next((above for above in self.ancestors(node) if isinstance(above, FUNCTIONS)), self.tree)

    def number(self, node: ast.AST | None) -> float | None:
        """Return the number of a literal or of a module constant (`EPS = 1e-30`); None if not known."""
        if isinstance(node, ast.Name):
            node = self._constants.get(node.id)
        return number(node)

    def snippet(self, node: ast.AST, limit: int = 60) -> str:
        """Return the source of a node on one line, shortened."""
        written = " ".join((ast.get_source_segment(self.text, node) or "").split())
        return written if len(written) <= limit else written[: limit - 1] + "…"

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
    """Return the tree of a text without warnings about its escapes, which would be errors under -W error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def number(node: ast.AST | None) -> float | None:
    """Return the number of a literal with its sign; None for anything else, including True and False."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = number(node.operand)
        return -value if value is not None and isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    return None


def argument(call: ast.Call, position: int, *keywords: str) -> ast.expr | None:
    """Return the argument that a call passes at a position or by a keyword; None if none is visible."""
    for keyword in call.keywords:
        if keyword.arg in keywords:
            return keyword.value
    before = call.args[: position + 1]
    if len(before) <= position or any(isinstance(argument, ast.Starred) for argument in before):
        return None
    return before[position]


def open_ended(call: ast.Call) -> bool:
    """Return whether a call unpacks *args or **kwargs, so that its arguments are not known."""
    return any(isinstance(part, ast.Starred) for part in call.args) or any(word.arg is None for word in call.keywords)


def text_in(node: ast.AST) -> set[str]:
    """Return every name, attribute and text inside a node."""
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
    """The names that one module, class or function binds.

    Args:
        imports: Name → dotted name.
        aliases: Name → the only dotted expression it is set to, or None.
    """

    imports: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, ast.expr | None] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


class Names:
    """Resolver of the names in one tree.

    Args:
        parents: Node → its parent.
    """

    def __init__(self, tree: ast.Module, parents: Mapping[ast.AST, ast.AST]):
        self.tree = tree
        self.parents = parents
        self.scopes: dict[ast.AST, Scope] = {tree: Scope()}
        for node in parents:
            self._bind(node)

    def resolve(self, node: ast.AST) -> str:
        """Return the dotted name of an expression such as `F.cosine_similarity`; empty if not imported."""
        return self._resolve(node, frozenset())

    @cached_property
    def packages(self) -> frozenset[str]:
        """Return the top-level names of all imports at any depth; relative imports give an empty one."""
        scopes = self.scopes.values()
        return frozenset(
            dotted.partition(".")[0] for scope in scopes for dotted in (*scope.imports.values(), *scope.stars)
        )

    def scope_of(self, node: ast.AST) -> ast.AST:
        """Return the function, class or module whose body contains a node."""
        node = self.parents.get(node, self.tree)
        while not isinstance(node, SCOPES):
            node = self.parents[node]
        return node

    def _resolve(self, node: ast.AST, seen: frozenset[str]) -> str:
        if isinstance(node, ast.Attribute):
            base = self._resolve(node.value, seen)
            return f"{base}.{node.attr}" if base else ""
        if not isinstance(node, ast.Name) or node.id in seen:
            return ""
        for scope in self._visible(node):
            if node.id in scope.imports:
                return scope.imports[node.id]
            if node.id in scope.aliases:
                value = scope.aliases[node.id]
                return self._resolve(value, seen | {node.id}) if value is not None else ""
        stars = [star for star in self.scopes[self.tree].stars if star.partition(".")[0] == "torch"]
        return f"{stars[0]}.{node.id}" if stars else ""

    def _visible(self, node: ast.AST) -> Iterator[Scope]:
        """Yield the scopes from the inside out; a class body is visible only directly inside it."""
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
        own = self.scopes.setdefault(node, Scope())
        arguments = node.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            own.aliases[argument.arg] = None
        for argument in (arguments.vararg, arguments.kwarg):
            if argument:
                own.aliases[argument.arg] = None

    def _bind_assignment(self, node: ast.Name) -> None:
        """Bind an alias such as `cos = F.cosine_similarity`; other or repeated assignments are unknown."""
        if isinstance(self.parents[node], ast.comprehension):
            return  # bound inside the comprehension only
        scope = self._scope(node)
        parent = self.parents[node]
        alias = isinstance(parent, ast.Assign) and isinstance(parent.value, (ast.Attribute, ast.Name))
        first = node.id not in scope.aliases
        scope.aliases[node.id] = parent.value if alias and first else None

    def _scope(self, node: ast.AST) -> Scope:
        return self.scopes.setdefault(self.scope_of(node), Scope())
