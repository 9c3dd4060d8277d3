"""How far out one number lies in a null distribution that was drawn, not assumed."""

from __future__ import annotations

from collections.abc import Iterable

from fa_registry.statistics.samples import finite


def rank_p_value(observed: float, null: Iterable[float]) -> float:
    """(1 + #{null ≥ observed}) / (n + 1), one-sided for large `observed`, in 1/(n+1)..1.

    Never 0: the observed draw is one of the n + 1 (Phipson & Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9(1), 39). With 20
    draws the least p is 1/21 = 0.048.

    Raises ValueError for an empty null, or a number that is not finite.
    """
    (value,), draws = finite([observed], "the observed figure"), finite(null, "a null distribution")
    return (1 + sum(draw >= value for draw in draws)) / (len(draws) + 1)
