"""per-layer: ‖g_l‖ and Γ_l of every site. A mean over sites hides the one that carries it, and the one where all is lost."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.analyses._methods import METHOD, RUNS, SETTING, Method, Pick, over_seeds, trained
from fa_registry.analyses.base import Analyser, Answer, Cell, Column, Table
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading, RunRecord


@dataclass(frozen=True)
class Quantity:
    """A row of readings of a run, by site. scale: its mean over seeds is geometric."""

    name: str
    column: Column
    scale: bool = False


SITE = Column("site", "site l, 0 is the embedding", kind="count")
QUANTITIES = (
    Quantity("h_norm", Column("h", "‖h_l‖, geometric mean over seeds", "median over samples", "num"), scale=True),
    Quantity(
        "g_norm_mean_ce",
        Column("g", "‖g_l‖, geometric mean over seeds", "of the mean cross entropy, N = 128", "sci"),
        scale=True,
    ),
    Quantity(
        "gain", Column("gain", "‖g_l‖ over the output error, geometric mean over seeds", "ratio", "sci"), scale=True
    ),
    Quantity("gamma", Column("gamma", "Γ_l, where the credit acts", "cosine", "cos")),
    Quantity("gamma_block_input", Column("gamma_input", "Γ_l as published, one site too early", "cosine", "cos")),
)
COUNTS = Column("counts", "whether Γ_l says anything")
SITES = (METHOD, SETTING, SITE, *(one.column for one in QUANTITIES), COUNTS)
ENDS = (
    METHOD,
    SETTING,
    RUNS,
    Column("g_first", "‖g_0‖, geometric mean over seeds", "of the mean cross entropy, N = 128", "sci"),
    Column("g_last", "‖g_L‖, geometric mean over seeds", "of the mean cross entropy, N = 128", "sci"),
    Column("fall", "‖g_0‖/‖g_L‖: above 1 where blocks enlarge what they pass down", "ratio", "num"),
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
        **{one.column.name: over_seeds(method.runs, _at(one.name, site), one.scale) for one in QUANTITIES},
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

    picks = {"g_first": g_first, "g_last": g_last, "fall": fall}
    return {name: over_seeds(method.runs, pick, scale=True) for name, pick in picks.items()}


PLUGIN = Analyser(
    name="per-layer",
    title="Layer by layer",
    question="At which site does the gradient vanish, and at which does the credit agree with it?",
    source="arXiv 2606.21126, per-layer ‖g_l‖ and Γ_l of the main setting",
    answer=answer,
)
