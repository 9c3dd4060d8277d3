"""The sandbox of the templates that a user brings: fields of records and nothing else, and an end to everything.

What may be touched and called is listed here; all else is refused. Jinja2's own sandbox stops at what is private: it
lets a template loop forever, write 10⁹ characters, and call any method of any record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, nodes
from jinja2.environment import TemplateModule
from jinja2.runtime import LoopContext, TemplateReference
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Cycler, Namespace, missing, object_type_repr
from jinja2.visitor import NodeTransformer

from fa_registry.errors import unknown_name_text
from fa_registry.reporting import budget

# Of Jinja2's own filters those whose result is no larger than what they are given, or is checked (budget.py).
FILTERS = (
    *("abs", "capitalize", "count", "dictsort", "e", "escape", "first", "groupby", "int", "items", "last", "length"),
    *("list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort"),
    *("string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)
# Those that write their value out, whatever it is.
OF_TEXT = ("capitalize", "e", "escape", "lower", "string", "title", "trim", "truncate", "upper", "wordcount", "replace")
REPLACED = MappingProxyType({"join": budget.join, "replace": budget.replace})
GLOBALS = ("range", "dict", "cycler", "joiner", "namespace")
LOOP = ("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth")
TEXT = ("lower", "upper", "title", "capitalize", "strip", "lstrip", "rstrip", "startswith", "endswith", "split")
TEXT += ("rsplit", "splitlines", "partition", "rpartition", "removeprefix", "removesuffix", "isdigit", "find", "count")
ALLOWED: tuple[tuple[type, tuple[str, ...]], ...] = (
    (str, TEXT),
    (Mapping, ("items", "keys", "values", "get")),
    (LoopContext, (*LOOP, "depth0", "cycle", "changed")),
    (Cycler, ("next", "current", "reset")),
)
OPEN = (TemplateModule, Namespace, TemplateReference)  # hold what templates themselves have put there
TICKED = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


class Missing(StrictUndefined):
    """A name that does not exist; its message says which do."""

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint or self._undefined_obj is missing or not isinstance(self._undefined_name, str):
            return super()._undefined_message
        known = touchable(self._undefined_obj)
        kind = f"{'field' if dataclasses.is_dataclass(self._undefined_obj) else 'attribute'} of"
        return unknown_name_text(f"{kind} {_kind(self._undefined_obj)}", self._undefined_name, known)


class UserEnvironment(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox with a list of what is allowed, and with a budget. ours: this package's filters by name."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, finalize: Callable[[Any], Any], ours: Mapping[str, Callable], **options: Any):
        self.budget = budget.Budget()
        super().__init__(finalize=self.budget.counted(finalize), undefined=Missing, **options)
        own = {name: budget.few_digits(function) for name, function in ours.items()}
        known = {**{name: self.filters[name] for name in FILTERS}, **REPLACED, **own}
        self.filters = {name: self.budget.metered(function, name in OF_TEXT) for name, function in known.items()}
        self.tests = {name: self.budget.metered(function) for name, function in self.tests.items()}
        self.globals = {name: self.globals[name] for name in GLOBALS}
        self.tick = self.budget.spend
        self.joined = self.budget.joined
        self.weighed = self.budget.weighed

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return not attr.startswith("_") and (isinstance(obj, OPEN) or attr in touchable(obj))

    def unsafe_undefined(self, obj: Any, attribute: str) -> StrictUndefined:
        allowed = ", ".join(sorted(touchable(obj))) or "nothing"
        hint = f"a template may not touch {attribute!r} of {_kind(obj)}; it may touch: {allowed}"
        return self.undefined(hint, name=attribute, exc=SecurityError)

    def wrap_str_format(self, value: Any) -> None:
        """No `"…".format()`: it prints nan, and a width of 10⁹."""
        return

    def call(__self, __context: Any, __obj: Any, *arguments: Any, **named: Any) -> Any:  # noqa: N805 — as Jinja2's
        __self.budget.spend(1)
        __self.budget.weigh(getattr(__obj, "__self__", None), *arguments, *named.values())
        return super().call(__context, __obj, *arguments, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget.checked(operator, left, right)
        return self.budget.weighed(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(obj, budget.scalar(argument))

    def _load_template(self, name: Any, *more: Any) -> Template:
        return super()._load_template(budget.scalar(name), *more)

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        """Jinja2's hook between parsing and compiling: every loop and macro pays for its turns, `~` for its length."""
        for switch in source.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier)):
            raise TemplateSyntaxError("autoescape cannot be switched: names of runs are foreign", switch.lineno, name)
        _Paid().visit(source)
        for node in (source, *source.find_all(TICKED)):
            written = [*(text.data for text in node.find_all(nodes.TemplateData))]
            cost = [nodes.Const(1), nodes.Const(sum(map(len, written)))]
            node.body.insert(0, nodes.ExprStmt(_call("tick", cost), lineno=node.lineno).set_lineno(node.lineno))
        return super()._generate(source, name, filename, defer_init)


class _Paid(NodeTransformer):
    """What Python computes without asking the environment — `~`, comparing, slicing, the keys of a dict — is paid for."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", node.nodes).set_lineno(node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _weighed(node.expr)
        for operand in node.ops:
            operand.expr = _weighed(operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _weighed(node.node)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _weighed(node.key)
        return node


def _weighed(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _call("weighed", [node]).set_lineno(node.lineno)


def _call(name: str, arguments: Sequence[nodes.Expr]) -> nodes.Call:
    """A call of the environment's own method."""
    return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)


def touchable(obj: Any) -> tuple[str, ...]:
    """The attributes of a value that a template may read or call: a record's fields and properties, a text's methods."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        described = [name for name in dir(type(obj)) if isinstance(getattr(type(obj), name), property)]
        return (*(field.name for field in dataclasses.fields(obj)), *described)
    return next((names for kind, names in ALLOWED if isinstance(obj, kind)), ())


def _kind(obj: Any) -> str:
    return type(obj).__name__ if dataclasses.is_dataclass(obj) else object_type_repr(obj)


def rendered(template: Template, context: Mapping[str, Any]) -> str:
    """The text of a page, with a new budget if it is a user's."""
    if isinstance(template.environment, UserEnvironment):
        template.environment.budget.reset()
    return template.render(context)
