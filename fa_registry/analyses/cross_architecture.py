"""Analysis `cross-architecture`: results of the same method on every network.

On each network, the method is compared with the frozen control of this network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fa_registry.analyses._methods import (
    METHOD,
    RUNS,
    SETTING,
    MethodRuns,
    Pick,
    frozen_of,
    last_site,
    margin_cell,
    mean_cell,
    quantity_column,
    scalar,
    trained,
)
from fa_registry.analyses.base import Analyser, Analysis, AnalysisCell, AnalysisColumn, AnalysisResult, AnalysisTable
from fa_registry.metrics import ACCURACY, HEADLINE_GAMMA
from fa_registry.protocol.paired_runs import NO_CONTROL
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading, RunRecord

ARCHITECTURE = AnalysisColumn("architecture", "name of the network")
VERDICT = AnalysisColumn("verdict", "verdict of the edition over all seeds of the method")
COLUMNS = (
    METHOD,
    ARCHITECTURE,
    SETTING,
    RUNS,
    quantity_column(ACCURACY.name, ACCURACY.name),
    quantity_column("frozen", ACCURACY.frozen),
    quantity_column("margin", ACCURACY.margin),
    quantity_column("growth_max", "growth_max"),
    quantity_column("g_L", "g_norm_mean_ce_L", "loss per unit of state"),
    quantity_column("gamma", HEADLINE_GAMMA),
    VERDICT,
)
BY_METHOD = (
    METHOD,
    AnalysisColumn("architectures", "number of networks that were trained with the method", "networks", "count"),
    AnalysisColumn(
        "above",
        "number of settings in which the method has a higher mean accuracy than the frozen control",
        "settings",
        "count",
    ),
    AnalysisColumn(
        "settings",
        "number of settings in which the accuracies of the method and of the frozen control are known",
        "settings",
        "count",
    ),
    AnalysisColumn("passes", "names of the settings in which the edition passes the method"),
    AnalysisColumn("fails", "names of the settings in which the edition fails the method"),
)


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Compare every method on every network with the frozen control of that network.

    Returns:
        Two tables: one row per method and network with the margin over the frozen control, and one row per method with the
        settings in which it passes and fails.
    """
    methods = sorted(trained(report), key=lambda one: (one.label, _network(one)))
    frozen = frozen_of(report)
    rows = tuple(_row(method, frozen) for method in methods)
    by_label: dict[str, list[tuple[MethodRuns, Mapping[str, AnalysisCell]]]] = {}
    for method, row in zip(methods, rows, strict=True):
        by_label.setdefault(method.label, []).append((method, row))
    method_rows = tuple(_method(label, entries) for label, entries in by_label.items())
    tables = (
        AnalysisTable("cross-architecture", "Results of every method on every network", COLUMNS, rows),
        AnalysisTable(
            "methods",
            "Number of networks and settings in which each method improves on the frozen control",
            BY_METHOD,
            method_rows,
        ),
    )
    networks = list(dict.fromkeys(map(_network, methods)))
    notes = [f"all runs are of the network {name}, so there is no result for other networks" for name in networks]
    return AnalysisResult(tables, tuple(notes) if len(notes) == 1 else ())


def _network(method: MethodRuns) -> str:
    return method.runs[0].record.spec.architecture


def _row(method: MethodRuns, frozen: Mapping[str, RunRecord]) -> dict[str, AnalysisCell]:
    accuracy = scalar(ACCURACY.name)

    def control(record: RunRecord) -> Reading:
        found = frozen.get(record.run_id)
        return accuracy(found) if found else Reading(None, NO_CONTROL)

    picks: dict[str, tuple[str, Pick]] = {
        ACCURACY.name: (ACCURACY.name, accuracy),
        "frozen": (ACCURACY.frozen, control),
        "growth_max": ("growth_max", scalar("growth_max")),
        "g_L": ("g_norm_mean_ce_L", last_site("g_norm_mean_ce")),
        "gamma": (HEADLINE_GAMMA, scalar(HEADLINE_GAMMA)),
    }
    return {
        **method.cells,
        ARCHITECTURE.name: AnalysisCell(text=_network(method)),
        **{column: mean_cell(method.runs, name, pick) for column, (name, pick) in picks.items()},
        "margin": margin_cell(method, frozen),
        VERDICT.name: AnalysisCell(text=method.group.verdict.full_label),
    }


def _method(label: str, entries: Sequence[tuple[MethodRuns, Mapping[str, AnalysisCell]]]) -> dict[str, AnalysisCell]:
    margins = [row["margin"].reading.value for _, row in entries if row["margin"].reading.value is not None]
    settings = [(one.group.verdict.outcome, one.group.setting or _network(one)) for one, _ in entries]
    passes, fails = (", ".join(name for found, name in settings if found == outcome) for outcome in ("pass", "fail"))
    return {
        METHOD.name: AnalysisCell(text=label),
        "architectures": AnalysisCell(Reading(float(len({_network(method) for method, _ in entries})))),
        "above": AnalysisCell(Reading(float(sum(value > 0 for value in margins)))),
        "settings": AnalysisCell(Reading(float(len(margins)))),
        "passes": AnalysisCell(text=passes or "nowhere"),
        "fails": AnalysisCell(text=fails or "nowhere"),
    }


def silence(analysis: Analysis) -> str:
    """Return the reason why networks cannot be compared; empty if there are several networks."""
    has_several = len({row["architecture"].text for row in analysis.rows}) > 1
    return "" if has_several else "all runs are of one network"


PLUGIN = Analyser(
    name="cross-architecture",
    title="Across architectures",
    question="Is the result of a method on one network also valid on other networks?",
    source="arXiv 2606.21126, cross-architecture audit",
    answer=answer,
    rank=8,
    silence=silence,
    figure="fa_registry.reporting.figures.analyses.cross_architecture",
)
