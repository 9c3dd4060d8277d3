"""Display of results: `repr` gives one line, `print` a longer text, and `frame` all rows."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fa_registry.text_safety import escape_to_one_line

if TYPE_CHECKING:
    import pandas as pd

    from fa_registry.reporting.notebook import Part

LONGEST = 180  # characters of a line that `repr` returns
Item = TypeVar("Item")


class Result(abc.ABC):
    """Base class of results that consist of a few lines.

    A subclass that is a dataclass must be declared with `repr=False`.
    """

    @abc.abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the lines that the command prints; `repr` shows the first of them."""

    def _parts(self) -> Iterator[Part]:
        from fa_registry.reporting.table import ResultsTable

        yield from (ResultsTable((), (), notes=(line,)) for line in self.lines())

    def __repr__(self) -> str:
        line = f"{type(self).__name__}({escape_to_one_line(next(iter(self.lines())))})"
        return line if len(line) <= LONGEST else f"{line[: LONGEST - 2]}…)"

    def __str__(self) -> str:
        from fa_registry.reporting.notebook import text  # the pages, which training does not need

        return text(self._parts())

    def _repr_html_(self) -> str:
        from fa_registry.reporting.notebook import html

        return html(self._parts())


class TableResult(Result):
    """Base class of results with a table."""

    @abc.abstractmethod
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the table, each as a mapping from column to value."""

    def _parts(self) -> Iterator[Part]:
        from fa_registry.reporting.table import ResultsTable

        yield from super()._parts()
        if rows := self.rows():
            yield ResultsTable.of(rows[0], [row.values() for row in rows])

    def frame(self) -> pd.DataFrame:
        """Return a pandas frame with all rows of the table."""
        import pandas as pd  # not needed to print a result

        return pd.DataFrame(self.rows())


class ResultList(TableResult, list[Item]):
    """List of results; its table has one row per item."""

    def __init__(self, items: Iterable[Item], title: str):
        super().__init__(items)
        self.title = title

    def lines(self) -> Iterator[str]:
        yield self.title

    def rows(self) -> list[Mapping[str, Any]]:
        return [item.row() if hasattr(item, "row") else {"file": str(item)} for item in self]
