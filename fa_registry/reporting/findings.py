"""From findings to what a page says of them: seeds that a rule judges alike stand together, most severe first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fa_registry.quantities import Known, kind_of
from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.parts import Number
from fa_registry.reporting.rows import FindingRow, Said
from fa_registry.statistics import CONFIDENCE, level_words

SEVERITY = ("error", "fail", "warn", "not_applicable", "skipped", "waived", "pass")


def finding_rows(runs: Iterable[RunAudit], method: str, setting: str, known: Known) -> tuple[FindingRow, ...]:
    """Every finding of one method in one setting; what a control skips because it *is* the control is no news.

    known: the report's quantities, which say how a figure is written.
    """
    alike: dict[tuple, list[tuple[int, Finding]]] = {}
    for run in runs:
        control = run.record.spec.control != "none"
        for finding in run.findings:
            if not (control and finding.outcome == "skipped"):
                key = (finding.rule, finding.outcome, finding.state, finding.gating, finding.required)
                alike.setdefault(key, []).append((run.record.spec.seed, finding))
    return tuple(_row(several, method, setting, known) for several in alike.values())


def most_severe_first(rows: Iterable[FindingRow]) -> list[FindingRow]:
    """By outcome; of one outcome, what decides the verdict before what is only reported."""
    return sorted(rows, key=lambda row: (SEVERITY.index(row.outcome), not row.gating))


def _row(several: Sequence[tuple[int, Finding]], method: str, setting: str, known: Known) -> FindingRow:
    first = several[0][1]
    same: dict[tuple, list[tuple[int, Finding]]] = {}
    for seed, finding in several:
        words = (finding.sentence, finding.observed, finding.interval, finding.site, finding.first_fire, finding.detail)
        same.setdefault(words, []).append((seed, finding))
    return FindingRow(
        rule=first.rule,
        title=first.title,
        outcome=first.outcome,
        state=first.state,
        gating=first.gating,
        required=first.required,
        method=method,
        setting=setting,
        said=tuple(_said(one, known) for one in same.values()),
        limit=first.limit or first.required,
    )


def _said(same: Sequence[tuple[int, Finding]], known: Known) -> Said:
    first = same[0][1]
    run_ids = tuple(finding.run_id for _, finding in same)
    return Said(
        seeds=tuple(seed for seed, _ in same),
        run_ids=run_ids,
        sentence=first.sentence,
        observed=Number(first.observed, kind_of(first.quantity, known), run_ids),
        interval=first.interval,
        site="" if first.site is None else f"site {first.site}",
        epoch="" if first.first_fire is None else f"first fires at epoch {first.first_fire}",
        reference_run_ids=tuple(
            dict.fromkeys(finding.reference_run_id for _, finding in same if finding.reference_run_id)
        ),
        detail=first.detail,
        level=level_words(first.confidence or CONFIDENCE),
    )
