"""What may be claimed and what must be walked back, in words, derived from findings alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.filters import exact
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.readings import scalar

# A finding is known by the quantity it judges: an edition is free to name its rules as it likes.
SCALE, REFERENCE, DEPTH = ("growth", "h_norm"), ("g_norm", "g_norm_mean_ce"), ("accuracy",)
LEAST_FIDELITY = 0.99  # protocol.md §1: below it the reference is numerical noise


def claims(runs: Sequence[RunAudit]) -> tuple[Claim, ...]:
    """The claims that the runs of one method in one setting allow; none for a control."""
    judged = [run for run in runs if run.record.spec.control == "none"]
    return tuple(_claims(judged)) if judged else ()


def _claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    yield from _state_claims(runs)
    yield from _gamma_claims(runs)
    yield from _depth_claims(runs)
    passed = [run for run in runs if run.verdict.outcome == "pass"]
    if passed:
        yield _claim(
            "may",
            "Its accuracy may be reported as that of trained depth: every rule of the edition passes",
            runs,
            passed,
        )
    if len(runs) == 1:
        text = "One seed: no interval exists, and no ranking against another method may be read from this form"
        yield Claim("open", f"{text}.", (runs[0].record.run_id,))


def _state_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    diverged = [run for run in runs if run.record.status == "diverged"]
    failed = [run for run in runs if run.record.status == "failed"]
    incomplete = [run for run in runs if run.verdict.outcome == "incomplete" and run not in failed]
    if diverged:
        yield _claim(
            "not",
            "Training diverged: its figures describe a broken run and support no claim about the method",
            runs,
            diverged,
        )
    if failed:
        yield _claim("open", "The run broke off: nothing may be said about it", runs, failed)
    if incomplete:
        missing = "; ".join(
            dict.fromkeys(
                finding.sentence
                for run in incomplete
                for finding in run.findings
                if finding.outcome in ("not_applicable", "error")
            )
        )
        yield _claim(
            "open", f"The protocol could not be completed ({missing or 'a rule was not judged'})", runs, incomplete
        )


def _gamma_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    both = [run for run in runs if _fires(run, SCALE) and _fires(run, REFERENCE)]
    reference = [run for run in runs if _fires(run, REFERENCE) and run not in both]
    scale = [run for run in runs if _fires(run, SCALE) and run not in both]
    absent = [run for run in runs if scalar(run.record, "gamma_deep_mean").value is None]
    clear = [run for run in runs if run.verdict.outcome == "pass" and run not in absent]
    if both:
        text = (
            "Γ may not be read as credit alignment: the stream has exploded and the reference gradient is at its floor"
        )
        yield _claim("not", text + _exactness(both), runs, both)
    if reference:
        text = "Γ may not be read as credit alignment: the reference gradient is at its floor"
        yield _claim("not", text + _exactness(reference), runs, reference)
    if scale:
        yield _claim(
            "not",
            "The stream has exploded: norms and gradients of these blocks are not on the scale of training",
            runs,
            scale,
        )
    for reason, missing in _by_reason(absent).items():
        yield _claim("open", f"No alignment figure exists: {reason}", runs, missing)
    if clear:
        yield _claim(
            "may",
            "Γ may be read as alignment with the gradient, site by site, for the training feedback only",
            runs,
            clear,
        )


def _exactness(runs: Sequence[RunAudit]) -> str:
    """Tiny is not noisy: with fidelity near 1 the float64 cosine is a true direction, of a reference without scale."""
    fidelities = [scalar(run.record, "fidelity_min").value for run in runs]
    if None in fidelities or min(fidelities) < LEAST_FIDELITY:
        return ""
    return (
        f" (it is tiny but exact, fidelity at least {exact(min(fidelities))}: Γ, computed in float64 without a clamp, "
        "is a true direction, but of a reference whose scale is lost)"
    )


def _depth_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    undercut = [run for run in runs if _fires(run, DEPTH)]
    if undercut:
        text = "The trained blocks are not shown to beat frozen random ones: training them may not be credited"
        yield _claim("not", text, runs, undercut)


def _fires(run: RunAudit, quantities: Sequence[str]) -> bool:
    return any(fires(finding) and finding.quantity in quantities for finding in run.findings)


def fires(finding: Finding) -> bool:
    return finding.outcome == "fail"


def _by_reason(runs: Sequence[RunAudit]) -> dict[str, list[RunAudit]]:
    grouped: dict[str, list[RunAudit]] = {}
    for run in runs:
        grouped.setdefault(scalar(run.record, "gamma_deep_mean").reason, []).append(run)
    return grouped


def _claim(kind: str, text: str, runs: Sequence[RunAudit], touched: Sequence[RunAudit]) -> Claim:
    seeds = ", ".join(str(run.record.spec.seed) for run in touched)
    where = f"in {len(touched)} of {len(runs)} seeds: {seeds}" if len(runs) > 1 else f"seed {seeds}"
    return Claim(kind, f"{text} ({where}).", tuple(run.record.run_id for run in touched))
