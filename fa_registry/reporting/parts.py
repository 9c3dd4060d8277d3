"""The small records that template contexts are made of. A number always travels with the runs it was read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fa_registry.records import Reading, Verdict


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

    of: all seeds. marks: the footnotes that say why values are missing.
    """

    kind: str
    values: tuple[SeedValue, ...]
    n: int
    mean: Number
    std: Reading
    low: Reading
    high: Reading
    marks: tuple[int, ...] = ()

    @property
    def of(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Metric:
    """One named quantity, in words, with its estimate over the seeds."""

    name: str
    words: str
    estimate: Estimate


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
    gamma: Number


@dataclass(frozen=True)
class AuditRow:
    """One line of the audit table: a method in a setting. href: its form, empty for a control."""

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
    gamma: Estimate
    href: str


@dataclass(frozen=True)
class SettingRows:
    setting: str
    rows: tuple[AuditRow, ...]


@dataclass(frozen=True)
class Footnote:
    mark: int
    reason: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class FindingRow:
    """One finding. site, epoch: in words, empty where there is none; epoch is the one of first fire."""

    rule: str
    title: str
    outcome: str
    required: str
    observed: Number
    sentence: str
    method: str
    setting: str
    seed: int
    run_name: str
    site: str
    epoch: str
    reference_run_id: str


@dataclass(frozen=True)
class Cell:
    """A number and, where a finding speaks about just this one, the finding's word for it."""

    number: Number
    word: str = ""
    fires: bool = False


@dataclass(frozen=True)
class SiteRow:
    site: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class SiteTable:
    """Sites down, columns across. columns: (name, unit or run id). notes: why cells are N/A."""

    caption: str
    run_id: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[SiteRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """kind: may (may be claimed), not (must be walked back) or open (nothing may be said)."""

    kind: str
    text: str
    run_ids: tuple[str, ...]


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
class Link:
    """href: the HTML form, markdown: its Markdown twin, both relative to the index."""

    text: str
    setting: str
    verdict: Verdict
    href: str
    markdown: str


@dataclass(frozen=True)
class Count:
    """outcome: what is counted; names: who."""

    outcome: str
    count: int
    links: tuple[Link, ...] = ()


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
class SettingFigures:
    setting: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class IntegrityRow:
    run_id: str
    name: str
    state: str
    details: tuple[str, ...]


@dataclass(frozen=True)
class Blank:
    """What only a person can fill. key: its marker in the Markdown form; text: what is there now."""

    key: str
    title: str
    prompt: str
    text: str
