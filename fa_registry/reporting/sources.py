"""What the pages of one report look things up in, made once: looking through all runs for every form would be quadratic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fa_registry.protocol.grouping import Group, groups
from fa_registry.quantities import Known
from fa_registry.records import AuditReport
from fa_registry.reporting.editions import Opinions
from fa_registry.reporting.exclusions import Excluded
from fa_registry.reporting.naming import group_label, slug
from fa_registry.reporting.readings import Frozen
from fa_registry.reporting.rows import Link


@dataclass(frozen=True)
class Sources:
    """A report, its groups in order, the form of each (controls have none), and what the other editions say, who is missing.

    known: the report's quantities.
    """

    report: AuditReport
    groups: tuple[Group, ...]
    links: tuple[Link | None, ...]
    frozen: Frozen
    opinions: Opinions
    excluded: Excluded
    known: Known

    @classmethod
    def of(cls, report: AuditReport) -> Sources:
        ordered = groups(report)
        links = tuple(None if group.control else form_link(group) for group in ordered)
        opinions = Opinions.of(report)
        return cls(report, ordered, links, Frozen.of(report), opinions, Excluded.of(report), opinions.known)

    @property
    def forms(self) -> Iterator[tuple[Group, Link]]:
        """Every group that has a form, with its link."""
        return ((group, link) for group, link in zip(self.groups, self.links, strict=True) if link)


def form_link(group: Group) -> Link:
    name = slug(group)
    return Link(group_label(group), group.setting, group.verdict, f"forms/{name}.html", f"forms/{name}.md")
