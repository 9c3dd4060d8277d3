"""Claims from states that no other claim speaks of: every finding ends in words, whatever an edition calls what it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.claims_words import claim, extent, has_gamma, with_state
from fa_registry.reporting.filters import compact
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.quantities import SUBJECTS, subject_of
from fa_registry.reporting.readings import last_site, scalar, site_row

SILENT = ("skipped", "waived", "not_applicable", "error")  # waivers and incompleteness are told by claims of their own
EXPLODED = "EXPLODED"
OF_GAMMA = ("reference", "stability")  # subjects whose claims say what Γ compares with
COLLAPSE = "; aggregation collapse: "  # how rule D4 appends its guard's words
ELSEWHERE = {  # subject → states that the other modules of claims speak of
    "scale": (EXPLODED,),
    "reference": ("AT FLOOR", "CONVERGED", "NOISY"),
    "depth": ("UNDERCUT", "UNDECIDED", "PROVISIONAL", "STATED"),
    "gamma_null_p": ("SPECIFIC", "NOT SPECIFIC"),
}


def state_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """One claim for every rule and state that is told nowhere else, about the runs that have it."""
    alike: dict[tuple[str, str, str, str, bool], list[tuple[RunAudit, Finding]]] = {}
    for run in runs:
        for one in run.findings:
            if one.outcome not in SILENT and not _told_elsewhere(one):
                subject = subject_of(one.quantity)
                apart = subject in OF_GAMMA and _compares(run)  # runs without such a Γ are told of in other words
                alike.setdefault((subject, one.state, one.outcome, one.rule, apart), []).append((run, one))
    for (subject, state, *_), told in alike.items():
        say = WORDS.get((subject, state), _in_general)
        touched = [run for run, _ in told]
        yield claim(*say(touched, told[0][1]), runs, touched)
    yield from _collapse_claims(runs)


def _told_elsewhere(finding: Finding) -> bool:
    if finding.state == "CLEARS":
        return finding.interval is not None  # over seeds; one run's margin is told here
    return finding.state in ELSEWHERE.get(subject_of(finding.quantity), ())


def _compares(run: RunAudit) -> bool:
    """Whether there is a Γ, and a stream on the scale of training for its reference to be of."""
    return has_gamma(run) and not with_state([run], EXPLODED, quantities=SUBJECTS["scale"])


def _keeps_scale(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    growth = extent(runs, lambda run: scalar(run.record, "growth_max"), "num")
    seen = f"; the largest growth in one block is {growth}" if growth else ""
    return "note", f"The stream keeps its scale, so that norms and gradients of the blocks may be compared{seen}"


def _has_reference(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    gradient = extent(runs, lambda run: last_site(run.record, "g_norm"), "sci")
    seen = f", ‖g_L‖ {gradient} for one sample" if gradient else ""
    scale = ", so that Γ compares with something of scale" if _compares(runs[0]) else ""
    return "note", f"The reference gradient stands clear of its floor{scale}{seen}"


def _clears(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    return "note", (
        f"The trained blocks beat frozen random ones by what {finding.rule} asks for, each seed judged by itself: this rule "
        "knows no interval, and no claim over seeds follows from it"
    )


def _high_stability(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    value = extent(runs, lambda run: scalar(run.record, "stability_mid"), "cos")
    seen = f"disjoint batches point the same way at the middle site{f', mean cosine {value}' if value else ''}"
    if not any(has_gamma(run) for run in runs):
        return "not", f"The gradients may not be read as following what each batch holds: those of {seen}"
    return "not", (
        f"Γ may not be read as following what each batch holds: gradients of {seen}, and credit may align with that shared "
        "direction alone"
    )


def _low_stability(runs: Sequence[RunAudit], finding: Finding) -> tuple[str, str]:
    value = extent(runs, lambda run: scalar(run.record, "stability_mid"), "cos")
    seen = f" (mean cosine {value})" if value else ""
    gamma = " that Γ compares with" if any(has_gamma(run) for run in runs) else ""
    elsewhere = _sites_above(runs, finding.threshold)
    return "note", (
        f"At the middle site, where this is judged, no direction shared by all batches{seen} stands behind the gradients{gamma}"
        + (f"; the mean cosine is above the limit of {compact(finding.threshold)} at {elsewhere}" if elsewhere else "")
    )


def _sites_above(runs: Sequence[RunAudit], limit: float | None) -> str:
    """`site 0 (seed 42); sites 0, 1 (seeds 123, 456)`: where else the batches share a direction."""
    found: dict[tuple[int, ...], list[int]] = {}
    for run in runs if limit is not None else ():
        row = site_row(run.record, "stability")
        if above := tuple(site for site, one in enumerate(row) if one.value is not None and one.value > limit):
            found.setdefault(above, []).append(run.record.spec.seed)
    return "; ".join(f"{_listed('site', sites)} ({_listed('seed', seeds)})" for sites, seeds in found.items())


def _listed(word: str, numbers: Sequence[int]) -> str:
    return f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


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
