"""Claims about Γ: whether there is one, what it may be read as, and whether it is the training feedback's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fa_registry.records import RunAudit
from fa_registry.reporting.claims_words import claim, finding_with, has_gamma, passes, with_state
from fa_registry.reporting.fresh_draws import reaching
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.readings import scalar, site_row

SPECIFIC, NOT_SPECIFIC = "SPECIFIC", "NOT SPECIFIC"
ALIGNED = "Γ may be read as alignment with the gradient, site by site"
NOT_SHOWN = "that it comes from the training feedback is not shown"


def gamma_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Those about Γ of the runs of one method; a `may` about its feedback never stands beside a `not`."""
    for reason, missing in _grouped((run for run in runs if not has_gamma(run)), _absence).items():
        yield claim("open", f"No alignment figure exists: {reason}", runs, missing)
    yield from _alignment(runs, [run for run in runs if passes(run) and has_gamma(run)])
    own = [run for run in with_state(runs, SPECIFIC) if run.record.status == "complete"]
    if own:
        text = "Γ is specific to the training feedback: at every site that counts it lies above that of fresh draws"
        yield claim("may", text, runs, own)
    reached = with_state(runs, NOT_SPECIFIC)
    if reached:
        text = f"Γ may not be credited to the training feedback at every site: at one at least, {_reached(reached)}"
        yield claim("not", text, runs, reached)


def _alignment(runs: Sequence[RunAudit], clear: Sequence[RunAudit]) -> Iterator[Claim]:
    """What Γ of runs that pass may be read as; only a null of fresh draws lets it be the feedback's."""
    own, reached = with_state(clear, SPECIFIC), with_state(clear, NOT_SPECIFIC)
    if own:
        yield claim("may", f"{ALIGNED}, for the training feedback only", runs, own)
    if reached:
        yield claim("note", f"Γ tells how the credit lies to the gradient, site by site; {NOT_SHOWN}", runs, reached)
    for reason, open_ in _grouped((run for run in clear if run not in own and run not in reached), _no_null).items():
        yield claim("may", f"{ALIGNED}; {NOT_SHOWN}{f' ({reason})' if reason else ''}", runs, open_)


def _grouped(runs: Iterable[RunAudit], reason: Callable[[RunAudit], str]) -> dict[str, list[RunAudit]]:
    found: dict[str, list[RunAudit]] = {}
    for run in runs:
        found.setdefault(reason(run), []).append(run)
    return found


def _absence(run: RunAudit) -> str:
    return scalar(run.record, "gamma_deep_mean").reason


def _no_null(run: RunAudit) -> str:
    """Why there is no null to compare with; empty where there is one that no rule of this edition asks for."""
    row = site_row(run.record, "gamma_null_p")
    if any(reading.value is not None for reading in row):
        return ""
    return "; ".join(dict.fromkeys(reading.reason for reading in row)) or "no null of fresh draws was measured"


def _reached(runs: Sequence[RunAudit]) -> str:
    found = [finding_with(run, NOT_SPECIFIC) for run in runs]
    draws = {run.record.measurements.conventions.get("gamma_null_draws") for run in runs}
    ranks = [one.observed.value for one in found if one.observed.value is not None]
    return reaching(ranks, draws.pop() if len(draws) == 1 else None, found[0].threshold)
