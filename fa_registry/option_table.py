"""Declaration of options for the command line and for Python functions.

A group is a frozen dataclass whose fields are made by `option`. The click options, the signatures and docstrings of the Python
functions, the reference pages and shell completion come from these fields.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from fa_registry.errors import UsageError, unknown_name_text

WIDTH = 116  # characters per line in the docstring of a Python function
Several = str | Iterable[Any]  # names or numbers, converted by `as_list`
OPTION, NESTED = "option", "nested"  # keys of a field's metadata
KIND = operator.attrgetter("kind")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")


@dataclass(frozen=True)
class OptionDeclaration:
    """One option.

    Attributes:
        name: name of the Python parameter and of the dataclass field.
        flag: name on the command line, e.g. `--data-root`; `--yes/--no` for a flag with two names.
        default: default value, or MISSING for a required option.
        annotation: type in the signature of a Python function.
        help: description for the command line. If `help` contains `[`, the default is not added.
        python: description for Python, if it differs from `help`.
        metavar: placeholder of the value, often its unit.
        bounds: smallest and largest value of a whole number, or None if the command checks the value.
        is_list: whether the value is several names or numbers: `"a,b"`, a list or a single value.
        repeats: whether the user repeats the option for each value. If false, several values are one text with commas.
        pairs: function that converts the repeated texts NAME=VALUE to a mapping, or None.
        completes: the words that shell completion offers: a plug-in kind, `studies`, `study files`, `editions`, or a tuple of
            words. For a plug-in kind, `study files` and `editions`, the command line refuses an unknown name.
    """

    name: str
    flag: str
    default: Any
    annotation: str
    help: str
    python: str = ""
    metavar: str | None = None
    bounds: tuple[int, int | None] | None = None
    is_list: bool = False
    repeats: bool = False
    pairs: Callable[[Iterable[str]], Mapping[str, Any]] | None = None
    completes: str | tuple[str, ...] = ""

    @property
    def shows_default(self) -> bool:
        return self.default not in ("", (), None, MISSING) and self.default is not False and "[" not in self.help

    def value(self, typed: Any) -> Any:
        """Convert the typed value to the value that the group stores.

        A list becomes a tuple. For an option with pairs, None becomes an empty mapping.

        Raises:
            UsageError: the text of a list has separators but no values, e.g. `","`.
        """
        if self.is_list:
            values = as_list(typed)
            if isinstance(typed, str) and typed and not values:
                raise UsageError(f"{self.name}: expected values separated by commas, found {typed!r}")
            return values
        return {} if self.pairs and typed is None else typed


def option(default: Any, help_text: str, flag: str = "", **properties: Any) -> Any:
    """Return a dataclass field that is an option; see `OptionDeclaration` for `properties`."""
    metadata = {OPTION: {"flag": flag, "help": help_text, **properties}}
    if properties.get("pairs"):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def nested(group: type, convert: Callable[[Any], Any] | None = None) -> Any:
    """Return a dataclass field for a nested group, whose options become options of the outer group.

    `convert` converts the nested group object to the value of the field. By default, the value is the group object.
    """
    make = functools.partial(_made, group, convert, {})
    return dataclasses.field(default_factory=make, metadata={NESTED: (group, convert)})


def options_of(group: type, only: str = "") -> Iterator[OptionDeclaration]:
    """Yield the options of a group. If `only` lists names, yield only the options with these names."""
    for field in dataclasses.fields(group):
        if NESTED in field.metadata:
            yield from options_of(field.metadata[NESTED][0], only)
        elif OPTION in field.metadata and (not only or field.name in only.split()):
            properties = dict(field.metadata[OPTION])
            flag = properties.pop("flag") or f"--{field.name.replace('_', '-')}"
            default, annotation = field.default, str(field.type)
            if properties.get("pairs"):
                default, annotation = None, f"{annotation} | None"
            if properties.get("is_list"):
                default, annotation = (), "Several"
            yield OptionDeclaration(field.name, flag, default, annotation, **properties)


def merged(*groups: Iterable[OptionDeclaration]) -> tuple[OptionDeclaration, ...]:
    """Return the options of several groups. If options have the same name, return only the first one."""
    by_name: dict[str, OptionDeclaration] = {}
    for group in groups:
        for each in group:
            by_name.setdefault(each.name, each)
    return tuple(by_name.values())


def build(group: type, values: Mapping[str, Any]) -> Any:
    """Return a group object with the given values of its options. Ignore other names in `values`."""
    found = {each.name: each.value(values[each.name]) for each in options_of(group) if each.name in values}
    made = {}
    for field in dataclasses.fields(group):
        if NESTED in field.metadata:
            made[field.name] = _made(*field.metadata[NESTED], values)
        elif OPTION in field.metadata and field.name in found:
            made[field.name] = found[field.name]
    return group(**made)


def _made(group: type, convert: Callable[[Any], Any] | None, values: Mapping[str, Any]) -> Any:
    made = build(group, values)
    return convert(made) if convert else made


def as_list(names: Any) -> tuple[Any, ...]:
    """Return a tuple of names or numbers from a comma-separated string, a single value or an iterable."""
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(names) if isinstance(names, Iterable) else (names,)


def takes_options(positional: str = "", **only: str) -> Callable[[Callable], Callable]:
    """Return a decorator that replaces groups of options by single options.

    If a parameter is annotated with a group, the options of the group replace this parameter. The decorated function shows the
    options in its signature and in the section Args of its docstring. Its attribute `options` contains these options. Options
    are keyword-only.

    Args:
        positional: names of options that may also be passed by position.
        only: for a parameter, the names of options, separated by blanks. The function then takes only these options of the
            parameter's group. By default, the function takes all options of the group.
    """

    def decorate(function: Callable) -> Callable:
        """Return a function whose parameters are the single options instead of groups."""
        own = inspect.signature(function)
        hints = {name: function.__globals__.get(parameter.annotation) for name, parameter in own.parameters.items()}
        groups = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
        options = merged(*(options_of(group, only.get(name, "")) for name, group in groups.items()))
        others = [parameter for name, parameter in own.parameters.items() if name not in groups]
        signature = own.replace(parameters=sorted([*others, *_parameters(options, positional.split())], key=KIND))
        variadic = [parameter.name for parameter in others if parameter.kind is parameter.VAR_POSITIONAL]

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                values = signature.bind(*arguments, **named).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}{_hint(named, signature.parameters)}") from None
            first = [value for name in variadic for value in values.pop(name, ())]
            own_values = {parameter.name: values[parameter.name] for parameter in others if parameter.name in values}
            return function(*first, **own_values, **{name: build(group, values) for name, group in groups.items()})

        call.__signature__, call.options = signature, options
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
        call.__annotations__["return"] = own.return_annotation
        call.__doc__ = documented(function.__doc__, options)
        return call

    return decorate


def _hint(named: Iterable[str], known: Mapping[str, Any]) -> str:
    unknown = [name for name in named if name not in known]
    return f"; {unknown_name_text('option', unknown[0], known)}" if unknown else ""


def _parameters(options: Iterable[OptionDeclaration], positional: Iterable[str]) -> Iterator[inspect.Parameter]:
    for each in options:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if each.name in positional else inspect.Parameter.KEYWORD_ONLY
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        yield inspect.Parameter(each.name, kind, default=default, annotation=each.annotation)


def documented(doc: str | None, options: Iterable[OptionDeclaration]) -> str | None:
    """Return a docstring with the options in its section Args; None if `doc` is None."""
    if doc is None:
        return None
    lines = [_line(each) for each in options]
    before, args, rest = doc.partition("    Args:\n")
    if args:
        own, blank, rest = rest.partition("\n\n")
        return "".join([before, args, own, "\n", "\n".join(lines), blank, rest])
    before = re.split(r"(?m)^(?=    (?:Returns:|Raises:|>>>))", doc, maxsplit=1)[0]
    return f"{before}    Args:\n" + "\n".join(lines) + f"\n\n{doc[len(before) :]}"


@functools.cache
def _line(option: OptionDeclaration) -> str:
    text = option.python or FLAG.sub(lambda match: match[1].replace("-", "_"), option.help)
    return textwrap.fill(f"{option.name}: {text}", WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)
