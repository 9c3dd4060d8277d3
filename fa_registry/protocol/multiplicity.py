"""Decision on several methods of one setting together, by Holm's procedure.

With every comparison, it becomes more likely that some method clears the limit by chance: of 18 methods exactly at the limit, at
least one clears it in 37 % of studies if each is decided alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fa_registry.statistics.samples import quantile, upper_tail

if TYPE_CHECKING:
    from fa_registry.protocol.paired_runs import Margins, SeedGroup

ROUNDED = 1e-9  # margins and interval ends are rounded to this


@dataclass
class Family:
    """Groups of seeds of one setting, one group per method, whose margins are decided together."""

    groups: list[SeedGroup] = field(default_factory=list)
    _members: dict[str, list[SeedGroup]] = field(default_factory=dict)
    _decided: dict[tuple[str, float], frozenset[int]] = field(default_factory=dict)

    def members(self, headline: str) -> list[SeedGroup]:
        """Return the groups that are compared by this main metric.

        Their margin has an interval, and their controls are proven.
        """
        if headline not in self._members:
            self._members[headline] = [group for group in self.groups if _is_compared(group.margins, headline)]
        return self._members[headline]

    def decides(self, group: SeedGroup, threshold: float) -> bool:
        """Return whether Holm's procedure decides a group's margin against a limit.

        A group that is not compared with others is always decided.
        """
        name = group.margins.headline.name
        if not _is_compared(group.margins, name):
            return True
        if (name, threshold) not in self._decided:
            self._decided[name, threshold] = frozenset(map(id, _decided(self.members(name), threshold)))
        return id(group) in self._decided[name, threshold]


def _decided(groups: Sequence[SeedGroup], threshold: float) -> Iterator[SeedGroup]:
    """Yield the groups whose margin Holm's procedure decides (Holm 1979, Scand. J. Statist. 6, 65).

    The group with the smallest p-value needs an interval at the level of all groups, the next at the level of the others, and so on
    until a limit is within its interval.
    """
    ordered = sorted(groups, key=lambda group: p_value(group.margins, threshold))
    for count, group in zip(range(len(ordered), 0, -1), ordered, strict=True):
        margins = group.margins
        low, high = simultaneous_ends(margins.interval, margins.df or len(margins.seeds) - 1, margins.confidence, count)
        if low < threshold <= high:
            return
        yield group


def simultaneous_ends(interval: tuple[float, float], df: float, confidence: float, count: int) -> tuple[float, float]:
    """Return the ends of an interval for `count` comparisons: its error probability is divided by `count`."""
    if count == 1:
        return interval
    factor = quantile(df, 1 - (1 - confidence) / count) / quantile(df, confidence)
    centre, half_width = (interval[0] + interval[1]) / 2, (interval[1] - interval[0]) / 2
    return round(centre - factor * half_width, 9), round(centre + factor * half_width, 9)


def _is_compared(margins: Margins, headline: str) -> bool:
    return margins.interval is not None and not margins.stated and margins.headline.name == headline


def p_value(margins: Margins, threshold: float) -> float:
    """Return the two-sided p-value of the margin against a limit, from its interval."""
    low, high = margins.interval
    half_width, distance = (high - low) / 2, abs(margins.mean - threshold)
    if half_width <= ROUNDED:
        return 0.0 if distance > ROUNDED else 1.0
    df = margins.df or len(margins.seeds) - 1
    return min(1.0, 2 * upper_tail(distance * quantile(df, margins.confidence) / half_width, df))
