"""Claims from states that no other claim speaks of: every finding ends in words, whatever an edition calls what it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.claims_words import claim, extent
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.quantities import subject_of
from fa_registry.reporting.readings import last_site, scalar

SILENT = ("skipped", "waived", "not_applicable", "error")  # waivers and incompleteness are told by claims of their own
COLLAPSE = "; aggregation collapse: "  # how rule D4 appends its guard's words
ELSEWHERE = {  # subject → states that the other modules of claims speak of
    "scale": ("EXPLODED",),
    "reference": ("AT FLOOR", "CONVERGED", "NOISY"),
    "depth": ("UNDERCUT", "UNDECIDED", "PROVISIONAL"),
    "gamma_null_p": ("SPECIFIC", "NOT SPECIFIC"),
}


def state_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """One claim for every rule and state that is told nowhere else, about the runs that have it."""
    alike: dict[tuple[str, str, str, str], list[tuple[RunAudit, Finding]]] = {}
    for run in runs:
        for one in run.findings:
            if one.outcome not in SILENT and not _told_elsewhere(one):
                key = (subject_of(one.quantity), one.state, one.outcome, one.rule)
                alike.setdefault(key, []).append((run, one))
    for (subject, state, _, _), told in alike.items():
        say = WORDS.get((subject, state), _in_general)
        touched = [run for run, _ in told]
        yield claim(*say(touched, told[0][1]), runs, touched)
    yield from _collapse_claims(runs)


def _told_elsewhere(finding: Finding) -> bool:
    if finding.state == "CLEARS":
        return finding.interval is not None  # over seeds; one run's margin is told here
    return finding.state in ELSEWHERE.get(subject_of(finding.quantity), ())


def _keeps_scale(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    growth = extent(runs, lambda run: scalar(run.record, "growth_max"), "num")
    seen = f"; the largest growth in one block is {growth}" if growth else ""
    return "note", f"The stream keeps its scale, so that norms and gradients of the blocks may be compared{seen}"


def _has_reference(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    gradient = extent(runs, lambda run: last_site(run.record, "g_norm"), "sci")
    seen = f", ‖g_L‖ {gradient} for one sample" if gradient else ""
    return "note", f"The reference gradient stands clear of its floor, so that Γ compares with something of scale{seen}"


def _clears(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    return "note", (
        f"The trained blocks beat frozen random ones by what {finding.rule} asks for, each seed judged by itself: this rule "
        "knows no interval, and no claim over seeds follows from it"
    )


def _high_stability(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    value = extent(runs, lambda run: scalar(run.record, "stability_mid"), "cos")
    return "not", (
        f"Γ may not be read as following what each batch holds: gradients of disjoint batches point the same way"
        f"{f', mean cosine {value}' if value else ''}, and credit may align with that shared direction alone"
    )


def _low_stability(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    value = extent(runs, lambda run: scalar(run.record, "stability_mid"), "cos")
    seen = f" (mean cosine {value})" if value else ""
    return "note", f"No direction shared by all batches{seen} stands behind the gradients that Γ compares with"


def _in_general(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    """A state in the words of its own edition."""
    word = f" ({finding.state})" if finding.state else ""
    if finding.outcome == "pass":
        return "note", f"What {finding.rule} {finding.title} asks for is there{word}: {finding.sentence}"
    if finding.outcome == "warn":
        return "open", f"Nothing may be built on {finding.quantity}{word}: {finding.sentence}"
    return "not", f"What rests on {finding.quantity} may not be claimed{word}: {finding.sentence}"


def _collapse_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """One end of the network carries the mean Γ: told beside whether Γ is specific."""
    said: dict[str, list[RunAudit]] = {}
    for run in runs:
        for one in run.findings:
            if one.outcome not in SILENT and (words := one.sentence.partition(COLLAPSE)[2]):
                said.setdefault(words, []).append(run)
    for words, touched in said.items():
        yield claim("not", f"The mean Γ may not stand for the whole network: {words}", runs, touched)


WORDS: dict[tuple[str, str], Callable[[Sequence[RunAudit], Finding], tuple[str, str]]] = {
    ("scale", "OK"): _keeps_scale,
    ("reference", "OK"): _has_reference,
    ("depth", "CLEARS"): _clears,
    ("stability", "HIGH"): _high_stability,
    ("stability", "OK"): _low_stability,
}
