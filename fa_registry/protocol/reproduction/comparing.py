"""Every published figure beside the audit's own: reproduced, not shown, differs, not comparable or not measured."""

from __future__ import annotations

from collections.abc import Sequence

from fa_registry.protocol.grouping import Group, groups
from fa_registry.protocol.reproduction.matching import alike, nearest
from fa_registry.protocol.reproduction.taking import figure_of
from fa_registry.protocol.reproduction.testing import Tested, outcome_of
from fa_registry.protocol.rules import Edition, Rule, load_edition
from fa_registry.quantities import ARITHMETIC, GEOMETRIC, over_seeds
from fa_registry.records import AuditReport, FigureVerdict, PublishedFigure, Reading, Reference, Reproduction

EDITION = "2026-05"  # the published rules: a first fire was published by them, whichever edition leads the audit


def reproduction(reference: Reference, report: AuditReport) -> Reproduction:
    """One row for every figure of the reference, in its order."""
    groups_of_report, edition = groups(report), load_edition(EDITION)
    rows = tuple(_row(figure, groups_of_report, report, edition) for figure in reference.figures)
    return Reproduction(reference.study, reference.title, reference.digest, rows, reference.remarks)


def _row(figure: PublishedFigure, candidates: Sequence[Group], report: AuditReport, edition: Edition) -> FigureVerdict:
    if figure.not_measured:
        return FigureVerdict(figure, "not measured", figure.not_measured)
    match = nearest(figure, candidates, report.cards)
    if match is None:
        where = f" on {figure.setting.architecture}" if figure.setting else ""
        return FigureVerdict(figure, "not measured", f"no run of {figure.label}{where} is in this audit")
    group, differences = match
    rule = _rule(figure, edition)
    measured = tuple(figure_of(figure, run.record, rule) for run in group.runs)
    verdict = Tested("not comparable", "; ".join(differences)) if differences else outcome_of(figure, measured)
    others = len(alike(figure, candidates, report.cards)) - 1
    more = f"; {others} more groups of runs are alike, this is the largest" if others > 0 else ""
    mean, std = _over_runs([run.reading for run in measured], figure)
    return FigureVerdict(
        figure,
        verdict.outcome,
        f"{verdict.reason}{more}",
        measured,
        group.setting,
        mean,
        std,
        verdict.difference,
        verdict.interval_90,
        verdict.margin,
    )


def _rule(figure: PublishedFigure, edition: Edition) -> Rule | None:
    return next((rule for rule in edition.rules if rule.code == figure.rule), None)


def _over_runs(readings: Sequence[Reading], figure: PublishedFigure) -> tuple[Reading, Reading]:
    """Mean and std of what was measured, for people: over the runs that have a number, by the mean of the test's scale."""
    average = GEOMETRIC if figure.margin.scale == "log10" else ARITHMETIC
    estimate = over_seeds(enumerate(readings), figure.quantity, average)
    if estimate.mean.value is not None and average == GEOMETRIC:
        return estimate.mean, Reading(None, "its spread over runs is in decades: see every run")
    return estimate.mean, Reading(None, "one run: no spread") if estimate.n == 1 else estimate.std
