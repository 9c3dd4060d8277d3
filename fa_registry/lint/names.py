"""Which library function a name means: imports, aliases of any depth and scopes, from the syntax tree alone.

`from torch.nn.functional import cosine_similarity as cs` makes `cs` mean torch.nn.functional.cosine_similarity, but not
in a function that has a parameter `cs`. A name that could be anything resolves to the empty text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

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
