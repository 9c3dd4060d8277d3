"""Which runs belong together: frozen controls to their methods, seeds to their method and setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fa_registry.protocol.verdict import combined, stands
from fa_registry.records import AuditReport, RunAudit, RunRecord, RunSpec, Verdict


@dataclass(frozen=True)
class Group:
    """The runs of one method in one setting, one a seed. setting: its readable name."""

    method: str
    setting: str
    control: bool
    runs: tuple[RunAudit, ...]
    verdict: Verdict


def frozen_controls(records: Iterable[RunRecord]) -> dict[tuple[str, int], RunRecord]:
    """(setting identity, seed) → its frozen control. Another setting's control never stands in, nor one that is no evidence."""
    return {
        (record.spec.setting.identity, record.spec.seed): record
        for record in records
        if record.spec.control == "frozen" and record.status == "complete" and stands(record)
    }


def seeds_key(spec: RunSpec) -> str:
    """What the seeds of one method in one setting share; see RunSpec.seeds."""
    return spec.seeds


def groups(report: AuditReport) -> tuple[Group, ...]:
    """The report's runs by setting and method: settings in the order they appear, methods before controls."""
    members: dict[str, list[RunAudit]] = {}
    for run in report.runs:
        members.setdefault(seeds_key(run.record.spec), []).append(run)
    specs = {key: runs[0].record.spec for key, runs in members.items()}
    settings = {key: spec.setting.identity for key, spec in specs.items()}
    order = {setting: place for place, setting in enumerate(dict.fromkeys(settings.values()))}
    ordered = sorted(members, key=lambda key: (order[settings[key]], specs[key].control != "none"))
    return tuple(_group(members[key]) for key in ordered)


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
