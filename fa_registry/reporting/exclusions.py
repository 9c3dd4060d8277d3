"""Which of the runs that were not judged belong to a form: those of its method in its setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fa_registry.protocol.grouping import Group, seeds_key
from fa_registry.records import AuditReport, Exclusion
from fa_registry.reporting.parts import Claim


@dataclass(frozen=True)
class Excluded:
    """A report's exclusions: by what the seeds of a group share, and by (method label, setting) where no more is known."""

    by_key: Mapping[str, tuple[Exclusion, ...]]
    by_name: Mapping[tuple[str, str], tuple[Exclusion, ...]]

    @classmethod
    def of(cls, report: AuditReport) -> Excluded:
        by_key: dict[str, tuple[Exclusion, ...]] = {}
        by_name: dict[tuple[str, str], tuple[Exclusion, ...]] = {}
        for one in report.excluded:
            if one.spec:
                key = seeds_key(one.spec)
                by_key[key] = (*by_key.get(key, ()), one)
            elif one.method:
                name = (one.method, one.setting)
                by_name[name] = (*by_name.get(name, ()), one)
        return cls(by_key, by_name)

    def of_group(self, group: Group) -> tuple[Exclusion, ...]:
        """What was selected of this method in this setting and not judged.

        A run whose specification cannot be read stands in the forms of all variants of its method: none may hide it.
        """
        known = self.by_key.get(seeds_key(group.runs[0].record.spec), ())
        return (*known, *self.by_name.get((group.method, group.setting), ()))


def exclusion_claim(excluded: Sequence[Exclusion]) -> Claim:
    """What follows from runs that were selected and not judged: nothing is known of them."""
    seeds = [f"seed {one.spec.seed}" for one in excluded if one.spec]
    unknown = len(excluded) - len(seeds)
    named = ", ".join([*seeds, *([f"{unknown} whose seed is not known"] if unknown else [])])
    one = len(excluded) == 1
    count, them = ("One selected run was", "it") if one else (f"{len(excluded)} selected runs were", "them")
    text = f"{count} not judged ({named}): nothing may be said of {them}"
    ids = tuple(one.run_id for one in excluded if one.run_id)
    return Claim("open", f"{text}, and every other claim is about the judged seeds alone.", ids)
