"""The records that template contexts consist of.

A number always carries the ids of the runs it was read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fa_registry.records import EditionReference, OtherRun, Reading, Verdict, Waiver

T = TypeVar("T")


def documented(help: str, unit: str) -> Any:
    """Return a dataclass field with its description and unit as metadata."""
    return field(metadata={"help": help, "unit": unit})


@dataclass(frozen=True, slots=True)
class Number:
    """One number to print.

    Attributes:
        kind: The filter that formats it (num, sci, pct or pp).
        run_ids: The runs it was read from.
    """

    reading: Reading
    kind: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeedValue:
    seed: int
    number: Number


@dataclass(frozen=True)
class Estimate:
    """One metric over seeds.

    Attributes:
        n: Number of values behind mean, std (ddof 1) and the 95 % t interval low..high.
        of: Number of all seeds.
        marks: The footnotes that explain missing values.
        average: Kind of the mean, arithmetic or geometric; the std of a geometric mean is a factor.
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
        """Return a warning if the interval of a fraction reaches beyond 0 to 1, otherwise ""."""
        ends = (self.low.value, self.high.value)
        if self.kind != "pct" or None in ends or (ends[0] >= 0 and ends[1] <= 1):
            return ""
        return "it reaches beyond 0 % to 100 %, which Student's t does not exclude: there are too few seeds for their spread"


@dataclass(frozen=True)
class Truncated(Generic[T]):
    """The first entries of a long list. shown: printed; left: the number not printed; total: all of them."""

    shown: tuple[T, ...]
    total: int

    @classmethod
    def first(cls, most: int, items: Sequence[T]) -> Truncated[T]:
        return cls(tuple(items[:most]), len(items))

    @property
    def left(self) -> int:
        return self.total - len(self.shown)


@dataclass(frozen=True)
class MetricSummary:
    """One metric with its description and its estimate over the seeds."""

    name: str
    words: str
    estimate: Estimate


@dataclass(frozen=True)
class Claim:
    """One statement about the method.

    Attributes:
        kind: may (may be claimed), not (not supported), open (undecided) or note (explains another claim).
        key: Identifies the claim independently of the values in its text.
    """

    kind: str
    text: str
    run_ids: tuple[str, ...]
    key: str = ""


@dataclass(frozen=True)
class EntryValue:
    """A text and the runs it applies to (`run_ids`; empty: all runs)."""

    text: str
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    term: str
    values: tuple[EntryValue, ...]


@dataclass(frozen=True)
class Row(Generic[T]):
    """One row of a table, with one of `cells` per column.

    Attributes:
        name: A site, a seed, or the key of a metric as it is logged.
        symbol: Symbol of that metric.
        words: Description of that metric.
        run_ids: The runs the cells were read from, where the cells do not name them.
    """

    name: str
    cells: tuple[T, ...]
    symbol: str = ""
    words: str = ""
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowGroup(Generic[T]):
    """The rows of one metric (one per seed) or of one method (one per site). Other fields: see Row."""

    name: str
    rows: tuple[Row[T], ...]
    symbol: str = ""
    words: str = ""
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A figure by epoch: PNG data URI, alternative text and its numbers.

    Attributes:
        rows: The numbers; a subsample if the caption names one.
        drawn: The figure as figures/ stores it, see figures.style.Drawn.
    """

    title: str
    alt: str
    caption: str
    uri: str
    epochs: tuple[int, ...]
    rows: tuple[tuple[str, int, tuple[Number, ...]], ...]
    drawn: bytes = b""


@dataclass(frozen=True)
class FigurePanel:
    """A figure whose numbers are not by seed and epoch: PNG data URI, alternative text and its numbers.

    Attributes:
        table: Title of its numbers, and which part of the figure they cover if not all.
        columns: The column heads of the numbers.
        drawn: As in Picture.
    """

    title: str
    alt: str
    caption: str
    uri: str
    table: str
    columns: tuple[str, ...]
    groups: tuple[RowGroup[Number], ...]
    drawn: bytes = b""


@dataclass(frozen=True)
class FigureFile:
    """A figure that is stored in files next to the pages. name: of its files, without suffix."""

    title: str
    setting: str
    name: str


@dataclass(frozen=True)
class SettingFigures:
    """The figures of one setting.

    Attributes:
        pictures: Trajectories by epoch.
        `plates`: Figure panels that are not by epoch.
        full: False if the page had no space for all panels.
        layers: In a comparison, (data URI, alt text) of its figure by site; empty if no site was measured.
    """

    setting: str
    pictures: tuple[Picture, ...]
    plates: tuple[FigurePanel, ...] = ()
    full: bool = True
    layers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Blank:
    """A text that only the author can write. key: its marker in the Markdown form; text: present content."""

    key: str
    title: str
    prompt: str
    text: str


# The rows of the pages' tables: runs, findings, waivers, and the editions side by side.


@dataclass(frozen=True, slots=True)
class SeedRow:
    """One run. numbers: column, by metric key → the run's number; empty in a report of more than 200 runs."""

    method: str
    seed: int
    run_id: str
    name: str
    status: str
    verdict: Verdict
    integrity: str
    numbers: Mapping[str, Number]


@dataclass(frozen=True)
class Judged:
    """A rule's outcome for a column of the audit table, if it does not pass. seeds: those that have it."""

    rule: str
    outcome: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class AuditRow:
    """One row of the audit table: a method in a setting.

    Attributes:
        method: Its label: the name and, if it has options, `name=value, name=value`.
        href: Its form; empty for a control.
        estimates: Column, by its metric's key → the mean over seeds.
        judged: Column → the rule that does not pass there.
        control_state: `control verified`, or why its frozen control is not proven; empty for a control.
        proof: What the replays prove of its training.
    """

    method: str
    name: str
    options: str
    control: bool
    verdict: Verdict
    seeds: tuple[SeedRow, ...]
    estimates: Mapping[str, Estimate]
    href: str
    judged: Mapping[str, Judged] = field(default_factory=dict)
    control_state: str = ""
    proof: str = ""


