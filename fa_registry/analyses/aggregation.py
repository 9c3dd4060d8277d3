"""Analysis `aggregation`: Γ of a method according to eight ways of averaging.

The eight numbers are computed from the same cosines. If a site dominates the mean, the analysis names this site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fa_registry.analyses._methods import METHOD, RUNS, SEED, SETTING, MethodRuns, mean_cell, trained
from fa_registry.analyses.base import Analyser, AnalysisCell, AnalysisColumn, AnalysisResult, AnalysisTable
from fa_registry.metrics import AGGREGATES, NOT_CREDITED, symbol_of
from fa_registry.protocol.credit import exact_sites
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading, RunAudit, RunRecord

PREFIX = "gamma_"
NAMES = {name.removeprefix(PREFIX): text for name, text in AGGREGATES.items()}
GAMMA = symbol_of("gamma")
EIGHT = tuple(AnalysisColumn(name, description, "cosine", "cos") for name, description in NAMES.items())
SPREAD = AnalysisColumn("spread", f"largest minus smallest of the eight aggregates of {GAMMA}", "cosine", "cos")
RATIO = AnalysisColumn(
    "ratio",
    f"largest of the eight |aggregates| of {GAMMA} divided by the smallest, if all aggregates have the same sign",
    "ratio",
    "num",
)
COLUMNS = (
    METHOD,
    SETTING,
    RUNS,
    *EIGHT,
    SPREAD,
    RATIO,
    AnalysisColumn(
        "carrier", f"site that contributes more than half of Σ|{GAMMA}|, summed over the counted sites 1..L"
    ),
    AnalysisColumn(
        "share", f"largest |{GAMMA}| of a site divided by Σ|{GAMMA}|, over the counted sites 1..L", "fraction", "pct"
    ),
)
BY_RUN = (METHOD, SETTING, SEED, *EIGHT, SPREAD, RATIO)
BY_SITE = (
    METHOD,
    SETTING,
    AnalysisColumn("site", "number l of the site", kind="count"),
    AnalysisColumn("gamma", f"{GAMMA}, mean over seeds", "cosine", "cos"),
    AnalysisColumn("counts", "whether the eight aggregates include this site"),
)


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Compute eight aggregates of Γ for every method, and the spread and ratio of the aggregates.

    Returns:
        Three tables: the aggregates of each method with the site that dominates the mean, the aggregates of each run, and Γ
        at each site.
    """
    rows, by_run, by_site = [], [], []
    for method in trained(report):
        sites = _sites(method, report.cards.get(f"methods/{method.name}", {}))
        by_site += [row for _, row in sites]
        rows.append({**method.cells, **_aggregates(method.runs), **_carrier([row for counts, row in sites if counts])})
        labels = {name: method.cells[name] for name in (METHOD.name, SETTING.name)}
        for run in method.runs:
            seed = AnalysisCell(Reading(float(run.record.spec.seed)), run_ids=(run.record.run_id,))
            by_run.append({**labels, SEED.name: seed, **_aggregates((run,))})
    tables = (
        AnalysisTable("aggregation", f"{GAMMA} of each method in eight aggregates", COLUMNS, tuple(rows)),
        AnalysisTable("runs", "The eight aggregates of each run", BY_RUN, tuple(by_run), detail=True),
        AnalysisTable("sites", f"{GAMMA} at each site", BY_SITE, tuple(by_site), detail=True),
    )
    remark = f"The aggregates exclude sites whose credit is exact by construction, because {GAMMA} is always 1 at these sites."
    return AnalysisResult(tables, (remark,))


def _aggregates(runs: tuple[RunAudit, ...]) -> dict[str, AnalysisCell]:
    cells = {name: mean_cell(runs, f"{PREFIX}{name}") for name in NAMES}
    ids = tuple(dict.fromkeys(run_id for cell in cells.values() for run_id in cell.run_ids))
    readings = [cell.reading for cell in cells.values()]
    missing = next((reading for reading in readings if reading.value is None), None)
    spread, ratio = (missing, missing) if missing else _spread_and_ratio([reading.value for reading in readings])
    return {**cells, "spread": AnalysisCell(spread, run_ids=ids), "ratio": AnalysisCell(ratio, run_ids=ids)}


