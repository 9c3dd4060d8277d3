"""Judged reports of hand-made runs: the figures of a test are the ones it names, everything else is healthy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fa_registry.analyses import CATALOG, Analysis, AnalysisCell, AnalysisTable
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.rules import Edition, load_edition
from fa_registry.records import AuditReport, Measurements, Reading, RunRecord, Series
from tests.builders import TEST_SET, reading, record

SEEDS = (42, 123, 456)
CARDS: Mapping[str, Mapping[str, Any]] = {
    "datasets/digits": {"classes": 10},
    "methods/bp": {"exact_sites": "all"},
    "methods/fa": {"exact_sites": "last"},
    "methods/dfa": {"exact_sites": "none"},
}
LIMITS = {"D1": 50.0, "D2": 1e-7, "D2.gain": 1e-4, "D2.fidelity": 0.99, "D3": 2.0}  # regardless of its calibration
OURS = load_edition("2026-12", LIMITS)
EXACT = "the credit is exact by construction at every site"
AGGREGATES = tuple(
    f"gamma_{scope}_{sites}_{samples}"
    for scope in ("deep", "all")
    for sites in ("mean", "median")
    for samples in ("mean", "median")
)
Figure = float | str  # a text is the reason why there is no number


def number(value: Figure) -> Reading:
    return Reading(None, value) if isinstance(value, str) else reading(value)


def series(*values: Figure) -> Series:
    return Series(map(number, values))


def measured(
    growth: Figure = 2.0,
    g: Figure = 1e-3,
    gain: Figure = 0.7,
    fidelity: Figure = 1.0,
    accuracy: Figure = 0.9,
    gamma: Figure = 0.1,
    sites: Mapping[str, Sequence[Figure]] | None = None,
    **scalars: Figure,
) -> Measurements:
    """Three sites. growth: of the last block; g: ‖g_L‖ of the mean CE at N = 128; gamma: the headline and all aggregates."""
    no_block = Reading(None, "site 0 has no block before it")
    rows = {
        "h_norm": (Reading(1.0), Reading(1.0), number(growth)),
        "growth": (no_block, number(growth if isinstance(growth, str) else 1.0), number(growth)),
        "growth_init": (Reading(1.0),) * 3,
        "g_norm": (number(g if isinstance(g, str) else 128 * g),) * 3,
        "g_norm_mean_ce": (number(g),) * 3,
        "gain": (number(gain),) * 3,
        "fidelity": (number(fidelity),) * 3,
        "fidelity_batch": (number(fidelity),) * 3,
        **{name: tuple(map(number, row)) for name, row in (sites or {}).items()},
    }
    headline = {"accuracy": accuracy, "growth_max": growth, "h_L": growth, "gamma_deep_mean": gamma}
    named = {**headline, **dict.fromkeys(AGGREGATES, gamma), **scalars}
    return Measurements(rows, {name: number(value) for name, value in named.items()}, TEST_SET)


def run(method: str, seed: int = 42, status: str = "complete", lines: Mapping | None = None, **given: Any) -> RunRecord:
    """A run whose id and name are `dfa-42`. given: figures of `measured`, and under `spec` fields of its RunSpec.

    lines: metric → its values by epoch.
    """
    changes = given.pop("spec", {})
    if method == "bp":
        given.setdefault("gamma", EXACT)
    made = record("", measured(**given), status, method=method, seed=seed, **changes)
    name = f"{made.spec.method_label}-{seed}"
    trajectory = {quantity: series(*values) for quantity, values in (lines or {}).items()}
    return dataclasses.replace(made, run_id=name, name=name, trajectory=trajectory)


def frozen(seed: int = 42, accuracy: Figure = 0.5, **changes: Any) -> RunRecord:
    return run("bp", seed, accuracy=accuracy, spec={"control": "frozen", **changes})


def controlled(*runs: RunRecord, accuracy: float = 0.5) -> list[RunRecord]:
    """The runs with a frozen control for each of their seeds."""
    return [*runs, *(frozen(seed, accuracy) for seed in dict.fromkeys(run.spec.seed for run in runs))]


def report_of(records: Sequence[RunRecord], edition: Edition, **changes: Any) -> AuditReport:
    audits = judge_all(records, edition, changes.get("waivers", ()))
    report = AuditReport("test", "hand-made runs", edition.reference, audits, cards=CARDS)
    return dataclasses.replace(report, **changes)


def analysed(name: str, records: Sequence[RunRecord], edition: str | Edition = "2026-05", **changes: Any) -> Analysis:
    """The named analysis of the records, judged by the edition."""
    rules = load_edition(edition) if isinstance(edition, str) else edition
    return CATALOG.get(name.replace("-", "_")).run(report_of(records, rules, **changes), rules)


def row(table: AnalysisTable, **wanted: str | float) -> Mapping[str, AnalysisCell]:
    """The one row with these words, or these numbers, in its cells."""
    found = [row for row in table.rows if all(value in shown(row[name]) for name, value in wanted.items())]
    assert len(found) == 1, f"{len(found)} rows of {table.name} have {wanted}"
    return found[0]


def shown(cell: AnalysisCell) -> tuple:
    return (cell.text, cell.reading.value if cell.reading else None)


def values(cells: Mapping[str, AnalysisCell], *names: str) -> list:
    """The numbers of a row, the reason where there is none."""
    return [cells[name].reading.reason or cells[name].reading.value for name in names]
