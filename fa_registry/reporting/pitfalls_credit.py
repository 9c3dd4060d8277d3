"""Pitfalls of reading Γ: whose feedback it is of, how it was averaged, what carries the mean, whether B was kept."""

from __future__ import annotations

from collections.abc import Sequence

from fa_registry.records import Reading
from fa_registry.reporting.filters import cos, num, pct
from fa_registry.reporting.fresh_draws import reaching
from fa_registry.reporting.identification import is_exact
from fa_registry.reporting.pitfalls_words import (
    AVOIDED,
    NOT_APPLICABLE,
    UNKNOWN,
    VIOLATED,
    Asked,
    Said,
    absence,
    known_sites,
)

LEVEL = 0.05  # of the rank p-value, as rule D4 of edition 2026-11 asks for
HALF = 0.5  # of the mean: what carries more than this dominates, as the guard of that rule has it
EXACT = "the credit equals the gradient at every site by construction"
AGGREGATES = tuple(
    f"gamma_{scope}_{sites}_{samples}"
    for scope in ("deep", "all")
    for sites in ("mean", "median")
    for samples in ("mean", "median")
)


def own_feedback(asked: Asked) -> Said:
    """4: Γ is of the training feedback, which fresh draws do not give."""
    if is_exact(asked.card):
        return NOT_APPLICABLE, EXACT
    ranks = list(known_sites(asked.row("gamma_null_p")))
    if not ranks:
        return UNKNOWN, absence("gamma_null_p", asked.row("gamma_null_p"))
    site, (worst,) = max(ranks, key=lambda pair: pair[1])
    draws = asked.convention("gamma_null_draws")
    seen = f"against {draws or 'its'} fresh draws the largest p-value of {len(ranks)} sites is {num(worst)}, at site {site}"
    if worst <= LEVEL:
        return AVOIDED, f"{seen}: Γ is of this feedback"
    return VIOLATED, f"{seen}: {reaching([worst], draws, LEVEL)}"


def every_aggregation(asked: Asked) -> Said:
    """5: Γ is not one number by one aggregation."""
    if is_exact(asked.card):
        return NOT_APPLICABLE, EXACT
    values = [reading.value for reading in map(asked.scalar, AGGREGATES)]
    known = [value for value in values if value is not None]
    if not known:
        return UNKNOWN, asked.scalar("gamma_deep_mean").reason or "only gamma_deep_mean was recorded"
    if len(known) < len(values):
        return VIOLATED, f"{len(known)} of {len(values)} aggregations are recorded: what the choice does cannot be seen"
    low, high = min(known), max(known)
    return (
        AVOIDED,
        f"all {len(values)} aggregations are shown: {cos(low)} to {cos(high)}, a spread of {cos(high - low)}",
    )


def no_single_site(asked: Asked) -> Said:
    """6: no one site carries the headline Γ, the mean over sites 1..L; with site 0 it is another mean, and told beside it."""
    if is_exact(asked.card):
        return NOT_APPLICABLE, EXACT
    everywhere = [(site, value) for site, value in _gammas(asked) if not _exact_at(asked, site)]
    counted = [(site, value) for site, value in everywhere if site > 0]
    if len(counted) < 2:
        return UNKNOWN, f"Γ has a value at {len(counted)} of sites 1..L that count: none can be left out"
    site, share = _carried(counted)
    mean = sum(value for _, value in counted) / len(counted)
    seen = f"leaving out site {site} changes gamma_deep_mean, {cos(mean)} over {len(counted)} sites, by {pct(share, 0)} of itself"
    if share > HALF:
        return VIOLATED, f"{seen}: this site carries it"
    first, of_all = _carried(everywhere)
    if of_all <= HALF:
        return AVOIDED, f"{seen}, no other by more"
    return AVOIDED, (
        f"{seen}, no other by more; with site 0, as in gamma_all_mean_mean, site {first} carries the mean "
        f"({pct(of_all, 0)} of itself)"
    )


def _carried(counted: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """(the site without which the mean changes most, by how much of itself it does)."""
    mean = sum(value for _, value in counted) / len(counted)
    changes = [(abs((mean * len(counted) - value) / (len(counted) - 1) - mean), site) for site, value in counted]
    change, site = max(changes)
    return site, change / abs(mean) if mean else float(change > 0)


def saved_feedback(asked: Asked) -> Said:
    """7: where feedback was not saved, Γ is N/A and not 1.0."""
    if asked.run.record.feedback.get("sha256"):
        return AVOIDED, "the feedback state was saved with its SHA-256, and Γ is computed with it"
    if not asked.card:
        return (
            UNKNOWN,
            f"the report carries no card of {asked.spec.method}: whether it has feedback to save is not known",
        )
    if str(asked.card.get("feedback", "")).startswith("none"):
        return NOT_APPLICABLE, "by its card the method has no feedback state"
    gammas = _gammas(asked)
    if gammas:
        return VIOLATED, f"no feedback state was saved, yet Γ has a value at {len(gammas)} sites"
    return AVOIDED, f"no feedback state was saved, and Γ is N/A: {absence('gamma', asked.row('gamma'))}"


def _gammas(asked: Asked) -> list[tuple[int, float]]:
    row: tuple[Reading, ...] = asked.row("gamma")
    return [(site, value) for site, (value,) in known_sites(row)]


def _exact_at(asked: Asked, site: int) -> bool:
    return asked.card.get("exact_sites") == "last" and site == len(asked.row("gamma")) - 1
