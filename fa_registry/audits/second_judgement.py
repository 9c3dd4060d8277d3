"""Judging of a recorded report again: the installed editions applied to the report's own records.

This module does not import torch or MLflow, so `report` starts without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fa_registry.protocol.builtin_editions import SHIPPED, describe_edition, provenance_of
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.grouping import seeds_key
from fa_registry.protocol.rules import load_edition
from fa_registry.records import PROOF_LEVELS, AuditReport, EditionReference, Finding, Integrity, Judgement, RunAudit

SHOWN = 5  # largest number of differences in a message


def judged_again(
    report: AuditReport, reference: EditionReference, interims: Mapping[str, int] | None = None
) -> tuple[RunAudit, ...]:
    """Judge the records of the report again by a built-in edition.

    The overridden thresholds of `reference` and the waivers of the report apply.

    Args:
        interims: Mapping from the `seeds_key` of a group to the number of the group's interim analysis. The number is 1 for
            the first audit, and increases if the seeds of the group changed between two audits. By default, the numbers in
            the report's findings are used.
    """
    edition = load_edition(reference.name, {code: float(limit) for code, limit in reference.overrides.items()})
    return judge_all([run.record for run in report.runs], edition, report.waivers, interims or _recorded_looks(report))


def _recorded_looks(report: AuditReport) -> dict[str, int]:
    interim_analyses: dict[str, int] = {}
    for run in report.runs:
        key = seeds_key(run.record.spec)
        interim_analyses[key] = max([interim_analyses.get(key, 1), *(finding.look for finding in run.findings)])
    return interim_analyses


def check_verdicts(report: AuditReport, same_release: bool, interims: Mapping[str, int] | None = None) -> Integrity:
    """Judge the records again, as `judged_again`, and compare verdicts and findings with the report.

    If the installed code did not make the report (`same_release`), a difference is `unverifiable` instead of `mismatch`.
    """
    differences, reworded, unchecked, names = [], [], [], []
    other_opinions = [(opinion.edition, opinion.judgements) for opinion in report.opinions]
    for reference, judged in [(report.edition, report.runs), *other_opinions]:
        if provenance_of(reference) != SHIPPED:
            unchecked.append(
                f"edition {reference.name} with digest {reference.digest[:8]} is not built into the installed release, "
                "so the verdicts of this edition cannot be checked"
            )
            continue
        names.append(describe_edition(reference))
        for run, recorded, rejudged in zip(report.runs, judged, judged_again(report, reference, interims), strict=True):
            if _decisive(recorded) != _decisive(rejudged):
                label, new_label = recorded.verdict.full_label, rejudged.verdict.full_label
                detail = "with other findings" if label == new_label else f"instead of {label}"
                differences.append(
                    f"{run.record.name} (run {run.record.run_id}): edition {reference.name} now gives {new_label} {detail}"
                )
            elif recorded.findings != rejudged.findings:
                reworded.append(f"{run.record.name}: only the wording of findings by edition {reference.name} differs")
    if differences or reworded:
        reason = () if same_release else ("the installed code did not make the audit, so its verdicts may differ",)
        return Integrity(
            "mismatch" if same_release else "unverifiable", (*first_lines([*differences, *reworded]), *reason)
        )
    if unchecked:
        return Integrity("unverifiable", tuple(unchecked))
    levels = Counter(run.verdict.proof for run in report.runs)
    proofs = ", ".join(f"{levels[level]} {level}" for level in reversed(PROOF_LEVELS) if levels[level])
    text = f"gives the same verdicts, levels of proof and findings for all {len(report.runs)} runs ({proofs})"
    return Integrity("verified", (f"judging again by edition {', '.join(names)} {text}",))


def _decisive(judged: RunAudit | Judgement) -> tuple[object, ...]:
    return judged.verdict, tuple(map(_decides, judged.findings))


def _decides(finding: Finding) -> tuple[object, ...]:
    observed = (finding.observed.value, finding.interval, finding.threshold, finding.seeds, finding.look)
    return finding.rule, finding.outcome, finding.state, finding.gating, finding.stated, observed


def first_lines(lines: Sequence[str]) -> tuple[str, ...]:
    remaining = len(lines) - SHOWN
    return (*lines[:SHOWN], *([f"and {remaining} more ({len(lines)} in all)"] if remaining > 0 else []))
