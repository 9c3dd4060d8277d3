"""Claims about scale and reference: what an exploded stream, a small gradient, a fitted or a noisy one allow to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fa_registry.quantities import SUBJECTS
from fa_registry.records import Reading, RunAudit
from fa_registry.reporting.claims_words import AT_FLOOR, EXPLODED, NOISY, claim, extent, has_gamma, with_state
from fa_registry.reporting.filters import at_least
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.readings import last_site, scalar, site_row

LEAST_FIDELITY = 0.99  # protocol.md §1: below it the reference is numerical noise
GROWN = 50.0  # ‖h_L‖/‖h_0‖: the first release of edition 2026-04 called a stream exploded from here on
CONVERGED = "CONVERGED"


def reference_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Those about the scale of the stream and about the gradient that Γ compares with."""
    scale = with_state(runs, EXPLODED, quantities=SUBJECTS["scale"])
    floor = with_state(runs, AT_FLOOR, quantities=SUBJECTS["reference"])
    both = [run for run in scale if run in floor]
    yield from _floor_claims(runs, both, "the stream has exploded and the reference gradient is at its floor")
    yield from _floor_claims(runs, [run for run in floor if run not in both], "the reference gradient is at its floor")
    yield from _explanations(runs, [run for run in floor if _has_grown(run) and _is_exact([run])])
    alone = [run for run in scale if run not in both]
    if alone:
        text = "The stream has exploded: norms and gradients of these blocks are not on the scale of training"
        yield claim("exploded", text, runs, alone)
    yield from _converged(runs)
    yield from _noisy(runs)


def _floor_claims(runs: Sequence[RunAudit], touched: Sequence[RunAudit], why: str) -> Iterator[Claim]:
    tiny = f"; it is tiny but exact, fidelity at least {at_least(_fidelity(touched))}" if _is_exact(touched) else ""
    read = [run for run in touched if has_gamma(run)]
    if read:
        gamma = extent(read, lambda run: scalar(run.record, "gamma_deep_mean"), "cos")
        yield claim("at floor", f"Γ = {gamma} may not be read as credit alignment: {why}{tiny}", runs, read)
    bare = [run for run in touched if run not in read]
    if bare:
        yield claim("at floor", f"No credit may be judged by this reference: {why}{tiny}", runs, bare)


def _explanations(runs: Sequence[RunAudit], touched: Sequence[RunAudit]) -> Iterator[Claim]:
    """The case that the published reading calls numerical noise, told to someone who has never heard of it."""
    if not touched:
        return
    first, last = (extent(touched, lambda run, end=end: _length(run, end), "num") for end in (0, -1))
    growth = extent(touched, lambda run: scalar(run.record, "growth_max"), "num")
    gradient = extent(touched, lambda run: last_site(run.record, "g_norm"), "sci")
    by = f"; the largest growth in one block is {growth}" if growth else ""
    small = f"small, {gradient} for one sample," if gradient else "small"
    here = (
        " The Γ here is computed in float64 without that constant: a true direction, but of a reference without scale."
        if any(has_gamma(run) for run in touched)
        else ""
    )
    yield claim(
        "explained",
        "Every block adds its output to a running vector, the stream. What exploded is the length of that "
        f"vector: it is {first} after the embedding and {last} after the last block{by}. What follows divides the stream by "
        "its own length again, and the gradient that comes back is divided by the same factor. So the reference is "
        f"{small} because the scale of the stream divides it, not because nothing is left to learn. Nor is it rounding noise: "
        "single precision still computes it exactly, in the direction that double precision finds (fidelity, their cosine, at "
        f"least {at_least(_fidelity(touched))}). What breaks a "
        "published Γ at this size is the usual library cosine, which puts its safety constant of 1e-8 in the place of any norm "
        "below it and so shrinks the result; and the lost scale, since such a gradient no longer tells how far to go."
        f"{here} This refines the published reading, which takes such a reference for numerical noise",
        runs,
        touched,
    )


def _converged(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    converged = [run for run in with_state(runs, CONVERGED) if run.record.status == "complete"]
    for touched, read in (
        ([run for run in converged if has_gamma(run)], "; its size is no reason against reading Γ"),
        ([run for run in converged if not has_gamma(run)], ""),
    ):
        if touched:
            gain = extent(touched, lambda run: last_site(run.record, "gain"), "num")
            share = f" ({gain} of the output error arrives at the last site)" if gain else ""
            text = "The reference gradient is small because the network has fitted its task, not because it collapsed: its gain "
            yield claim("converged", f"{text}is healthy{share}{read}", runs, touched)


def _noisy(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    touched = with_state(runs, NOISY)
    if touched:
        fidelity = extent(touched, lambda run: last_site(run.record, "fidelity"), "exact")
        found = f" (cosine {fidelity})" if fidelity else ""
        yield claim(
            "noisy",
            "The reference gradient is numerical noise: single and double precision do not agree on its direction"
            f"{found}, and a cosine with noise is no alignment",
            runs,
            touched,
        )


def _is_exact(runs: Sequence[RunAudit]) -> bool:
    """Tiny is not noisy: with fidelity near 1 the float64 cosine is a true direction."""
    known = [scalar(run.record, "fidelity_min").value for run in runs]
    return bool(known) and None not in known and min(known) >= LEAST_FIDELITY


def _fidelity(runs: Sequence[RunAudit]) -> float:
    return min(scalar(run.record, "fidelity_min").value for run in runs)


def _has_grown(run: RunAudit) -> bool:
    """Whether what follows the blocks has a long stream to divide by; without a LayerNorm there it divides by nothing."""
    if run.record.spec.architecture_options.get("terminal_ln") is False:
        return False
    first, last = _length(run, 0).value, _length(run, -1).value
    return first is not None and last is not None and last > GROWN * first


def _length(run: RunAudit, end: int) -> Reading:
    """Of the stream at its first or last site."""
    row = site_row(run.record, "h_norm")
    return row[end] if row else Reading(None, "h_norm was not measured")
