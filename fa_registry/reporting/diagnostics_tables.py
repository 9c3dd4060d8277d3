"""The form's tables of diagnostics: every quantity by seed and site, the word of the finding that speaks of it, N/A and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fa_registry.quantities import (
    DEVIATIONS,
    DIAGNOSTICS,
    FURTHER,
    RUN_SCALARS,
    SHOWN_MEMBERS,
    SITE_TABLES,
    Known,
    Quantity,
    families,
    further,
    held,
    quantity_of,
)
from fa_registry.records import AuditReport, Finding, Reading, RunAudit
from fa_registry.reporting.identification import words
from fa_registry.reporting.parts import Number
from fa_registry.reporting.readings import scalar, site_row
from fa_registry.reporting.tables import (
    CardLine,
    Cell,
    FirstFire,
    QuantityRows,
    QuantityTable,
    ScalarRow,
    ScalarTable,
    SeedCells,
    SiteRow,
    SiteTable,
)

PER_RUN = "One number a run"


def site_tables(runs: Sequence[RunAudit], report: AuditReport) -> tuple[QuantityTable, ...]:
    """The tables that hold anything: scale and reference, credit and its null, perturbation, what no table names."""
    known = held(report.cards)
    measured = (name for run in runs for name in run.record.measurements.sites)
    named = [(title, [quantity_of(name, known) for name in names]) for title, names in SITE_TABLES]
    tables = (*named, (FURTHER, list(further(measured, known))))
    made = (_site_table(title, quantities, runs, report) for title, quantities in tables)
    return tuple(table for table in made if table.quantities)


def scalar_table(runs: Sequence[RunAudit], report: AuditReport) -> ScalarTable:
    """What a run has one number of: stability at the middle, what no table names, the drift of the weights, …"""
    known = held(report.cards)
    measured = dict.fromkeys(name for run in runs for name in run.record.measurements.scalars)
    quantities = [quantity_of(name, known) for name in RUN_SCALARS if name in measured]
    quantities += [*further(measured, known), *_members(runs, known)]
    rows = tuple(_scalar_row(one, runs) for one in quantities)
    return ScalarTable(
        PER_RUN,
        tuple((run.record.spec.seed, run.record.run_id) for run in runs),
        rows,
        _cards([one.name for one in quantities], report),
        _measured([one.name for one in quantities], runs),
        _notes((row.symbol, cell) for row in rows for cell in row.cells),
    )


def gamma_table(runs: Sequence[RunAudit]) -> SiteTable:
    """Γ: sites down, seeds across. Always there, N/A and why where Γ has no value."""
    columns = tuple((f"seed {run.record.spec.seed}", run.record.run_id) for run in runs)
    lines = [site_row(run.record, "gamma") for run in runs]
    height = max(map(len, lines), default=0)
    rows = tuple(SiteRow(site, tuple(_cell(run, "gamma", "cos", site) for run in runs)) for site in range(height))
    notes = _notes((name, row.cells[index]) for index, (name, _) in enumerate(columns) for row in rows)
    return SiteTable("Γ per site and seed", columns, rows, notes)


def first_fires(runs: Sequence[RunAudit]) -> tuple[FirstFire, ...]:
    """Every rule that fired at some epoch of some seed: at which epoch first, seed by seed."""
    rules = {finding.rule: finding.title for run in runs for finding in run.findings if finding.first_fire is not None}
    return tuple(FirstFire(rule, title, tuple(_epoch(run, rule) for run in runs)) for rule, title in rules.items())


def _epoch(run: RunAudit, rule: str) -> str:
    epochs = [finding.first_fire for finding in run.findings if finding.rule == rule]
    return "never" if not epochs or epochs[0] is None else f"epoch {epochs[0]}"


def _site_table(
    title: str, quantities: Iterable[Quantity], runs: Sequence[RunAudit], report: AuditReport
) -> QuantityTable:
    shown = [one for one in quantities if _is_shown(one, runs)]
    sites = max((len(site_row(run.record, one.name)) for one in shown for run in runs), default=0)
    made = tuple(
        QuantityRows(one.name, one.symbol, one.words, tuple(_seed_cells(one, run, sites) for run in runs))
        for one in shown
    )
    notes = _notes((row.symbol, cell) for row in made for seed in row.seeds for cell in seed.cells)
    names = [one.name for one in shown]
    return QuantityTable(title, tuple(range(sites)), made, _cards(names, report), _measured(names, runs), notes)


def _is_shown(quantity: Quantity, runs: Sequence[RunAudit]) -> bool:
    lines = [site_row(run.record, quantity.name) for run in runs]
    if quantity.valued:
        return any(reading.value is not None for line in lines for reading in line)
    return quantity.always or any(lines)


def _seed_cells(quantity: Quantity, run: RunAudit, sites: int) -> SeedCells:
    cells = tuple(_cell(run, quantity.name, quantity.kind, site) for site in range(sites))
    return SeedCells(run.record.spec.seed, run.record.run_id, cells)


def _cell(run: RunAudit, name: str, kind: str, site: int) -> Cell:
    finding = _speaks_of(run, name, site)
    deviation = _number(run, DEVIATIONS[name], kind, site) if name in DEVIATIONS else None
    return Cell(
        _number(run, name, kind, site),
        finding.state if finding else "",
        finding.outcome if finding else "",
        deviation if deviation and deviation.reading.value is not None else None,
    )


def _number(run: RunAudit, name: str, kind: str, site: int) -> Number:
    """A run that broke early, or an older one, has fewer sites or none of this quantity."""
    row = site_row(run.record, name)
    absent = "was not measured at this site" if row else "was not measured"
    reading = row[site] if site < len(row) else Reading(None, f"this quantity {absent}")
    return Number(reading, kind, (run.record.run_id,))


def _speaks_of(run: RunAudit, name: str, site: int | None) -> Finding | None:
    """The finding that names this quantity at this site, or of the whole run."""
    return next((one for one in run.findings if one.quantity == name and one.site == site and one.state), None)


def _scalar_row(quantity: Quantity, runs: Sequence[RunAudit]) -> ScalarRow:
    cells = []
    for run in runs:
        finding = _speaks_of(run, quantity.name, None)
        number = Number(scalar(run.record, quantity.name), quantity.kind, (run.record.run_id,))
        cells.append(Cell(number, finding.state if finding else "", finding.outcome if finding else ""))
    return ScalarRow(quantity.name, quantity.symbol, quantity.words, tuple(cells))


def _members(runs: Sequence[RunAudit], known: Known) -> Iterator[Quantity]:
    """Of every family the largest members over the seeds, e.g. the parameters that moved most."""
    for family in (one.family for one in families(known)):
        largest: dict[str, float] = {}
        for run in runs:
            for name, reading in run.record.measurements.scalars.items():
                if name.startswith(family) and reading.value is not None:
                    largest[name] = max(reading.value, largest.get(name, reading.value))
        shown = sorted(largest, key=lambda name: (-largest[name], name))[:SHOWN_MEMBERS]
        yield from (quantity_of(name, known) for name in shown)


def _cards(names: Sequence[str], report: AuditReport) -> tuple[CardLine, ...]:
    """The cards of the diagnostics that measure one of these, where the report carries them."""
    cards = (card for key, card in report.cards.items() if key.startswith(DIAGNOSTICS))
    return tuple(_card_line(card) for card in cards if _covers(card, names))


def _covers(card: Mapping[str, Any], names: Sequence[str]) -> bool:
    quantities = [str(one) for one in card.get("quantities", ())]
    families = tuple(one.removesuffix("*") for one in quantities if one.endswith("/*"))
    return any(name in quantities or name.startswith(families) for name in names)


def _card_line(card: Mapping[str, Any]) -> CardLine:
    return CardLine(*(str(card.get(key, "")) for key in ("symbol", "line", "cannot_tell")))


def _measured(names: Sequence[str], runs: Sequence[RunAudit]) -> str:
    """The conventions these quantities were measured with, e.g. `stability_batches` of stability: from the runs.

    A card would tell what its diagnostic does today.
    """
    taken = [
        {name: value for name, value in run.record.measurements.conventions.items() if _belongs(name, names)}
        for run in runs
    ]
    return "; ".join(dict.fromkeys(words(conventions) for conventions in taken if conventions))


def _belongs(convention: str, names: Sequence[str]) -> bool:
    prefix = convention.rpartition("_")[0]
    return bool(prefix) and any(f"{name}_".startswith(f"{prefix}_") for name in names)


def _notes(cells: Iterable[tuple[str, Cell]]) -> tuple[str, ...]:
    """Why cells hold no number: one line a quantity and reason."""
    found: Iterator[str] = (
        f"{name}: {cell.number.reading.reason}" for name, cell in cells if cell.number.reading.reason
    )
    return tuple(dict.fromkeys(found))
