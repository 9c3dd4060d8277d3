"""The template variables of the audit table for a paper, and of its notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fa_registry.errors import InvalidFields, unknown_name_text
from fa_registry.metrics import SUBJECTS, headlines_of, table
from fa_registry.protocol.grouping import Group
from fa_registry.records import EditionReference
from fa_registry.reporting.labels import means_in_text
from fa_registry.reporting.pages.index import setting_table, settings_of
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import Columns, audit_columns
from fa_registry.reporting.view_models import SettingTable
from fa_registry.statistics import CONFIDENCE
from fa_registry.statistics.intervals import level_text

MOST_COLUMNS = (
    5  # metrics between the method and the verdict: a table of seven columns fits into the column of a journal
)


@dataclass(frozen=True)
class MarginInterval:
    """The interval of a margin that the rule about depth judged.

    Attributes:
        ends: Low and high, in the unit of the margin.
        level: Its level as text, such as `95 %`.
        test: Name of its test, such as `paired t test`.
    """

    ends: tuple[float, float]
    level: str
    test: str


@dataclass(frozen=True)
class PaperTable:
    """The table of one setting.

    Attributes:
        part: The rows, as on the first page of the audit.
        columns: The metrics between the method and the verdict.
        seeds: The smallest and the largest number of seeds of a method.
        intervals: One entry per row; None if no rule judged an interval of the margin.
        means: The kind of mean over seeds of each column.
    """

    part: SettingTable
    columns: Columns
    seeds: tuple[int, int]
    intervals: tuple[MarginInterval | None, ...]
    means: str

    @property
    def methods(self) -> tuple[str, ...]:
        """Level and test of each kind of interval in the table, such as `95 %, paired t test`."""
        return tuple(dict.fromkeys(f"{one.level}, {one.test}" for one in self.intervals if one))


@dataclass(frozen=True)
class PaperTableContext:
    """audit_table.tex.j2 and audit_table_notes.tex.j2: the table for a paper, and its notes."""

    selection: str
    """how the runs were chosen"""
    edition: EditionReference
    """the edition (set of rules) that judged the runs, by name and digest"""
    tables: tuple[PaperTable, ...]
    """one table per setting, with at most seven columns"""


def paper_table_context(sources: Sources, names: Sequence[str] = ()) -> PaperTableContext:
    """Return the template variables of the table for a paper.

    Args:
        sources: The report.
        names: The metrics in the columns. The default is the table `paper`.

    Raises:
        InvalidFields: There are too many names, or no run of the report measured a metric of this name.
    """
    _check(sources, names)
    tables = []
    for number, part in enumerate(settings_of(sources), 1):
        runs = [run for group, _ in part for run in group.runs]
        counts = [len(group.runs) for group, _ in part]
        columns = audit_columns(runs, names or table("paper", headlines_of(run.record for run in runs)), sources.known)
        tables.append(
            PaperTable(
                setting_table(number, part, columns, sources),
                columns,
                (min(counts), max(counts)),
                tuple(_interval(group) for group, _ in part),
                means_in_text(columns),
            )
        )
    return PaperTableContext(sources.report.selection, sources.report.edition, tuple(tables))


def _interval(group: Group) -> MarginInterval | None:
    """Return the interval of the margin over the frozen control that the leading edition judged."""
    judged = (one for run in group.runs for one in run.findings if one.quantity in SUBJECTS["depth"] and one.interval)
    finding = next(judged, None)
    if finding is None:
        return None
    return MarginInterval(finding.interval, level_text(finding.confidence or CONFIDENCE), finding.test)


def _check(sources: Sources, names: Sequence[str]) -> None:
    """Refuse names of columns that no run measured, and more columns than fit."""
    runs = sources.report.runs
    known = {name for run in runs for name in run.record.measurements.scalars}
    known |= {f"{name}_L" for run in runs for name in run.record.measurements.sites}
    for one in headlines_of(run.record for run in runs):
        known |= {one.name, one.frozen, one.margin}
    of_no_family = sorted(name for name in known if "/" not in name)  # one parameter's metric is no column of a paper
    problems = [
        f"--columns: {unknown_name_text('metric', name, of_no_family)}" for name in names if name not in of_no_family
    ]
    if len(names) > MOST_COLUMNS:
        problems.append(f"--columns: expected at most {MOST_COLUMNS} metrics, found {len(names)}")
    if problems:
        raise InvalidFields("the table for a paper", problems)
