"""What changed of the audits as a whole: what was asked, by which editions, with which waivers, and what was published."""

from __future__ import annotations

from collections.abc import Iterator

from fa_registry import jsonio
from fa_registry.records import AuditReport, EditionReference, FigureVerdict, Reproduction, Waiver
from fa_registry.reporting.audit_diff.records import Change
from fa_registry.reporting.audit_diff.values import changed, changed_entries

EDITION = ("name", "title", "source", "digest")
REFERENCE = ("reference", "title", "digest", "remarks")


def report_changes(a: AuditReport, b: AuditReport) -> tuple[Change, ...]:
    """Every change that is not one of a run; run by run is what the other modules do."""
    return (
        *changed("title", a.title, b.title),
        *changed("selection", a.selection, b.selection),
        *_edition("edition", a.edition, b.edition),
        *_further_editions(a, b),
        *changed_entries("waiver", _waivers(a), _waivers(b)),
        *changed_entries("not judged", _excluded(a), _excluded(b)),
        *changed_entries("remark", dict.fromkeys(a.remarks, "there"), dict.fromkeys(b.remarks, "there")),
        *_cards(a, b),
        *_reproduction(a.reproduction, b.reproduction),
    )


def _edition(what: str, a: EditionReference, b: EditionReference) -> Iterator[Change]:
    for name in EDITION:
        yield from changed(f"{what} {name}", getattr(a, name), getattr(b, name))
    yield from changed_entries(f"{what} override", a.overrides, b.overrides)


def _further_editions(a: AuditReport, b: AuditReport) -> Iterator[Change]:
    before = {one.edition.name: one.edition for one in a.opinions}
    after = {one.edition.name: one.edition for one in b.opinions}
    for name in dict.fromkeys((*before, *after)):
        if name in before and name in after:
            yield from _edition(f"further edition {name}", before[name], after[name])
        else:
            there = {True: "there", False: ""}
            yield Change(f"further edition {name}", there[name in before], there[name in after])


def _waivers(report: AuditReport) -> dict[str, str]:
    """What each waiver is for → its terms; one for the same thing that was renewed is a change, not another."""
    found: dict[str, str] = {}
    for one in report.waivers:
        key = f"of {one.rule} for {one.run or one.method}"
        found[key] = f"{found[key]}; {_terms(one)}" if key in found else _terms(one)
    return found


def _terms(waiver: Waiver) -> str:
    expired = " (expired)" if waiver.expired else ""
    return f"{waiver.date} to {waiver.expiry}{expired} by {waiver.author}: {waiver.reason}"


def _excluded(report: AuditReport) -> dict[str, str]:
    return {f"{one.name} ({one.run_id})": one.reason for one in report.excluded}


def _cards(a: AuditReport, b: AuditReport) -> Iterator[Change]:
    for name in sorted({*a.cards, *b.cards}):
        yield from changed_entries(f"card {name}:", a.cards.get(name, {}), b.cards.get(name, {}))


def _reproduction(a: Reproduction | None, b: Reproduction | None) -> Iterator[Change]:
    """Figure by figure. The runs behind them are compared as runs."""
    for name in REFERENCE:
        yield from changed(f"reference {name}", getattr(a, name, ""), getattr(b, name, ""))
    yield from changed_entries("reproduction of", _figures(a), _figures(b))


def _figures(found: Reproduction | None) -> dict[str, str]:
    rows = found.rows if found else ()
    return {f"{row.figure.label} {row.figure.quantity} {jsonio.digest_of(row.figure)[:8]}": _row(row) for row in rows}


def _row(row: FigureVerdict) -> str:
    numbers = {"mean": row.mean, "std": row.std, "difference": row.difference}
    known = [f"{name} {reading.value!r}" for name, reading in numbers.items() if reading.value is not None]
    words = [*known, *([f"90 % interval {row.interval_90}"] if row.interval_90 else []), f"margin {row.margin!r}"]
    return f"{row.outcome}: {row.reason} ({', '.join(words)}; {row.setting})"
