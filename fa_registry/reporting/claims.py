"""What may be claimed and what must be walked back, in words, derived from findings alone.

A finding is known by what it is about (its quantity) and by its state: an edition is free to name its rules as it likes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from fa_registry.protocol.evidence import CODE, METHOD, SEAL, speaks_for_nothing
from fa_registry.protocol.verdict import stands
from fa_registry.records import Exclusion, Finding, Reading, RunAudit
from fa_registry.reporting.claims_depth import depth_claims, is_above_frozen
from fa_registry.reporting.claims_gamma import THE_GRADIENT, gamma_claims
from fa_registry.reporting.claims_reference import reference_claims
from fa_registry.reporting.claims_sampling import sampled
from fa_registry.reporting.claims_states import state_claims
from fa_registry.reporting.claims_words import HEADLINE_GAMMA, KEYS, by_author, claim, passes
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.readings import scalar

NO_EVIDENCE = "Its figures are not those of what is sealed with the run: nothing may be said about it"
# What the published protocol says of itself: it finds failures, it does not prove their absence.
CAVEAT = "the rules look for known ways in which a comparison breaks, in this setting alone, and one they do not know is not found"


def claims(
    runs: Sequence[RunAudit], excluded: Sequence[Exclusion] = (), alone: bool = True, exact: bool = False
) -> tuple[Claim, ...]:
    """The claims that the runs of one method in one setting allow; none for a control. excluded: its runs that none judged.

    alone: whether these are all of them that the report has, so that one run means one seed. exact: whether the method's
    credit is the gradient at every site by construction.
    """
    judged = [_without_gamma(run) if exact else run for run in runs if run.record.spec.control == "none"]
    if not judged:
        return ()
    standing = [run for run in judged if stands(run.record)]
    broken = [run for run in judged if not stands(run.record)]
    told = [run for run in standing if not speaks_for_nothing(run.findings)]
    return (
        *([claim("differs from its seal", NO_EVIDENCE, judged, broken)] if broken else []),
        *_evidence_claims(standing),
        *(_claims(told, alone) if told else ()),
        *([exclusion_claim(excluded)] if excluded else []),
    )


def _claims(runs: Sequence[RunAudit], alone: bool) -> Iterator[Claim]:
    yield from _state_claims(runs)
    yield from reference_claims(runs)
    yield from gamma_claims(runs)
    yield from depth_claims(runs)
    yield from _waiver_claims(runs)
    passed = [run for run in runs if passes(run) and is_above_frozen(run)]
    if passed:
        yield claim(
            "trained depth",
            "Its accuracy may be reported as that of trained depth: every rule that the verdict rests on passes. Passing does not "
            f"certify the method: {CAVEAT}{sampled(passed)}",
            runs,
            passed,
        )
    other = [run for run in runs if passes(run) and run not in passed]
    if other:
        text = "Every rule that the verdict rests on passes, but none of them asked for more than frozen random blocks reach"
        yield claim(
            "passes without depth", f"{text}: its accuracy may not be reported as that of trained depth", runs, other
        )
    yield from state_claims([run for run in runs if run.record.status == "complete"])
    if alone and len(runs) == 1:
        text = "One seed: no interval exists, and no ranking against another method may be read from this form"
        yield Claim(KEYS["one seed"], f"{text}.", (runs[0].record.run_id,), "one seed")


def _without_gamma(run: RunAudit) -> RunAudit:
    """The run of an exact method as one without an alignment figure: its Γ is 1 whatever was learned, or what rounding left."""
    measured = run.record.measurements
    if scalar(run.record, HEADLINE_GAMMA).value is None:
        return run
    scalars = {**measured.scalars, HEADLINE_GAMMA: Reading(None, THE_GRADIENT)}
    record = dataclasses.replace(run.record, measurements=dataclasses.replace(measured, scalars=scalars))
    return dataclasses.replace(run, record=record)


def _evidence_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """What the audit found of the code behind the runs; a method that conforms is no claim."""
    told = {
        (METHOD, "fail"): ("method fails", "Nothing may be claimed of the method by this name"),
        (METHOD, "warn"): (
            "method not measured",
            "Whether the method's code is what its card says was not measured by this audit",
        ),
        (SEAL, "warn"): (
            "not sealed",
            "That the run is what its seed and its method give could not be held against its own files",
        ),
        (CODE, "not_applicable"): (
            "other code",
            "Nothing may be claimed of these figures, which nobody could compute again",
        ),
    }
    touched: dict[tuple[str, str], list[RunAudit]] = {}
    for run in runs:
        for finding in run.findings:
            if found := told.get((finding.rule, finding.outcome)):
                key, words = found
                touched.setdefault((key, f"{words}: {finding.observed.reason}"), []).append(run)
    for (key, words), several in touched.items():
        yield claim(key, words, runs, several)


def _state_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    diverged = [run for run in runs if run.record.status == "diverged"]
    failed = [run for run in runs if run.record.status == "failed"]
    incomplete = [run for run in runs if run.verdict.outcome == "incomplete" and run not in failed]
    if diverged:
        yield claim(
            "diverged",
            "Training diverged: its figures describe a broken run and support no claim about the method",
            runs,
            diverged,
        )
    if failed:
        yield claim("failed", "The run broke off: nothing may be said about it", runs, failed)
    if incomplete:
        missing = "; ".join(dict.fromkeys(finding.sentence for run in incomplete for finding in _missing(run)))
        yield claim(
            "incomplete",
            f"The protocol could not be completed ({missing or 'a rule was not judged'})",
            runs,
            incomplete,
        )


def _missing(run: RunAudit) -> Iterator[Finding]:
    return (one for one in run.findings if one.gating and one.outcome in ("not_applicable", "error"))


def _waiver_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """What was waived still holds; the verdict does not count it."""
    waived: dict[tuple[str, str], list[RunAudit]] = {}
    for run in runs:
        for finding in run.findings:
            if finding.outcome == "waived":
                seen = f"{finding.rule} {finding.title}{f' ({finding.state})' if finding.state else ''}"
                detail = finding.detail + by_author([run], (finding.quantity,))
                waived.setdefault((seen, detail), []).append(run)
    for (seen, detail), touched in waived.items():
        yield claim("waived", f"{seen} is not counted in the verdict, but not refuted: {detail}", runs, touched)


def exclusion_claim(excluded: Sequence[Exclusion]) -> Claim:
    """What follows from runs that were selected and not judged: nothing is known of them."""
    seeds = [f"seed {one.spec.seed}" for one in excluded if one.spec]
    unknown = len(excluded) - len(seeds)
    named = ", ".join([*seeds, *([f"{unknown} whose seed is not known"] if unknown else [])])
    one = len(excluded) == 1
    count, them = ("One selected run was", "it") if one else (f"{len(excluded)} selected runs were", "them")
    text = f"{count} not judged ({named}): nothing may be said of {them}"
    ids = tuple(one.run_id for one in excluded if one.run_id)
    return Claim(
        KEYS["not judged"], f"{text}, and every other claim is about the judged seeds alone.", ids, "not judged"
    )
