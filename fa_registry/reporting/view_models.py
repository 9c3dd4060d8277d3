"""The records that the templates receive as variables.

Every number contains the ids of the runs from which it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from fa_registry.records import AuditReport, EditionReference, OtherRun, Reading, RuleDifference, Verdict, Waiver

T = TypeVar("T")
OVER_SEEDS = "seeds"


@dataclass(frozen=True, slots=True)
class Number:
    """One number to print.

    Attributes:
        kind: The filter that formats the number (num, sci, pct or pp).
        run_ids: Ids of the runs from which the number was read.
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
    """The values of one metric over seeds, with mean and interval.

    Attributes:
        n: Number of values used for mean, std (ddof 1) and the 95 % interval low..high.
        of: Number of all seeds, including seeds without a value.
        marks: Numbers of the footnotes that explain missing values.
        average: Kind of the mean: arithmetic or geometric. For a geometric mean, `std` is a factor.
        over: What the interval accounts for, `seeds` or also the samples on which the metric was measured.
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
    over: str = OVER_SEEDS

    @property
    def of(self) -> int:
        return len({value.seed for value in self.values})

    @property
    def remark(self) -> str:
        """A warning if the interval of a fraction is not within 0 to 1; otherwise ""."""
        ends = (self.low.value, self.high.value)
        if self.kind != "pct" or None in ends or (ends[0] >= 0 and ends[1] <= 1):
            return ""
        return "the interval is not kept within 0 % to 100 %: there are too few seeds for this spread"


@dataclass(frozen=True)
class Truncated(Generic[T]):
    """The first entries of a long list.

    Attributes:
        shown: The entries that are printed.
        left: Number of entries that are not printed.
        total: Number of all entries.
    """

    shown: tuple[T, ...]
    total: int

    @classmethod
    def first(cls, limit: int, items: Sequence[T]) -> Truncated[T]:
        return cls(tuple(items[:limit]), len(items))

    @property
    def left(self) -> int:
        return self.total - len(self.shown)


@dataclass(frozen=True)
class Claim:
    """One statement about a method.

    Attributes:
        kind: may (may be claimed), not (must not be claimed), open (undecided) or note (explains another claim).
        key: Name of the claim, which does not depend on the values in the text.
        topic: Depth, Scale, Reference or Γ, or an empty string for a claim on another topic.
    """

    kind: str
    text: str
    run_ids: tuple[str, ...]
    key: str = ""
    topic: str = ""


@dataclass(frozen=True)
class EntryValue:
    """A text and the ids of the runs to which it applies.

    If there are no ids, the text applies to all runs.
    """

    text: str
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    term: str
    values: tuple[EntryValue, ...]


@dataclass(frozen=True)
class Row(Generic[T]):
    """One row of a table, or a group of rows.

    A group contains the rows of one metric (one row per seed or per site) or of one method (one row per site).

    Attributes:
        name: A site, a seed, a method, a field, the code of a rule, or the key of a metric.
        cells: One cell per column; empty if `rows` contains the cells.
        symbol: Symbol of the metric.
        words: Description of the metric, or title of the rule.
        run_ids: Ids of the runs from which all cells were read; used only if the cells themselves have no run ids.
        rows: The rows of a group.
    """

    name: str
    cells: tuple[T, ...] = ()
    symbol: str = ""
    words: str = ""
    run_ids: tuple[str, ...] = ()
    rows: tuple[Row[T], ...] = ()


@dataclass(frozen=True)
class Blank:
    """A field of the reporting form that only the author can fill.

    Attributes:
        key: Name in the marker of the blank in the Markdown form.
        title: Heading of the blank.
        prompt: Question to the author.
        text: The present text of the author.
    """

    key: str
    title: str
    prompt: str
    text: str


@dataclass(frozen=True, slots=True)
class SeedRow:
    """One run in a table; it has no numbers if the report has more than 200 runs."""

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
    """The outcome of a rule that a method does not pass, in a column of the audit table."""

    rule: str
    outcome: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class AuditRow:
    """A method in a setting: a row of the audit table, or a column of the comparison.

    Attributes:
        method: Label of the method: the name and, if there are options, `name=value, name=value`.
        href: Address of the form; empty for a control.
        estimates: Mapping from the key of a metric to its mean over seeds.
        judged: Mapping from the key of a metric to the rule that does not pass for this metric.
        answers: Mapping from the key of a metric to the kind of its claim on the form, `not` or `open`.
        control_state: Level of proof of the frozen control, such as `control started`, or the reason why it is not proven; empty
            for a control.
        control_states: Every state that a frozen control of these runs has, see ControlRow.
        replays: How many trainings of these runs were replayed, and the levels of proof of the controls, as text.
    """

    method: str
    name: str
    options: str
    setting: str
    control: bool
    verdict: Verdict
    seeds: tuple[SeedRow, ...]
    estimates: Mapping[str, Estimate]
    href: str
    judged: Mapping[str, Judged] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    control_state: str = ""
    control_states: tuple[str, ...] = ()
    replays: str = ""


@dataclass(frozen=True)
class NearSettingRow:
    """A run whose setting differs by at most 1 % from the setting of a judged method.

    Attributes:
        of: Label of the judged method.
        differs: The differences as text.
    """

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
    """The part of the audit table for one setting.

    Attributes:
        number: Number of the setting, counted from 1.
        footnotes: Reasons for missing numbers, counted from 1.
    """

    number: int
    setting: str
    rows: tuple[AuditRow, ...]
    footnotes: tuple[Footnote, ...]


@dataclass(frozen=True)
class SeedStatement:
    """The sentence of a rule, with the seeds to which this sentence applies.

    Attributes:
        over_frozen_long: The margin over the control frozen_long; None without such a control.
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
    test: str = ""
    error_shares: tuple[float, float] | None = None
    basis: str = ""
    over_frozen_long: Number | None = None
    frozen_long_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class FindingRow:
    """The judgement of one rule on one method in one setting.

    Attributes:
        said: One statement per set of seeds with the same finding.
        limit: The requirement. It contains the unit only if the report does not store the unit separately.
        under: The judged variant of the metric, or `p-value`; empty if the metric has only one variant.
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
        return tuple(seed for statement in self.said for seed in statement.seeds)


@dataclass(frozen=True)
class WaiverRow:
    """A waiver and its effect.

    Attributes:
        scope: The runs to which the waiver applies, as text.
        applied: The waived findings as `method, seed N`; empty if the waiver is expired.
    """

    waiver: Waiver
    scope: str
    applied: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A subject (scale, reference, depth, …) that the editions judge differently."""

    subject: str
    clauses: tuple[str, ...]


