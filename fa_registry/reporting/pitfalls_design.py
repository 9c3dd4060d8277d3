"""Pitfalls of setting runs side by side: the control of another setting, seeds that differ or were chosen afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fa_registry.records import AuditReport, Choice, OtherRun, RunRecord
from fa_registry.reporting.naming import group_label
from fa_registry.reporting.pitfalls_words import AVOIDED, UNKNOWN, VIOLATED, Asked, Said
from fa_registry.reporting.readings import GIVEN, NO_CONTROL

SHOWN = 5
DID_NOT_LOOK = "this report is of a release that did not look"


def own_control(asked: Asked) -> Said:
    """10: the frozen control is of the same setting, seed and data, and was measured here."""
    control = asked.sources.frozen.runs.get(asked.run.frozen_run_id)
    if control is not None:
        differing = list(_differing(asked.run.record, control))
        if differing:
            return VIOLATED, f"the frozen control {control.run_id[:8]} differs in {', '.join(differing)}"
        return AVOIDED, "its frozen control has the same setting, seed and data"
    if asked.run.frozen_run_id:
        return UNKNOWN, f"the frozen control {asked.run.frozen_run_id[:8]} is not part of this report"
    if asked.scalar(GIVEN).value is not None:
        return VIOLATED, "the frozen accuracy is stated by the author: its setting, seed and data are not recorded"
    return UNKNOWN, NO_CONTROL


def _differing(run: RunRecord, control: RunRecord) -> list[str]:
    pairs = {
        "setting": (run.spec.setting.identity, control.spec.setting.identity),
        "seed": (run.spec.seed, control.spec.seed),
        "data digest": tuple(one.provenance.get("dataset_digest") for one in (run, control)),
        "control": (control.spec.control, "frozen"),
    }
    return [name for name, (mine, its) in pairs.items() if mine != its]


def same_seeds(asked: Asked) -> Said:
    """11: all methods of a setting have the same seeds, and none was chosen after the fact."""
    mine = {run.record.spec.seed for run in asked.group}
    words = ", ".join(map(str, sorted(mine)))
    setting = asked.spec.setting.identity
    others = {
        group_label(group): {run.record.spec.seed for run in group.runs}
        for group in asked.sources.groups
        if not group.control and group.runs[0].record.spec.setting.identity == setting
    }
    differing = [label for label, seeds in others.items() if seeds != mine]
    if differing:
        rest = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        return VIOLATED, f"seeds {words} here, others for {', '.join(differing[:SHOWN])}{rest} in the same setting"
    return _nothing_left_out(asked, words)


def _nothing_left_out(asked: Asked, seeds: str) -> Said:
    """Whether the audited runs are all there are: seeds chosen by hand while others were trained are the pitfall itself."""
    report = asked.sources.report
    choice = report.choice
    if choice is None:
        selected = f"seeds {seeds}; runs were selected by {report.selection}"
        return UNKNOWN, f"{selected}, and whether others were left out is not known: {DID_NOT_LOOK}"
    by_hand = f"--seeds {choice.asked['seeds']} was asked for" if "seeds" in choice.asked else ""
    passed_over, told = _in_the_store(asked, choice.unaudited or ())
    if passed_over:
        how = f"{by_hand}, and the" if by_hand else "the"
        return VIOLATED, f"seeds {seeds}: {how} store holds what is not in this report: {'; '.join(passed_over)}"
    left = "; ".join((*told, *_left_out(report, choice)))
    if by_hand and choice.others:
        return VIOLATED, f"seeds {seeds}: {by_hand}, while {left}"
    gaps = "; ".join(part for part in (by_hand and f"{by_hand} instead of the seeds of the study's file", left) if part)
    if gaps:
        return UNKNOWN, f"seeds {seeds} for every method of the setting, but {gaps}"
    return (
        AVOIDED,
        f"seeds {seeds} for every method of the setting, as {report.selection} has them; none is left out: "
        "the store was asked for all their runs, deleted ones too",
    )


def _in_the_store(asked: Asked, others: Sequence[OtherRun]) -> tuple[list[str], list[str]]:
    """What was passed over, and what is merely to be told, of the method's other runs and of its frozen controls'.

    Passed over is a finished run of another seed, and one of the same seed that is newer than the one in the report. An older
    one is told, as each new trial of a seed is another draw; so is a run that is at work or broke off, which may yet come.
    """
    group, setting = asked.spec.seeds, asked.spec.setting.identity
    own = [one for one in others if one.spec.seeds == group]
    controls = [one for one in others if one.spec.control == "frozen" and one.spec.setting.identity == setting]
    judged = [run.record.spec for run in asked.sources.report.runs]
    mine = {spec.seed for spec in judged if spec.seeds == group}
    paired = mine | {one.spec.seed for one in own}
    there = {spec.seed for spec in judged if spec.control == "frozen" and spec.setting.identity == setting}
    passed_over, told = [], []
    for one in (*own, *controls):
        seeds = there if one.spec.control == "frozen" else mine
        # a control of a seed that this method was never trained with cannot be in its paired difference
        counts = one.spec.control != "frozen" or one.spec.seed in paired
        chosen = one.finished and counts and (one.spec.seed not in seeds or one.newer)
        (passed_over if chosen else told).append(_other(one, one.spec.seed in seeds))
    return passed_over, told


def _other(one: OtherRun, again: bool) -> str:
    """`seed 3 of dfa, complete, deleted in MLflow (run 1a2b3c4d)`."""
    trial = f"{'a newer' if one.newer else 'an older'} run of " if again else ""
    gone = ", deleted in MLflow" if one.deleted else ""
    return f"{trial}seed {one.spec.seed} of {one.spec.label}, {one.status}{gone} (run {one.run_id[:8]})"


def _left_out(report: AuditReport, choice: Choice) -> Iterator[str]:
    if choice.others:
        yield f"runs of study {choice.study} with other specifications that were not audited: {choice.others}"
    if choice.superseded and choice.unaudited is None:  # else they are told one by one
        yield f"older runs of the same specifications, passed over for the newest: {choice.superseded}"
    if report.excluded:
        yield f"selected runs that were not judged: {len(report.excluded)}"
    if choice.unaudited is None:
        yield f"what else the store holds is not known: {DID_NOT_LOOK}"
