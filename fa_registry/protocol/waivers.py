"""Waivers: decisions to ignore a finding, each with a reason and an expiry date."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, unknown_field_text, unknown_name_text
from fa_registry.protocol.rules import Edition
from fa_registry.records import Finding, RunRecord, Waiver

TEXTS = ("rule", "reason", "author")
DATES = ("date", "expiry")
WHERE = ("run", "method")
LEAST_RUN = 6  # characters of a run id; a shorter prefix may match runs that the author does not know
WAIVABLE = ("fail", "warn")


def load_waivers(path: Path | str, today: datetime.date) -> tuple[Waiver, ...]:
    """Read the waivers of a TOML file.

    Each `[[waiver]]` has the fields `rule`, `reason`, `author`, `date` and `expiry`, and one of the fields `run` and `method`.
    The dates are in ISO 8601, and `expiry` is the last valid day. A waiver whose expiry is before `today` is returned as expired;
    it has no effect but is shown.

    Raises:
        InvalidFields: lists every wrong field of every waiver.
    """
    raw, _ = jsonio.read_toml(Path(path), f"waivers {path}")
    problems = [unknown_field_text("", "field", name, ["waiver"]) for name in raw if name != "waiver"]
    tables = raw.get("waiver", [])
    if not isinstance(tables, list):
        tables, problems = [], [*problems, f"waiver: expected [[waiver]] tables, found {jsonio.describe_value(tables)}"]
    for index, table in enumerate(tables):
        problems += (f"waiver[{index}].{problem}" for problem in _problems(table, today))
    if problems:
        raise InvalidFields(f"waivers {path}", problems)
    return tuple(_waiver(table, today) for table in tables)


def waived(finding: Finding, record: RunRecord, waivers: Iterable[Waiver]) -> Finding:
    """Mark a finding as waived if a valid waiver matches it.

    Only a finding with the outcome `fail` or `warn` can be waived. Any other finding is returned unchanged.
    """
    if finding.outcome not in WAIVABLE:
        return finding
    for waiver in waivers:
        if waiver.rule == finding.rule and not waiver.expired and _speaks_of(waiver, record):
            detail = f"waived by {waiver.author} on {waiver.date}, until {waiver.expiry}: {waiver.reason}"
            return dataclasses.replace(finding, outcome="waived", detail=detail)
    return finding


def unknown_rules(waivers: Iterable[Waiver], editions: Sequence[Edition]) -> tuple[str, ...]:
    """Return a remark for every waived rule that no loaded edition contains.

    A typical cause is a misspelt rule.
    """
    known_codes = {rule.code for edition in editions for rule in edition.rules}
    names = dict.fromkeys(waiver.rule for waiver in waivers if waiver.rule not in known_codes)
    return tuple(f"a waiver has no effect: {unknown_name_text('rule', name, known_codes)}" for name in names)


def without_runs(waivers: Iterable[Waiver], records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return a remark for every valid waiver that matches no run.

    A typical cause is a misspelt run id.
    """
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


def _problems(table: Any, today: datetime.date) -> Iterator[str]:
    if not isinstance(table, Mapping):
        yield f"table: expected a table, found {jsonio.describe_value(table)}"
        return
    known_fields = (*TEXTS, *DATES, *WHERE)
    yield from (unknown_field_text("", "field", name, known_fields) for name in table if name not in known_fields)
    for name in (*TEXTS, *WHERE):
        value = table.get(name)
        if name in TEXTS and (value is None or not str(value).strip()):
            yield f"{name}: missing"
        elif value is not None and not isinstance(value, str):
            yield f"{name}: expected text, found {jsonio.describe_value(value)}"
    target_fields = [name for name in WHERE if table.get(name)]
    if len(target_fields) != 1:
        yield f"run: expected either a run or a method, found {' and '.join(target_fields) or 'neither'}"
    if isinstance(table.get("run"), str) and 0 < len(table["run"]) < LEAST_RUN:
        yield f"run: expected at least {LEAST_RUN} characters of the run id, found {table['run']!r}"
    yield from _date_problems(table, today)


def _date_problems(table: Mapping[str, Any], today: datetime.date) -> Iterator[str]:
    days = {name: _day(table[name]) for name in DATES if table.get(name) not in (None, "")}
    for name in DATES:
        if name not in days:
            yield f"{name}: missing"
        elif days[name] is None:
            yield f"{name}: expected a date such as 2026-11-30, found {jsonio.describe_value(table[name])}"
    if days.get("date") and days["date"] > today:
        yield f"date: {days['date']} is after today, {today}; a waiver is valid only from its date on"
    if len(days) == len(DATES) and None not in days.values() and days["date"] > days["expiry"]:
        yield f"expiry: {days['expiry']} is before the date of the waiver, {days['date']}"


def _day(value: Any) -> datetime.date | None:
    """Return the day of a TOML date or of a text YYYY-MM-DD; None for other values.

    The function date.fromisoformat would also accept a text such as 2026-W48.
    """
    if isinstance(value, datetime.datetime):
        return None
    if isinstance(value, datetime.date):
        return value
    try:
        day = datetime.date.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return day if day.isoformat() == value else None


def _waiver(table: Mapping[str, Any], today: datetime.date) -> Waiver:
    days = {name: _day(table[name]) for name in DATES}
    dates = {name: day.isoformat() for name, day in days.items()}
    return Waiver(**{**table, **dates}, expired=days["expiry"] < today)