@dataclass(frozen=True)
class ComparedRow:
    """The verdicts of all editions on one method in one setting.

    Attributes:
        verdicts: One verdict per edition; the leading edition is first.
        why: The differences between the editions.
    """

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
class ChangedEdition:
    """A modified or user-supplied edition, with its differences from its base.

    Attributes:
        words: The reason why the edition counts as changed.
    """

    edition: EditionReference
    words: str
    rows: Truncated[RuleDifference]


@dataclass(frozen=True)
class JudgedBy:
    """The verdict and findings of one edition on a method in a setting."""

    edition: EditionReference
    verdict: Verdict
    findings: tuple[FindingRow, ...]


# Suffix of a form's file → name of its format. The template of the format is templates/form<suffix>.j2.
FORM_FORMATS = {".html": "HTML", ".md": "Markdown"}


@dataclass(frozen=True)
class Link:
    """A link to a reporting form.

    Attributes:
        text: Label of the method.
        name: Label of the method without options.
        stem: Path of the form without its suffix, relative to index.html.
    """

    text: str
    name: str
    setting: str
    verdict: Verdict
    stem: str

    @property
    def href(self) -> str:
        """Path of the HTML form, relative to index.html."""
        return f"{self.stem}.html"

    @property
    def markdown(self) -> str:
        """Path of the Markdown form, relative to index.html."""
        return f"{self.stem}.md"

    @property
    def files(self) -> dict[str, str]:
        """Format of the form → path of its file, relative to index.html."""
        return {name: f"{self.stem}{suffix}" for suffix, name in FORM_FORMATS.items()}


@dataclass(frozen=True)
class Count:
    """The number of methods or runs with one outcome.

    Attributes:
        links: Links to the forms of these methods.
        left: Number of methods without a link in `links`.
    """

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
        state: For a proven control, its level of proof, or `at chance` if the control itself is at chance. Otherwise, one of
            these words: stated (not proven), several (the controls differ), absent, or `not part of this report`.
        doubt: Reason why the control is not proven.
        integrity: Integrity of the control's metrics.
        checks: For every check by the audit, the tuple (subject, outcome).
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


@dataclass(frozen=True)
class Cell:
    """A cell of a form's table: a number and the finding about this number.

    Attributes:
        word: State of the finding.
        outcome: Outcome of the finding.
        deviation: Standard deviation, if the number is a mean.
    """

    number: Number
    word: str = ""
    outcome: str = ""
    deviation: Number | None = None


@dataclass(frozen=True)
class CardLine:
    """The part of a diagnostic's card (description) that a reporting form shows.

    Attributes:
        line: Description of the diagnostic.
        cannot_tell: What the diagnostic cannot show.
    """

    symbol: str
    line: str
    cannot_tell: str


@dataclass(frozen=True)
class Table(Generic[T]):
    """A table of numbers on a page.

    Attributes:
        columns: For each column, the tuple (heading, run id); the run id is empty if a column is not about one run.
        notes: Reasons why cells are N/A.
        cards: Cards of the diagnostics that measured the numbers.
        measured: How the numbers were measured, as recorded by the runs.
    """

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[T, ...]
    notes: tuple[str, ...] = ()
    cards: tuple[CardLine, ...] = ()
    measured: str = ""


@dataclass(frozen=True)
class ReportFile:
    """A file that every audit writes.

    Args:
        name: File name.
        description: Text of the link to the file.
        write: Function that writes the file.
    """

    name: str
    description: str
    write: Callable[[AuditReport, Path], None]
