"""Which of the runs that were not judged belong to a form: those of its method in its setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fa_registry.protocol.grouping import Group, seeds_key
from fa_registry.protocol.verdict import stands
from fa_registry.records import AuditReport, Exclusion, RunRecord


@dataclass(frozen=True)
class Excluded:
    """A report's exclusions: by what the seeds of a group share, and by (method label, setting) where no more is known."""

    by_key: Mapping[str, tuple[Exclusion, ...]]
    by_name: Mapping[tuple[str, str], tuple[Exclusion, ...]]

    @classmethod
    def of(cls, report: AuditReport) -> Excluded:
        by_key: dict[str, tuple[Exclusion, ...]] = {}
        by_name: dict[tuple[str, str], tuple[Exclusion, ...]] = {}
        for one in report.excluded:
            if one.spec:
                key = seeds_key(one.spec)
                by_key[key] = (*by_key.get(key, ()), one)
            elif one.method:
                name = (one.method, one.setting)
                by_name[name] = (*by_name.get(name, ()), one)
        return cls(by_key, by_name)

    def of_group(self, group: Group) -> tuple[Exclusion, ...]:
        """What was selected of this method in this setting and not judged.

        A run whose specification cannot be read stands in the forms of all variants of its method: none may hide it.
        """
        known = self.by_key.get(seeds_key(group.runs[0].record.spec), ())
        return (*known, *self.by_name.get((group.method, group.setting), ()))


def without_mismatches(report: AuditReport) -> AuditReport:
    """The report as this release would have it: a run whose integrity is a mismatch is excluded, whatever verdict it was given.

    Reports of older releases judged such runs. Excluded with one are the runs it helped to judge, as their frozen control or as
    another of their seeds, until they are audited again. A report without a mismatch is returned as it is.
    """
    broken = {run.record.run_id for run in report.runs if not stands(run.record)}
    if not broken:
        return report
    touched = {
        seeds_key(run.record.spec)
        for run in report.runs
        if run.record.spec.control == "none" and broken & {run.record.run_id, run.frozen_run_id}
    }
    gone = {
        run.record.run_id for run in report.runs if run.record.run_id in broken or seeds_key(run.record.spec) in touched
    }
    opinions = tuple(
        replace(one, judgements=tuple(said for said in one.judgements if said.run_id not in gone))
        for one in report.opinions
    )
    excluded = (_excluded(run.record) for run in report.runs if run.record.run_id in gone)
    runs = tuple(run for run in report.runs if run.record.run_id not in gone)
    return replace(report, runs=runs, opinions=opinions, excluded=(*report.excluded, *excluded))


def _excluded(record: RunRecord) -> Exclusion:
    named = record.spec.method_label, record.setting
    if stands(record):
        reason = "it was judged beside a run whose integrity is a mismatch: audit it again"
        return Exclusion(record.run_id, record.name, reason, "", *named, record.spec, "broken", record.integrity)
    reason = f"integrity failure: {'; '.join(record.integrity.details)}"
    return Exclusion(record.run_id, record.name, reason, "", *named, record.spec, "integrity", record.integrity)
