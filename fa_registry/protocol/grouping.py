"""Which runs belong together: frozen controls to their methods, seeds to their method and setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fa_registry.protocol.verdict import combined
from fa_registry.records import AuditReport, RunAudit, RunRecord, Verdict


@dataclass(frozen=True)
class Group:
    """The runs of one method in one setting, one a seed. setting: its readable name."""

    method: str
    setting: str
    control: bool
    runs: tuple[RunAudit, ...]
    verdict: Verdict


def frozen_controls(records: Iterable[RunRecord]) -> dict[tuple[str, int], RunRecord]:
    """(setting identity, seed) → its frozen control. Another setting's control never stands in."""
    return {
        (record.spec.setting.identity, record.spec.seed): record
        for record in records
        if record.spec.control == "frozen" and record.status == "complete"
    }


def groups(report: AuditReport) -> tuple[Group, ...]:
    """The report's runs by setting and method: settings in the order they appear, methods before controls."""
    members: dict[tuple[str, str, str], list[RunAudit]] = {}
    for run in report.runs:
        spec = run.record.spec
        members.setdefault((spec.setting.identity, spec.method_label, str(dict(spec.method_options))), []).append(run)
    settings = list(dict.fromkeys(setting for setting, _, _ in members))
    ordered = sorted(
        members.values(),
        key=lambda runs: (settings.index(runs[0].record.spec.setting.identity), runs[0].record.spec.control != "none"),
    )
    return tuple(_group(runs) for runs in ordered)


def _group(runs: Sequence[RunAudit]) -> Group:
    by_seed = tuple(sorted(runs, key=lambda run: (run.record.spec.seed, run.record.run_id)))
    first = by_seed[0].record
    return Group(
        method=first.spec.method_label,
        setting=first.setting,
        control=first.spec.control != "none",
        runs=by_seed,
        verdict=combined(run.verdict for run in by_seed),
    )
