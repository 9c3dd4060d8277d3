"""The sandbox of the templates that a user brings: fields of records and nothing else, and an end after a minute.

What may be touched and called is listed here; all else is refused. Jinja2's own sandbox stops at what is private: it
lets a template loop forever, print a bare number and call any method of any record.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, nodes
from jinja2.environment import TemplateModule
from jinja2.runtime import LoopContext, TemplateReference
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Cycler, Namespace, missing, object_type_repr

from fa_registry.errors import unknown_name_text

SECONDS = 60.0  # a page may take; an index of 66 runs takes under one
# Of Jinja2's own filters those that neither switch escaping off nor write numbers in a way of their own.
FILTERS = (
    *("abs", "capitalize", "count", "dictsort", "e", "escape", "first", "groupby", "int", "items", "join", "last"),
    *("length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "select"),
    *("selectattr", "sort", "string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)
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
TURNS = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)  # no template runs for long without entering one


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
    """Jinja2's sandbox with a list of what is allowed, and with a clock. ours: this package's filters by name."""

    intercepted_binops = frozenset({"%"})

    def __init__(self, finalize: Callable[[Any], Any], ours: Mapping[str, Callable], **options: Any):
        super().__init__(finalize=finalize, undefined=Missing, **options)
        self.filters = {name: self.filters[name] for name in FILTERS} | dict(ours)
        self.globals = {name: self.globals[name] for name in GLOBALS}
        self.started = time.monotonic()

    def tick(self) -> None:
        """Asked at every turn of a loop and every call of a macro: SecurityError once the page has taken too long."""
        if time.monotonic() - self.started > SECONDS:
            raise SecurityError(f"expected a page within {SECONDS:g} s; a loop or a macro does not end")

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return not attr.startswith("_") and (isinstance(obj, OPEN) or attr in touchable(obj))

    def unsafe_undefined(self, obj: Any, attribute: str) -> StrictUndefined:
        allowed = ", ".join(sorted(touchable(obj))) or "nothing"
        hint = f"a template may not touch {attribute!r} of {_kind(obj)}; it may touch: {allowed}"
        return self.undefined(hint, name=attribute, exc=SecurityError)

    def wrap_str_format(self, value: Any) -> None:
        """No `"…".format()`: it prints nan."""
        return

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, str):
            raise SecurityError("text % values is not available; the filters num, sci, pct and pp write numbers")
        return super().call_binop(context, operator, left, right)

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        """Jinja2's hook between parsing and compiling: every loop and macro looks at the clock."""
        for switch in source.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier)):
            raise TemplateSyntaxError("autoescape cannot be switched: names of runs are foreign", switch.lineno, name)
        for node in source.find_all(TURNS):
            look = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
            node.body.insert(0, nodes.ExprStmt(look, lineno=node.lineno).set_lineno(node.lineno))
        return super()._generate(source, name, filename, defer_init)


def touchable(obj: Any) -> tuple[str, ...]:
    """The attributes of a value that a template may read or call: a record's fields and properties, a text's methods."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        described = [name for name in dir(type(obj)) if isinstance(getattr(type(obj), name), property)]
        return (*(field.name for field in dataclasses.fields(obj)), *described)
    return next((names for kind, names in ALLOWED if isinstance(obj, kind)), ())


def _kind(obj: Any) -> str:
    return type(obj).__name__ if dataclasses.is_dataclass(obj) else object_type_repr(obj)


def rendered(template: Template, context: Mapping[str, Any]) -> str:
    """The text of a page; the clock of a user's template starts with each."""
    if isinstance(template.environment, UserEnvironment):
        template.environment.started = time.monotonic()
    return template.render(context)
