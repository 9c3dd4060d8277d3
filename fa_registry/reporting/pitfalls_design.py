"""Pitfalls of setting runs side by side: the control of another setting, seeds that differ or were chosen afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from fa_registry.records import AuditReport, Choice, RunRecord
from fa_registry.reporting.naming import group_label
from fa_registry.reporting.pitfalls_words import AVOIDED, UNKNOWN, VIOLATED, Asked, Said
from fa_registry.reporting.readings import GIVEN, NO_CONTROL

SHOWN = 5


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
    return _nothing_left_out(asked.sources.report, words)


def _nothing_left_out(report: AuditReport, seeds: str) -> Said:
    """Whether the audited runs are all there are: seeds chosen by hand while others were trained are the pitfall itself."""
    choice = report.choice
    if choice is None:
        return (
            UNKNOWN,
            f"seeds {seeds}; runs were selected by {report.selection}, and whether others were left out is not recorded",
        )
    by_hand = f"--seeds {choice.asked['seeds']} was asked for" if "seeds" in choice.asked else ""
    left = "; ".join(_left_out(report, choice))
    if by_hand and choice.others:
        return VIOLATED, f"seeds {seeds}: {by_hand}, while {left}"
    gaps = "; ".join(part for part in (by_hand and f"{by_hand} instead of the seeds of the study's file", left) if part)
    if gaps:
        return UNKNOWN, f"seeds {seeds} for every method of the setting, but {gaps}"
    return (
        AVOIDED,
        f"seeds {seeds} for every method of the setting, as the whole {report.selection} has them; none is left out",
    )


def _left_out(report: AuditReport, choice: Choice) -> Iterator[str]:
    if choice.others:
        yield f"runs of study {choice.study} with other specifications that were not audited: {choice.others}"
    if choice.superseded:
        yield f"older runs of the same specifications, passed over for the newest: {choice.superseded}"
    if report.excluded:
        yield f"selected runs that were not judged: {len(report.excluded)}"
