"""Decision on several methods of one setting together, by Holm's procedure.

With every comparison, it becomes more likely that some method clears the limit by chance: of 18 methods exactly at the limit, at
least one clears it in 37 % of studies if each is decided alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fa_registry.statistics import holm
from fa_registry.statistics.samples import quantile, upper_tail

if TYPE_CHECKING:
    from fa_registry.protocol.paired_runs import Margins, SeedGroup

ROUNDED = 1e-9  # margins and interval ends are rounded to this


@dataclass
class Family:
    """Groups of seeds of one setting, one group per method, whose margins are decided together."""

    groups: list[SeedGroup] = field(default_factory=list)
    _members: dict[str, list[SeedGroup]] = field(default_factory=dict)
    _adjusted: dict[tuple[str, float], dict[int, float]] = field(default_factory=dict)

    def members(self, headline: str) -> list[SeedGroup]:
        """Return the groups that are compared by this main metric.

        Their margin has an interval, and their controls are proven.
        """
        if headline not in self._members:
            self._members[headline] = [group for group in self.groups if _is_compared(group.margins, headline)]
        return self._members[headline]

    def decides(self, group: SeedGroup, threshold: float) -> bool:
        """Return whether Holm's procedure decides a group's margin against a limit.

        A group without other groups is always decided.
        """
        name = group.margins.headline.name
        if not _is_compared(group.margins, name) or len(self.members(name)) < 2:
            return True
        return self._p_value(group, threshold) <= 1 - group.confidence + ROUNDED

    def _p_value(self, group: SeedGroup, threshold: float) -> float:
        """Return the two-sided p-value of a member's margin against a limit, adjusted for all members."""
        key = group.margins.headline.name, threshold
        if key not in self._adjusted:
            members = self.members(key[0])
            values = holm(p_value(one.margins, threshold) for one in members)
            self._adjusted[key] = {id(one): value for one, value in zip(members, values, strict=True)}
        return self._adjusted[key][id(group)]


def families(groups: Sequence[SeedGroup]) -> None:
    """Give all groups of a setting that are no controls the same Family."""
    found: dict[str, Family] = {}
    for group in groups:
        first = group.cases[0]
        if not first.control:
            family = found.setdefault(first.record.spec.setting.identity, Family())
            family.groups.append(group)
            object.__setattr__(group, "family", family)  # a family contains its groups, so neither can be made first


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
