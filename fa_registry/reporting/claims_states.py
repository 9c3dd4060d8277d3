"""Claims from states that no other claim speaks of: every finding ends in words, whatever an edition calls what it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fa_registry.protocol.credit import carried_words, guard_of
from fa_registry.quantities import SUBJECTS, subject_of
from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.claims_words import (
    AT_FLOOR,
    EXPLODED,
    GRADIENTS,
    HIGH,
    NOISY,
    NOT_SPECIFIC,
    UNDERCUT,
    claim,
    extent,
    has_gamma,
    listed,
    seen,
    with_state,
)
from fa_registry.reporting.filters import compact, num
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.readings import last_site, scalar, site_row

SILENT = ("skipped", "waived", "not_applicable", "error")  # waivers and incompleteness are told by claims of their own
CLEAR = 10.0  # times its floor: nearer to it the next seed may lie below
OF_GAMMA = ("reference", "stability")  # subjects whose claims say what Γ compares with
ELSEWHERE = {  # subject → states that the other modules of claims speak of
    "scale": (EXPLODED,),
    "reference": (AT_FLOOR, "CONVERGED", NOISY),
    "depth": (UNDERCUT, "UNDECIDED", "PROVISIONAL", "STATED"),
    "gamma_null_p": ("SPECIFIC", NOT_SPECIFIC),
}


def state_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """One claim for every rule and state that is told nowhere else, about the runs that have it."""
    alike: dict[tuple, list[tuple[RunAudit, Finding]]] = {}
    for run in runs:
        for one in run.findings:
            if one.outcome not in SILENT and not _told_elsewhere(one):
                subject = subject_of(one.quantity)
                # runs without a Γ, or with a reference near its floor, are told of in other words
                apart = (subject in OF_GAMMA and _compares(run), subject == "reference" and _is_clear(run, one))
                alike.setdefault((subject, seen(one), one.outcome, one.rule, apart), []).append((run, one))
    for (subject, state, *_), told in alike.items():
        say = WORDS.get((subject, state), _in_general)
        touched, findings = [run for run, _ in told], [one for _, one in told]
        yield claim(*say(touched, findings), runs, touched)
    yield from _collapse_claims(runs)


def _told_elsewhere(finding: Finding) -> bool:
    if seen(finding) == "CLEARS":
        return finding.interval is not None  # over seeds; one run's margin is told here
    return seen(finding) in ELSEWHERE.get(subject_of(finding.quantity), ())


def _compares(run: RunAudit) -> bool:
    """Whether there is a Γ, and a stream on the scale of training for its reference to be of."""
    return has_gamma(run) and not with_state([run], EXPLODED, quantities=SUBJECTS["scale"])


def _keeps_scale(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    growth = extent(runs, lambda run: scalar(run.record, "growth_max"), "num")
    limit = findings[0].threshold
    within = f" within the limit of {compact(limit)}" if limit is not None else ""
    seen = f"; the largest growth in one block is {growth}" if growth else ""
    return "keeps scale", (
        f"The stream keeps its scale{within}, so that norms and gradients of the blocks may be compared{seen}"
    )


def _has_reference(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    gradient = extent(runs, lambda run: last_site(run.record, "g_norm"), "sci")
    gain = extent(runs, lambda run: last_site(run.record, "gain"), "sci")
    times = [found for one in findings if (found := _times_floor(one)) is not None]
    size = f", ‖g_L‖ {gradient} for one sample" if gradient else ""
    factor = f", {_range(times)} times its floor" if times else ""
    share = f"; its gain is {gain}" if gain else "; its gain is not known"
    if _is_clear(runs[0], findings[0]):
        scale = ", so that Γ compares with something of scale" if _compares(runs[0]) else ""
        return "reference clear", f"The reference gradient stands clear of its floor{scale}{size}{factor}{share}"
    read = "; a Γ here compares with a gradient that is nearly gone" if _compares(runs[0]) else ""
    return "reference near its floor", (
        f"The reference gradient is above its floor, and no more than that{size}{factor}{share}"
        f"{_missing_gain(runs[0], findings[0])}{read}"
    )


def _missing_gain(run: RunAudit, finding: Finding) -> str:
    """That the gain is below what the edition calls healthy, where it is."""
    if _has_gain(run, finding):
        return ""
    return f", where {compact(_gain_limit(finding))} of the output error at the last site are healthy"


def _is_clear(run: RunAudit, finding: Finding) -> bool:
    """Whether the gradient is far above its floor, and its gain above the limit that the edition has for it, if it has one."""
    times = _times_floor(finding)
    return times is not None and times >= CLEAR and _has_gain(run, finding)


def _has_gain(run: RunAudit, finding: Finding) -> bool:
    limit = _gain_limit(finding)
    gain = last_site(run.record, "gain").value
    return limit is None or (gain is not None and gain >= limit)


def _gain_limit(finding: Finding) -> float | None:
    return next((one.threshold for one in finding.further if one.quantity == "gain"), None)


def _times_floor(finding: Finding) -> float | None:
    """How many times its floor the gradient is; None where the rule is not about its norm or the figures are missing."""
    known = finding.quantity in GRADIENTS and finding.observed.value is not None and finding.threshold
    return finding.observed.value / finding.threshold if known else None


def _range(values: Sequence[float]) -> str:
    low, high = num(min(values), 2), num(max(values), 2)
    return low if low == high else f"between {low} and {high}"


def _clears(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    finding = findings[0]
    asked = finding.threshold is not None and finding.threshold > 0
    what = "beat frozen random ones by what" if asked else "are not worse than frozen random ones by more than"
    return "passes alone", (
        f"The trained blocks {what} {finding.rule} {'asks for' if asked else 'allows'}, each seed judged by itself: this rule "
        "knows no interval, and no claim over seeds follows from it"
    )


def _high_stability(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    value = extent(runs, lambda run: scalar(run.record, "stability_mid"), "cos")
    seen = f"disjoint batches point the same way at the middle site{f', mean cosine {value}' if value else ''}"
    if not any(has_gamma(run) for run in runs):
        return "stability high", f"The gradients may not be read as following what each batch holds: those of {seen}"
    return "stability high", (
        f"Γ may not be read as following what each batch holds: gradients of {seen}, and credit may align with that shared "
        "direction alone"
    )


def _low_stability(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    limit = findings[0].threshold
    value = extent(runs, lambda run: scalar(run.record, "stability_mid"), "cos")
    seen = f" (mean cosine {value})" if value else ""
    gamma = " that Γ compares with" if any(has_gamma(run) for run in runs) else ""
    elsewhere = _sites_above(runs, limit)
    return "stability low", (
        f"At the middle site, where this is judged, no direction shared by all batches{seen} stands behind the gradients{gamma}"
        + (f"; the mean cosine is above the limit of {compact(limit)} at {elsewhere}" if elsewhere else "")
    )


def _sites_above(runs: Sequence[RunAudit], limit: float | None) -> str:
    """`site 0 (seed 42); sites 0, 1 (seeds 123, 456)`: where else the batches share a direction."""
    found: dict[tuple[int, ...], list[int]] = {}
    for run in runs if limit is not None else ():
        row = site_row(run.record, "stability")
        if above := tuple(site for site, one in enumerate(row) if one.value is not None and one.value > limit):
            found.setdefault(above, []).append(run.record.spec.seed)
    return "; ".join(f"{listed('site', sites)} ({listed('seed', seeds)})" for sites, seeds in found.items())


def _in_general(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    """A state in the words of its own edition."""
    finding = findings[0]
    word = f" ({finding.state})" if finding.state else ""
    if finding.outcome == "pass":
        return "other passes", f"What {finding.rule} {finding.title} asks for is there{word}: {finding.sentence}"
    if finding.outcome == "warn":
        return "other warns", f"Nothing may be built on {finding.quantity}{word}: {finding.sentence}"
    return "other fails", f"What rests on {finding.quantity} may not be claimed{word}: {finding.sentence}"


def _collapse_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """One end of the network carries the mean Γ: told beside whether Γ is specific."""
    said: dict[str, list[RunAudit]] = {}
    for run in runs:
        for one in run.findings:
            guard = None if one.outcome in SILENT else guard_of(one, run.record.measurements)
            if guard and guard.mean is not None:
                said.setdefault(carried_words(guard), []).append(run)
    for words, touched in said.items():
        yield claim("carried by one end", f"The mean Γ may not stand for the whole network: {words}", runs, touched)


WORDS: dict[tuple[str, str], Callable[[Sequence[RunAudit], Sequence[Finding]], tuple[str, str]]] = {
    ("scale", "OK"): _keeps_scale,
    ("reference", "OK"): _has_reference,
    ("depth", "CLEARS"): _clears,
    ("stability", HIGH): _high_stability,
    ("stability", "OK"): _low_stability,
}
