"""Claims about Γ: whether there is one, what it may be read as, and at which sites it is the training feedback's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fa_registry.records import RunAudit
from fa_registry.reporting.claims_words import (
    HEADLINE_GAMMA,
    NOT_SPECIFIC,
    claim,
    finding_with,
    has_gamma,
    is_gradient,
    listed,
    passes,
    with_state,
)
from fa_registry.reporting.fresh_draws import reaching
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.readings import scalar, site_row

SPECIFIC = "SPECIFIC"
ALIGNED = "Γ may be read as alignment with the gradient, site by site"
NOT_SHOWN = "that it comes from the training feedback is not shown"
THE_GRADIENT = "the credit is the gradient itself at every site, and Γ = 1 there is no alignment"


@dataclass(frozen=True)
class Sites:
    """The sites of a run that count (both Γ and its rank have a value), parted by the rank: above their null, or reached."""

    above: tuple[int, ...]
    reached: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.above) + len(self.reached)


def gamma_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Those about Γ of the runs of one method; a `may` about its feedback never stands beside a `not`."""
    for reason, missing in _grouped((run for run in runs if not has_gamma(run)), _absence).items():
        yield claim("no gamma", f"No alignment figure exists: {reason}", runs, missing)
    yield from _alignment(runs, [run for run in runs if passes(run) and has_gamma(run)])
    own = [run for run in with_state(runs, SPECIFIC) if run.record.status == "complete" and has_gamma(run)]
    for sites, touched in _grouped(own, _sites).items():
        text = "Γ is specific to the training feedback: at every site that counts it lies above that of fresh draws"
        yield claim("specific", f"{text}{_multiplicity(sites, touched[0])}", runs, touched)
    for sites, touched in _grouped(with_state(runs, NOT_SPECIFIC), _sites).items():
        yield claim("not specific", _not_everywhere(sites, touched), runs, touched)


def _alignment(runs: Sequence[RunAudit], clear: Sequence[RunAudit]) -> Iterator[Claim]:
    """What Γ of runs that pass may be read as; only a null of fresh draws lets it be the feedback's."""
    own, reached = with_state(clear, SPECIFIC), with_state(clear, NOT_SPECIFIC)
    if own:
        yield claim("aligned by feedback", f"{ALIGNED}, for the training feedback only", runs, own)
    for sites, touched in _grouped(reached, _sites).items():
        where = f" at {listed('site', sites.reached)}" if sites.reached else ""
        yield claim(
            "aligned in part",
            f"Γ tells how the credit lies to the gradient, site by site; {NOT_SHOWN}{where}",
            runs,
            touched,
        )
    for reason, open_ in _grouped((run for run in clear if run not in own and run not in reached), _no_null).items():
        text = f"{ALIGNED}; {NOT_SHOWN}{f' ({reason})' if reason else ''}"
        yield claim("aligned, null unknown", text, runs, open_)


def _grouped(runs: Iterable[RunAudit], reason: Callable) -> dict:
    """What `reason` finds of a run → the runs of which it finds it."""
    found: dict = {}
    for run in runs:
        found.setdefault(reason(run), []).append(run)
    return found


def _absence(run: RunAudit) -> str:
    return THE_GRADIENT if is_gradient(run) else scalar(run.record, HEADLINE_GAMMA).reason


def _no_null(run: RunAudit) -> str:
    """Why there is no null to compare with; empty where there is one that no rule of this edition asks for."""
    row = site_row(run.record, "gamma_null_p")
    if any(reading.value is not None for reading in row):
        return ""
    return "; ".join(dict.fromkeys(reading.reason for reading in row)) or "no null of fresh draws was measured"


def _sites(run: RunAudit) -> Sites:
    """By the level of the finding that judged them; none where the run holds no ranks, as a report without figures."""
    finding = finding_with(run, SPECIFIC, NOT_SPECIFIC)
    gammas, ranks = site_row(run.record, "gamma"), site_row(run.record, "gamma_null_p")
    counted = [
        (site, rank.value)
        for site, (gamma, rank) in enumerate(zip(gammas, ranks, strict=False))
        if gamma.value is not None and rank.value is not None
    ]
    if finding is None or finding.threshold is None:
        return Sites((), ())
    return Sites(
        tuple(site for site, rank in counted if rank <= finding.threshold),
        tuple(site for site, rank in counted if rank > finding.threshold),
    )


def _not_everywhere(sites: Sites, runs: Sequence[RunAudit]) -> str:
    """Which sites lie above their null and which do not: a failure at one is no failure at the others, nor a success there."""
    if not sites.reached:
        return f"Γ may not be credited to the training feedback at every site: at one at least, {_reached(runs, sites)}"
    back = f"Γ may not be credited to the training feedback at {listed('site', sites.reached)}: there {_reached(runs, sites)}"
    if not sites.above:
        return f"{back}. It lies above its null at no site{_multiplicity(sites, runs[0])}"
    return f"{back}. At {listed('site', sites.above)} it lies above that of fresh draws{_multiplicity(sites, runs[0])}"


def _multiplicity(sites: Sites, run: RunAudit) -> str:
    """How many sites were judged, each by itself: with several, one above its null may be chance."""
    level = finding_with(run, SPECIFIC, NOT_SPECIFIC).threshold
    if not sites.count or level is None:
        return ""
    if sites.count == 1:
        return f" (one site judged at {100 * level:.3g} %)"
    judged = f" ({sites.count} sites judged each at {100 * level:.3g} %"
    if not sites.above or not sites.reached:
        return f"{judged})"
    chance = min(100, 100 * level * sites.count)
    return f"{judged}: without any alignment one of them at least would lie there in up to {chance:.3g} % of runs)"


def _reached(runs: Sequence[RunAudit], sites: Sites) -> str:
    """`between 1 and 7 of 99 fresh draws reach it`: over the runs and the sites that fresh draws reach."""
    found = [finding_with(run, NOT_SPECIFIC) for run in runs]
    draws = {run.record.measurements.conventions.get("gamma_null_draws") for run in runs}
    ranks = [site_row(run.record, "gamma_null_p")[site].value for run in runs for site in sites.reached]
    ranks = ranks or [one.observed.value for one in found if one.observed.value is not None]
    return reaching(ranks, draws.pop() if len(draws) == 1 else None, found[0].threshold)
