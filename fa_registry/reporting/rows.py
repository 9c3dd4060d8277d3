"""The rows of the pages' tables: runs, findings, waivers, and the editions side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fa_registry.records import EditionReference, Verdict, Waiver
from fa_registry.reporting.naming import label_parts
from fa_registry.reporting.parts import Estimate, Listed, Number


@dataclass(frozen=True)
class SeedRow:
    """One run in the headline quantities. h_norm, g_norm: at the last site; g_norm: of the mean cross entropy."""

    method: str
    seed: int
    run_id: str
    name: str
    status: str
    verdict: Verdict
    integrity: str
    accuracy: Number
    frozen: Number
    margin: Number
    h_norm: Number
    g_norm: Number
    growth: Number
    stability: Number
    gamma: Number


@dataclass(frozen=True)
class Judged:
    """What a rule says of a column of the audit table, where it does not pass. seeds: of which it says so."""

    rule: str
    outcome: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class AuditRow:
    """One line of the audit table: a method in a setting. href: its form, empty for a control.

    judged: column → what does not pass there.
    """

    method: str
    control: bool
    verdict: Verdict
    seeds: tuple[SeedRow, ...]
    accuracy: Estimate
    frozen: Estimate
    margin: Estimate
    h_norm: Estimate
    g_norm: Estimate
    growth: Estimate
    stability: Estimate
    gamma: Estimate
    href: str
    judged: Mapping[str, Judged] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The method without its options."""
        return label_parts(self.method)[0]

    @property
    def options(self) -> str:
        """`name=value, name=value`; empty where there are none."""
        return label_parts(self.method)[1]


@dataclass(frozen=True)
class SettingRows:
    setting: str
    rows: tuple[AuditRow, ...]


@dataclass(frozen=True)
class Footnote:
    mark: int
    reason: str
    run_ids: Listed[str]


@dataclass(frozen=True)
class SettingTable:
    """A part of the audit table that stands alone. number: from 1; footnotes: why its numbers are missing."""

    number: int
    setting: str
    rows: tuple[AuditRow, ...]
    footnotes: tuple[Footnote, ...]


@dataclass(frozen=True)
class Said:
    """What a rule says of some seeds in the same words; a finding over seeds says it of all of them at once.

    site, epoch: in words, empty where there is none; epoch is the one of first fire. interval: of `observed`.
    level: of the interval, `95 %`. detail: traceback of a rule that crashed, or who waived the finding, when and why.
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


@dataclass(frozen=True)
class FindingRow:
    """One rule's judgement of one method in one setting, with what it says of each seed that it judges alike.

    limit: what is required, without the unit where the report knows it apart.
    """

    rule: str
    title: str
    outcome: str
    state: str
    gating: bool
    required: str
    method: str
    setting: str
    said: tuple[Said, ...]
    limit: str

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
class Comparison:
    editions: tuple[EditionReference, ...]
    rows: Listed[ComparedRow]


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
    rows: Listed[EditionChange]


@dataclass(frozen=True)
class JudgedBy:
    """What one edition says of a method in a setting: of all seeds together, and rule by rule."""

    edition: EditionReference
    verdict: Verdict
    findings: tuple[FindingRow, ...]


@dataclass(frozen=True)
class Link:
    """href: the HTML form, markdown: its Markdown twin, both relative to the index."""

    text: str
    setting: str
    verdict: Verdict
    href: str
    markdown: str

    @property
    def name(self) -> str:
        """The method without its options."""
        return label_parts(self.text)[0]

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


@dataclass(frozen=True)
class IntegrityRow:
    run_id: str
    name: str
    state: str
    details: tuple[str, ...]
