"""Remark on multiple comparisons, with the number of methods that an audit compares.

The remark also states which methods pass the rule on the margin after a correction for multiple comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fa_registry.metrics import MARGINS
from fa_registry.protocol.grouping import seeds_key
from fa_registry.records import Finding, RunAudit
from fa_registry.statistics import CONFIDENCE, holm
from fa_registry.statistics.samples import quantile, upper_tail

ONE_SIDE = (1 - CONFIDENCE) / 2
SHOWN = 20


def compared_methods(runs: Sequence[RunAudit]) -> Iterator[str]:
    """Yield a remark on the number of methods that an audit by one edition compares.

    The remark also lists the methods that pass the rule on the margin by Holm's procedure. There is no remark if fewer than two
    margins have an interval. With every comparison, it becomes more likely that some method passes by chance: with 18 methods
    exactly at the limit, at least one passes in 37 % of audits. Verdicts are not corrected, because a correction would make the
    verdict of a method depend on the other methods in the audit.
    """
    findings: dict[str, tuple[RunAudit, Finding]] = {}
    for run in runs:
        for finding in run.findings:
            if finding.quantity in MARGINS and finding.interval and not finding.stated:
                findings.setdefault(seeds_key(run.record.spec), (run, finding))
    if len(findings) < 2:
        return
    count = len(findings)
    chance = 1 - (1 - ONE_SIDE) ** count
    text = (
        f"{count} methods are compared with their frozen controls, each with a separate interval. If all methods were exactly at "
        f"the limit, at least one of them would clear the limit in about {chance:.0%} of such audits"
    )
    cleared = [run for run, finding in findings.values() if finding.outcome == "pass"]
    adjusted = holm(_p_value(finding) for _, finding in findings.values())
    clear_by_holm = [
        run for (run, _), p in zip(findings.values(), adjusted, strict=True) if p <= ONE_SIDE and run in cleared
    ]
    if cleared:
        description = _named(clear_by_holm) if clear_by_holm else "none"
        text += (
            f". Number of methods that clear the limit: {len(cleared)}. Methods that also clear the limit by Holm's procedure "
            f"over all {count} methods: {description}"
        )
    yield f"{text}."


def _p_value(finding: Finding) -> float:
    """Compute the one-sided p-value of the margin against the limit."""
    df = finding.seeds - 1
    half_width = (finding.interval[1] - finding.interval[0]) / 2
    distance = finding.observed.value - finding.threshold
    if not half_width:
        return 0.0 if distance >= 0 else 1.0
    return min(1.0, upper_tail(distance * quantile(df, finding.confidence or CONFIDENCE) / half_width, df))


def _named(runs: Sequence[RunAudit]) -> str:
    has_several_settings = len({run.record.setting for run in runs}) > 1
    names = [
        f"{run.record.spec.label}, {run.record.setting}" if has_several_settings else run.record.spec.label
        for run in runs
    ]
    suffix = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ("; " if has_several_settings else ", ").join(names[:SHOWN]) + suffix
