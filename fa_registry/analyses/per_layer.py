"""Analysis `per-layer`: ‖g_l‖ and Γ_l at every site.

A mean over sites does not show whether one site dominates or fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.analyses._methods import METHOD, RUNS, SETTING, MethodRuns, Pick, mean_cell, quantity_column, trained
from fa_registry.analyses.base import Analyser, AnalysisCell, AnalysisColumn, AnalysisResult, AnalysisTable
from fa_registry.metrics import NOT_CREDITED, symbol_of
from fa_registry.protocol.credit import exact_sites
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading, RunRecord


@dataclass(frozen=True)
class SiteColumn:
    """A metric with one value per site.

    Args:
        name: name of the metric in the catalog of metrics.
        column: column of the metric in the table.
    """

    name: str
    column: AnalysisColumn


GAMMA, GRADIENT = symbol_of("gamma"), symbol_of("g_norm_mean_ce")
OF_MEAN_CE = "loss per unit of state, N = 128"
SITE = AnalysisColumn("site", "site l; site 0 is the embedding", kind="count")
QUANTITIES = (
    SiteColumn("h_norm", quantity_column("h", "h_norm", "length of the state")),
    SiteColumn("g_norm_mean_ce", quantity_column("g", "g_norm_mean_ce", OF_MEAN_CE)),
    SiteColumn("gain", quantity_column("gain", "gain", "ratio")),
    SiteColumn("gamma", quantity_column("gamma", "gamma", "cosine")),
    SiteColumn("gamma_block_input", quantity_column("gamma_input", "gamma_block_input", "cosine")),
)
COUNTS = AnalysisColumn("counts", f"whether {GAMMA} is informative at this site")
SITES = (METHOD, SETTING, SITE, *(one.column for one in QUANTITIES), COUNTS)
ENDS = (
    METHOD,
    SETTING,
    RUNS,
    quantity_column("g_first", "g_norm_mean_ce", OF_MEAN_CE, "at site 0"),
    quantity_column("g_last", "g_norm_mean_ce_L", OF_MEAN_CE),
    quantity_column("fall", "fall", "ratio", "(above 1 if the gradient grows from site L to site 0)"),
)


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Report norms, gain and Γ of every method at every site.

    Returns:
        Two tables: one row per method and site, and one row per method with the gradient at site 0 and at site L.
    """
    rows, ends = [], []
    for method in trained(report):
        exact = exact_sites(report.cards.get(f"methods/{method.name}", {}), _sites(method))
        rows += [_row(method, site, site in exact) for site in range(_sites(method))]
        ends.append({**method.cells, **_ends(method)})
    tables = (
        AnalysisTable("per-layer", f"{GRADIENT} and {GAMMA} by site", SITES, tuple(rows)),
        AnalysisTable("ends", "The gradient at the first and at the last site", ENDS, tuple(ends)),
    )
    remark = (
        f"The published convention of {GAMMA} compares the credit of block l with the gradient at the input of block l. "
        "This gradient is one site too early."
    )
    return AnalysisResult(tables, (remark,))


def _sites(method: MethodRuns) -> int:
    """Return the largest number of sites of any run; a broken run may have no site."""
    rows = (run.record.measurements.sites for run in method.runs)
    return max((len(row) for sites in rows for row in sites.values()), default=0)


def _row(method: MethodRuns, site: int, exact: bool) -> dict[str, AnalysisCell]:
    return {
        METHOD.name: method.cells[METHOD.name],
        SETTING.name: method.cells[SETTING.name],
        SITE.name: AnalysisCell(Reading(float(site))),
        **{metric.column.name: mean_cell(method.runs, metric.name, _at(metric.name, site)) for metric in QUANTITIES},
        COUNTS.name: AnalysisCell(text=_counts(method, site, exact)),
    }


def _counts(method: MethodRuns, site: int, exact: bool) -> str:
    """Return whether Γ is informative at a site, or the reason why it is not."""
    if any(_at("gamma", site)(run.record).reason == NOT_CREDITED for run in method.runs):
        return f"no: {NOT_CREDITED}"
    return "exact by construction" if exact else "yes"


def _at(quantity: str, site: int) -> Pick:
    def pick(record: RunRecord) -> Reading:
        row = record.measurements.sites.get(quantity, ())
        if not row:
            return Reading(None, f"{quantity} was not measured")
        return row[site] if site < len(row) else Reading(None, f"site {site} does not exist in this run")

    return pick


def _ends(method: MethodRuns) -> dict[str, AnalysisCell]:
    last = max(_sites(method) - 1, 0)
    g_first, g_last = _at("g_norm_mean_ce", 0), _at("g_norm_mean_ce", last)

    def fall(record: RunRecord) -> Reading:
        first, end = g_first(record), g_last(record)
        for reading in (first, end):
            if reading.value is None:
                return reading
        return (
            Reading.of(first.value / end.value) if end.value else Reading(None, f"{symbol_of('g_norm_mean_ce_L')} is 0")
        )

    picks = {"g_first": ("g_norm_mean_ce", g_first), "g_last": ("g_norm_mean_ce", g_last), "fall": ("fall", fall)}
    return {column: mean_cell(method.runs, name, pick) for column, (name, pick) in picks.items()}


PLUGIN = Analyser(
    name="per-layer",
    title="Layer by layer",
    question="At which sites does the gradient vanish, and at which sites does the credit agree with the gradient?",
    source=f"arXiv 2606.21126, per-layer {symbol_of('g_norm')} and {GAMMA} of the main setting",
    answer=answer,
    rank=6,
)
