"""Waivers: decisions to ignore a finding, each with a reason and an expiry date."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, unknown_name_text
from fa_registry.field_types import Checked, Text
from fa_registry.protocol.rules import Edition
from fa_registry.records import Finding, RunRecord, Waiver

LEAST_RUN = 6  # characters of a run id; a shorter prefix may match runs that the author does not know
WAIVABLE = ("fail", "warn")


@dataclass(frozen=True)
class WaiverFields(Checked):
    """A table `[[waiver]]` of the file."""

    rule: Text
    reason: Text
    author: Text
    date: datetime.date
    expiry: datetime.date
    run: str = ""
    method: str = ""

    def field_problems(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each wrong field, with the problem."""
        if bool(self.run) == bool(self.method):
            yield "run", f"expected either a run or a method, found {'run and method' if self.run else 'neither'}"
        if 0 < len(self.run) < LEAST_RUN:
            yield "run", f"expected at least {LEAST_RUN} characters of the run id, found {self.run!r}"
        if self.date > self.expiry:
            yield "expiry", f"{self.expiry} is before the date of the waiver, {self.date}"


@dataclass(frozen=True)
class WaiverFile:
    waiver: tuple[WaiverFields, ...] = ()


def load_waivers(path: Path | str, today: datetime.date) -> tuple[Waiver, ...]:
    """Read the waivers of a TOML file.

    Each `[[waiver]]` has the fields `rule`, `reason`, `author`, `date` and `expiry`, and one of the fields `run` and `method`.
    The dates are in ISO 8601, and `expiry` is the last valid day. A waiver whose expiry is before `today` is returned as expired;
    it has no effect but is shown.

    Raises:
        InvalidFields: lists every wrong field of every waiver.
    """
    raw = jsonio.read_toml(Path(path), f"waivers {path}", has_dates=True).table
    tables = jsonio.decode(WaiverFile, raw, f"waivers {path}").waiver
    if problems := [
        f"waiver[{index}].date: {table.date} is after today, {today}; a waiver is valid only from its date on"
        for index, table in enumerate(tables)
        if table.date > today
    ]:
        raise InvalidFields(f"waivers {path}", problems)
    return tuple(
        Waiver(
            **{**vars(table), "date": table.date.isoformat(), "expiry": table.expiry.isoformat()},
            expired=table.expiry < today,
        )
        for table in tables
    )


def waived(finding: Finding, record: RunRecord, waivers: Iterable[Waiver]) -> Finding:
    """Mark a finding as waived if its outcome is `fail` or `warn` and a valid waiver matches it.

    Any other finding is returned unchanged.
    """
    if finding.outcome not in WAIVABLE:
        return finding
    for waiver in waivers:
        if waiver.rule == finding.rule and not waiver.expired and _speaks_of(waiver, record):
            detail = f"waived by {waiver.author} on {waiver.date}, until {waiver.expiry}: {waiver.reason}"
            return dataclasses.replace(finding, outcome="waived", detail=detail)
    return finding


def unknown_rules(waivers: Iterable[Waiver], editions: Sequence[Edition]) -> tuple[str, ...]:
    """Return a remark for every waived rule that no loaded edition contains, such as a misspelt rule."""
    known_codes = {rule.code for edition in editions for rule in edition.rules}
    names = dict.fromkeys(waiver.rule for waiver in waivers if waiver.rule not in known_codes)
    return tuple(f"a waiver has no effect: {unknown_name_text('rule', name, known_codes)}" for name in names)


def without_runs(waivers: Iterable[Waiver], records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a remark for every valid waiver that matches no run, such as one with a misspelt run id."""
    methods = {record.spec.method_label for record in records}
    unmatched = [
        waiver for waiver in waivers if not waiver.expired and not any(_speaks_of(waiver, record) for record in records)
    ]
    return tuple(
        f"a waiver of {waiver.rule} has no effect: "
        + (f"no run id begins with {waiver.run}" if waiver.run else unknown_name_text("method", waiver.method, methods))
        for waiver in unmatched
    )


def _speaks_of(waiver: Waiver, record: RunRecord) -> bool:
    """Return whether a waiver matches a run."""
    if waiver.run:
        return record.run_id.startswith(waiver.run)
    # `method` is the label of the reports, `dfa+pen λ=0.01`: a waiver for dfa does not match other variants of dfa
    return bool(waiver.method) and record.spec.method_label == waiver.method
