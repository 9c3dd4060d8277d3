"""How many fresh draws of the feedback reach a Γ: its rank p-value, (1 + draws that reach it)/(draws + 1), read backwards."""

from __future__ import annotations

from collections.abc import Sequence

from fa_registry.reporting.filters import compact


def reaching(ranks: Sequence[float], draws: object, level: float | None) -> str:
    """`1 of 20 fresh draws reach it; not told apart at 0.05`, for one p-value or for the range of several.

    draws: of the null, as the run wrote it down; level: of the p-value, where the rule has one.
    """
    apart = "not told apart" + (f" at {compact(level)}" if level is not None else "")
    if not isinstance(draws, int) or not ranks:
        return f"fresh draws reach it; {apart}"
    low, high = (round(rank * (draws + 1)) - 1 for rank in (min(ranks), max(ranks)))
    count = f"{low}" if low == high else f"between {low} and {high}"
    return f"{count} of {draws} fresh draws reach it; {apart}"