def _spread_and_ratio(values: list[float]) -> tuple[Reading, Reading]:
    spread = Reading(max(values) - min(values))
    if min(values) <= 0 <= max(values):
        text = "at least one aggregate is 0" if 0.0 in values else "the eight aggregates differ in sign"
        return spread, Reading(None, f"no ratio: {text}")
    sizes = sorted(map(abs, values))
    return spread, Reading.of(sizes[-1] / sizes[0])


def _sites(method: MethodRuns, card: Mapping[str, Any]) -> list[tuple[bool, dict[str, AnalysisCell]]]:
    """Return one row per site, and whether the site counts in the aggregates over sites 1..L."""
    count = max(len(run.record.measurements.sites.get("gamma", ())) for run in method.runs)
    rows = []
    for site in range(count):
        is_exact = site in exact_sites(card, count)
        counts = not is_exact and site > 0
        note = "exact by construction" if is_exact else "yes" if counts else "only in the aggregates over sites 0..L"
        if any(_gamma(run.record, site).reason == NOT_CREDITED for run in method.runs):
            counts, note = False, f"no: {NOT_CREDITED}"
        rows.append(
            (
                counts,
                {
                    METHOD.name: method.cells[METHOD.name],
                    SETTING.name: method.cells[SETTING.name],
                    "site": AnalysisCell(Reading(float(site))),
                    "gamma": mean_cell(method.runs, "gamma", lambda record, site=site: _gamma(record, site)),
                    "counts": AnalysisCell(text=note),
                },
            )
        )
    return rows


def _gamma(record: RunRecord, site: int) -> Reading:
    row = record.measurements.sites.get("gamma", ())
    return row[site] if site < len(row) else Reading(None, f"site {site} does not exist in this run")


def _carrier(counted_rows: list[dict[str, AnalysisCell]]) -> dict[str, AnalysisCell]:
    """Return the cells `carrier` and `share` for the counted site l ≥ 1 with the largest |Γ_l|.

    `share` is the fraction of this |Γ_l| in the sum over sites. `carrier` names the site if the fraction is larger than ½.
    """
    missing = [row["gamma"] for row in counted_rows if row["gamma"].reading.value is None]
    if missing or not counted_rows:
        reason = f"no site is counted, because {GAMMA} was not measured or the credit is exact at every site"
        absent = AnalysisCell(Reading(None, reason))
        if missing:
            absent = AnalysisCell(missing[0].reading, run_ids=missing[0].run_ids)
        return {"carrier": AnalysisCell(text="N/A"), "share": absent}
    sizes = [abs(row["gamma"].reading.value) for row in counted_rows]
    total, largest = math.fsum(sizes), max(sizes)
    if total == 0:
        return {"carrier": AnalysisCell(text="none"), "share": AnalysisCell(Reading(None, f"every {GAMMA} is 0"))}
    row = counted_rows[sizes.index(largest)]
    site = f"site {row['site'].reading.value:.0f}"
    has_majority = largest / total > 0.5 and len(sizes) > 1
    text = site if has_majority else "none" if len(sizes) > 1 else f"{site}, the only one"
    return {
        "carrier": AnalysisCell(text=text),
        "share": AnalysisCell(Reading(largest / total), run_ids=row["gamma"].run_ids),
    }


PLUGIN = Analyser(
    name="aggregation",
    title=f"Aggregation of {GAMMA}",
    question=f"How much does {GAMMA} of a method depend on how it is averaged over sites and samples?",
    source="arXiv 2606.21126, which finds a factor of 2.5 to 5 between four common aggregations",
    answer=answer,
    figure="fa_registry.reporting.figures.analyses.aggregation",
)