@dataclass(frozen=True)
class NearSettingRow:
    """A run whose setting differs by at most 1 % from that of the judged method `of`, in `differs`."""

    run: OtherRun
    of: str
    differs: str


@dataclass(frozen=True)
class Footnote:
    mark: int
    reason: str
    run_ids: Truncated[str]


@dataclass(frozen=True)
class SettingTable:
    """One setting's part of the audit table.

    Attributes:
        number: Counts from 1.
        footnotes: Why its numbers are missing, if the table is printed alone.
    """

    number: int
    setting: str
    rows: tuple[AuditRow, ...]
    footnotes: tuple[Footnote, ...] = ()


@dataclass(frozen=True)
class SeedStatement:
    """A rule's statement about seeds that share its wording; over seeds, one statement for all."""

    seeds: tuple[int, ...]
    run_ids: tuple[str, ...]
    sentence: str
    observed: Number
    interval: tuple[float, float] | None
    site: str
    epoch: str
    reference_run_ids: tuple[str, ...]
    detail: str
    level: str = "95 %"
    basis: str = ""


@dataclass(frozen=True)
class FindingRow:
    """One rule's judgement of one method in one setting, with one statement per set of seeds judged alike.

    Attributes:
        limit: The requirement, without its unit if the report stores the unit separately.
        under: Which variant of the metric is judged, if there are several.
    """

    rule: str
    title: str
    outcome: str
    state: str
    gating: bool
    required: str
    method: str
    setting: str
    said: tuple[SeedStatement, ...]
    limit: str
    under: str = ""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(seed for one in self.said for seed in one.seeds)


@dataclass(frozen=True)
class WaiverRow:
    """A waiver.

    Attributes:
        scope: What it covers, as text.
        applied: The findings it waived, as `rule method, seed`; empty if it is expired.
    """

    waiver: Waiver
    scope: str
    applied: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A point in which editions differ (scale, reference, depth, …). clauses: one text per edition."""

    subject: str
    clauses: tuple[str, ...]


@dataclass(frozen=True)
class ComparedRow:
    """One method in one setting, judged by every edition, the leading one first. why: their differences."""

    method: str
    setting: str
    href: str
    verdicts: tuple[Verdict, ...]
    why: tuple[Difference, ...]


@dataclass(frozen=True)
class EditionComparison:
    editions: tuple[EditionReference, ...]
    rows: Truncated[ComparedRow]


@dataclass(frozen=True)
class EditionChange:
    """A point in which an edition differs from its built-in base. rule: "" for the edition's own fields."""

    rule: str
    field: str
    shipped: str
    this: str


@dataclass(frozen=True)
class ChangedEdition:
    """A modified or user-supplied edition: the reason (`words`), and every point in which it differs."""

    edition: EditionReference
    words: str
    rows: Truncated[EditionChange]


@dataclass(frozen=True)
class JudgedBy:
    """One edition's judgement of a method in a setting: of all seeds together, and rule by rule."""

    edition: EditionReference
    verdict: Verdict
    findings: tuple[FindingRow, ...]


@dataclass(frozen=True)
class Link:
    """A link to a reporting form.

    Attributes:
        text: The method's label.
        name: The label without options.
        href: The HTML form, relative to the index.
        markdown: The same form in Markdown, relative to the index.
    """

    text: str
    name: str
    setting: str
    verdict: Verdict
    href: str
    markdown: str
    proof: str = ""

    @property
    def latex(self) -> str:
        """Return the path of the same form in LaTeX."""
        return f"{self.markdown.removesuffix('.md')}.tex"


@dataclass(frozen=True)
class Count:
    """A count of one outcome. links: the forms counted; left: how many more there are."""

    outcome: str
    count: int
    links: tuple[Link, ...] = ()

    @property
    def left(self) -> int:
        return self.count - len(self.links)


@dataclass(frozen=True, slots=True)
class ControlRow:
    """The frozen control of one seed.

    Attributes:
        state: verified or trusted if it is the reference, stated if it is not proven, several if controls differ,
            absent.
        doubt: Why it is not proven.
        integrity: Integrity state of the control's own metrics.
        checks: (subject, outcome) of every check of the audit.
    """

    seed: int
    run_id: str
    state: str
    doubt: str
    integrity: str
    checks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class IntegrityRow:
    run_id: str
    name: str
    state: str
    details: tuple[str, ...]


# The tables of a form: numbers by site and seed, each cell with the word of the finding that speaks of it.


@dataclass(frozen=True)
class Cell:
    """A number, its deviation if it is a mean, and state word and outcome of the finding about this cell."""

    number: Number
    word: str = ""
    outcome: str = ""
    deviation: Number | None = None


@dataclass(frozen=True)
class CardLine:
    """The part of a diagnostic's card that a reader needs."""

    symbol: str
    line: str
    cannot_tell: str


@dataclass(frozen=True)
class Table(Generic[T]):
    """A table of numbers as a page prints it.

    Attributes:
        columns: (head, run id; empty if the column is not one run's).
        rows: Each a Row or a RowGroup.
        notes: Why cells are N/A.
        cards: Cards of the diagnostics that measured them.
        measured: The measuring conventions that the runs recorded.
    """

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[T, ...]
    notes: tuple[str, ...] = ()
    cards: tuple[CardLine, ...] = ()
    measured: str = ""


@dataclass(frozen=True)
class FirstFire:
    """The epochs at which a rule first fired, as text, one per seed."""

    rule: str
    title: str
    epochs: tuple[str, ...]
