"""From an audit report to what audit_table.tex.j2 shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fa_registry.quantities import means_in_words
from fa_registry.reporting.build_index import number_footnotes, setting_rows
from fa_registry.reporting.contexts import AuditTableContext
from fa_registry.reporting.parts import Estimate
from fa_registry.reporting.readings import COLUMNS
from fa_registry.reporting.rows import AuditRow, SettingRows, SettingTable
from fa_registry.reporting.sources import Sources

SHOWN = ("accuracy", "h_norm", "g_norm", "growth", "stability", "frozen")  # the columns of the paper's audit table


def audit_table_context(sources: Sources) -> AuditTableContext:
    """The audit table, every setting with footnotes of its own: a paper may take one and leave another."""
    report = sources.report
    return AuditTableContext(
        selection=report.selection,
        edition=report.edition,
        tables=tuple(_table(number, part) for number, part in enumerate(setting_rows(sources), 1)),
        means=means_in_words(COLUMNS[name] for name in SHOWN),
        shows_stability=any("stability_mid" in run.record.measurements.scalars for run in report.runs),
    )


def _table(number: int, part: SettingRows) -> SettingTable:
    (marked,), footnotes = number_footnotes([part])
    used = dict.fromkeys(mark for row in marked.rows for column in SHOWN for mark in getattr(row, column).marks)
    places = {mark: place for place, mark in enumerate(used, 1)}
    rows = tuple(replace(row, **_numbered(row, places)) for row in marked.rows)
    notes = {note.mark: note for note in footnotes}
    return SettingTable(
        number, part.setting, rows, tuple(replace(notes[mark], mark=place) for mark, place in places.items())
    )


def _numbered(row: AuditRow, places: Mapping[int, int]) -> dict[str, Estimate]:
    """The shown columns with the marks that their footnotes have in this table."""
    columns = {column: getattr(row, column) for column in SHOWN}
    return {name: replace(shown, marks=tuple(places[mark] for mark in shown.marks)) for name, shown in columns.items()}
