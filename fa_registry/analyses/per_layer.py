"""per-layer: ‖g_l‖ and Γ_l of every site. A mean over sites hides the one that carries it, and the one where all is lost."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.analyses._methods import METHOD, RUNS, SETTING, Method, Pick, in_words, mean_cell, trained
from fa_registry.analyses.base import Analyser, Answer, Cell, Column, Table
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading, RunRecord


@dataclass(frozen=True)
class Quantity:
    """A row of readings of a run, by site. name: in the catalogue of quantities."""

    name: str
    column: Column


def _quantity(name: str, column: str, words: str, unit: str, kind: str) -> Quantity:
    return Quantity(name, Column(column, in_words(name, words), unit, kind))


SITE = Column("site", "site l, 0 is the embedding", kind="count")
QUANTITIES = (
    _quantity("h_norm", "h", "‖h_l‖", "median over samples", "num"),
    _quantity("g_norm_mean_ce", "g", "‖g_l‖", "of the mean cross entropy, N = 128", "sci"),
    _quantity("gain", "gain", "‖g_l‖ over the output error", "ratio", "sci"),
    _quantity("gamma", "gamma", "Γ_l, where the credit acts", "cosine", "cos"),
    _quantity("gamma_block_input", "gamma_input", "Γ_l as published, one site too early", "cosine", "cos"),
)
COUNTS = Column("counts", "whether Γ_l says anything")
SITES = (METHOD, SETTING, SITE, *(one.column for one in QUANTITIES), COUNTS)
ENDS = (
    METHOD,
    SETTING,
    RUNS,
    Column("g_first", in_words("g_norm_mean_ce", "‖g_0‖"), "of the mean cross entropy, N = 128", "sci"),
    Column("g_last", in_words("g_norm_mean_ce", "‖g_L‖"), "of the mean cross entropy, N = 128", "sci"),
    Column("fall", in_words("fall", "‖g_0‖/‖g_L‖: above 1 where blocks enlarge what they pass down"), "ratio", "num"),
)


def answer(report: AuditReport, edition: Edition) -> Answer:
    """Every site of every method, and how far the gradient moves between its two ends."""
    rows, ends = [], []
    for method in trained(report):
        exact = str(report.cards.get(f"methods/{method.name}", {}).get("exact_sites", "none"))
        rows += [_row(method, site, _sites(method), exact) for site in range(_sites(method))]
        ends.append({**method.cells, **_ends(method)})
    tables = (
        Table("per-layer", "‖g_l‖ and Γ_l by site", SITES, tuple(rows)),
        Table("ends", "The gradient's two ends", ENDS, tuple(ends)),
    )
    remark = "Γ_l by the published convention compares the credit of block l with the gradient at its input, one site too early."
    return Answer(tables, (remark,))


def _sites(method: Method) -> int:
    """Of the deepest run: seeds of one method have one architecture, but a broken one may have measured nothing."""
    rows = (run.record.measurements.sites for run in method.runs)
    return max((len(row) for sites in rows for row in sites.values()), default=0)


def _row(method: Method, site: int, sites: int, exact: str) -> dict[str, Cell]:
    known = exact == "all" or (exact == "last" and site == sites - 1)
    return {
        METHOD.name: method.cells[METHOD.name],
        SETTING.name: method.cells[SETTING.name],
        SITE.name: Cell(Reading(float(site))),
        **{one.column.name: mean_cell(method.runs, one.name, _at(one.name, site)) for one in QUANTITIES},
        COUNTS.name: Cell(text="exact by construction" if known else "yes"),
    }


def _at(quantity: str, site: int) -> Pick:
    def pick(record: RunRecord) -> Reading:
        row = record.measurements.sites.get(quantity, ())
        if not row:
            return Reading(None, f"{quantity} was not measured")
        return row[site] if site < len(row) else Reading(None, f"site {site} does not exist in this run")

    return pick


def _ends(method: Method) -> dict[str, Cell]:
    last = max(_sites(method) - 1, 0)
    g_first, g_last = _at("g_norm_mean_ce", 0), _at("g_norm_mean_ce", last)

    def fall(record: RunRecord) -> Reading:
        first, end = g_first(record), g_last(record)
        for one in (first, end):
            if one.value is None:
                return one
        return Reading.of(first.value / end.value) if end.value else Reading(None, "‖g_L‖ is 0")

    picks = {"g_first": ("g_norm_mean_ce", g_first), "g_last": ("g_norm_mean_ce", g_last), "fall": ("fall", fall)}
    return {column: mean_cell(method.runs, name, pick) for column, (name, pick) in picks.items()}


PLUGIN = Analyser(
    name="per-layer",
    title="Layer by layer",
    question="At which site does the gradient vanish, and at which does the credit agree with it?",
    source="arXiv 2606.21126, per-layer ‖g_l‖ and Γ_l of the main setting",
    answer=answer,
)
