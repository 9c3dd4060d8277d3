"""What one page of a user's template may cost: counted, not timed, so that the same template fails in the same place."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from functools import wraps
from typing import Any

from jinja2.runtime import markup_join, str_join
from jinja2.sandbox import SecurityError

STEPS = 5_000_000  # of one page: turns of a loop, calls, entries a filter looks at. An index of 66 runs takes 100,000
WRITTEN = 50_000_000  # characters of one page
LONGEST = 1_000_000  # characters or entries of one value that a template computes
BITS = 4096  # of a whole number that a template computes


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

    def metered(self, function: Callable) -> Callable:
        """A filter that costs as many steps as its value has entries. Jinja2 passes some filters itself first."""
        place = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)  # copies the mark by which Jinja2 knows what to pass
        def measured(*arguments: Any, **named: Any) -> Any:
            value = arguments[place]
            self.spend(1 + (len(value) if isinstance(value, Sized) else 0))
            return function(*arguments, **named)

        return measured


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
    """`a ~ b`: what Jinja2 does for it, if the result is short enough."""
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
