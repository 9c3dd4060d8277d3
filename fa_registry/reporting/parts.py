"""The small records that template contexts are made of. A number always travels with the runs it was read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fa_registry.records import Reading

T = TypeVar("T")


def documented(help: str, unit: str) -> Any:
    """A dataclass field that says what it holds and in which unit."""
    return field(metadata={"help": help, "unit": unit})


@dataclass(frozen=True)
class Number:
    """One number to print. kind: the filter that writes it (num, sci, pct or pp). run_ids: where it was read."""

    reading: Reading
    kind: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class SeedValue:
    seed: int
    number: Number


@dataclass(frozen=True)
class Estimate:
    """One quantity over seeds. n: the values behind mean, std (ddof 1) and the 95 % t interval low..high.

    of: all seeds. marks: the footnotes that say why values are missing. average: which mean it is, arithmetic or geometric;
    std of a geometric one is a factor.
    """

    kind: str
    values: tuple[SeedValue, ...]
    n: int
    mean: Number
    std: Reading
    low: Reading
    high: Reading
    marks: tuple[int, ...] = ()
    average: str = "arithmetic"

    @property
    def of(self) -> int:
        return len({value.seed for value in self.values})

    @property
    def remark(self) -> str:
        """What to keep in mind of an interval of fractions that holds what no fraction can be; empty where it does not."""
        ends = (self.low.value, self.high.value)
        if self.kind != "pct" or None in ends or (ends[0] >= 0 and ends[1] <= 1):
            return ""
        return "it reaches beyond 0 % to 100 %, which Student's t does not know: too few seeds for their spread"


@dataclass(frozen=True)
class Listed(Generic[T]):
    """The first of many: a page prints those `shown` and says how many are `left`. total: all of them."""

    shown: tuple[T, ...]
    total: int

    @classmethod
    def first(cls, most: int, items: Sequence[T]) -> Listed[T]:
        return cls(tuple(items[:most]), len(items))

    @property
    def left(self) -> int:
        return self.total - len(self.shown)


@dataclass(frozen=True)
class Metric:
    """One named quantity, in words, with its estimate over the seeds."""

    name: str
    words: str
    estimate: Estimate


@dataclass(frozen=True)
class Claim:
    """kind: may (may be claimed), not (must be walked back), open (nothing may be said) or note (what one of them means).

    key: which of the claims that there are, the same whatever figures stand in its text.
    """

    kind: str
    text: str
    run_ids: tuple[str, ...]
    key: str = ""


@dataclass(frozen=True)
class EntryValue:
    """run_ids: the runs it holds for; empty where it holds for all."""

    text: str
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    term: str
    values: tuple[EntryValue, ...]


@dataclass(frozen=True)
class Picture:
    """A figure: PNG data URI, its text for those who cannot see it, and its numbers (a subsample where it says so)."""

    title: str
    alt: str
    caption: str
    uri: str
    epochs: tuple[int, ...]
    rows: tuple[tuple[str, int, tuple[Number, ...]], ...]


@dataclass(frozen=True)
class PlateLine:
    """label: what tells it from the other lines of its method, e.g. `site 2`; numbers: one a column."""

    label: str
    numbers: tuple[Number, ...]


@dataclass(frozen=True)
class PlateGroup:
    """A method's lines. run_ids: where its numbers were read."""

    name: str
    run_ids: tuple[str, ...]
    lines: tuple[PlateLine, ...]


@dataclass(frozen=True)
class Plate:
    """A figure whose numbers are not by seed and epoch: PNG data URI, its text for those who cannot see it, its numbers.

    table: what they are, and which part of the figure's where it is not all; columns: the heads over the numbers.
    """

    title: str
    alt: str
    caption: str
    uri: str
    table: str
    columns: tuple[str, ...]
    groups: tuple[PlateGroup, ...]


@dataclass(frozen=True)
class SettingFigures:
    """pictures: trajectories; plates: what is not by epoch. full: false where the page had no room for all plates."""

    setting: str
    pictures: tuple[Picture, ...]
    plates: tuple[Plate, ...] = ()
    full: bool = True


@dataclass(frozen=True)
class Blank:
    """What only a person can fill. key: its marker in the Markdown form; text: what is there now."""

    key: str
    title: str
    prompt: str
    text: str
