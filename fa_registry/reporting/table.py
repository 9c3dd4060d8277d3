"""The results table: columns, rows and notes.

Each medium has one function that writes a table: `frame` below, `csv_lines` of reporting/files/csv.py, and `html` and `text` of
reporting/notebook.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fa_registry.records import Reading, Verdict

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
TEXT, WHOLE, NUMBER, YES_NO = "text", "integer", "number", "boolean"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Key of the column.
        heading: Heading on a page, in a CSV file and in a data frame.
        kind: Format of the numbers in the column (a filter such as pct), or text, integer or boolean.
        words: Description of the content.
    """

    name: str
    heading: str = ""
    kind: str = TEXT
    words: str = ""

    @property
    def type(self) -> str:
        """Type of the values: text, integer, number or boolean."""
        return self.kind if self.kind in (TEXT, WHOLE, YES_NO) else NUMBER


@dataclass(frozen=True)
class ResultsTable(Generic[T]):
    """A table for any medium, with sentences about the table as notes.

    A cell is a text, a number, a verdict, a Reading (formatted by the kind of its column) or an Estimate.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[T, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, headings: Iterable[str], rows: Iterable[Sequence[T]]) -> ResultsTable[T]:
        """Return a table with these headings; empty headings are not shown."""
        return cls(tuple(Column(heading, heading) for heading in headings), tuple(map(tuple, rows)))

    def select(self, headings: Mapping[str, str]) -> ResultsTable[T]:
        """Return the table with only some columns, in the order of `headings`.

        The mapping `headings` is: name of the column → its heading in the new table.
        """
        positions = {column.name: position for position, column in reversed([*enumerate(self.columns)])}
        columns = (replace(self.columns[positions[name]], heading=heading) for name, heading in headings.items())
        rows = (tuple(row[positions[name]] for name in headings) for row in self.rows)
        return replace(self, columns=tuple(columns), rows=tuple(rows))


def frame(table: ResultsTable) -> pd.DataFrame:
    """Return the table as a data frame with the headings as column names.

    A missing number is None, and a verdict is its label.
    """
    import pandas as pd  # an audit without frames does not need pandas

    def value(cell: Any) -> Any:
        return cell.value if isinstance(cell, Reading) else cell.label if isinstance(cell, Verdict) else cell

    names = [column.heading for column in table.columns]
    return pd.DataFrame([tuple(map(value, row)) for row in table.rows], columns=names)
