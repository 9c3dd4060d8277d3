"""Reports and runs with what a test changes, and one question of the checklist put to one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from fa_registry.records import AuditReport, FigureDifference, Integrity, Reading, RunAudit
from fa_registry.reporting.pitfalls import PitfallContext
from fa_registry.reporting.report_index import Sources


def run_of(report: AuditReport, method: str = "dfa", seed: int = 42) -> RunAudit:
    return next(
        run
        for run in report.runs
        if (run.record.spec.method, run.record.spec.seed, run.record.spec.control) == (method, seed, "none")
    )


def changed(
    run: RunAudit,
    sites: Mapping[str, Any] | None = None,
    scalars: Mapping[str, Any] | None = None,
    conventions: Mapping[str, Any] | None = None,
    integrity: str = "",
    differing: tuple[str, ...] = (),
    **fields: Any,
) -> RunAudit:
    """sites: metric → a number for all five sites, or a row; scalars: metric → number or reading; None takes one away.

    differing: metrics of which site 0 was logged as 1e-9 and comes out as 0.2.

    fields: of the record; spec: a mapping of fields of its specification.
    """
    measured = run.record.measurements
    rows = {name: _row(value) for name, value in (sites or {}).items()}
    single = {name: _reading(value) for name, value in (scalars or {}).items()}
    measured = dataclasses.replace(
        measured,
        sites={**measured.sites, **rows},
        scalars={**measured.scalars, **single},
        conventions={**measured.conventions, **(conventions or {})},
        # the scores of the samples have another mean
        sample_scores={name: scores for name, scores in measured.sample_scores.items() if name not in single},
    )
    if "spec" in fields:
        fields["spec"] = dataclasses.replace(run.record.spec, **fields["spec"])
    if integrity:
        differences = tuple(FigureDifference(name, 0, Reading(1e-9), Reading(0.2)) for name in differing)
        fields["integrity"] = Integrity(integrity, differences=differences)
    return with_record(run, measurements=measured, **fields)


def with_runs(report: AuditReport, change: Callable[[RunAudit], RunAudit]) -> AuditReport:
    return dataclasses.replace(report, runs=tuple(map(change, report.runs)))


def with_record(run: RunAudit, **changes: Any) -> RunAudit:
    return dataclasses.replace(run, record=dataclasses.replace(run.record, **changes))


def asked(report: AuditReport, run: RunAudit, **cards: Any) -> PitfallContext:
    """The run in its report, in the place of the one of its id; cards: of plugins, by `methods/dfa`."""
    runs = tuple(run if one.record.run_id == run.record.run_id else one for one in report.runs)
    sources = Sources.of(dataclasses.replace(report, runs=runs, cards={**report.cards, **cards}))
    return PitfallContext(run, [run], sources)


def _row(value: Any) -> tuple[Reading, ...]:
    return tuple(map(_reading, value)) if isinstance(value, (list, tuple)) else (_reading(value),) * 5


def _reading(value: Any) -> Reading:
    if isinstance(value, Reading):
        return value
    return Reading(None, "taken away") if value is None else Reading(float(value))
