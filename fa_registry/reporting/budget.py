"""What one page of a user's template may cost: counted, not timed, so that the same template fails in the same place."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Mapping, Sequence, Set, Sized, ValuesView
from functools import wraps
from typing import Any

from jinja2.runtime import Undefined, markup_join, str_join
from jinja2.sandbox import SecurityError

STEPS = 5_000_000  # of one page: turns of a loop, calls, entries a filter looks at. An index of 66 runs takes 100,000
WRITTEN = 50_000_000  # characters of one page
LONGEST = 1_000_000  # characters or entries of one value that a template computes
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
SCALAR = (str, int, float, type(None), Undefined)


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


def scalar(value: Any) -> Any:
    """The value, if it is text or a number; SecurityError for a list or a record: a page shows fields of those."""
    if not isinstance(value, SCALAR):
        kind = type(value).__name__
        raise SecurityError(f"expected text or a number, found {kind}; join a list's entries, show a record's fields")
    return value


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


def short(size: int) -> None:
    """Raise SecurityError for a text or list that is too long."""
    if size > LONGEST:
        raise SecurityError(f"expected values of at most {LONGEST:,} characters or entries, found {size:,}")


def joined(*parts: Any) -> str:
    """`a ~ b`: what Jinja2 does for it, if the parts are scalar and the result is short enough."""
    for part in parts:
        scalar(part)
    short(sum(len(part) for part in parts if isinstance(part, str)))
    return markup_join(parts) if any(hasattr(part, "__html__") for part in parts) else str_join(parts)


def join(value: Any, d: str = "") -> str:
    """The entries of a list as one text, `d` between them. Of records: `| map(attribute="name") | join(", ")`."""
    items = list(value)
    return joined(*[part for item in items for part in (d, item)][1:])


def replace(value: str, old: str, new: str) -> str:
    """The text with every `old` replaced by `new`."""
    short(len(value) + value.count(old) * len(new))
    return value.replace(old, new)
