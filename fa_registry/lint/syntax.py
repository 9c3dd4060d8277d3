"""One parsed text with what every rule asks of it: nodes by kind, parents, resolved names, literals."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


class Syntax:
    """text: the source. tree: its syntax tree; what a rule needs beyond it is worked out once, when first asked for."""

    def __init__(self, text: str):
        self.text = text
        self.tree = parse(text)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Every node but the module → the node that holds it, in source order."""
        parent_of: dict[ast.AST, ast.AST] = {}
        waiting: list[ast.AST] = [self.tree]
        while waiting:  # a loop, as generated code may nest deeper than Python recurses
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
        """Lines as the tree counts them: a form feed ends none of them, unlike str.splitlines."""
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def every(self, kind: type[Node]) -> Iterator[Node]:
        """All nodes of a kind."""
        return (node for node in self.parents if isinstance(node, kind))

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Every call with the dotted name of what is called, empty where no import leads to it."""
        return ((call, self.resolve(call.func)) for call in self.every(ast.Call))

    def resolve(self, node: ast.AST) -> str:
        return self.names.resolve(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function_of(self, node: ast.AST) -> ast.AST:
        """The innermost function around a node, or the module."""
        return next((above for above in self.ancestors(node) if isinstance(above, FUNCTIONS)), self.tree)

    def number(self, node: ast.AST | None) -> float | None:
        """The number a node writes, also by a constant of the module (`EPS = 1e-30`); None if the tree does not say."""
        if isinstance(node, ast.Name):
            node = self._constants.get(node.id)
        return number(node)

    def snippet(self, node: ast.AST, limit: int = 60) -> str:
        """The source of a node on one line, shortened."""
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
            values[node.arg] = None  # a parameter of that name somewhere: which one is meant is not worth guessing
        return values


def parse(text: str) -> ast.Module:
    """The tree of a text; warnings about its escapes are its own affair (and would be errors under -W error)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def number(node: ast.AST | None) -> float | None:
    """The number a literal writes, its sign included; None for anything else, True and False too."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = number(node.operand)
        return -value if value is not None and isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    return None


def argument(call: ast.Call, position: int, *keywords: str) -> ast.expr | None:
    """The argument a call passes at a position or by one of the keywords; None if it passes none that can be seen."""
    for keyword in call.keywords:
        if keyword.arg in keywords:
            return keyword.value
    before = call.args[: position + 1]
    if len(before) <= position or any(isinstance(argument, ast.Starred) for argument in before):
        return None
    return before[position]


def open_ended(call: ast.Call) -> bool:
    """Whether a call unpacks *args or **kwargs, so that the tree does not say what it passes."""
    return any(isinstance(part, ast.Starred) for part in call.args) or any(word.arg is None for word in call.keywords)


def text_in(node: ast.AST) -> set[str]:
    """Every name, attribute and text inside a node."""
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
    """What one module, class or function binds. imports: name → dotted. aliases: name → the one dotted expression it is set to."""

    imports: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, ast.expr | None] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


class Names:
    """Resolves expressions of one tree. parents: every node → the node that holds it."""

    def __init__(self, tree: ast.Module, parents: Mapping[ast.AST, ast.AST]):
        self.tree = tree
        self.parents = parents
        self.scopes: dict[ast.AST, Scope] = {tree: Scope()}
        for node in parents:
            self._bind(node)

    def resolve(self, node: ast.AST) -> str:
        """The dotted name of an expression such as `F.cosine_similarity`; empty if it is not reached by an import."""
        return self._resolve(node, frozenset())

    @cached_property
    def packages(self) -> frozenset[str]:
        """Top-level names of everything imported at any depth; relative imports leave an empty one."""
        scopes = self.scopes.values()
        return frozenset(
            dotted.partition(".")[0] for scope in scopes for dotted in (*scope.imports.values(), *scope.stars)
        )

    def scope_of(self, node: ast.AST) -> ast.AST:
        """The function, class or module in whose body a node stands."""
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
        """Scopes from the inside out; a class body is seen from directly inside it only."""
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
        """`cos = F.cosine_similarity` is an alias; any other or second assignment makes the name unknown."""
        if isinstance(self.parents[node], ast.comprehension):
            return  # bound inside the comprehension only
        scope = self._scope(node)
        parent = self.parents[node]
        alias = isinstance(parent, ast.Assign) and isinstance(parent.value, (ast.Attribute, ast.Name))
        first = node.id not in scope.aliases
        scope.aliases[node.id] = parent.value if alias and first else None

    def _scope(self, node: ast.AST) -> Scope:
        return self.scopes.setdefault(self.scope_of(node), Scope())
