"""The records compare.html.j2 is made of: columns are what is compared, a part is one setting."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.records import EditionReference, Exclusion, Reading, Verdict
from fa_registry.reporting.parts import Entry, Estimate, Listed, Number, Picture, Plate, documented
from fa_registry.reporting.rows import Count, FindingRow


@dataclass(frozen=True)
class Contender:
    """A column: all seeds of a method in a setting, or one run. seeds: (seed, run id, the run's own verdict)."""

    label: str
    setting: str
    verdict: Verdict
    seeds: tuple[tuple[int, str, Verdict], ...]


@dataclass(frozen=True)
class ComparedQuantity:
    """One quantity, an estimate a column."""

    name: str
    symbol: str
    words: str
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True)
class ComparedRule:
    """What one rule says of every column: seeds that it judges alike together.

    required: in words, one unless it judges the columns by several limits. first_fires: in words, one a column.
    """

    rule: str
    title: str
    required: tuple[str, ...]
    columns: tuple[tuple[FindingRow, ...], ...]
    first_fires: tuple[str, ...]


@dataclass(frozen=True)
class ComparedSites:
    """One quantity by site: rows are (site, an estimate a column).

    exact: by column the sites where the credit is exact by construction, so that Γ = 1 says nothing; empty of all else.
    """

    name: str
    symbol: str
    words: str
    rows: tuple[tuple[int, tuple[Estimate, ...]], ...]
    exact: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class ComparedField:
    """A field of the specification in which the columns differ; values in words, one a column."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class PairedRow:
    """first − second over the seeds both have. unit: of the difference; decades: of the quantities' logarithms.

    low, high: the 95 % interval, N/A and why where there is none. answer: higher, lower, undecided (0 is inside) or
    provisional (no interval).
    """

    first: str
    second: str
    words: str
    unit: str
    difference: Number
    low: Reading
    high: Reading
    seeds: tuple[int, ...]
    answer: str
    remark: str


@dataclass(frozen=True)
class SideBySide:
    """What can be compared: the columns of one setting; or, not comparable, columns of several. why_not: then."""

    setting: str
    comparable: bool
    why_not: str
    columns: tuple[Contender, ...]
    quantities: tuple[ComparedQuantity, ...]
    aggregates: tuple[ComparedQuantity, ...]
    rules: tuple[ComparedRule, ...]
    paired: tuple[PairedRow, ...]
    fields: tuple[ComparedField, ...]
    sites: tuple[ComparedSites, ...]


@dataclass(frozen=True)
class SideFigures:
    """layers: (data URI, alt text) of the figure by site; empty where no site was measured."""

    pictures: tuple[Picture, ...]
    plates: tuple[Plate, ...]
    layers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CompareContext:
    """compare.html.j2: methods or runs side by side."""

    title: str = documented("what is compared with what", "text")
    selection: str = documented("how the runs were chosen", "text")
    edition: EditionReference = documented("which rules judged", "record")
    overrides: tuple[Entry, ...] = documented("thresholds changed on the command line", "text")
    integrity: tuple[Count, ...] = documented("runs by integrity state: trusted means logged, not recomputed", "runs")
    means: str = documented("which mean over seeds each quantity has", "text")
    parts: tuple[tuple[SideBySide, SideFigures], ...] = documented(
        "the comparison, one part a setting, with its figures", "see each part"
    )
    excluded: Listed[Exclusion] = documented("runs that belong to it but cannot be judged, and why", "runs")
    remarks: tuple[str, ...] = documented("what is left out, and what the audit says besides", "text")
    commands: Listed[str] = documented("the command lines that train these runs again", "shell")
