"""Engine that judges runs by all rules of an edition.

The engine compares each run with its frozen control and with the other seeds of its group.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fa_registry.protocol.credit import judge_credit
from fa_registry.protocol.edition_schema import CREDIT, LIMIT, SEEDS
from fa_registry.protocol.evidence_rules import evidence, several_controls, superseded
from fa_registry.protocol.grouping import frozen_controls, newest_controls, seeds_key
from fa_registry.protocol.last_block import last_block_controls, without_control
from fa_registry.protocol.multiplicity import Family
from fa_registry.protocol.paired_runs import RunWithControl, SeedGroup
from fa_registry.protocol.rule_evaluation import judge_limit, judge_over_seeds
from fa_registry.protocol.rules import Edition, Rule
from fa_registry.protocol.verdict import verdict
from fa_registry.protocol.waivers import waived
from fa_registry.records import FROZEN_LONG, Finding, Judgement, Reading, RunAudit, RunRecord, SecondOpinion, Waiver

JUDGES: dict[str, Callable[[Rule, RunWithControl, SeedGroup], Finding]] = {
    LIMIT: judge_limit,
    SEEDS: judge_over_seeds,
    CREDIT: judge_credit,
}


def judge(record: RunRecord, frozen: RunRecord | None, edition: Edition) -> RunAudit:
    """Judge one run without the other seeds of its group.

    Therefore, a rule that needs several seeds gives at most a provisional finding. If a rule raises an exception, the result is
    an error finding. The caller must ensure that `frozen` is the frozen control of the same setting and seed, or None.
    """
    # no other run is known here, so a ladder_1 control cannot be required
    case = RunWithControl(record, frozen, last_block=frozen)
    return _audit(case, SeedGroup((case,)), edition, ())


def judge_all(
    records: Sequence[RunRecord],
    edition: Edition,
    waivers: Sequence[Waiver] = (),
    interim_analyses: Mapping[str, int] = MappingProxyType({}),
) -> tuple[RunAudit, ...]:
    """Judge every run with its frozen control and the other seeds of its group.

    Args:
        records: runs, oldest first. If a seed was trained several times, the newest complete run counts.
        waivers: a waiver that has not expired turns a failed or warned finding into a waived finding.
        interim_analyses: mapping from `grouping.seeds_key` of a group to the number of the current interim analysis, where 1 is
            the first audit of the group's seeds. Default: 1 for every group.

    Returns:
        One RunAudit per run, in the order of the records.
    """
    return tuple(_audit(case, group, edition, waivers) for case, group in grouped_cases(records, interim_analyses))


def second_opinions(
    records: Sequence[RunRecord],
    editions: Sequence[Edition],
    waivers: Sequence[Waiver] = (),
    interim_analyses: Mapping[str, int] = MappingProxyType({}),
) -> tuple[SecondOpinion, ...]:
    """Judge every run by several editions in addition to the leading edition.

    Args:
        records: see `judge_all`.
        waivers: see `judge_all`. A waiver applies to every edition that contains its rule.
        interim_analyses: see `judge_all`.

    Returns:
        One SecondOpinion per additional edition, with one judgement per run in the order of the records.
    """
    cases = grouped_cases(records, interim_analyses)
    opinions = []
    for edition in editions:
        audits = (_audit(case, group, edition, waivers) for case, group in cases)
        judgements = tuple(Judgement(audit.record.run_id, audit.findings, audit.verdict) for audit in audits)
        opinions.append(SecondOpinion(edition.reference, judgements))
    return tuple(opinions)


def grouped_cases(
    records: Sequence[RunRecord], interim_analyses: Mapping[str, int]
) -> list[tuple[RunWithControl, SeedGroup]]:
    """Combine each run with its frozen control and its group of seeds, in linear time."""
    controls, last_blocks = frozen_controls(records), last_block_controls(records)
    shallow, frozen_long = (newest_controls(records, name) for name in ("shallow", FROZEN_LONG))
    control_keys = ((record.spec.setting.identity, record.spec.seed) for record in records)
    cases = [
        _case(record, controls.get(key, ()), last_blocks.get(key), shallow.get(key), frozen_long.get(key))
        for record, key in zip(records, control_keys, strict=True)
    ]
    cases_of_group: dict[str, list[RunWithControl]] = {}
    keys = [seeds_key(record.spec) for record in records]
    for key, case in zip(keys, cases, strict=True):
        cases_of_group.setdefault(key, []).append(case)
    groups: dict[str, SeedGroup] = {}
    families: dict[str, Family] = {}
    for key, members in cases_of_group.items():
        first = members[0]
        family = None if first.control else families.setdefault(first.record.spec.setting.identity, Family())
        groups[key] = SeedGroup(tuple(members), interim_analyses.get(key, 1), family)
        if family:
            family.groups.append(groups[key])
    return [(case, groups[key]) for key, case in zip(keys, cases, strict=True)]


def _case(record: RunRecord, controls: tuple[RunRecord, ...], *others: RunRecord | None) -> RunWithControl:
    """Combine a run with its controls.

    The frozen control is None if several frozen controls differ. The `others` are the further controls of RunWithControl, in order.
    """
    if len(controls) > 1:
        return RunWithControl(record, None, controls, *others)
    return RunWithControl(record, next(iter(controls), None), (), *others)


def _audit(case: RunWithControl, group: SeedGroup, edition: Edition, waivers: Sequence[Waiver]) -> RunAudit:
    record = case.record
    findings = [judge_rule(rule, case, group) for rule in edition.rules]
    findings = tuple(waived(finding, record, waivers) for finding in (*findings, *_crashed_diagnostics(record)))
    # these findings are added after the waivers because findings on evidence cannot be waived
    findings = (*findings, *evidence(record))
    if case.rivals and not case.control:
        findings = (*findings, several_controls(record, case.doubt))
    if not case.control and (counted_run := group.superseded_by(case)):
        findings = (*findings, superseded(record, counted_run))
    control = case.frozen.run_id if case.frozen else ""
    proven = replace(verdict(record, findings, edition), proof=group.proof_of(case))
    return RunAudit(record, findings, proven, control, case.doubt)


def judge_rule(rule: Rule, case: RunWithControl, group: SeedGroup) -> Finding:
    """Return the finding of a rule, or an error finding if the rule raises an exception."""
    try:
        return without_control(JUDGES[rule.judge](rule, case, group), case, group)
    except Exception as error:
        reason = f"the rule crashed: {type(error).__name__}: {error}"
        return Finding(
            rule=rule.code,
            title=rule.title,
            outcome="error",
            quantity=rule.quantity,
            observed=Reading(None, reason),
            required=rule.unit,
            sentence=f"{rule.code} {rule.title}: {reason}",
            run_id=case.record.run_id,
            gating=rule.gating,
            detail=traceback.format_exc(),
        )


def _crashed_diagnostics(record: RunRecord) -> Iterator[Finding]:
    """Yield an error finding for every diagnostic that crashed.

    The metrics of the diagnostic are unknown, so the run cannot pass.
    """
    for name, failure in record.measurements.failures.items():
        yield Finding(
            rule=name,
            title="diagnostic crashed",
            outcome="error",
            quantity=name,
            observed=Reading(None, "the diagnostic crashed"),
            required="a measurement",
            sentence=f"{name}: the diagnostic crashed, so its metrics are missing",
            run_id=record.run_id,
            detail=failure,
        )
