"""The sandbox of the templates that a user brings: fields of records and nothing else, and an end to everything.

What may be touched and called is listed here; all else is refused. Jinja2's own sandbox stops at what is private: it
lets a template loop forever, write 10⁹ characters, and call any method of any record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, ItemsView, Mapping, Sequence, Set, Sized, ValuesView
from functools import wraps
from types import MappingProxyType
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, nodes
from jinja2.environment import TemplateModule
from jinja2.runtime import LoopContext, TemplateReference, Undefined, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Cycler, Namespace, missing, object_type_repr
from jinja2.visitor import NodeTransformer

from fa_registry.errors import unknown_name_text

# Of Jinja2's own filters those whose result is no larger than what they are given, or is checked (budget.py).
FILTERS = (
    *("abs", "capitalize", "count", "dictsort", "e", "escape", "first", "groupby", "int", "items", "last", "length"),
    *("list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort"),
    *("string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)
# Those that write their value out, whatever it is.
OF_TEXT = ("capitalize", "e", "escape", "lower", "string", "title", "trim", "truncate", "upper", "wordcount", "replace")


def replace(value: str, old: str, new: str) -> str:
    """The text with every `old` replaced by `new`."""
    short(len(value) + value.count(old) * len(new))
    return value.replace(old, new)


def short(size: int) -> None:
    """Raise SecurityError for a text or list that is too long."""
    if size > LONGEST:
        raise SecurityError(f"expected values of at most {LONGEST:,} characters or entries, found {size:,}")


LONGEST = 1_000_000  # characters or entries of one value that a template computes


def join(value: Any, d: str = "") -> str:
    """The entries of a list as one text, `d` between them. Of records: `| map(attribute="name") | join(", ")`."""
    items = list(value)
    return joined(*[part for item in items for part in (d, item)][1:])


def joined(*parts: Any) -> str:
    """`a ~ b`: what Jinja2 does for it, if the parts are scalar and the result is short enough."""
    for part in parts:
        scalar(part)
    short(sum(len(part) for part in parts if isinstance(part, str)))
    return markup_join(parts) if any(hasattr(part, "__html__") for part in parts) else str_join(parts)


def scalar(value: Any) -> Any:
    """The value, if it is text or a number; SecurityError for a list or a record: a page shows fields of those."""
    if not isinstance(value, SCALAR):
        kind = type(value).__name__
        raise SecurityError(f"expected text or a number, found {kind}; join a list's entries, show a record's fields")
    return value


SCALAR = (str, int, float, type(None), Undefined)
REPLACED = MappingProxyType({"join": join, "replace": replace})
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
        self.budget = Budget()
        super().__init__(finalize=self.budget.counted(finalize), undefined=Missing, **options)
        own = {name: few_digits(function) for name, function in ours.items()}
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
        checked(operator, left, right)
        return self.budget.weighed(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(obj, scalar(argument))

    def _load_template(self, name: Any, *more: Any) -> Template:
        return super()._load_template(scalar(name), *more)

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


# What one page of a user's template may cost: counted, not timed, so that the same template fails in the same place.


STEPS = 5_000_000  # of one page: turns of a loop, calls, entries a filter looks at. An index of 66 runs takes 100,000
WRITTEN = 50_000_000  # characters of one page
BITS = 4096  # of a whole number that a template computes
DEEPEST = 20  # lists within lists
PER_STEP = 50  # characters of a text that cost as much as one entry of a list
DIGITS = 10_000  # or characters that a filter of ours is asked for
NESTING = (
    list,
    tuple,
    Set,
    Mapping,
    ItemsView,
    ValuesView,
)  # what Python looks into when it compares, copies or writes


class Budget:
    """Counts what a page has cost; SecurityError once it is too much, in the line that went too far."""

    def __init__(self, steps: int = STEPS, written: int = WRITTEN):
        self._allowed = (steps, written)
        self.reset()

    def reset(self) -> None:
        """Before the next page."""
        self._steps, self._written = self._allowed

    def spend(self, steps: int, characters: int = 0) -> None:
        self._steps -= steps
        self._written -= characters
        if self._steps < 0:
            raise SecurityError(f"expected at most {self._allowed[0]:,} steps a page; a loop or a macro does not end")
        if self._written < 0:
            raise SecurityError(f"expected at most {self._allowed[1]:,} characters a page, found more")

    def counted(self, finalize: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What prints a value, counting the characters."""

        def printed(value: Any) -> Any:
            shown = finalize(value)
            self.spend(1, len(shown) if isinstance(shown, str) else 0)
            return shown

        return printed

    def weigh(self, *values: Any) -> None:
        """Pay for values that will be looked through, before they are."""
        self.spend(sum(map(weight, values)))

    def weighed(self, value: Any) -> Any:
        """The value itself, paid for."""
        self.weigh(value)
        return value

    def metered(self, function: Callable, of_text: bool = False) -> Callable:
        """A filter or test that costs what it is given and gives weigh. of_text: it writes its value, which must be scalar."""
        place = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)  # copies the mark by which Jinja2 knows what to pass
        def measured(*arguments: Any, **named: Any) -> Any:
            given = (*arguments[place:], *named.values())
            self.spend(1)
            self.weigh(*given)
            if of_text:
                scalar(given[0])
            return self.weighed(function(*arguments, **named))

        return measured

    def joined(self, *parts: Any) -> str:
        """`a ~ b`, paid for."""
        return self.weighed(joined(*parts))


def weight(value: Any) -> int:
    """What a value costs whoever looks through it: its entries and theirs, each as often as it is met.

    A list that holds one list twice, which holds one list twice, … is small in memory and without end to look through.
    Raises SecurityError for what is too large or too deep, before it has been looked through.
    """
    total, level = 0, [value]
    for _ in range(DEEPEST):
        total += sum(_size(one) for one in level)
        short(total)
        level = [entry for one in level if isinstance(one, NESTING) for entry in _entries(one)]
        if not level:
            return total
    raise SecurityError(f"expected lists nested at most {DEEPEST} deep")


def _size(value: Any) -> int:
    return len(value) // PER_STEP if isinstance(value, str) else len(value) if isinstance(value, Sized) else 0


def _entries(value: Any) -> list[Any]:
    return [*value.keys(), *value.values()] if isinstance(value, Mapping) else list(value)


def few_digits(function: Callable) -> Callable:
    """A filter of ours, which is not asked for a billion digits."""

    @wraps(function)
    def written(value: Any, *arguments: Any, **named: Any) -> Any:
        if any(isinstance(one, int) and abs(one) > DIGITS for one in (*arguments, *named.values())):
            raise SecurityError(f"expected at most {DIGITS:,} digits or characters")
        return function(value, *arguments, **named)

    return written


def checked(operator: str, left: Any, right: Any) -> None:
    """Raise SecurityError for an operation whose result would be too large, before it is computed."""
    if operator == "%" and isinstance(left, str):
        raise SecurityError("text % values is not available; the filters num, sci, pct and pp write numbers")
    sizes = [len(one) for one in (left, right) if isinstance(one, Sequence)]
    if operator == "+":
        short(sum(sizes))
    elif sizes:
        short(sizes[0] * max(0, right if isinstance(left, Sequence) else left))
    elif isinstance(left, int) and isinstance(right, int):
        bits = {"*": left.bit_length() + right.bit_length(), "**": left.bit_length() * abs(right)}
        if bits.get(operator, 0) > BITS:
            raise SecurityError(f"expected whole numbers of at most {BITS:,} bits")
