"""The small records that template contexts are made of. A number always travels with the runs it was read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fa_registry.records import EditionReference, OtherRun, Reading, Verdict, Waiver

T = TypeVar("T")


def documented(help: str, unit: str) -> Any:
    """A dataclass field that says what it holds and in which unit."""
    return field(metadata={"help": help, "unit": unit})


@dataclass(frozen=True, slots=True)
class Number:
    """One number to print. kind: the filter that writes it (num, sci, pct or pp). run_ids: where it was read."""

    reading: Reading
    kind: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
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
class Truncated(Generic[T]):
    """The first of many: a page prints those `shown` and says how many are `left`. total: all of them."""

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
class Row(Generic[T]):
    """A line of a table, one of `cells` a column. name: a site, a seed, or a quantity as it is logged; symbol, words: of that.

    run_ids: where the cells were read, where they do not say so themselves.
    """

    name: str
    cells: tuple[T, ...]
    symbol: str = ""
    words: str = ""
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowGroup(Generic[T]):
    """The lines of one quantity, a seed each, or of one method, a site each. The rest: as of a Row."""

    name: str
    rows: tuple[Row[T], ...]
    symbol: str = ""
    words: str = ""
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A figure: PNG data URI, its text for those who cannot see it, and its numbers (a subsample where it says so).

    drawn: as figures/ has it, see figures.style.Drawn.
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
    """A figure whose numbers are not by seed and epoch: PNG data URI, its text for those who cannot see it, its numbers.

    table: what they are, and which part of the figure's where it is not all; columns: the heads over the numbers. drawn: as of a
    Picture.
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
    """A figure beside the pages. name: of its files, without their ending."""

    title: str
    setting: str
    name: str


@dataclass(frozen=True)
class SettingFigures:
    """pictures: trajectories; plates: what is not by epoch. full: false where the page had no room for all plates.

    layers: of a comparison, (data URI, alt text) of its figure by site; empty where no site was measured.
    """

    setting: str
    pictures: tuple[Picture, ...]
    plates: tuple[FigurePanel, ...] = ()
    full: bool = True
    layers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Blank:
    """What only a person can fill. key: its marker in the Markdown form; text: what is there now."""

    key: str
    title: str
    prompt: str
    text: str


# The rows of the pages' tables: runs, findings, waivers, and the editions side by side.


@dataclass(frozen=True, slots=True)
class SeedRow:
    """One run. numbers: column, by the name of its quantity → the run's number there; empty in a report of more than 200 runs."""

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
    """What a rule says of a column of the audit table, where it does not pass. seeds: of which it says so."""

    rule: str
    outcome: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class AuditRow:
    """One line of the audit table: a method in a setting. href: its form, empty for a control.

    method: its label, which is its name and, where it has any, its options, `name=value, name=value`.

    estimates: column, by the name of its quantity → the mean over seeds; judged: column → what does not pass there. proof: what the
    replays prove of its training.
    control_state: `control verified`, or why its frozen control is not proven; empty for a control.
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
class BesideRow_value:
    """A run of a setting that differs from a judged one by at most 1 %. of: the judged method; differs: in which numbers."""

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
    """A part of the audit table: one setting. number: from 1; footnotes: why its numbers are missing, where it stands alone."""

    number: int
    setting: str
    rows: tuple[AuditRow, ...]
    footnotes: tuple[Footnote, ...] = ()


@dataclass(frozen=True)
class SeedStatement:
    """What a rule says of some seeds in the same words; a finding over seeds says it of all of them at once.

    site, epoch: in words, empty where there is none; epoch is the one of first fire. interval: of `observed`.
    level: of the interval, `95 %`; basis: on what it rests. detail: traceback of a rule that crashed, or who waived the finding,
    when and why.
    """

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
    """One rule's judgement of one method in one setting, with what it says of each seed that it judges alike.

    limit: what is required, without the unit where the report knows it apart. under: which form of the figure it is, where there
    are several.
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
    """scope: whom it is for, in words. applied: findings it waived, as `rule method, seed`; none where it is expired."""

    waiver: Waiver
    scope: str
    applied: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """Where editions do not judge alike. subject: scale, reference, depth, …; clauses: what each edition says, in words."""

    subject: str
    clauses: tuple[str, ...]


@dataclass(frozen=True)
class ComparedRow:
    """One method in one setting, judged by every edition, the leading one first. why: where their outcomes differ."""

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
    """One point in which an edition differs from the shipped one it is based on. rule: empty for the edition's own fields."""

    rule: str
    field: str
    shipped: str
    this: str


@dataclass(frozen=True)
class ChangedEdition:
    """An edition that is not a shipped one as it is: why, in words, and every point in which it differs."""

    edition: EditionReference
    words: str
    rows: Truncated[EditionChange]


@dataclass(frozen=True)
class JudgedBy:
    """What one edition says of a method in a setting: of all seeds together, and rule by rule."""

    edition: EditionReference
    verdict: Verdict
    findings: tuple[FindingRow, ...]


@dataclass(frozen=True)
class Link:
    """text: the method's label; name: without its options. href: the HTML form, markdown: its Markdown twin, both relative
    to the index.
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
        """Its LaTeX twin."""
        return f"{self.markdown.removesuffix('.md')}.tex"


@dataclass(frozen=True)
class Count:
    """outcome: what is counted; links: who, left: how many more there are."""

    outcome: str
    count: int
    links: tuple[Link, ...] = ()

    @property
    def left(self) -> int:
        return self.count - len(self.links)


@dataclass(frozen=True, slots=True)
class ControlRow:
    """The frozen control of one seed. checks: (subject, outcome) of every check of the audit.

    state: verified or trusted where it is the reference, stated where it is not proven, several where controls differ,
    absent. doubt: why it is not proven. integrity: of the control's own metrics.
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
    """A number, the deviation beside it if it is a mean, and the word of the finding that speaks about just this one.

    outcome: of that finding.
    """

    number: Number
    word: str = ""
    outcome: str = ""
    deviation: Number | None = None


@dataclass(frozen=True)
class CardLine:
    """What a reader must know of a diagnostic, from its card."""

    symbol: str
    line: str
    cannot_tell: str


@dataclass(frozen=True)
class Table(Generic[T]):
    """Numbers as a page prints them. columns: (head, run id; empty where it is no one run's). rows: each a Row, or a RowGroup.

    notes: why cells are N/A. cards: of the diagnostics that measure them. measured: how, in the words of the runs.
    """

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[T, ...]
    notes: tuple[str, ...] = ()
    cards: tuple[CardLine, ...] = ()
    measured: str = ""


@dataclass(frozen=True)
class FirstFire:
    """epochs: in words, one a seed."""

    rule: str
    title: str
    epochs: tuple[str, ...]
