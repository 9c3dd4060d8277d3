"""Analysis `remedies`: what a change of the recipe does to a method.

A recipe is what two runs of a method may differ in, except for seed and number of epochs: the method's options, penalties, the
fields of the recipe and the options of the network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import mean

from fa_registry import jsonio
from fa_registry.analyses._methods import (
    METHOD,
    RUNS,
    SETTING,
    MethodRuns,
    frozen_of,
    margin_cell,
    mean_cell,
    quantity_column,
    trained,
)
from fa_registry.analyses.base import (
    Analyser,
    AnalysisCell,
    AnalysisColumn,
    AnalysisResult,
    AnalysisTable,
    without_rows,
)
from fa_registry.metrics import DEFAULT, HEADLINE_GAMMA, Headline, headline_of, symbol_of
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading, RunRecord, RunSpec

RECIPE = AnalysisColumn("recipe", "method, its options, and what the report's settings differ in except for the epochs")
NAME = AnalysisColumn("method_name", "name of the method, without its options")
EPOCHS = AnalysisColumn("epochs", "epochs of training", "epochs", "chosen")
VERDICT = AnalysisColumn("verdict", "verdict of the edition over all seeds of the method")
SCALES = ("growth_max", "growth_init_max")
NULL = "gamma_null_mean"
FEW = "no method was run with two recipes that differ in more than a penalty"


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Compare the recipes of every method, at every number of epochs.

    Returns:
        One table with one row per method, recipe and number of epochs.
    """
    methods, frozen = trained(report), frozen_of(report)
    headline = headline_of(methods[0].runs[0].record.measurements) if methods else DEFAULT
    labels = _recipes([_spec(method) for method in methods]) if _has_several(map(_spec, methods)) else ()
    pairs = zip(labels, methods, strict=False)
    recipes = sorted(pairs, key=lambda one: (_spec(one[1]).method, len(one[0]), one[0], _spec(one[1]).epochs))
    rows = tuple(_row(method, label, frozen, headline) for label, method in recipes)
    return AnalysisResult((AnalysisTable("remedies", "Recipes of every method", _columns(headline), rows),))


def _columns(headline: Headline) -> tuple[AnalysisColumn, ...]:
    scales = (quantity_column(name, name) for name in SCALES)
    null = f"{symbol_of(HEADLINE_GAMMA)} for newly drawn feedback, mean over the sites 1..L whose credit depends on it"
    gammas = (quantity_column("gamma", HEADLINE_GAMMA), AnalysisColumn("gamma_null", null, "cosine", "cos"))
    margins = (quantity_column(headline.name, headline.name), quantity_column("margin", headline.margin))
    return (RECIPE, NAME, METHOD, SETTING, EPOCHS, RUNS, *margins, *scales, *gammas, VERDICT)


def _row(
    method: MethodRuns, recipe: str, frozen: Mapping[str, RunRecord], headline: Headline
) -> dict[str, AnalysisCell]:
    spec = _spec(method)
    return {
        **method.cells,
        RECIPE.name: AnalysisCell(text=recipe, run_ids=method.cells[METHOD.name].run_ids),
        NAME.name: AnalysisCell(text=spec.method),
        EPOCHS.name: AnalysisCell(Reading(float(spec.epochs))),
        headline.name: mean_cell(method.runs, headline.name),
        "margin": margin_cell(method, frozen),
        **{name: mean_cell(method.runs, name) for name in SCALES},
        "gamma": mean_cell(method.runs, HEADLINE_GAMMA),
        "gamma_null": mean_cell(method.runs, NULL, _null),
        VERDICT.name: AnalysisCell(text=method.group.verdict.full_label),
    }


def _spec(method: MethodRuns) -> RunSpec:
    return method.runs[0].record.spec


def _null(record: RunRecord) -> Reading:
    """Return Γ for newly drawn feedback, the mean over the sites 1..L whose credit depends on it."""
    row = record.measurements.sites.get(NULL, ())[1:]
    values = [reading.value for reading in row if reading.value is not None]
    if not values:
        return row[0] if row else Reading(None, f"{NULL} was not measured")
    return Reading.of(mean(values))


def _has_several(specs: Iterable[RunSpec]) -> bool:
    """Return whether a method was run with several recipes on one network and one data set.

    Recipes that differ only in the strength of a penalty count as one. Strengths are compared by the analysis `penalty`, and
    networks by `cross-architecture`.
    """
    recipes: dict[tuple[str, ...], set[str]] = {}
    for spec in specs:
        recipe = dataclasses.replace(spec.unpenalised, seed=0, epochs=1)
        recipes.setdefault((spec.method, spec.architecture, spec.dataset), set()).add(recipe.identity)
    return any(len(of_method) > 1 for of_method in recipes.values())


def _recipes(specs: Sequence[RunSpec]) -> Iterable[str]:
    """Yield the label of each specification.

    It contains the method, its options that not all of its specifications share, and the values of the setting that not all
    specifications share.
    """
    shared: dict[str, set[tuple[str, object]]] = {}
    for spec in specs:
        items = set(spec.method_options.items())
        shared[spec.method] = shared.get(spec.method, items) & items
    settings = [_values(spec).items() for spec in specs]
    common = set.intersection(*map(set, settings))
    for spec, values in zip(specs, settings, strict=True):
        options = {
            name: value for name, value in spec.method_options.items() if (name, value) not in shared[spec.method]
        }
        label = dataclasses.replace(spec, method_options=options).label
        yield " · ".join((label, *(f"{name}={value}" for name, value in values if (name, value) not in common)))


def _values(spec: RunSpec) -> dict[str, object]:
    """Return the values of a setting, except for its epochs."""
    fields = {"network": spec.architecture, "data": spec.dataset, "precision": spec.precision}
    return {**fields, **spec.architecture_options, **jsonio.encode(spec.recipe.for_controls)}


PLUGIN = Analyser(
    name="remedies",
    title="Remedies",
    question="Which change of the recipe keeps a method's scale and lifts it above its frozen control?",
    source="this project, docs/decisions/13",
    answer=answer,
    rank=2,
    silence=partial(without_rows, reason=FEW),
    figure="fa_registry.reporting.figures.analyses.remedies",
)
